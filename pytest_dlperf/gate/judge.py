"""Holds a measurement against a baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.gate.verdict import Judgement, Quantity, Verdict
from pytest_dlperf.measurement import RunStatus

if TYPE_CHECKING:
    from pytest_dlperf.baselines.entry import Baseline
    from pytest_dlperf.measurement import Measurement


def judge_throughput(
    measurement: Measurement,
    baseline: Baseline | None,
    *,
    tolerance_percent: float,
    record: bool = False,
) -> Judgement:
    """Hold the median throughput against the baseline's.

    ``tolerance_percent`` is the system's, used where the baseline has none of its own; with
    ``record`` a case without baseline passes, because its measurement becomes the baseline.
    """
    quantity = Quantity.THROUGHPUT
    broken = _verdict_of_broken_runs(measurement, quantity)
    if broken is not None:
        return broken
    incomparable = _why_incomparable(measurement, baseline)
    accepted = baseline.throughput if baseline is not None else None
    return _compare(
        quantity,
        measurement.median,
        accepted if incomparable is None else None,
        _tolerance(baseline, tolerance_percent),
        reason=incomparable,
        record=record and incomparable is None,
    )


def judge_speedup(
    measurement: Measurement,
    single_device: Measurement,
    baseline: Baseline | None,
    *,
    tolerance_percent: float,
    record: bool = False,
) -> Judgement:
    """Hold the speedup over one device against the baseline's.

    A speedup needs both ends: with a broken run on either it is not measured.
    """
    quantity = Quantity.SPEEDUP
    for end in (measurement, single_device):
        broken = _verdict_of_broken_runs(end, quantity)
        if broken is not None:
            return broken
    incomparable = _why_incomparable(measurement, baseline)
    accepted = baseline.speedup if baseline is not None else None
    record = record and incomparable is None
    if baseline is not None and accepted is None and not record:
        incomparable = incomparable or f"{baseline.place} has no speedup"
    return _compare(
        quantity,
        measurement.speedup_over(single_device),
        accepted if incomparable is None else None,
        _tolerance(baseline, tolerance_percent),
        reason=incomparable,
        record=record,
    )


def _tolerance(baseline: Baseline | None, of_system: float) -> float:
    own = baseline.tolerance_percent if baseline is not None else None
    return of_system if own is None else own


def _verdict_of_broken_runs(measurement: Measurement, quantity: Quantity) -> Judgement | None:
    """One broken run is enough: the others are shown, but a case is measured whole or not."""
    broken = {run.status: run for run in reversed(measurement.broken_runs)}
    for status in (RunStatus.FAILED, RunStatus.HUNG, RunStatus.INVALID):
        if status in broken:
            run = broken[status]
            return Judgement(
                quantity=quantity,
                verdict=Verdict(status.value),
                reason=f"{measurement.case_id}, run {run.run}: {run.reason}",
            )
    if measurement.median is None:
        reason = f"{measurement.case_id} has no run"
        return Judgement(quantity=quantity, verdict=Verdict.INVALID, reason=reason)
    return None


def _why_incomparable(measurement: Measurement, baseline: Baseline | None) -> str | None:
    """Numbers of different estimators or units never meet."""
    if baseline is None:
        return None
    for what, measured, accepted in (
        ("unit", measurement.unit, baseline.unit),
        ("estimator", measurement.estimator.value, baseline.estimator.value),
    ):
        if measured != accepted:
            return f"{baseline.place} has the {what} {accepted!r}, measured was {measured!r}"
    return None


def _compare(  # noqa: PLR0913 - the two numbers and all that bears on their comparison
    quantity: Quantity,
    measured: float | None,
    accepted: float | None,
    tolerance_percent: float,
    *,
    reason: str | None,
    record: bool,
) -> Judgement:
    if measured is None:
        raise AssertionError("broken runs are judged before any comparison")
    if accepted is None:
        return Judgement(
            quantity=quantity,
            verdict=Verdict.PASS if record else Verdict.NO_BASELINE,
            measured=measured,
            reason=reason,
            recorded=record,
        )
    if measured < accepted * (1 - tolerance_percent / 100):
        verdict = Verdict.REGRESSED
    elif measured > accepted * (1 + tolerance_percent / 100):
        verdict = Verdict.IMPROVED
    else:
        verdict = Verdict.PASS
    return Judgement(
        quantity=quantity,
        verdict=verdict,
        measured=measured,
        baseline=accepted,
        difference_percent=(measured / accepted - 1) * 100,
        tolerance_percent=tolerance_percent,
        reason=reason,
    )
