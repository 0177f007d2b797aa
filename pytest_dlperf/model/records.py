"""What a test reports, and what a session knows of a case by all of its tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Judgement, Quantity, Verdict
from pytest_dlperf.model.measurement import InterleavedRuns, Measurement

if TYPE_CHECKING:
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
        """Take from a baseline what reports show."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRecord:
    """What one test of one case has to report."""

    __test__ = False  # no test, whatever pytest makes of the name

    case: Case
    quantity: Quantity
    """What the test is about, for want of a judgement that says it."""
    measurements: Mapping[str, Measurement] = field(default_factory=dict)
    interleaved: Mapping[str, InterleavedRuns] = field(default_factory=dict)
    """Runs beside the accepted software, by case."""
    accepted: AcceptedNumbers | None = None
    """The baseline that the case was held against; ``None`` where it could not be."""
    stored_baseline: AcceptedNumbers | None = None
    """The baseline that there was, also where nothing could be held against it."""
    judgements: Mapping[Quantity, Judgement] = field(default_factory=dict)
    host_faults: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What was found to be wrong with hosts, by host: one system may need more than another."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    judgements: Mapping[Quantity, Judgement] = field(default_factory=dict)

    def verdict(self, quantity: Quantity) -> Verdict | None:
        """Return the verdict on a quantity; ``None`` where no test of it has finished."""
        judgement = self.judgements.get(quantity)
        return judgement.verdict if judgement else None


def merge(result: CaseResult, record: TestRecord) -> CaseResult:
    """Add to a case what one of its tests reported; of two verdicts the worse stands."""
    judgements = result.judgements
    for judgement in record.judgements.values():
        judgements = with_worse(judgements, judgement)
    accepted = result.accepted
    # A test of the speedup may have found that the accepted one is none to compare with.
    if record.accepted is not None and (accepted is None or record.accepted.speedup is None):
        accepted = record.accepted
    merged = replace(
        result,
        interleaved=record.interleaved.get(result.case.id, result.interleaved),
        accepted=accepted,
        stored_baseline=record.stored_baseline or result.stored_baseline,
        judgements=judgements,
    )
    return with_measurements(merged, record.measurements)


def with_measurements(result: CaseResult, measurements: Mapping[str, Measurement]) -> CaseResult:
    """Give a case its own measurement, by case, and that of its single device."""
    measurement = measurements.get(result.case.id, result.measurement)
    single = measurements.get(result.case.single_device.id, result.single_device)
    speedup = result.speedup
    if measurement is not None and single is not None:
        # With a broken run on either end the speedup is not measured.
        is_whole = not (measurement.broken_runs or single.broken_runs)
        speedup = measurement.speedup_over(single) if is_whole else None
    return replace(result, measurement=measurement, single_device=single, speedup=speedup)


def with_worse(
    judgements: Mapping[Quantity, Judgement], new: Judgement
) -> Mapping[Quantity, Judgement]:
    """Add a judgement, unless there is a worse one on its quantity."""
    known = judgements.get(new.quantity)
    if known is not None and _badness(known) <= _badness(new):
        return judgements
    return {**judgements, new.quantity: new}


def _badness(judgement: Judgement) -> tuple[int, bool]:
    """Order judgements, the worst first: an excused failure hides nothing that was not."""
    verdict = Verdict.SKIPPED if judgement.excused else judgement.verdict
    return verdict.gravity, judgement.excused
