"""The fixtures of a test: measuring a case, and the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from pytest_dlperf.model.errors import (
    BrokenError,
    DlperfError,
    NotStartedError,
    UnfitHostsError,
    UsageError,
)
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.metric import SPEEDUP, THROUGHPUT
from pytest_dlperf.plugin.cases import MEASURING, SUITE, case_of, outcome_of
from pytest_dlperf.plugin.records import TestNotes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_dlperf.gate.verdicts import GateResult
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.plugin.measuring import Measuring

_EXPLAINED_BY_PROBES: Final = (
    Verdict.REGRESSED,
    Verdict.ENVIRONMENT_SHIFT,
    Verdict.INCONCLUSIVE,
    Verdict.FAILED,
    Verdict.HUNG,
)
"""Verdicts after which a case's companions run."""

_NOTES: Final = pytest.StashKey[TestNotes]()


def notes_of(item: pytest.Item) -> TestNotes | None:
    """Return the notes of a test of a case; ``None`` for any other test."""
    if _NOTES not in item.stash:
        about = case_of(item)
        if about is None:
            return None
        case, metric = about
        item.stash[_NOTES] = TestNotes(case, item.config.stash[SUITE].metric(case, metric))
    return item.stash[_NOTES]


def measure_for(request: pytest.FixtureRequest) -> Callable[[Case | None], Measurement]:
    """Return a function that measures cases and notes the measurements in the test's record."""
    _check_suite(request)

    def measure(case: Case | None) -> Measurement:
        if case is None:
            raise ValueError("the case has no reference topology to measure")
        measuring = request.config.stash[MEASURING]
        notes = notes_of(request.node)
        if notes is None:
            notes = TestNotes(case, measuring.suite.main_metric(case))
        try:
            # A baseline that cannot be read is reported before hours of training, not after.
            measuring.suite.baselines(case)
            measurement = measuring.measure(case)
        except DlperfError as error:
            problem = error
        else:
            notes.measured(measurement)
            return measurement
        finally:
            for fault in measuring.host_faults:
                notes.found_host_fault(fault.host, fault.fault)
        # Outside the block above, or the exception would be shown as the cause once more.
        notes.has_unfit_hosts = isinstance(problem, UnfitHostsError)
        if notes.lacks_reference(case):
            metric = notes.metric
            reason = f"its reference is not measured: {problem}"
            judgement = Judgement(metric=metric, verdict=Verdict.INVALID, reason=reason)
            notes.judged(judgement)
            problem = BrokenError(_without_explanation(judgement, case.id))
        if isinstance(problem, NotStartedError) and case == notes.record.case:
            verdict = Verdict.NOT_STARTED
            notes.judged(Judgement(metric=notes.metric, verdict=verdict, reason=str(problem)))
        raise outcome_of(problem)

    return measure


def gate_for(request: pytest.FixtureRequest) -> Gate:
    """Return the gate of a test, which notes verdicts in the test's record."""
    _check_suite(request)
    return Gate(request.config, notes_of(request.node))


def _check_suite(request: pytest.FixtureRequest) -> None:
    if SUITE not in request.config.stash:
        text = "there are no system files here; --dlperf-systems or the ini key dlperf_systems "
        raise outcome_of(UsageError(f"{text}names their folder"))


class Gate:
    """Judges what a test has measured. Each method fails the test unless the verdict passes."""

    def __init__(self, config: pytest.Config, notes: TestNotes | None) -> None:
        """Judge by the suite's baselines and note the verdicts in the test's record."""
        self._config = config
        self._notes = notes

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
        from pytest_dlperf.gate.family import worst_first
        from pytest_dlperf.gate.verdicts import run_gate

        about = self._notes.record.case if self._notes is not None else None
        measuring: Measuring = self._config.stash[MEASURING]
        name = metric if isinstance(metric, str) else metric.name
        inputs = measuring.gate_inputs(measurement, name, reference, about=about)
        strict = measuring.suite.settings.strict
        results = worst_first(
            [run_gate(one, measuring.gate_options, measuring.control_runs) for one in inputs],
            strict=strict,
        )
        if not results:
            note = "each of its names is accepted, and has a test of its own"
            judgement = Judgement(
                metric=measuring.family(measurement, name), verdict=Verdict.PASS, notes=(note,)
            )
            if self._notes is not None:
                self._notes.judged(judgement)
            return judgement
        if self._notes is not None:
            for result in results:
                self._notes.judged_by_gate(result)
            worst = results[0].judgement
            if worst.verdict in _EXPLAINED_BY_PROBES and not worst.recorded:
                self._notes.companions = measuring.companions(measurement)
        if not results[0].judgement.passes(strict=strict):
            raise VerdictError(results[0])
        return results[0].judgement


def _in_a_line(judgement: Judgement, case_id: str) -> str:
    """Word a verdict without its explanation, which only the test's report has."""
    from pytest_dlperf.report.facts import headline

    return str(headline(judgement, None, "", case_id=case_id))


def _without_explanation(judgement: Judgement, case_id: str) -> str:
    """Word a verdict and the whole of its reason."""
    from pytest_dlperf.report.facts import headline, reason_facts
    from pytest_dlperf.report.failure import fact_lines

    head = headline(judgement, None, "", case_id=case_id)
    facts = reason_facts(judgement, head, case_id=case_id)
    return "\n".join([str(head), *fact_lines(facts)])


class VerdictError(pytest.fail.Exception):  # type: ignore[name-defined, misc] # an attribute
    """A verdict that fails its test; the test's report has the details."""

    def __init__(self, result: GateResult) -> None:
        """Name verdict, metric and case in a line."""
        case_id = result.input.case.measurement.case_id
        super().__init__(_in_a_line(result.judgement, case_id), pytrace=False)
        self.result = result
