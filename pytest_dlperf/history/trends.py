"""Statistics of many nights: noise, drift over weeks, and dated changes of the level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, combinations, pairwise
from typing import Final

from msgspec import Struct

from pytest_dlperf.gate.noise import MIN_NOISE, median_variance, pooled_noise, t_sf
from pytest_dlperf.history.series import ChangePoint, Day, Drift
from pytest_dlperf.model.statistics import MAD_TO_DEVIATION, mean, median

DRIFT_LENGTHS: Final = (90, 64, 45, 32, 22, 15)
"""The last days in which drift is searched, the longest period first."""

_MIN_CHANGE: Final = 0.01
"""Smaller steps and drifts, as a part of the level, are not reported."""

_MIN_NIGHTS_FOR_NOISE: Final = 20
"""Fewer nights do not show the noise of nights, or their autocorrelation."""

_MIN_LEVEL: Final = 4
"""Fewer nights are accidents, not a level."""

_MAX_DRIFT_P: Final = 0.0001
_MAX_CHANGE_P: Final = 0.00001
_MAX_CANDIDATE_P: Final = 0.01
_WINDOW: Final = 50
_WEEK: Final = (7, 8, 9)
_WEEK_S: Final = 7 * 24 * 3600.0


def noise_percent(
    days: Sequence[Day], runs: Iterable[Sequence[float]], *, drifting: int = 0
) -> tuple[float | None, float | None]:
    """Variation of the runs of one night, and of days beyond the share of their runs.

    Both are coefficients of variation in percent, ``None`` with too few runs or days. ``runs`` are
    those of each night. Days are compared with those a week later, so slower swings are missing.
    Changes of the level, the slope of the last ``drifting`` days and single odd days do not count.
    """
    pooled = pooled_noise(runs)
    if pooled is None:
        return None, None
    if len(days) < _MIN_NIGHTS_FOR_NOISE:
        return 100 * pooled.deviation, None
    values = _without_accidents([day.median for day in days])
    if drifting:
        values[-drifting:] = _Line.through(values[-drifting:]).flat
    logarithms = [math.log(value) for value in values]
    between_days = _mean_square_of_steps(logarithms, _WEEK) / 2
    of_runs = [median_variance(day.runs) * pooled.deviation**2 for day in days]
    rest = between_days - math.fsum(of_runs) / len(days)
    return 100 * pooled.deviation, 100 * math.sqrt(max(rest, 0.0))


def _variance_inflation(values: Sequence[float]) -> float:
    """Estimate the factor by which autocorrelation inflates the variance of a mean of nights.

    At least 1. It compares the steps between neighbours with those between nights a week apart,
    without the largest, so a few changes of the level, or a slow one, matter little. Swings slower
    than a week count as changes of the level.
    """
    if len(values) < _MIN_NIGHTS_FOR_NOISE:
        return 1.0
    far = _mean_square_of_steps(values, _WEEK)
    if far <= 0:
        return 1.0
    correlations = [1 - _mean_square_of_steps(values, (lag,)) / far for lag in range(1, 6)]
    # About the standard error for independent nights: else half of all series were inflated.
    doubt = 7.0 / math.sqrt(len(values))
    return min(max(1 + 2 * math.fsum(correlations) - doubt, 1.0), 10.0)


def _mean_square_of_steps(values: Sequence[float], lags: Sequence[int]) -> float:
    """Mean square of the steps between nights, without their slope and gross outliers."""
    means = []
    for lag in lags:
        steps = [later - value for value, later in zip(values, values[lag:], strict=False)]
        middle = median(steps)
        squares = [(step - middle) ** 2 for step in steps]
        radius = (3.5 * MAD_TO_DEVIATION) ** 2 * median(squares)
        near = [square for square in squares if square <= radius]
        means.append(math.fsum(near) / len(near))
    return math.fsum(means) / len(means)


def _without_accidents(values: Sequence[float]) -> list[float]:
    """Replace values far from all their neighbours by the neighbours' median.

    A change of the level that lasts for four nights stays. One of two or three nights is an
    accident; if they are the last ones, that is not known yet, and they count as one. Values are
    positive.
    """
    reach = 3
    if len(values) <= 2 * reach:
        return list(values)
    # The median difference of neighbours: a few changes of the level do not move it.
    steps = [abs(after - before) for before, after in pairwise(values)]
    noise = max(MAD_TO_DEVIATION * median(steps) / math.sqrt(2), MIN_NOISE * median(values))
    smooth = []
    for index, value in enumerate(values):
        # Near an end the neighbours are the nearest seven.
        start = min(max(index - reach, 0), len(values) - 2 * reach - 1)
        middle = median(values[start : start + 2 * reach + 1])
        smooth.append(value if abs(value - middle) <= 4 * noise else middle)
    return smooth


def drift_of(days: Sequence[Day]) -> Drift | None:
    """Find drift in the last days, which are those since the last acceptance.

    It is that of the longest period until tonight in which the slope of a regression line is
    significant (t-test, both sides, adjusted for autocorrelation) and makes 1 % at least, and the
    line fits better than one or two changes of the level.
    """
    days = days[-DRIFT_LENGTHS[0] :]
    values = _without_accidents([day.median for day in days])
    for length in dict.fromkeys(min(length, len(values)) for length in DRIFT_LENGTHS):
        if length < DRIFT_LENGTHS[-1]:
            break
        before, part = values[:-length], values[-length:]
        line = _Line.through(part)
        change = line.slope * (length - 1) / line.start
        if (
            abs(change) < _MIN_CHANGE
            or line.p_value() > _MAX_DRIFT_P
            # Only this part is made flat: the days before may have steps.
            or line.p_value(_variance_inflation([*before, *line.flat])) > _MAX_DRIFT_P
            or not line.fits_better_than_steps(part)
        ):
            continue
        weeks = (days[-1].began - days[-length].began) / _WEEK_S
        return Drift(
            since=days[-length].started,
            days=length,
            percent=100 * change,
            percent_per_week=100 * change / weeks,
        )
    return None


class _Line(Struct, frozen=True):
    """An ordinary regression line through values that are a night apart.

    ``error`` is the standard error of the slope. ``flat`` are the values without the slope, around
    the line's beginning ``start``, and ``squares`` is the sum of squares that they leave there.
    """

    slope: float
    error: float
    flat: list[float]
    start: float
    squares: float

    @classmethod
    def through(cls, values: Sequence[float]) -> _Line:
        count = len(values)
        middle = (count - 1) / 2
        along = count * (count * count - 1) / 12
        slope = math.fsum([(k - middle) * value for k, value in enumerate(values)]) / along
        flat = [value - slope * k for k, value in enumerate(values)]
        start = math.fsum(flat) / count
        squares = math.fsum([(value - start) ** 2 for value in flat])
        squares = max(squares, _min_squares(values))
        return cls(slope, math.sqrt(squares / (count - 2) / along), flat, start, squares)

    def p_value(self, inflation: float = 1.0) -> float:
        """The p-value of the slope by Student's t-test, both sides."""
        error = self.error * math.sqrt(inflation)
        return 2 * t_sf(abs(self.slope) / error, len(self.flat) - 2)

    def fits_better_than_steps(self, values: Sequence[float]) -> bool:
        """Whether the line fits the values better than one or two changes of the level.

        By Schwarz's criterion, in which a line has two parameters, one step three, two steps five.
        """
        count = len(values)
        one, two = _squares_around_steps(values)
        line, *steps = (
            count * math.log(squares / count) + parameters * math.log(count)
            for squares, parameters in ((self.squares, 2), (one, 3), (two, 5))
        )
        return line < min(steps)


def _min_squares(values: Sequence[float]) -> float:
    """Least sum of squares that a fit is taken to have: smaller ones are rounding."""
    return (1e-6 * values[0]) ** 2 * len(values)


def _squares_around_steps(values: Sequence[float]) -> tuple[float, float]:
    shifted = [value - values[0] for value in values]  # large numbers would cancel
    sums = [0.0, *accumulate(shifted)]
    squares = [0.0, *accumulate([value * value for value in shifted])]

    def rest(start: int, end: int) -> float:
        total = sums[end] - sums[start]
        return squares[end] - squares[start] - total * total / (end - start)

    inside = range(1, len(values))
    before = [0.0, *(rest(0, at) for at in inside)]
    after = [0.0, *(rest(at, len(values)) for at in inside)]
    one = min(before[at] + after[at] for at in inside)
    two = min(before[at] + rest(at, later) + after[later] for at, later in combinations(inside, 2))
    least = _min_squares(values)
    return max(one, least), max(two, least)


def level_began(values: Sequence[float], *, reference: float, now: float) -> int:
    """Index of the first value at the level of now; ``len(values)`` if that level is new.

    Both levels are known: the reference, and the number of now. Going back from now, each value
    counts for the level that it is nearer to, by a quarter of the difference at most, so that no
    single outlier decides. The level began where that of now is furthest ahead; of equals, the
    latest. Two values in a row at the other level end the search.
    """
    middle, sign = (reference + now) / 2, math.copysign(1.0, now - reference)
    most = abs(now - reference) / 4
    rounding = 1e-9 * most
    ahead = furthest = most
    first = len(values)
    for index in reversed(range(len(values))):
        ahead += min(max(sign * (values[index] - middle), -most), most)
        if ahead > furthest + rounding:
            furthest, first = ahead, index
        elif ahead <= furthest - 2 * most + rounding:
            break
    return first


def change_points(days: Sequence[Day], *, drifting: int = 0) -> tuple[ChangePoint, ...]:
    """Find where the level changes.

    The last ``drifting`` days are known to drift, and have no level that could change.

    As in Fleming et al., "Hunter: Using Change Point Detection to Hunt for Performance Regressions"
    (2023), places are found in windows, then judged by t-tests between levels; they are found by
    binary segmentation.
    """
    values = _without_accidents([day.median for day in days])
    short = [
        math.fsum(values[at : at + _MIN_LEVEL]) / _MIN_LEVEL
        for at in range(len(values) - _MIN_LEVEL + 1)
    ]
    if len(days) < 2 * _MIN_LEVEL or max(short) < (1 + _MIN_CHANGE) * min(short):
        return ()  # no two levels can differ by enough
    # Changes of the level look like autocorrelation. Those that are significant in spite of it are
    # taken out, and the rest is estimated once more.
    candidates = _candidates(values)
    found = _significant(days, values, candidates, _variance_inflation(values))
    if found:
        inflation = _variance_inflation(_around_levels(values, found))
        found = _significant(days, values, candidates, inflation)
        if drifting:
            start = len(values) - drifting
            places = _before_drift(values, list(found), start)
            found = _significant(days, values[:start], places, inflation)
    return tuple(found.values())


def _candidates(values: Sequence[float]) -> list[int]:
    """Find places that may be change points, in windows that overlap by half.

    In all days at once a level that comes and goes would be lost in what lies around it.
    """
    starts = range(0, len(values), _WINDOW // 2)
    return sorted(
        {start + at for start in starts for at in _divided(values[start : start + _WINDOW])}
    )


def _divided(values: Sequence[float]) -> list[int]:
    """Divide values where two levels fit them best, as long as a t-test tells the levels apart."""
    if len(values) < 2 * _MIN_LEVEL:
        return []
    sums = [0.0, *accumulate(value - values[0] for value in values)]

    def explained(at: int) -> float:
        return sums[at] ** 2 / at + (sums[-1] - sums[at]) ** 2 / (len(values) - at)

    at = max(range(_MIN_LEVEL, len(values) - _MIN_LEVEL + 1), key=explained)
    if _p_value(values[:at], values[at:]) > _MAX_CANDIDATE_P:
        return []
    return [*_divided(values[:at]), at, *(at + later for later in _divided(values[at:]))]


def _around_levels(values: Sequence[float], places: Iterable[int]) -> list[float]:
    around = []
    for start, end in pairwise([0, *places, len(values)]):
        mean = math.fsum(values[start:end]) / (end - start)
        around += [value - mean for value in values[start:end]]
    return around


def _before_drift(values: Sequence[float], places: list[int], start: int) -> list[int]:
    """Keep the places of changes before the drift that begins at ``start``.

    It may have begun earlier: a change that the same line fits better is part of the drift.
    """
    places = [place for place in places if place < start]
    while places and start - places[-1] < DRIFT_LENGTHS[2]:
        before = places[-2] if len(places) > 1 else 0
        part = values[max(before, places[-1] - 2 * _MIN_LEVEL) :]
        if not _Line.through(part).fits_better_than_steps(part):
            break
        places.pop()
    return places


def _significant(
    days: Sequence[Day], values: Sequence[float], candidates: Iterable[int], inflation: float
) -> Mapping[int, ChangePoint]:
    """Drop insignificant and small changes, one after the other; return the others by place."""
    places = sorted(candidates)
    while places:
        ends = [0, *places, len(values)]
        changes = {
            at: _change(days[at - 1 : at + 1], values[start:at], values[at:end], inflation)
            for start, at, end in zip(ends, ends[1:], ends[2:], strict=False)
        }
        doubtful = max(places, key=lambda at: changes[at].p_value)
        smallest = min(places, key=lambda at: abs(changes[at].difference_percent))
        if changes[doubtful].p_value > _MAX_CHANGE_P:
            places.remove(doubtful)
        elif abs(changes[smallest].difference_percent) < 100 * _MIN_CHANGE:
            places.remove(smallest)
        else:
            return changes
    return {}


def _change(
    days: Sequence[Day], left: Sequence[float], right: Sequence[float], inflation: float
) -> ChangePoint:
    before, day = days
    return ChangePoint(
        index=day.index,
        previous=before.last,
        at=day.started,
        before=mean(left),
        after=mean(right),
        p_value=_p_value(left, right, inflation),
    )


def _p_value(left: Sequence[float], right: Sequence[float], inflation: float = 1.0) -> float:
    """The p-value of Student's t-test between two levels, both sides.

    Autocorrelated nights count for fewer: the mean's variance is inflated.
    """
    before, after = mean(left), mean(right)
    dof = len(left) + len(right) - 2
    if not dof:
        return 1.0
    squares = math.fsum([(value - before) ** 2 for value in left])
    squares += math.fsum([(value - after) ** 2 for value in right])
    # Nights that agree better than this were rounded, or made by a program.
    variance = max(squares / dof, (MIN_NOISE * before) ** 2 / 4)
    error = math.sqrt(inflation * variance * (1 / len(left) + 1 / len(right)))
    return 2 * t_sf(abs(after - before) / error, dof)
