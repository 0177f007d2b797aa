"""The records of a running session: of each test, with its explanations, and of all tests."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, final

from msgspec.structs import replace

from pytest_dlperf.files.ci import ci_run_page
from pytest_dlperf.gate.verdicts import excuse
from pytest_dlperf.model.commits import Checkout
from pytest_dlperf.model.errors import DlperfError
from pytest_dlperf.model.judgement import Explanation, Judgement, Verdict
from pytest_dlperf.model.results import (
    CaseResult,
    TestRecord,
    merge,
    with_measurements,
    with_worse_judgement,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pytest_dlperf.gate.verdicts import GateResult
    from pytest_dlperf.history.explaining import Subject, Tonight
    from pytest_dlperf.history.store import History
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.judgement import Companion
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.plugin.suite import Suite
    from pytest_dlperf.plugin.workers import SessionStart


_BUSY_S: Final = 0.5
"""Seconds to wait for a history that another process has locked."""


class TestNotes:
    """Builds the record of one test while the test runs."""

    __test__ = False  # no test, whatever pytest makes of the name

    def __init__(self, case: Case, metric: Metric) -> None:
        """Begin with an empty record."""
        self.metric = metric
        """The metric that the test judges."""
        self.record = TestRecord(case=case, metric=metric.name)
        """The record so far."""
        self.companions: tuple[Companion, ...] = ()
        """Probes that ran on the case's hosts once it was red."""
        self.has_unfit_hosts = False
        """Whether hosts are why something could not be measured."""
        self._explained_verdicts: dict[str, Verdict] = {}
        """The verdicts explained so far, by metric."""

    def _note(self, **changes: Any) -> None:
        self.record = replace(self.record, **changes)

    def measured(self, measurement: Measurement) -> None:
        """Note a measurement of the test."""
        self._note(measurements={**self.record.measurements, measurement.case_id: measurement})

    def found_host_fault(self, host: str, fault: str) -> None:
        """Note a fault of a host."""
        faults = self.record.host_faults
        self._note(host_faults={**faults, host: (*faults.get(host, ()), fault)})

    def lacks_reference(self, case: Case) -> bool:
        """Whether ``case`` is the reference of the test's own case, which was measured."""
        own, is_ratio = self.record.case, self.metric.ratio_of is not None
        return is_ratio and case == own.reference != own and own.id in self.record.measurements

    def judged(self, judgement: Judgement) -> None:
        """Note a judgement; of two on one metric the worse stands."""
        self._note(judgements=with_worse_judgement(self.record.judgements, judgement))

    def judged_by_gate(self, result: GateResult) -> None:
        """Note a judgement, and what there was to compare with: no baseline that is refused."""
        gate_input = result.input
        own = gate_input.case.baselines
        comparable = {
            metric.name
            for metric in (*gate_input.case.measurement.metrics, gate_input.metric)
            if metric.name in own
            and all(end.why_incomparable(metric) is None for end in gate_input.ends)
        }
        self._note(
            stored={
                **self.record.stored,
                **{name: baseline.accepted for name, baseline in own.items()},
            },
            accepted={**self.record.accepted, **{name: own[name] for name in comparable}},
        )
        both = result.control.interleaved if result.control is not None else None
        if both is not None:
            interleaved = {**self.record.interleaved, both.candidate.case_id: both}
            self._note(interleaved=interleaved)
        self.judged(result.judgement)

    def unexplained(self) -> list[Judgement]:
        """Return the judgements that are new, each verdict on a metric once."""
        found = [
            judgement
            for name, judgement in self.record.judgements.items()
            if judgement.verdict is not self._explained_verdicts.get(name)
        ]
        self._explained_verdicts |= {
            judgement.metric.name: judgement.verdict for judgement in found
        }
        return found

    def explained(self, metric: str, explanation: Explanation | None) -> None:
        """Replace the explanation of the judgement on a metric."""
        others = {name: one for name, one in self.record.explanations.items() if name != metric}
        own = {} if explanation is None else {metric: explanation}
        self._note(explanations=others | own)

    def failed(self, reason: str) -> None:
        """Note that the test failed for another reason than a verdict."""
        judgements = self.record.judgements
        # Unless a verdict has failed it already: a strict session fails environment_shift too.
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


@final
class Explainer:
    """Explains judgements by the history, while a test reports, here or on a worker.

    So the failure's message has the explanation, and with workers the test's record. A test that
    passes is explained where it was red before, which is read once; a history that cannot be read
    costs its explanations and one note, no verdict.
    """

    def __init__(self, suite: Suite, session_start: SessionStart) -> None:
        """Open the history at the first judgement to explain."""
        self._suite = suite
        self._start = session_start
        self.fault: str | None = None
        """Why the history cannot be read; it is not tried again."""
        self._red_before: set[tuple[str, str]] | None = None
        """Cases and metrics that were red when they were judged last, once that is known."""

    def explain(self, notes: TestNotes) -> None:
        """Add explanations of a test's judgements to its record."""
        judgements = notes.unexplained()
        self._explain_by_history(notes, judgements)
        if notes.companions:
            from pytest_dlperf.history.companions import weighed

            for one in judgements:
                if not one.passes(strict=True):
                    name = one.metric.name
                    known = notes.record.explanations.get(name, Explanation())
                    found = weighed(one, notes.companions)
                    notes.explained(name, replace(known, companions=found))

    def _explain_by_history(self, notes: TestNotes, judgements: Sequence[Judgement]) -> None:
        if self._red_before is not None:
            judgements = self._not_as_before(notes, judgements)
        if not judgements or self.fault is not None:
            return
        from pytest_dlperf.history.store import History, HistoryError

        file = self._suite.settings.history_file
        try:
            with History.read_if_there(file, busy_s=_BUSY_S) as history:
                if self._red_before is None:
                    self._red_before = self._read_red_before(history)
                    judgements = self._not_as_before(notes, judgements)
                self._explain_all(notes, judgements, history)
        except (HistoryError, ValueError) as error:  # ValueError: no such day
            self.fault = str(error)

    def _read_red_before(self, history: History | None) -> set[tuple[str, str]]:
        from pytest_dlperf.history.nights import red_before
        from pytest_dlperf.history.rows import seconds_of

        if history is None:
            return set()
        cluster, tonight = self._suite.cluster, self._tonight
        return red_before(
            history,
            cluster=cluster.name,
            estimator=cluster.estimator.value,
            until=seconds_of(tonight.started),
            besides=tonight.session,
        )

    def _not_as_before(self, notes: TestNotes, judgements: Sequence[Judgement]) -> list[Judgement]:
        """Return what did not pass, and what passes after it was red."""
        red, case_id = self._red_before or (), notes.record.case.id
        return [
            one
            for one in judgements
            if one.verdict is not Verdict.PASS or (case_id, one.metric.name) in red
        ]

    def _explain_all(
        self, notes: TestNotes, judgements: Sequence[Judgement], history: History | None
    ) -> None:
        from pytest_dlperf.history.explaining import Subject
        from pytest_dlperf.history.series import Series

        case, cluster = notes.record.case, self._suite.cluster
        baselines: Mapping[str, Baseline] = {}
        # What cannot be measured here needs none, and may be a whole suite.
        if any(judgement.verdict is not Verdict.SKIPPED for judgement in judgements):
            with suppress(DlperfError):  # the test has reported their mistakes
                baselines = self._suite.baselines(case)
        for judgement in judgements:
            name, metric = judgement.metric.name, judgement.metric
            subject = Subject(
                series=Series.of(
                    case, metric, cluster=cluster.name, estimator=cluster.estimator.value
                ),
                judgement=judgement,
                measurement=notes.record.measurements.get(case.id),
                baseline=baselines.get(name),
                has_unfit_hosts=notes.has_unfit_hosts,
            )
            notes.explained(name, self._explained(history, subject))

    def _explained(self, history: History | None, subject: Subject) -> Explanation | None:
        """Explain a judgement, with what a hunt has found since the number is as it is."""
        from pytest_dlperf.culprit.journal import found_since
        from pytest_dlperf.history.explaining import explain

        file, series = self._suite.settings.history_file, subject.series
        explanation = explain(history, subject, self._tonight)
        if file is None or explanation is None or explanation.began is None:
            return explanation
        found = found_since(file, series.case_id, series.metric, explanation.began.at)
        lost = [entry for entry in found if entry.is_lost()]
        if lost:

            def had_lost_cause(commits: Collection[str]) -> bool:
                return any(entry.is_in(commits) for entry in lost)

            subject = replace(subject, has_lost_cause=had_lost_cause)
            explanation = explain(history, subject, self._tonight)
            since = explanation and explanation.since
            found = found_since(file, series.case_id, series.metric, since.at) if since else []
        current = [entry.found for entry in found if entry not in lost]
        return replace(explanation, found=current[-1]) if explanation and current else explanation

    @cached_property
    def _tonight(self) -> Tonight:
        from pytest_dlperf.history.explaining import Tonight
        from pytest_dlperf.launch.preflight import checkout_here

        settings = self._suite.settings
        # Logs may be of any day and checkout.
        commit, checkout = None, Checkout()
        if not settings.log_sources:
            commit, checkout = checkout_here(settings.systems_directories[0])
        return Tonight(
            session=self._start.session,
            started=self._start.at,
            commit=commit,
            checkout=checkout,
            ci_run=ci_run_page(),
        )


class SessionRecords:
    """Merges the records of tests into a result per case."""

    def __init__(self) -> None:
        """Begin without any case."""
        self._cases: dict[str, CaseResult] = {}
        self._measurements: dict[str, Measurement] = {}
        self._lost: set[str] = set()
        self._tests: dict[tuple[Case, str], None] = {}
        self._ended: set[tuple[Case, str]] = set()
        self.deselected: set[tuple[str, str]] = set()
        """Cases, by id, and metrics of tests that were deselected."""
        self.host_faults: dict[str, tuple[str, ...]] = {}
        """Faults of hosts, by host."""

    def select(self, tests: Iterable[tuple[Case, str]]) -> None:
        """Note the selected cases and metrics: reports list each of these cases."""
        self._tests |= dict.fromkeys(tests)
        # In the order of the selection, also where a worker reported before it said what it has.
        selected = {
            case.id: self._cases.get(case.id) or CaseResult(case=case) for case, _ in self._tests
        }
        self._cases = {**selected, **self._cases}

    def add(self, record: TestRecord) -> None:
        """Merge the record of a test."""
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
        """Note that a test of a selected case failed without a record: its worker was killed."""
        in_brackets = node_id.partition("[")[2].rpartition("]")[0]
        for name in (in_brackets, in_brackets.rpartition("-")[0]):  # the case, or it and a metric
            if name in self._cases:
                self._lost.add(name)

    def results(self) -> list[CaseResult]:
        """Return the selected cases, in the order in which they were selected."""
        unfinished: dict[str, tuple[str, ...]] = {}
        for case, metric in self._tests:
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
