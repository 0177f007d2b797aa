"""Slow changes over weeks, of which each night's part drowns in the noise.

In plain Python, for at most a hundred nights: NumPy would cost a session its import.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate.noise import median, norm_sf
from pytest_dlperf.history.series import Drift
from pytest_dlperf.history.smoothing import without_accidents
from pytest_dlperf.history.swings import variance_inflation

if TYPE_CHECKING:
    from collections.abc import Sequence

LENGTHS: Final = (90, 64, 45, 32, 22, 15)
"""Nights that are looked at, the last so many each time."""

MIN_CHANGE: Final = 0.01
"""Smaller changes in all, as a part of the level, are not told."""

MIN_LINE: Final = 5
"""As many values are a line, or two steps, as one likes."""

_MAX_P: Final = 0.0002
_PROMISING: Final = 2.5
_WEEK_S: Final = 7 * 24 * 3600.0


def drift_of(throughputs: Sequence[float], nights: Sequence[tuple[float, str]]) -> Drift | None:
    """The slow change that the last nights show, if they do.

    ``nights`` are, for each of the throughputs, when the session began: seconds of the Unix epoch,
    and as text. What lies before an accepted change does not belong here.

    The longest of a few periods that end tonight counts, in which Mann and Kendall's test finds a
    trend (p below 0.0002, both sides, with nights that hang together counted for fewer), the slope
    of Theil and Sen makes 1 % at least, and a line fits better than one change of the level, or
    two. What fits those is no drift.
    """
    if len(throughputs) < LENGTHS[-1]:
        return None
    values = without_accidents(throughputs[-LENGTHS[0] :])
    for length in dict.fromkeys(min(length, len(values)) for length in LENGTHS):
        if length < LENGTHS[-1]:
            break
        part = values[-length:]
        if not _is_promising(part):
            continue
        # What lies before may have steps, which a line would only smear.
        autocorrelation = variance_inflation([*values[:-length], *_level(part)])
        if _kendall_p(part, autocorrelation) > _MAX_P:
            continue
        slope = _theil_sen(part)
        level = median(part) - slope * (length - 1) / 2
        change = slope * (length - 1) / level
        if abs(change) < MIN_CHANGE or not _is_a_line(part, slope):
            continue
        since_s, since = nights[-length]
        weeks = (nights[-1][0] - since_s) / _WEEK_S
        if weeks < 1:
            continue  # many sessions of some days: whatever that is, it is nothing over weeks
        return Drift(
            since=since, nights=length, percent=100 * change, percent_per_week=100 * change / weeks
        )
    return None


def _is_promising(values: Sequence[float]) -> bool:
    """Whether an ordinary regression sees anything at all: much cheaper than all pairs."""
    count = len(values)
    middle, mean = (count - 1) / 2, math.fsum(values) / count
    along = count * (count * count - 1) / 12
    across = math.fsum([(value - mean) ** 2 for value in values])
    both = math.fsum([(k - middle) * value for k, value in enumerate(values)])
    rest = across - both * both / along
    return across > 0 and both * both / along * (count - 2) > _PROMISING**2 * max(rest, 0.0)


def _level(values: Sequence[float]) -> list[float]:
    """The values turned until the line that fits best is level, around their first part."""
    count = len(values)
    middle = (count - 1) / 2
    both = math.fsum([(k - middle) * value for k, value in enumerate(values)])
    slope = both * 12 / (count * (count * count - 1))
    return [value - slope * k for k, value in enumerate(values)]


def _kendall_p(values: Sequence[float], autocorrelation: float) -> float:
    """The two-sided p-value of Mann and Kendall's test for a trend, by its normal approximation."""
    count, score = len(values), 0
    for k, value in enumerate(values):
        for later in values[k + 1 :]:
            score += (later > value) - (later < value)
    tied = sum(n * (n - 1) * (2 * n + 5) for n in _repeated(values))
    variance = autocorrelation * (count * (count - 1) * (2 * count + 5) - tied) / 18
    if variance <= 0:
        return 1.0
    return min(1.0, 2 * norm_sf(max(abs(score) - 1, 0) / math.sqrt(variance)))


def _repeated(values: Sequence[float]) -> list[int]:
    times: dict[float, int] = {}
    for value in values:
        times[value] = times.get(value, 0) + 1
    return [count for count in times.values() if count > 1]


def _theil_sen(values: Sequence[float]) -> float:
    """The median slope between two nights, per night."""
    return median(
        [
            (later - value) / distance
            for k, value in enumerate(values)
            for distance, later in enumerate(values[k + 1 :], 1)
        ]
    )


def is_a_line(values: Sequence[float]) -> bool:
    """Whether a line explains the values better than one or two changes of the level do."""
    return len(values) > MIN_LINE and _is_a_line(values, _theil_sen(values))


def _is_a_line(values: Sequence[float], slope: float) -> bool:
    """Whether a line explains the values better than one or two changes of the level do.

    By Schwarz's criterion, in which a line has two parameters, one step three and two steps five.
    """
    count = len(values)
    flat = [value - slope * k for k, value in enumerate(values)]
    mean = math.fsum(flat) / count
    line = math.fsum([(value - mean) ** 2 for value in flat])
    one, two = _steps(values)

    def criterion(squares: float, parameters: int) -> float:
        # Values that were rounded may leave nothing at all.
        least = (1e-6 * mean) ** 2 * count
        return count * math.log(max(squares, least) / count) + parameters * math.log(count)

    return criterion(line, 2) < min(criterion(one, 3), criterion(two, 5))


def _steps(values: Sequence[float]) -> tuple[float, float]:
    """The sum of squares that remains with the best single step, and with the best two."""
    shifted = [value - values[0] for value in values]  # large numbers would cancel
    sums, squares = [0.0], [0.0]
    for value in shifted:
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)

    def rest(start: int, end: int) -> float:
        total = sums[end] - sums[start]
        return squares[end] - squares[start] - total * total / (end - start)

    count = len(values)
    one = two = math.inf
    to_the_end = [rest(start, count) for start in range(count)]
    for first in range(1, count):
        before = rest(0, first)
        one = min(one, before + to_the_end[first])
        if before >= two:
            continue
        for second in range(first + 1, count):
            two = min(two, before + rest(first, second) + to_the_end[second])
    return max(one, 0.0), max(two, 0.0)
