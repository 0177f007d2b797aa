"""How far a session's runs lie apart: whether they may be accepted, or join a baseline.

``benchmarks/gate_power.py`` shows what its constants keep out of baselines, and what they let in.
"""

from __future__ import annotations

import math
import re
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
from pytest_dlperf.gate.sequential import LAST_LOOK
from pytest_dlperf.gate.tolerance import median_error
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better, Source
from pytest_dlperf.model.statistics import (
    MIN_RUNS_FOR_NOISE,
    difference_percent,
    last_digit,
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

_MAX_SCATTER: Final = 1.5
_MAX_SCATTER_OF_NINE: Final = 1.4
_MAX_SCATTER_OF_FEW: Final = 2.0
"""The scatter of a session over that of the baseline: of many runs, and of fewer than 20.

Nine runs of a session show theirs well enough for a smaller bound. With a smaller one for few, a
baseline whose first runs agree by chance would take no other.
"""

_UNLIKELY_GAIN: Final = 10.0
"""From so many times the accepted number on, a unit has changed rather than the software."""

_BITS: Final = re.compile(r"[kKMGTP]?i?(?:[bB]|[bB]its?|[bB]ytes?)(?:/s(?:ec)?|ps)")
_BITS_OF_BYTE: Final = 8
_NEAR_BITS: Final = 0.03
"""Of a rate in bits or bytes, a number so near to 8 times the accepted one, or an eighth of it, is
of the other unit."""

_NOISY: Final = 3.0
"""The scatter over that of the baseline which a session is told from."""

_MIN_EVIDENCE_OF_QUIET: Final = 5.4
_MIN_EVIDENCE_OF_NOISE: Final = 2.3
"""Logarithms of the likelihood ratio, from which on no further run is needed (Wald): one noisy
session in 200 passes for a quiet one, one quiet session in ten for a noisy one."""


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
    accepted, amount = baseline.accepted, numbers.quantity(measured, metric.unit)
    asked = "has the program begun to print another unit?"
    if decision.verdict is Verdict.REGRESSED and _are_bits(accepted, measured, metric):
        note = f"{amount} is an eighth of what is accepted: {asked}"
        return replace(decision, notes=(*decision.notes, note))
    is_gain = decision.verdict is Verdict.IMPROVED and metric.tolerance_at_least is None
    if not is_gain or not is_unlikely_gain(measured, accepted, metric):
        return decision
    times = max(measured / accepted, accepted / measured)
    reason = (
        f"{amount} is {times:.4g} times as good as accepted: {asked} --dlperf-update-baselines "
        "accepts a real gain"
    )
    return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=reason)


def is_unlikely_gain(measured: float, accepted: float, metric: Metric) -> bool:
    """Whether a number is so much better than the accepted one that units differ, more likely."""
    is_higher = metric.better is Better.HIGHER
    low, high = (accepted, measured) if is_higher else (measured, accepted)
    return 0 < low * _UNLIKELY_GAIN <= high or _are_bits(measured, accepted, metric)


def _are_bits(high: float, low: float, metric: Metric) -> bool:
    """Whether a rate is 8 times another one, as bits are of bytes."""
    is_near = abs(high - _BITS_OF_BYTE * low) <= _NEAR_BITS * high
    return is_near and _BITS.fullmatch(metric.unit) is not None


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
        return f"{remedy}, such as 'tolerance: {{at_least: {amount}}}'"
    return f"{remedy}, such as 'tolerance_percent: {_rounded_up(100 * needed):g}'"


def _rounded_up(value: float) -> float:
    """Round to the next number of two digits."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / digit) * digit


def why_noisier(runs: Sequence[float], sessions: Sequence[Sequence[float]]) -> str | None:
    """Return why a session is too noisy to join a baseline; ``None`` if it is not.

    Outliers count here: a noisy session makes the baseline blind.
    """
    usual = _usual_scatter(sessions, runs)
    if usual is None or len(runs) < 2:  # noqa: PLR2004 - one value has no deviation
        return None
    allowed = _MAX_SCATTER if len(runs) < LAST_LOOK else _MAX_SCATTER_OF_NINE
    if sum(map(len, sessions)) < MIN_RUNS_FOR_NOISE:
        allowed = _MAX_SCATTER_OF_FEW
    own = _scatter(runs)
    if own <= allowed * usual:
        return None
    return (
        f"its runs differ by {numbers.variation(own)}, those of the baseline by "
        f"{numbers.variation(usual)}"
    )


def is_scatter_uncertain(runs: Sequence[float], sessions: Sequence[Sequence[float]]) -> bool:
    """Whether more runs would tell if a session is too noisy to join a baseline.

    A sequential test of the baseline's scatter against three times that: nine runs are the last.
    """
    usual = _usual_scatter(sessions, runs)
    if usual is None or len(runs) < 2:  # noqa: PLR2004 - one value has no deviation
        return False
    dof = len(runs) - 1
    squares = dof * (_scatter(runs) / usual) ** 2
    evidence = squares / 2 * (1 - _NOISY**-2) - dof * math.log(_NOISY)
    return -_MIN_EVIDENCE_OF_QUIET < evidence < _MIN_EVIDENCE_OF_NOISE


def _usual_scatter(sessions: Sequence[Sequence[float]], runs: Sequence[float]) -> float | None:
    """Return the scatter of sessions: half a printed digit at least, by which rounding differs."""
    known = [_scatter(session) for session in counted_sessions(sessions) if len(session) > 1]
    if not known:
        return None
    every = [run for session in sessions for run in session]
    rounding = last_digit([*every, *runs]) / 2 / mean(runs)
    return max(median(known), noise(every), rounding)


def _scatter(runs: Sequence[float]) -> float:
    return sample_standard_deviation(runs) / mean(runs)
