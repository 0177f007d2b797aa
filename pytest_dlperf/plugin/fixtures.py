"""The fixtures of a test: measuring a case, and the gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from pytest_dlperf.gate.verdicts import GateResult, run_gate, worst_first
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import (
    BrokenError,
    DlperfError,
    NotStartedError,
    UnfitHostsError,
    UsageError,
)
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import Measurement
from pytest_dlperf.model.metric import SPEEDUP, THROUGHPUT, Metric
from pytest_dlperf.model.results import CaseResult, with_measurements
from pytest_dlperf.plugin.cases import MEASURING, SUITE, case_of, outcome_of
from pytest_dlperf.plugin.records import blamed, judged, judged_by_gate
from pytest_dlperf.report.failure import fact_lines, headline, reason_facts

_EXPLAINED_BY_PROBES: Final = (
    Verdict.REGRESSED,
    Verdict.ENVIRONMENT_SHIFT,
    Verdict.INCONCLUSIVE,
    Verdict.FAILED,
    Verdict.HUNG,
)
"""Verdicts after which a case's companions run."""

RESULT: Final = pytest.StashKey[CaseResult]()
"""What a test of a case knows of it."""
UNFIT_HOSTS: Final = pytest.StashKey[bool]()
"""Of a test, whether hosts are why something could not be measured."""


def result_of(item: pytest.Item) -> CaseResult:
    """Return what a test of a case knows of it."""
    return item.stash.setdefault(RESULT, CaseResult(case=case_and_metric(item)[0]))


def case_and_metric(item: pytest.Item) -> tuple[Case, Metric]:
    """Return what a test of a case is about."""
    about = case_of(item)
    if about is None:
        raise AssertionError(f"{item.nodeid} is no test of a case")
    return about[0], item.config.stash[SUITE].metric(*about)


def measure_for(request: pytest.FixtureRequest) -> Callable[[Case | None], Measurement]:
    """Return a function that measures cases, and notes the measurements of the test's own."""
    _check_suite(request)
    item, measuring = request.node, request.config.stash[MEASURING]
    is_of_case = case_of(item) is not None

    def measure(case: Case | None) -> Measurement:
        if case is None:
            raise ValueError("the case has no reference topology to measure")
        try:
            # A baseline that cannot be read is reported before hours of training, not after.
            measuring.suite.baselines(case)
            measurement = measuring.measure(case)
        except DlperfError as error:
            problem = error
        else:
            if is_of_case:
                item.stash[RESULT] = with_measurements(result_of(item), {case.id: measurement})
            return measurement
        # Outside the block above, or the exception would be shown as the cause once more.
        raise outcome_of(_noted(item, case, problem) if is_of_case else problem)

    return measure


def _noted(item: pytest.Item, case: Case, problem: DlperfError) -> DlperfError:
    """Note why a case could not be measured, and return what its test is to say."""
    item.stash[UNFIT_HOSTS] = isinstance(problem, UnfitHostsError)
    result, (own, metric) = result_of(item), case_and_metric(item)
    if metric.ratio_of and case == own.reference != own and result.measurement is not None:
        reason = f"its reference is not measured: {problem}"
        judgement = Judgement(metric=metric, verdict=Verdict.INVALID, reason=reason)
        head = headline(judgement, None, "", case_id=case.id)
        facts = reason_facts(judgement, head, case_id=case.id)
        problem = BrokenError("\n".join([str(head), *fact_lines(facts)]))
    elif isinstance(problem, NotStartedError) and case == own:
        judgement = Judgement(metric=metric, verdict=Verdict.NOT_STARTED, reason=str(problem))
    else:
        return problem
    item.stash[RESULT] = judged(result, judgement)
    return problem


def gate_for(request: pytest.FixtureRequest) -> Gate:
    """Return the gate of a test, which notes verdicts."""
    _check_suite(request)
    return Gate(request.node)


def _check_suite(request: pytest.FixtureRequest) -> None:
    if SUITE not in request.config.stash:
        text = "there are no system files here; --dlperf-systems or the ini key dlperf_systems "
        raise outcome_of(UsageError(f"{text}names their folder"))


class Gate:
    """Judges what a test has measured. Each method fails the test unless the verdict passes."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def throughput(self, measurement: Measurement) -> Judgement:
        """Judge the throughput: the short form of ``metric``."""
        return self.metric(measurement, THROUGHPUT)

    def speedup(self, measurement: Measurement, reference: Measurement) -> Judgement:
        """Judge the speedup over the reference topology: the short form of ``metric``."""
        return self.metric(measurement, SPEEDUP, reference)

    def metric(
        self,
        measurement: Measurement,
        metric: Metric | str,
        reference: Measurement | None = None,
    ) -> Judgement:
        """Judge a metric, which may be named; a ratio such as the speedup needs its reference.

        Raises:
            ValueError: The measurement is of another case than the test, the reference is not that
                of its reference topology, or the case has no such metric.
        """
        item, about = self._item, case_of(self._item)
        if about is not None and about[0].id != measurement.case_id:
            raise ValueError(f"a test of {about[0].id} cannot judge {measurement.case_id}")
        measuring = item.config.stash[MEASURING]
        strict = measuring.suite.settings.strict
        name = metric if isinstance(metric, str) else metric.name
        results = worst_first(
            [
                run_gate(one, measuring.gate_options, measuring.control_runs)
                for one in measuring.gate_inputs(measurement, name, reference)
            ],
            strict=strict,
        )
        known = result_of(item) if about is not None else None
        if not results:
            text = "each of its names is accepted, and has a test of its own"
            family = measuring.suite.metric(measuring.cases[measurement.case_id], name)
            worst = Judgement(metric=family, verdict=Verdict.PASS, notes=(text,))
            if known is not None:
                item.stash[RESULT] = judged(known, worst)
            return worst
        worst = results[0].judgement
        if known is not None:
            for result in results:
                known = judged_by_gate(known, result)
            item.stash[RESULT] = known
            if worst.verdict in _EXPLAINED_BY_PROBES and not worst.recorded:
                companions = measuring.companions(measurement)
                for result in results:
                    known = blamed(known, result.judgement.metric.name, companions)
                item.stash[RESULT] = known
        if not worst.passes(strict=strict):
            raise VerdictError(results[0])
        return worst


class VerdictError(pytest.fail.Exception):  # type: ignore[name-defined, misc] # an attribute
    """A verdict that fails its test; the test's report has the details."""

    def __init__(self, result: GateResult) -> None:
        case_id = result.input.case.measurement.case_id
        head = headline(result.judgement, None, "", case_id=case_id)
        super().__init__(str(head), pytrace=False)
        self.result = result
