"""The control arm: confirms a verdict by the accepted software, run tonight on the same hosts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.noise import location, pooled_noise, t_quantile
from pytest_dlperf.gate.reference import Reference
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.statistics import MIN_RUNS_FOR_NOISE, difference_percent

if TYPE_CHECKING:
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import InterleavedRuns, Samples

_MAX_CONFIRMING_LOSS: Final = 0.015
_CONFIRMING_SHARE: Final = 0.75
_CONFIRMING_ERRORS: Final = 1.645
"""A loss that is confirmed has failed once already, so it needs less than a first alarm."""


class ControlRuns(Struct, frozen=True, kw_only=True):
    """Runs of a case, interleaved with the accepted software."""

    interleaved: InterleavedRuns | None = None
    problem: str | None = None
    """Why there are none."""


def confirm(
    judgement: Judgement,
    runs: ControlRuns,
    baseline: Baseline | None,
    *,
    min_loss_percent: float,
    without_control: Judgement,
) -> Judgement:
    """Confirm a regression by candidate and control, run interleaved, or take it back.

    It stands if the candidate is worse than the control, else it becomes ``environment_shift``.
    If the two cannot be compared, it becomes ``without_control``, the judgement of a gate without
    control arm: a smaller loss counts only if it is confirmed. A ratio is confirmed by the runs of
    its case. ``baseline`` is that of the compared metric, ``min_loss_percent`` the smallest loss
    that counts.
    """
    both = runs.interleaved
    if both is None:
        return _with_note(without_control, runs.problem or "the control arm has not run")
    for run in both.candidate.broken_runs:
        # The tested software has broken: these runs count like the others.
        where = f"{both.candidate.case_id}, run {run.run} beside the accepted software"
        return replace(
            judgement, verdict=Verdict(run.status.value), reason=f"{where}: {run.reason}"
        )
    name = judgement.metric.ratio_of or judgement.metric.name
    problem = _why_incomparable(both, name)
    if problem is not None:
        return _with_note(without_control, problem)
    arms = both.candidate.samples(name), both.control.samples(name)
    known = _noise(arms, baseline)
    if known is None:
        return _with_note(
            without_control,
            "the control arm is inconclusive: too few runs of each to estimate their noise",
        )
    found = _Arms.of(both.candidate.case_id, arms, baseline, *known)
    return _decide(judgement, found, min_loss_percent)


def _why_incomparable(both: InterleavedRuns, name: str) -> str | None:
    """Return why the arms cannot be compared; ``None`` if both are whole."""
    for run in both.control.broken_runs:
        return (
            f"the control arm is inconclusive: run {run.run} of the accepted software is "
            f"{run.status.value} ({run.reason})"
        )
    for arm, measurement in (("candidate", both.candidate), ("control", both.control)):
        values = measurement.samples(name).values
        if not values or min(values) <= 0:
            return f"the control arm is inconclusive: no run of the {arm} has a {name} above 0"
    return None


class _Arms(Struct, frozen=True, kw_only=True):
    """Locations of candidate and control, and their ratio with its relative standard ``error``.

    ``dof`` are the error's degrees of freedom; ``None`` if the noise is that of a baseline of many
    runs.
    """

    case_id: str
    unit: str
    candidate: float
    control: float
    ratio: float
    pairs: int
    error: float
    dof: int | None
    accepted: float | None

    @classmethod
    def of(
        cls,
        case_id: str,
        arms: tuple[Samples, Samples],
        baseline: Baseline | None,
        deviation: float,
        dof: int | None,
    ) -> _Arms:
        candidate, control = (arm.values for arm in arms)
        # The runs of a pair follow each other, so drift through the night cancels.
        ratios = [one / other for one, other in zip(candidate, control, strict=False)]
        return cls(
            case_id=case_id,
            unit=arms[0].metric.unit,
            candidate=location(candidate, deviation),
            control=location(control, deviation),
            ratio=location(ratios, deviation * math.sqrt(2)),
            pairs=len(ratios),
            error=deviation * math.sqrt(2 / len(ratios)),
            dof=dof,
            accepted=baseline.accepted if baseline else None,
        )

    @property
    def confirming_errors(self) -> float:
        """Standard errors that confirm a loss; more where the noise is that of few runs."""
        if self.dof is None:
            return _CONFIRMING_ERRORS
        return t_quantile(_CONFIRMING_ERRORS, self.dof)

    def describe(self) -> str:
        beside = ""
        if self.accepted is not None:
            difference = difference_percent(self.control, self.accepted)
            beside = f" ({numbers.signed_percent(difference)} from the accepted number)"
        return (
            f"{self.case_id} {numbers.quantity(self.candidate)} against "
            f"{numbers.quantity(self.control, self.unit)}{beside}"
        )


def _noise(
    arms: tuple[Samples, Samples], baseline: Baseline | None
) -> tuple[float, int | None] | None:
    """Relative deviation between runs; its degrees of freedom if it is that of tonight's arms."""
    # With fewer runs in the baseline, the noise is that of tonight's arms.
    if baseline is not None and sum(map(len, baseline.rolling)) >= MIN_RUNS_FOR_NOISE:
        return Reference.of(baseline.rolling, baseline.better).deviation, None
    # Each arm around its own mean: the difference between them is not noise.
    pooled = pooled_noise(arm.values for arm in arms)
    return None if pooled is None else (pooled.deviation, pooled.dof)


def _decide(judgement: Judgement, arms: _Arms, min_loss_percent: float) -> Judgement:
    if judgement.metric.better is None:
        raise AssertionError(f"{judgement.metric.name} has no direction")
    loss = judgement.metric.better.loss(arms.ratio, 1.0)
    # Where a loss of 1 % counts, a loss below 1.5 % has to be confirmed.
    least = min(_MAX_CONFIRMING_LOSS, _CONFIRMING_SHARE * min_loss_percent / 100)
    threshold = max(least, arms.error * arms.confirming_errors)
    comparison = (
        f"interleaved, the candidate is {numbers.percent(100 * abs(loss))} "
        f"{'worse' if loss > 0 else 'better'}, a loss counts from "
        f"{numbers.percent(100 * threshold)} on, "
        f"{numbers.counted(arms.pairs, 'run')} each: {arms.describe()}"
    )
    is_confirmed = loss > threshold
    told = f"{'' if is_confirmed else 'not '}confirmed by the control arm: {comparison}"
    return replace(
        judgement,
        verdict=judgement.verdict if is_confirmed else Verdict.ENVIRONMENT_SHIFT,
        reason=f"{judgement.reason}; {told}" if judgement.reason else told,
    )


def _with_note(judgement: Judgement, note: str) -> Judgement:
    return replace(judgement, notes=(*judgement.notes, note))
