"""A session's records: what each test reported, merged by case, also across xdist workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Judgement, Quantity, Verdict
from pytest_dlperf.model.measurement import InterleavedRuns, Measurement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_dlperf.model.baseline import Baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedNumbers:
    """What a case's baseline says, as reports show it.

    ``at`` is when the session of the numbers began (ISO 8601 with its zone), ``machine`` and
    ``software`` are what they were taken on, as far as that was recorded.
    """

    throughput: float
    speedup: float | None
    estimator: str
    at: str | None = None
    reason: str | None = None
    commit: str | None = None
    machine: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, baseline: Baseline) -> AcceptedNumbers:
        """What reports show of a baseline."""
        accepted = baseline.accepted
        return cls(
            throughput=baseline.throughput,
            speedup=baseline.speedup,
            estimator=baseline.estimator.value,
            at=accepted.at if accepted else None,
            reason=accepted.reason if accepted else None,
            commit=accepted.commit if accepted else None,
            machine=dict(baseline.machine),
            software=dict(accepted.software) if accepted else {},
        )


@dataclass(slots=True, kw_only=True)
class TestRecord:
    """What one test of one case has to tell; filled while the test runs."""

    __test__ = False  # no test, whatever pytest makes of the name

    case: Case
    quantity: Quantity
    """What the test is about, for want of a judgement that says it."""
    measurements: dict[str, Measurement] = field(default_factory=dict)
    interleaved: dict[str, InterleavedRuns] = field(default_factory=dict)
    """Runs beside the accepted software, by case."""
    accepted: AcceptedNumbers | None = None
    """The baseline that the case was held against; ``None`` where it could not be."""
    stored_baseline: AcceptedNumbers | None = None
    """The baseline that there was, also where nothing could be held against it."""
    judgements: dict[Quantity, Judgement] = field(default_factory=dict)
    excused: bool = False
    """Whether the test was expected to fail."""
    host_faults: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What was found to be wrong with hosts, by host: one system may need more than another."""

    def judge(self, judgement: Judgement) -> None:
        """Note a judgement; of two on one quantity the worse stands."""
        _keep_worse(self.judgements, judgement)

    def fail(self, reason: str) -> None:
        """Note that the test failed for another reason than a verdict: nothing of it passes."""
        # A strict session fails a test for its environment_shift, which says it all already.
        if all(judgement.passes(strict=True) for judgement in self.judgements.values()):
            for quantity in self.judgements or (self.quantity,):
                self.judgements[quantity] = Judgement(
                    quantity=quantity, verdict=Verdict.FAILED, reason=reason
                )


@dataclass(slots=True, kw_only=True)
class CaseResult:
    """All that a session knows of one case."""

    case: Case
    measurement: Measurement | None = None
    single_device: Measurement | None = None
    """What the speedup is taken over."""
    interleaved: InterleavedRuns | None = None
    """Runs beside the accepted software, where there were any."""
    is_whole: bool = True
    """Whether no test of the case was lost with its worker."""
    unfinished: tuple[Quantity, ...] = ()
    """What a test was selected of that never came to its end."""
    speedup: float | None = None
    accepted: AcceptedNumbers | None = None
    """The baseline that the case was held against; ``None`` where it could not be."""
    stored_baseline: AcceptedNumbers | None = None
    """The baseline that there was, also where nothing could be held against it."""
    judgements: dict[Quantity, Judgement] = field(default_factory=dict)

    def verdict(self, quantity: Quantity) -> Verdict | None:
        """The verdict on a quantity, ``None`` where no test of it has finished."""
        judgement = self.judgements.get(quantity)
        return judgement.verdict if judgement else None


class SessionRecords:
    """Collects what tests report, by case, and answers for the whole session."""

    def __init__(self, *, strict: bool = False) -> None:
        """Begin without any case; ``strict`` says which verdicts pass."""
        self._strict = strict
        self._selected: dict[str, CaseResult | None] = {}
        self._measurements: dict[str, Measurement] = {}
        self._interleaved: dict[str, InterleavedRuns] = {}
        self._lost: set[str] = set()
        self._tests: dict[tuple[str, Quantity], None] = {}
        self._ended: set[tuple[str, Quantity]] = set()
        self.host_faults: dict[str, list[str]] = {}
        """What was found to be wrong with hosts, by host."""

    def select(self, tests: Iterable[tuple[str, Quantity]]) -> None:
        """Note what tests were selected of: these cases appear in the reports in any event."""
        self._tests |= dict.fromkeys(tests)
        case_ids = [case_id for case_id, _ in self._tests]
        self._selected = {**dict.fromkeys(case_ids), **self._selected}

    def add(self, record: TestRecord) -> None:
        """Take over what one test reported."""
        self._measurements.update(record.measurements)
        self._interleaved.update(record.interleaved)
        for host, faults in record.host_faults.items():
            known = self.host_faults.setdefault(host, [])
            known += [fault for fault in dict.fromkeys(faults) if fault not in known]
        result = self._selected.get(record.case.id) or CaseResult(case=record.case)
        self._selected[record.case.id] = result
        result.stored_baseline = record.stored_baseline or result.stored_baseline
        accepted, before = record.accepted, result.accepted
        # A test of the speedup may have found that the accepted one is none to compare with.
        if accepted is not None and (before is None or accepted.speedup is None):
            result.accepted = accepted
        for judgement in record.judgements.values():
            excused = record.excused and self._fails(judgement)
            _keep_worse(result.judgements, replace(judgement, excused=excused))

    def end(self, record: TestRecord) -> None:
        """Note that a test has come to its end."""
        self._ended.add((record.case.id, record.quantity))

    def lose(self, node_id: str) -> None:
        """Note that a test of a selected case failed without telling anything."""
        in_brackets = node_id.partition("[")[2].rpartition("]")[0]
        if in_brackets in self._selected:
            self._lost.add(in_brackets)

    def results(self) -> list[CaseResult]:
        """The selected cases, in the order in which they were selected."""
        results = [
            result or CaseResult(case=Case.parse(case_id))
            for case_id, result in self._selected.items()
        ]
        unfinished: dict[str, list[Quantity]] = {}
        for case_id, quantity in self._tests:
            if (case_id, quantity) not in self._ended:
                unfinished.setdefault(case_id, []).append(quantity)
        for result in results:
            measurement = self._measurements.get(result.case.id)
            single = self._measurements.get(result.case.single_device.id)
            result.measurement = measurement
            result.single_device = single
            result.interleaved = self._interleaved.get(result.case.id)
            result.is_whole = result.case.id not in self._lost
            # What is lost has not told anything either.
            never_ran = unfinished.get(result.case.id, []) if result.is_whole else []
            result.unfinished = tuple(never_ran)
            if measurement is not None and single is not None:
                # With a broken run on either end the speedup is not measured.
                whole = not (measurement.broken_runs or single.broken_runs)
                result.speedup = measurement.speedup_over(single) if whole else None
        return results

    @property
    def nothing_measured(self) -> bool:
        """Whether cases were selected and not one of them was measured or judged."""
        judgements = [j for r in self._selected.values() if r for j in r.judgements.values()]
        skipped = all(judgement.verdict is Verdict.SKIPPED for judgement in judgements)
        # The reference of a speedup may have been measured without having been selected.
        measured = any(case_id in self._measurements for case_id in self._selected)
        return bool(self._selected) and not measured and skipped

    @property
    def bad_cases(self) -> list[str]:
        """Ids of the cases with a verdict that fails a test, unless the test was to fail."""
        return [
            case_id
            for case_id, result in self._selected.items()
            if result is not None
            and any(self._fails(j) and not j.excused for j in result.judgements.values())
        ]

    def _fails(self, judgement: Judgement) -> bool:
        is_skipped = judgement.verdict is Verdict.SKIPPED
        return not (is_skipped or judgement.passes(strict=self._strict))


def _keep_worse(judgements: dict[Quantity, Judgement], new: Judgement) -> None:
    known = judgements.get(new.quantity)
    if known is None or _badness(new) < _badness(known):
        judgements[new.quantity] = new


def _badness(judgement: Judgement) -> tuple[int, bool]:
    """What is smaller is worse: a failure that was expected hides nothing that was not."""
    verdict = Verdict.SKIPPED if judgement.excused else judgement.verdict
    return verdict.gravity, judgement.excused
