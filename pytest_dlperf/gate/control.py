"""The control arm: confirms a verdict by the accepted software, run tonight on the same hosts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.noise import THRESHOLD_ERRORS, location, pooled_noise, t_quantile
from pytest_dlperf.gate.reference import Reference
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.metric import RuleName
from pytest_dlperf.model.statistics import MIN_RUNS_FOR_NOISE, difference_percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import InterleavedRuns, Samples
    from pytest_dlperf.model.metric import Better

_MAX_CONFIRMING_LOSS: Final = 0.015
_CONFIRMING_SHARE: Final = 0.75
_CONFIRMING_ERRORS: Final = 1.645
"""A loss that is confirmed has failed once already, so it needs less than a first alarm."""


class ControlRuns(Struct, frozen=True, kw_only=True):
    """Runs interleaved with the accepted software: of the case, then of a ratio's reference."""

    interleaved: tuple[InterleavedRuns, ...] = ()
    problem: str | None = None
    """Why they are fewer than they should be."""


def confirm(
    judgement: Judgement,
    runs: ControlRuns,
    baselines: Sequence[Baseline | None],
    *,
    min_loss_percent: float,
    without_control: Judgement,
) -> Judgement:
    """Confirm or change a verdict by candidate and control, run interleaved.

    ``regressed`` stands if the candidate is worse than the control, else it becomes
    ``environment_shift``. ``pass`` and ``improved`` become ``regressed`` if the candidate is
    worse: the night hides a loss. If the two cannot be compared, these become ``inconclusive``, and
    ``regressed`` becomes ``without_control``, the judgement of a gate without control arm: a
    smaller loss counts only if it is confirmed. Other verdicts stand. ``baselines`` are those of
    the case and of a ratio's reference, ``min_loss_percent`` is the smallest loss that counts.
    """
    for both in runs.interleaved:
        for run in both.candidate.broken_runs:
            # The tested software has broken: these runs count like the others.
            where = f"{both.candidate.case_id}, run {run.run} beside the accepted software"
            return replace(
                judgement, verdict=Verdict(run.status.value), reason=f"{where}: {run.reason}"
            )
    name = judgement.metric.ratio_of or judgement.metric.name
    problem = _why_incomparable(runs, name)
    if problem is not None:
        if judgement.verdict.passes:
            return replace(judgement, verdict=Verdict.INCONCLUSIVE, reason=problem)
        return _with_note(without_control, problem)
    ends = []
    for both, baseline in zip(runs.interleaved, baselines, strict=True):
        arms = both.candidate.samples(name), both.control.samples(name)
        known = _noise(arms, baseline)
        if known is None:
            return _with_note(
                without_control,
                "the control arm is inconclusive: too few runs of each to estimate their noise",
            )
        ends.append(_Arms.of(both.candidate.case_id, arms, baseline, *known))
    return _decide(judgement, tuple(ends), min_loss_percent)


def _why_incomparable(runs: ControlRuns, name: str) -> str | None:
    """Return why the arms cannot be compared; ``None`` if both are whole."""
    for both in runs.interleaved:
        for run in both.control.broken_runs:
            return (
                f"the control arm is inconclusive: run {run.run} of the accepted software is "
                f"{run.status.value} ({run.reason})"
            )
        for arm, measurement in (("candidate", both.candidate), ("control", both.control)):
            values = measurement.samples(name).values
            if not values or min(values) <= 0:
                return f"the control arm is inconclusive: no run of the {arm} has a {name} above 0"
    return runs.problem


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


def _decide(judgement: Judgement, ends: tuple[_Arms, ...], min_loss_percent: float) -> Judgement:
    """Decide by the arms of a case, or by those of both ends of a ratio."""
    case, *over = ends
    ratio = case.ratio
    for end in over:
        ratio /= end.ratio
    loss = _better(judgement).loss(ratio, 1.0)
    least = min_loss_percent / 100
    # Where a loss of 1 % counts, a loss below 1.5 % has to be confirmed.
    confirming = max(
        min(_MAX_CONFIRMING_LOSS, _CONFIRMING_SHARE * least), _error(ends, _CONFIRMING_ERRORS)
    )
    if judgement.verdict is Verdict.REGRESSED:
        comparison = _comparison(loss, confirming, ends)
        if loss > confirming:
            reason = f"confirmed by the control arm: {comparison}"
            return replace(judgement, reason=_joined(judgement.reason, reason))
        reason = f"not confirmed by the control arm: {_why_gone(judgement, ends)}; {comparison}"
        return replace(
            judgement,
            verdict=Verdict.ENVIRONMENT_SHIFT,
            reason=_joined(judgement.reason, reason),
        )
    if judgement.rule is RuleName.TOLERANCE and judgement.tolerance_percent is not None:
        least = judgement.tolerance_percent / 100
    # Without a first alarm the ratio alone has to reach the threshold of one: 1.645 errors would
    # be an alarm every twentieth night.
    needed = max(least, _error(ends, THRESHOLD_ERRORS))
    comparison = _comparison(loss, needed, ends)
    if judgement.verdict in {Verdict.PASS, Verdict.IMPROVED} and loss > needed:
        reason = f"the baseline is reached, but the control arm shows a loss: {comparison}"
        return replace(judgement, verdict=Verdict.REGRESSED, reason=reason)
    return _with_note(judgement, f"control arm: {comparison}")


def _error(ends: tuple[_Arms, ...], errors: float) -> float:
    """So many standard errors of all ends together; more where the noise is that of few runs."""
    return math.hypot(
        *(end.error * (errors if end.dof is None else t_quantile(errors, end.dof)) for end in ends)
    )


def _why_gone(judgement: Judgement, ends: tuple[_Arms, ...]) -> str:
    """Say whether the accepted software is worse tonight too, or the loss did not come again."""
    case, *over = ends
    control = case.control
    for end in over:
        control /= end.control
    reference, lost = judgement.reference, judgement.loss_percent
    if reference is None or lost is None:
        return "tonight the accepted software is no better"
    if 100 * _better(judgement).loss(control, reference) < lost / 2:
        return "the loss was gone when both were run again"
    shown = numbers.signed_percent(difference_percent(control, reference))
    return f"tonight the accepted software is no better: {shown} from its reference"


def _better(judgement: Judgement) -> Better:
    if judgement.metric.better is None:
        raise AssertionError(f"{judgement.metric.name} has no direction")
    return judgement.metric.better


def _comparison(loss: float, threshold: float, ends: tuple[_Arms, ...]) -> str:
    what = f"{numbers.percent(100 * abs(loss))} {'worse' if loss > 0 else 'better'}"
    pairs = min(end.pairs for end in ends)
    described = "; ".join(end.describe() for end in ends)
    return (
        f"interleaved, the candidate is {what}, a loss counts from "
        f"{numbers.percent(100 * threshold)} on, "
        f"{numbers.counted(pairs, 'run')} each: {described}"
    )


def _joined(first: str | None, second: str) -> str:
    return f"{first}; {second}" if first else second


def _with_note(judgement: Judgement, note: str) -> Judgement:
    return replace(judgement, notes=(*judgement.notes, note))
