"""What tests report of their cases, with explanations, and what a session makes of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

from msgspec.structs import replace

from pytest_dlperf.culprit.journal import found_since
from pytest_dlperf.files.ci import ci_run_page
from pytest_dlperf.gate.verdicts import GateResult
from pytest_dlperf.history.companions import weighed
from pytest_dlperf.history.queries import red_before
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.series import Series
from pytest_dlperf.history.since import CurrentSession, Target, explain
from pytest_dlperf.history.store import History, HistoryError
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.commits import Checkout
from pytest_dlperf.model.errors import DlperfError
from pytest_dlperf.model.judgement import Companion, Explanation, Judgement, Verdict
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import (
    CaseResult,
    merge,
    with_measurements,
    with_worse_judgement,
)
from pytest_dlperf.plugin.workers import SessionStart

if TYPE_CHECKING:
    from pytest_dlperf.plugin.suite import Suite


_BUSY_S: Final = 0.5
"""Seconds to wait for a history that another process has locked."""


# ------------------------------------------------------------------- what a test reports


def judged(result: CaseResult, judgement: Judgement) -> CaseResult:
    """Add a judgement; of two on one metric the worse stands."""
    return replace(result, judgements=with_worse_judgement(result.judgements, judgement))


def judged_by_gate(result: CaseResult, gated: GateResult) -> CaseResult:
    """Add a judgement, and what there was to compare with: no baseline that is refused."""
    gate_input = gated.input
    own = gate_input.case.baselines
    comparable = {
        metric.name: own[metric.name]
        for metric in (*gate_input.case.measurement.metrics, gate_input.metric)
        if metric.name in own
        and all(end.why_incomparable(metric) is None for end in gate_input.ends)
    }
    stored = {name: baseline.accepted for name, baseline in own.items()}
    control = gated.control.interleaved if gated.control is not None else None
    result = replace(
        result,
        stored={**result.stored, **stored},
        accepted={**result.accepted, **comparable},
        interleaved=control or result.interleaved,
    )
    return judged(result, gated.judgement)


def failed(result: CaseResult, metric: Metric, reason: str) -> CaseResult:
    """Say that the test of a metric failed for another reason than a verdict."""
    known = result.judgements.values()
    # Unless a verdict has failed it already: a strict session fails environment_shift too.
    if not all(judgement.passes(strict=True) for judgement in known):
        return result
    judgements = {
        each.name: Judgement(metric=each, verdict=Verdict.FAILED, reason=reason)
        for each in [judgement.metric for judgement in known] or [metric]
    }
    return replace(result, judgements=judgements)


def excused(
    result: CaseResult, why_expected: Callable[[Judgement], str | None], *, strict: bool
) -> CaseResult:
    """Say of each judgement that fails its test why that was expected, where it was."""
    judgements = {
        name: replace(judgement, expected=why_expected(judgement))
        if judgement.status.fails(strict=strict)
        else judgement
        for name, judgement in result.judgements.items()
    }
    return replace(result, judgements=judgements)


def blamed(result: CaseResult, metric: str, companions: Sequence[Companion]) -> CaseResult:
    """Add the probes that ran on the hosts of a red case once a metric was judged."""
    if not companions or result.judgements[metric].passes(strict=True):
        return result
    explanation = result.explanations.get(metric, Explanation())
    found = weighed(result.judgements[metric], companions)
    explanations = {**result.explanations, metric: replace(explanation, companions=found)}
    return replace(result, explanations=explanations)


@final
class Explainer:
    """Explains judgements by the history, while a test reports, here or on a worker.

    So the failure's message has the explanation, and with workers what the test sends. A test that
    passes is explained where it was red before, which is read once; a history that cannot be read
    costs its explanations and one note, no verdict.
    """

    def __init__(self, suite: Suite, session_start: SessionStart) -> None:
        self._suite = suite
        self._start = session_start
        self.fault: str | None = None
        """Why the history cannot be read; it is not tried again."""
        self._red_before: set[tuple[str, str]] | None = None
        """Cases and metrics that were red when they were judged last, once that is known."""

    def explain(
        self, result: CaseResult, before: CaseResult, *, has_unfit_hosts: bool
    ) -> CaseResult:
        """Explain what a test has judged since it reported ``before``."""
        judgements = [
            judgement
            for name, judgement in result.judgements.items()
            if name not in before.judgements
            or judgement.verdict is not before.judgements[name].verdict
        ]
        if self._red_before is not None:
            judgements = self._not_as_before(result, judgements)
        if not judgements or self.fault is not None:
            return result

        file = self._suite.settings.history_file
        try:
            with History.read_if_there(file, busy_s=_BUSY_S) as history:
                if self._red_before is None:
                    self._red_before = self._read_red_before(history)
                    judgements = self._not_as_before(result, judgements)
                explanations = dict(result.explanations)
                for target in self._targets(result, judgements, has_unfit_hosts=has_unfit_hosts):
                    name = target.judgement.metric.name
                    explanation = self._explained(history, target)
                    companions = explanations.pop(name, Explanation()).companions
                    if explanation is not None or companions:
                        explanations[name] = replace(
                            explanation or Explanation(), companions=companions
                        )
        except (HistoryError, ValueError) as error:  # ValueError: no such day
            self.fault = str(error)
            return result
        return replace(result, explanations=explanations)

    def _read_red_before(self, history: History | None) -> set[tuple[str, str]]:

        if history is None:
            return set()
        cluster, current = self._suite.cluster, self._current
        return red_before(
            history,
            cluster=cluster.name,
            estimator=cluster.estimator.value,
            until=seconds_of(current.started),
            besides=current.session,
        )

    def _not_as_before(
        self, result: CaseResult, judgements: Sequence[Judgement]
    ) -> list[Judgement]:
        """Return what did not pass, and what passes after it was red."""
        red = self._red_before or ()
        return [
            one
            for one in judgements
            if one.verdict is not Verdict.PASS or (result.case.id, one.metric.name) in red
        ]

    def _targets(
        self, result: CaseResult, judgements: Sequence[Judgement], *, has_unfit_hosts: bool
    ) -> Iterator[Target]:

        case, cluster = result.case, self._suite.cluster
        baselines: Mapping[str, Baseline] = {}
        # What cannot be measured here needs none, and may be a whole suite.
        if any(judgement.verdict is not Verdict.SKIPPED for judgement in judgements):
            with suppress(DlperfError):  # the test has reported their mistakes
                baselines = self._suite.baselines(case)
        for judgement in judgements:
            metric = judgement.metric
            yield Target(
                series=Series.of(
                    case, metric, cluster=cluster.name, estimator=cluster.estimator.value
                ),
                judgement=judgement,
                measurement=result.measurement,
                baseline=baselines.get(metric.name),
                has_unfit_hosts=has_unfit_hosts,
            )

    def _explained(self, history: History | None, target: Target) -> Explanation | None:
        """Explain a judgement, with what `bisect` has found since the number is as it is."""
        file, series = self._suite.settings.history_file, target.series
        explanation = explain(history, target, self._current)
        if file is None or explanation is None or explanation.began is None:
            return explanation
        found = found_since(file, series.case_id, series.metric, explanation.began.at)
        lost = [entry for entry in found if entry.is_lost()]
        if lost:

            def had_lost_cause(commits: Collection[str]) -> bool:
                return any(entry.is_in(commits) for entry in lost)

            target = replace(target, has_lost_cause=had_lost_cause)
            explanation = explain(history, target, self._current)
            since = explanation and explanation.since
            found = found_since(file, series.case_id, series.metric, since.at) if since else []
        current = [entry.found for entry in found if entry not in lost]
        return replace(explanation, found=current[-1]) if explanation and current else explanation

    @cached_property
    def _current(self) -> CurrentSession:
        from pytest_dlperf.launch.preflight import checkout_here

        settings = self._suite.settings
        # Logs may be of any day and checkout.
        commit, checkout = None, Checkout()
        if not settings.log_sources:
            commit, checkout = checkout_here(settings.systems_directories[0])
        return CurrentSession(
            session=self._start.session,
            started=self._start.at,
            commit=commit,
            checkout=checkout,
            ci_run=ci_run_page(),
        )


class SessionRecords:
    """Merges what tests report into a result per case."""

    def __init__(self) -> None:
        self._cases: dict[str, CaseResult] = {}
        self._lost: set[str] = set()
        self._tests: dict[tuple[Case, str], None] = {}
        self._ended: set[tuple[str, str]] = set()
        self.deselected: set[tuple[str, str]] = set()
        """Cases, by id, and metrics of tests that were deselected."""

    def select(self, tests: Iterable[tuple[Case, str]]) -> None:
        """Note the selected cases and metrics: reports list each of these cases."""
        self._tests |= dict.fromkeys(tests)
        # In the order of the selection, also where a worker reported before it said what it has.
        selected = {
            case.id: self._cases.get(case.id) or CaseResult(case=case) for case, _ in self._tests
        }
        self._cases = {**selected, **self._cases}

    def add(self, result: CaseResult) -> None:
        """Merge what a test reports."""
        known = self._cases.get(result.case.id)
        self._cases[result.case.id] = result if known is None else merge(known, result)

    def end(self, case_id: str, metric: str) -> None:
        """Note that a test has come to its end."""
        self._ended.add((case_id, metric))

    def lose(self, node_id: str) -> None:
        """Note that a test of a selected case failed without a report: its worker was killed."""
        in_brackets = node_id.partition("[")[2].rpartition("]")[0]
        for name in (in_brackets, in_brackets.rpartition("-")[0]):  # the case, or it and a metric
            if name in self._cases:
                self._lost.add(name)

    def results(self) -> list[CaseResult]:
        """Return the selected cases, in the order in which they were selected."""
        unfinished: dict[str, tuple[str, ...]] = {}
        for case, metric in self._tests:
            if (case.id, metric) not in self._ended and case.id not in self._lost:
                unfinished[case.id] = (*unfinished.get(case.id, ()), metric)
        measurements = {
            measurement.case_id: measurement
            for result in self._cases.values()
            for measurement in (result.measurement, result.reference)
            if measurement is not None
        }
        return [
            with_measurements(
                replace(
                    result,
                    is_whole=case_id not in self._lost,
                    unfinished=unfinished.get(case_id, ()),
                ),
                measurements,
            )
            for case_id, result in self._cases.items()
        ]
