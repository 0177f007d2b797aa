"""The records of a running session: what a test notes, and what all tests come to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_dlperf.gate.verdicts import excuse
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.records import (
    Accepted,
    CaseResult,
    TestRecord,
    merge,
    with_measurements,
    with_worse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_dlperf.gate.verdicts import Settled
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.explanation import Explanation
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.metric import Metric


class TestNotes:
    """Builds the record of one test while the test runs."""

    __test__ = False  # no test, whatever pytest makes of the name

    def __init__(self, case: Case, metric: Metric) -> None:
        """Begin without anything to report."""
        self.metric = metric
        """What the test is about."""
        self.record = TestRecord(case=case, metric=metric.name)
        """What there is to report by now."""
        self._asked: dict[str, Verdict] = {}
        """The verdicts that were to be explained, by metric."""

    def _note(self, **changes: Any) -> None:
        self.record = replace(self.record, **changes)

    def measured(self, measurement: Measurement) -> None:
        """Note a measurement that the test has asked for."""
        self._note(measurements={**self.record.measurements, measurement.case_id: measurement})

    def found_host_fault(self, host: str, fault: str) -> None:
        """Note what is wrong with a host."""
        faults = self.record.host_faults
        self._note(host_faults={**faults, host: (*faults.get(host, ()), fault)})

    def lacks_reference(self, case: Case) -> bool:
        """Tell whether a case is what a ratio of the test's own, measured case is over."""
        own, is_ratio = self.record.case, self.metric.ratio_of is not None
        return is_ratio and case == own.reference != own and own.id in self.record.measurements

    def judged(self, judgement: Judgement) -> None:
        """Note a judgement; of two on one metric the worse stands."""
        self._note(judgements=with_worse(self.record.judgements, judgement))

    def settled(self, settled: Settled) -> None:
        """Note a judgement, and what there was to compare with: no baseline that is refused."""
        question = settled.question
        own = question.case.baselines
        stored = {name: Accepted.of(baseline) for name, baseline in own.items()}
        comparable = {
            metric.name
            for metric in (*question.case.measurement.metrics, question.metric)
            if metric.name in own
            and all(end.why_incomparable(metric) is None for end in question.ends)
        }
        self._note(
            stored={**self.record.stored, **stored},
            accepted={**self.record.accepted, **{name: stored[name] for name in comparable}},
        )
        for both in settled.control.interleaved if settled.control is not None else ():
            interleaved = {**self.record.interleaved, both.candidate.case_id: both}
            self._note(interleaved=interleaved)
        self.judged(settled.judgement)

    def unexplained(self) -> list[Judgement]:
        """Give the judgements that did not simply pass, each verdict on a metric once."""
        found = [
            judgement
            for name, judgement in self.record.judgements.items()
            if judgement.verdict not in (Verdict.PASS, self._asked.get(name))
        ]
        self._asked |= {judgement.metric.name: judgement.verdict for judgement in found}
        return found

    def explained(self, metric: str, explanation: Explanation | None) -> None:
        """Note what explains the judgement on a metric, instead of what explained another."""
        others = {name: one for name, one in self.record.explanations.items() if name != metric}
        own = {} if explanation is None else {metric: explanation}
        self._note(explanations=others | own)

    def failed(self, reason: str) -> None:
        """Note that the test failed for another reason than a verdict: nothing of it passes."""
        judgements = self.record.judgements
        # A strict session fails a test for its environment_shift, which says it all already.
        if all(judgement.passes(strict=True) for judgement in judgements.values()):
            self._note(
                judgements={
                    metric.name: Judgement(metric=metric, verdict=Verdict.FAILED, reason=reason)
                    for metric in [judged.metric for judged in judgements.values()] or [self.metric]
                }
            )

    def excused(self) -> None:
        """Note that the test was expected to fail."""
        judgements = self.record.judgements
        self._note(judgements={name: excuse(judged) for name, judged in judgements.items()})


class SessionRecords:
    """Collects what tests report, by case, and answers for the whole session."""

    def __init__(self) -> None:
        """Begin without any case."""
        self._cases: dict[str, CaseResult] = {}
        self._measurements: dict[str, Measurement] = {}
        self._lost: set[str] = set()
        self._tests: dict[tuple[Case, str], None] = {}
        self._ended: set[tuple[Case, str]] = set()
        self.host_faults: dict[str, tuple[str, ...]] = {}
        """What was found to be wrong with hosts, by host."""

    def select(self, tests: Iterable[tuple[Case, str]]) -> None:
        """Note which metrics of which cases have a test: reports have the cases in any event."""
        self._tests |= dict.fromkeys(tests)
        # In the order of the selection, also where a worker reported before it said what it has.
        selected = {
            case.id: self._cases.get(case.id) or CaseResult(case=case) for case, _ in self._tests
        }
        self._cases = {**selected, **self._cases}

    def add(self, record: TestRecord) -> None:
        """Take over what one test reported."""
        self._measurements.update(record.measurements)
        for host, faults in record.host_faults.items():
            told = (*self.host_faults.get(host, ()), *faults)
            self.host_faults[host] = tuple(dict.fromkeys(told))
        before = self._cases.get(record.case.id) or CaseResult(case=record.case)
        self._cases[record.case.id] = merge(before, record)

    def end(self, record: TestRecord) -> None:
        """Note that a test has come to its end."""
        self._ended.add((record.case, record.metric))

    def lose(self, node_id: str) -> None:
        """Note that a test of a selected case failed without telling anything."""
        in_brackets = node_id.partition("[")[2].rpartition("]")[0]
        for name in (in_brackets, in_brackets.rpartition("-")[0]):  # the case, or it and a metric
            if name in self._cases:
                self._lost.add(name)

    def results(self) -> list[CaseResult]:
        """Return the selected cases, in the order in which they were selected."""
        unfinished: dict[str, tuple[str, ...]] = {}
        for case, metric in self._tests:
            # What is lost has not told anything either.
            if (case, metric) not in self._ended and case.id not in self._lost:
                unfinished[case.id] = (*unfinished.get(case.id, ()), metric)
        return [
            with_measurements(
                replace(
                    result,
                    is_whole=case_id not in self._lost,
                    unfinished=unfinished.get(case_id, ()),
                ),
                self._measurements,
            )
            for case_id, result in self._cases.items()
        ]
