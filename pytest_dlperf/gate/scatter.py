"""How far a session's runs lie apart: whether they may be accepted, or join a baseline.

``benchmarks/gate_power.py`` shows what its constants keep out of baselines, and what they let in.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from pytest_dlperf.gate.noise import (
    OUTLIER_RADIUS_NOISE,
    are_alike,
    median_variance,
    noise,
    t_quantile,
)
from pytest_dlperf.gate.reference import counted_sessions, groups_of_few
from pytest_dlperf.gate.tolerance import median_error
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better, Source
from pytest_dlperf.model.statistics import (
    difference_percent,
    mean,
    median,
    sample_standard_deviation,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.judgement import Decision
    from pytest_dlperf.model.metric import Metric

_MIN_RUNS_FOR_DEVIATION: Final = 3
"""Fewer runs do not show how far runs usually lie apart."""

_SURE_DEVIATIONS: Final = 2.576
"""Normal deviations that one night in 200 exceeds."""

_MIN_TOLERANCE_ERRORS: Final = 2.326
"""Normal deviations that one night in 100 exceeds."""

_MAX_SCATTER: Final = 1.6
"""The scatter of a session over that of the baseline, at most."""

_UNLIKELY_GAIN: Final = 10.0
"""From so many times the accepted number on, a unit has changed rather than the software."""


def why_too_scattered(runs: Sequence[float], *, tolerance_percent: float) -> str | None:
    """Return why runs scatter too much for a baseline; ``None`` if they do not."""
    if len(runs) < _MIN_RUNS_FOR_DEVIATION:
        apart = difference_percent(max(runs), min(runs)) if runs else 0.0
        is_far = apart > tolerance_percent
        return f"its {len(runs)} runs lie {numbers.percent(apart)} apart" if is_far else None
    deviation = noise(runs)
    if 100 * deviation > tolerance_percent:
        return (
            f"its runs differ by {numbers.variation(deviation)}, which is more than the tolerance "
            f"of {tolerance_percent:g} %"
        )
    middle = median(runs)
    radius = middle * max(OUTLIER_RADIUS_NOISE * deviation, tolerance_percent / 100)
    far = sum(abs(run - middle) > radius for run in runs)
    if 3 * far > len(runs):
        return f"{far} of its {len(runs)} runs lie far from the others"
    return None


def notes_of_accepted(
    metric: Metric, runs: Sequence[float], *, tolerance_percent: float
) -> tuple[str, ...]:
    """Note that runs to accept lie in two modes, or that nights of them need a wider tolerance."""
    groups = groups_of_few(runs)
    if groups is not None:
        return (groups.note("runs"),)
    # That of a ratio has the noise of both ends.
    error = median_error(runs, (), len(runs)) if metric.ratio_of is None else None
    if (
        error is None
        or are_alike(runs)
        or tolerance_percent / 100 >= _MIN_TOLERANCE_ERRORS * error.value
    ):
        return ()
    note = (
        f"its runs differ by {numbers.variation(noise(runs))}: of the nights judged by a tolerance "
        f"of {tolerance_percent:g} %, more than one in 100 would be a false alarm; "
        f"{remedy_for_scatter(metric, runs)}"
    )
    return (note,)


def plausible(decision: Decision, measured: float, baseline: Baseline, metric: Metric) -> Decision:
    """Leave a gain open that is too large to be one: a program may print another unit since.

    A loss stands, whatever it is of.
    """
    accepted = baseline.accepted
    is_gain = decision.verdict is Verdict.IMPROVED and metric.tolerance_at_least is None
    if not is_gain or not is_unlikely_gain(measured, accepted, metric):
        return decision
    times = max(measured / accepted, accepted / measured)
    reason = (
        f"{numbers.quantity(measured, metric.unit)} is {times:.4g} times as good as accepted: has "
        "the program begun to print another unit? --dlperf-update-baselines accepts a real gain"
    )
    return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=reason)


def is_unlikely_gain(measured: float, accepted: float, metric: Metric) -> bool:
    """Whether a number is so much better than the accepted one that units differ, more likely."""
    is_higher = metric.better is Better.HIGHER
    low, high = (accepted, measured) if is_higher else (measured, accepted)
    return 0 < low * _UNLIKELY_GAIN <= high


def needed_tolerance(runs: Sequence[float], better: Better) -> float | None:
    """Return the tolerance that runs with this scatter need, as a part; ``None`` with too few.

    With it, the median of as many runs is a false alarm in one night of 200 at most. The scatter
    is that of logarithms, since times near zero are skewed.
    """
    if len(runs) < _MIN_RUNS_FOR_DEVIATION:
        return None
    deviation = sample_standard_deviation([math.log(run) for run in runs])
    error = deviation * math.sqrt(2 * median_variance(len(runs)))
    most = t_quantile(_SURE_DEVIATIONS, len(runs) - 1) * error
    return math.expm1(most) if better is Better.LOWER else -math.expm1(-most)


def remedy_for_scatter(metric: Metric, runs: Sequence[float]) -> str:
    """Say what it takes to accept runs that scatter too much."""
    remedy = "measure when the machines are quiet, or set a wider tolerance in the system file"
    needed = needed_tolerance(runs, metric.better) if metric.better is not None else None
    if not needed:
        return remedy
    if metric.better is Better.LOWER and metric.source is not Source.RATIO:
        amount = f"{_rounded_up(needed * median(runs)):g} {metric.unit}".rstrip()
        return f"{remedy}, such as 'tolerance_at_least: {amount}'"
    return f"{remedy}, such as 'tolerance_percent: {_rounded_up(100 * needed):g}'"


def _rounded_up(value: float) -> float:
    """Round to the next number of two digits."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / digit) * digit


def why_noisier(runs: Sequence[float], sessions: Sequence[Sequence[float]]) -> str | None:
    """Return why a session is too noisy to join a baseline; ``None`` if it is not.

    Outliers count here: a noisy session makes the baseline blind.
    """
    known = [_scatter(session) for session in counted_sessions(sessions) if len(session) > 1]
    if not known or len(runs) < 2:  # noqa: PLR2004 - one value has no deviation
        return None
    usual = max(median(known), noise([run for session in sessions for run in session]))
    own = _scatter(runs)
    if own <= _MAX_SCATTER * usual:
        return None
    return (
        f"its runs differ by {numbers.variation(own)}, those of the baseline by "
        f"{numbers.variation(usual)}"
    )


def _scatter(runs: Sequence[float]) -> float:
    return sample_standard_deviation(runs) / mean(runs)
