"""What a test reports of its case, and what a session makes of all that its tests report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from pytest_dlperf.gate.verdicts import GateResult
from pytest_dlperf.history.companions import weighed
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Companion, Explanation, Judgement, Verdict
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import (
    CaseResult,
    merge,
    with_measurements,
    with_worse_judgement,
)


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
    result = replace(
        result,
        stored={**result.stored, **stored},
        accepted={**result.accepted, **comparable},
        interleaved=gated.control or result.interleaved,
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


class SessionRecords:
    """Merges what tests report into a result per case."""

    def __init__(self) -> None:
        self._cases: dict[str, CaseResult] = {}
        self._lost: set[str] = set()
        self.ended: set[tuple[str, str]] = set()
        """Cases, by id, and metrics of tests that have come to their end."""
        self.selected: dict[tuple[Case, str], None] = {}
        """Selected cases, with the metrics of their tests."""
        self.deselected: set[tuple[str, str]] = set()
        """Cases, by id, and metrics of tests that were deselected."""

    @property
    def has_any(self) -> bool:
        """Whether a test of a case has reported."""
        return bool(self._cases)

    def select(self, tests: Iterable[tuple[Case, str]]) -> None:
        """Note the selected cases and metrics: reports list each of these cases."""
        self.selected |= dict.fromkeys(tests)

    def add(self, result: CaseResult) -> None:
        """Merge what a test reports."""
        known = self._cases.get(result.case.id)
        self._cases[result.case.id] = result if known is None else merge(known, result)

    def lose(self, node_id: str) -> None:
        """Note that a test of a case failed without a report: its worker was killed."""
        in_brackets = node_id.partition("[")[2].rpartition("]")[0]
        self._lost |= {in_brackets, in_brackets.rpartition("-")[0]}  # a case, or it and a metric

    def results(self) -> list[CaseResult]:
        """Return the selected cases, in the order in which they were selected."""
        cases = {case.id: CaseResult(case=case) for case, _ in self.selected} | self._cases
        unfinished: dict[str, tuple[str, ...]] = {}
        for case, metric in self.selected:
            if (case.id, metric) not in self.ended and case.id not in self._lost:
                unfinished[case.id] = (*unfinished.get(case.id, ()), metric)
        measurements = {
            measurement.case_id: measurement
            for result in cases.values()
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
            for case_id, result in cases.items()
        ]
