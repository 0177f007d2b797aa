"""The control arm: confirms a verdict by the accepted software, run now on the same hosts."""

from __future__ import annotations

import math
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.gate.noise import location, pooled_noise, t_quantile
from pytest_dlperf.gate.rule import MAX_OWN_NOISE
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import Baseline, PooledNoise
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import InterleavedRuns
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.statistics import MIN_RUNS_FOR_NOISE, difference_percent

_MAX_CONFIRMING_LOSS: Final = 0.015
_CONFIRMING_SHARE: Final = 0.75
_CONFIRMING_ERRORS: Final = 1.645
"""A loss that is confirmed has failed once already, so it needs less than a first alarm."""


def confirm(
    judgement: Judgement,
    runs: InterleavedRuns | str,
    baseline: Baseline | None,
    *,
    min_loss_percent: float,
    without_control: Judgement,
) -> Judgement:
    """Confirm a regression by candidate and control, run interleaved, or take it back.

    It stands if the candidate is worse than the control, else it becomes ``environment_shift``.
    If the two cannot be compared, or ``runs`` says why there are none, it becomes
    ``without_control``, the judgement of a gate without control arm: a smaller loss counts only if
    it is confirmed. A ratio is confirmed by the runs of its case. ``baseline`` is that of the
    compared metric, ``min_loss_percent`` the smallest loss that counts.
    """
    if isinstance(runs, str):
        return replace(without_control, notes=(*without_control.notes, runs))
    for run in runs.candidate.broken_runs:
        # The tested software has broken: these runs count like the others.
        where = f"{runs.candidate.case_id}, run {run.run} beside the accepted software"
        verdict = Verdict(run.status.value)
        return replace(judgement, verdict=verdict, reason=f"{where}: {run.reason}")
    name = judgement.metric.ratio_of or judgement.metric.name
    problem = _why_incomparable(runs, name)
    noise = _noise(runs, name, baseline) if problem is None else None
    if noise is None:
        problem = problem or "too few runs of each to estimate their noise"
        note = f"the control arm is inconclusive: {problem}"
        return replace(without_control, notes=(*without_control.notes, note))
    # Where a loss of 1 % counts, a loss below 1.5 % has to be confirmed.
    least = min(_MAX_CONFIRMING_LOSS, _CONFIRMING_SHARE * min_loss_percent / 100)
    accepted = baseline.accepted if baseline else None
    is_confirmed, comparison = _compare(runs, judgement.metric, noise, least, accepted)
    told = f"{'' if is_confirmed else 'not '}confirmed by the control arm: {comparison}"
    return replace(
        judgement,
        verdict=judgement.verdict if is_confirmed else Verdict.ENVIRONMENT_SHIFT,
        reason=f"{judgement.reason}; {told}" if judgement.reason else told,
    )


def _why_incomparable(both: InterleavedRuns, name: str) -> str | None:
    """Return why the arms cannot be compared; ``None`` if both are whole."""
    for run in both.control.broken_runs:
        return f"run {run.run} of the accepted software is {run.status.value} ({run.reason})"
    for arm, measurement in (("candidate", both.candidate), ("control", both.control)):
        values = measurement.samples(name).values
        if not values or min(values) <= 0:
            return f"no run of the {arm} has a {name} above 0"
    return None


def _noise(both: InterleavedRuns, name: str, baseline: Baseline | None) -> PooledNoise | None:
    """Pool the noise of both arms, and that of a baseline of many runs unless they are noisier."""
    # Each arm around its own mean: the difference between them is not noise.
    arms = [arm.samples(name).values for arm in (both.candidate, both.control)]
    own = pooled_noise(arms)
    rolling = baseline.rolling if baseline else ()
    if sum(map(len, rolling)) < MIN_RUNS_FOR_NOISE:
        return own
    known = pooled_noise([*rolling, *arms])
    is_noisy = own and known and own.deviation > MAX_OWN_NOISE * known.deviation
    return own if is_noisy else known


def _compare(
    both: InterleavedRuns, metric: Metric, noise: PooledNoise, least: float, accepted: float | None
) -> tuple[bool, str]:
    """Return whether the candidate is worse, and the comparison in words."""
    better, name = metric.better, metric.ratio_of or metric.name
    if better is None:
        raise AssertionError(f"{metric.name} has no direction")
    candidate, control = both.candidate.samples(name), both.control.samples(name)
    # The runs of a pair follow each other, so drift through the session cancels.
    ratios = [one / other for one, other in zip(candidate.values, control.values, strict=False)]
    loss = better.loss(location(ratios, noise.deviation * math.sqrt(2)), 1.0)
    error = noise.deviation * math.sqrt(2 / len(ratios))
    threshold = max(least, t_quantile(_CONFIRMING_ERRORS, noise.dof) * error)
    levels = [location(arm.values, noise.deviation) for arm in (candidate, control)]
    beside = ""
    if accepted is not None:
        difference = numbers.signed_percent(difference_percent(levels[1], accepted))
        beside = f" ({difference} from the accepted number)"
    comparison = (
        f"interleaved, the candidate is {numbers.percent(100 * abs(loss))} "
        f"{'worse' if loss > 0 else 'better'}, a loss counts from "
        f"{numbers.percent(100 * threshold)} on, {numbers.counted(len(ratios), 'run')} each: "
        f"{both.candidate.case_id} {numbers.quantity(levels[0])} against "
        f"{numbers.quantity(levels[1], candidate.metric.unit)}{beside}"
    )
    return loss > threshold, comparison
