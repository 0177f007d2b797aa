"""Confirms a verdict by the accepted software, run tonight on the same hosts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate import wording
from pytest_dlperf.gate.noise import location, noise, pooled_noise, t_quantile
from pytest_dlperf.gate.sequential import THRESHOLD_ERRORS
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.metric import RuleName
from pytest_dlperf.model.statistics import MANY_RUNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import InterleavedRuns, Samples
    from pytest_dlperf.model.metric import Better

_CONFIRMING_LOSS: Final = 0.015
_CONFIRMING_PART: Final = 0.75
_CONFIRMING_ERRORS: Final = 1.645
"""What has already failed once needs less to be confirmed than a first alarm needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRuns:
    """What was run beside the accepted software, for the case and what a ratio is over."""

    interleaved: tuple[InterleavedRuns, ...] = ()
    problem: str | None = None
    """Why there are fewer than were asked for."""


def confirm(
    judgement: Judgement,
    runs: ControlRuns,
    baselines: Sequence[Baseline | None],
    *,
    min_loss_percent: float,
    alone: Judgement,
) -> Judgement:
    """Let a verdict stand only if candidate and control, run interleaved, say the same.

    ``regressed`` stands if the candidate is worse than the control, else it becomes
    ``environment_shift``. ``pass`` and ``improved`` become ``regressed`` if the candidate is
    worse: then the night hides a loss. Where the two could not be compared these become
    ``inconclusive``, and for ``regressed`` stands ``alone``, the judgement if no control arm
    follows: a smaller loss counts only if it is confirmed. Other verdicts stand. ``baselines`` are
    those that the ends of the judged metric are held against, ``min_loss_percent`` is the smallest
    loss that counts.
    """
    for both in runs.interleaved:
        for run in both.candidate.broken_runs:
            # All runs count: what is tested has broken.
            where = f"{both.candidate.case_id}, run {run.run} beside the accepted software"
            return replace(
                judgement, verdict=Verdict(run.status.value), reason=f"{where}: {run.reason}"
            )
    name = judgement.metric.ratio_of or judgement.metric.name
    problem = _why_silent(runs, name)
    if problem is not None:
        if judgement.verdict.passes:
            return replace(judgement, verdict=Verdict.INCONCLUSIVE, reason=problem)
        return _with_note(alone, problem)
    ends = []
    for both, baseline in zip(runs.interleaved, baselines, strict=True):
        arms = both.candidate.samples(name), both.control.samples(name)
        known = _noise(arms, baseline)
        if known is None:
            return _with_note(
                alone,
                "the control arm says nothing: too few runs of each to tell how much they differ",
            )
        ends.append(_Arms.of(both.candidate.case_id, arms, baseline, *known))
    return _decide(judgement, tuple(ends), min_loss_percent)


def _why_silent(runs: ControlRuns, name: str) -> str | None:
    """Say why nothing can be compared; ``None`` if both arms are whole."""
    for both in runs.interleaved:
        for run in both.control.broken_runs:
            return (
                f"the control arm says nothing: run {run.run} of the accepted software is "
                f"{run.status.value} ({run.reason})"
            )
        for arm, measurement in (("candidate", both.candidate), ("control", both.control)):
            values = measurement.samples(name).values
            if not values or min(values) <= 0:
                return f"the control arm says nothing: the {arm} has no run with a {name} above 0"
    return runs.problem


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arms:
    """Where candidate and control lie, and how far their ratio is sure.

    ``error`` is relative; ``dof`` is ``None`` where the many runs of a baseline tell it.
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
        # The two runs of a pair stand side by side, so what drifts through the night cancels.
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
            difference = 100 * (self.control / self.accepted - 1)
            beside = f" ({wording.signed_percent(difference)} from the accepted number)"
        return (
            f"{self.case_id} {wording.number(self.candidate)} against "
            f"{wording.number(self.control, self.unit)}{beside}"
        )


def _noise(
    arms: tuple[Samples, Samples], baseline: Baseline | None
) -> tuple[float, int | None] | None:
    """Give the relative deviation between runs, and its degrees of freedom if tonight's tell it."""
    known = [run for runs in baseline.rolling for run in runs] if baseline else []
    # With fewer runs of the baseline, tonight's two arms tell the noise.
    if len(known) >= MANY_RUNS:
        return noise(known), None
    # Each arm around its own mean: the difference between them is no noise.
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
    # A case that may lose 1 % has lost what it may not before 1.5 % are lost.
    confirming = max(
        min(_CONFIRMING_LOSS, _CONFIRMING_PART * least), _error(ends, _CONFIRMING_ERRORS)
    )
    if judgement.verdict is Verdict.REGRESSED:
        seen = _seen(loss, confirming, ends)
        if loss > confirming:
            reason = f"confirmed by the control arm: {seen}"
            return replace(judgement, reason=_joined(judgement.reason, reason))
        reason = f"not confirmed by the control arm: {_why_gone(judgement, ends)}; {seen}"
        return replace(
            judgement,
            verdict=Verdict.ENVIRONMENT_SHIFT,
            reason=_joined(judgement.reason, reason),
        )
    if judgement.rule is RuleName.TOLERANCE and judgement.tolerance_percent is not None:
        least = judgement.tolerance_percent / 100
    # Where no first alarm has narrowed the field, the ratio alone must reach what a first alarm
    # needs: 1.645 errors would be an alarm every twentieth night.
    needed = max(least, _error(ends, THRESHOLD_ERRORS))
    seen = _seen(loss, needed, ends)
    if judgement.verdict in {Verdict.PASS, Verdict.IMPROVED} and loss > needed:
        reason = f"the baseline is reached, but the control arm shows a loss: {seen}"
        return replace(judgement, verdict=Verdict.REGRESSED, reason=reason)
    return _with_note(judgement, f"control arm: {seen}")


def _error(ends: tuple[_Arms, ...], errors: float) -> float:
    """Add up so many standard errors of all ends; more where few runs tell the noise."""
    return math.hypot(
        *(end.error * (errors if end.dof is None else t_quantile(errors, end.dof)) for end in ends)
    )


def _why_gone(judgement: Judgement, ends: tuple[_Arms, ...]) -> str:
    """Say whether the accepted software is worse tonight, or the loss did not come again."""
    case, *over = ends
    control = case.control
    for end in over:
        control /= end.control
    reference, lost = judgement.reference, judgement.loss_percent
    if reference is None or lost is None:
        return "tonight the accepted software is no better"
    if 100 * _better(judgement).loss(control, reference) < lost / 2:
        return "the loss was gone when both were run again"
    shown = wording.signed_percent(100 * (control / reference - 1))
    return f"tonight the accepted software is no better: {shown} from its reference"


def _better(judgement: Judgement) -> Better:
    if judgement.metric.better is None:
        raise AssertionError(f"{judgement.metric.name} is held against nothing")
    return judgement.metric.better


def _seen(loss: float, threshold: float, ends: tuple[_Arms, ...]) -> str:
    what = f"{100 * abs(loss):.1f} % {'worse' if loss > 0 else 'better'}"
    pairs = min(end.pairs for end in ends)
    numbers = "; ".join(end.describe() for end in ends)
    return (
        f"interleaved, the candidate is {what}, a loss counts from {100 * threshold:.1f} % on, "
        f"{wording.runs(pairs)} each: {numbers}"
    )


def _joined(first: str | None, second: str) -> str:
    return f"{first}; {second}" if first else second


def _with_note(judgement: Judgement, note: str) -> Judgement:
    return replace(judgement, notes=(*judgement.notes, note))
