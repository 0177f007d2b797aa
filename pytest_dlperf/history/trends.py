"""Statistics of many sessions: noise, drift over weeks, and dated changes of the level."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, combinations, pairwise
from typing import Final

from msgspec import Struct

from pytest_dlperf.gate.noise import MIN_NOISE, t_sf
from pytest_dlperf.history.series import ChangePoint, Day, Drift
from pytest_dlperf.model.statistics import MAD_TO_DEVIATION, median

DRIFT_LENGTHS: Final = (90, 64, 45, 32, 22, 15)
"""The last days in which drift is searched, the longest period first."""

_MIN_CHANGE: Final = 0.01
"""Smaller steps and drifts, as a part of the level, are not reported."""

_MIN_DAYS_FOR_NOISE: Final = 20
"""Fewer days do not show their noise, or their autocorrelation."""

_MIN_LEVEL: Final = 4
"""Fewer days are accidents, not a level."""

_MAX_DRIFT_P: Final = 0.0001
_MAX_CHANGE_P: Final = 0.00001
_MAX_CANDIDATE_P: Final = 0.01
_WINDOW: Final = 50
_WEEK: Final = (7, 8, 9)
_WEEK_S: Final = 7 * 24 * 3600.0


def _variance_inflation(values: Sequence[float]) -> float:
    """Estimate the factor by which autocorrelation inflates the variance of a mean of days.

    At least 1. It compares the steps between neighbours with those between days a week apart,
    without the largest, so a few changes of the level, or a slow one, matter little. Swings slower
    than a week count as changes of the level.
    """
    if len(values) < _MIN_DAYS_FOR_NOISE:
        return 1.0
    far = _mean_square_of_steps(values, _WEEK)
    if far <= 0:
        return 1.0
    correlations = [1 - _mean_square_of_steps(values, (lag,)) / far for lag in range(1, 6)]
    # About the standard error for independent days: else half of all series were inflated.
    doubt = 7.0 / math.sqrt(len(values))
    return min(max(1 + 2 * math.fsum(correlations) - doubt, 1.0), 10.0)


def _mean_square_of_steps(values: Sequence[float], lags: Sequence[int]) -> float:
    """Mean square of the steps between days, without their slope and gross outliers."""
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

    A change of the level that lasts for four days stays. One of two or three days is an
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

    It is that of the longest period until now in which the slope of a regression line is
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
    """An ordinary regression line through values that are a day apart.

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


def _squares_around_steps(values: Sequence[float]) -> tuple[float, float]:
    """Least sums of squares around one step, and around two."""
    sums, inside = _Sums(values), range(1, len(values))
    before = [0.0, *(sums.squares(0, at) for at in inside)]
    after = [0.0, *(sums.squares(at, len(values)) for at in inside)]
    one = min(before[at] + after[at] for at in inside)
    steps = combinations(inside, 2)
    two = min(before[at] + sums.squares(at, later) + after[later] for at, later in steps)
    least = _min_squares(values)
    return max(one, least), max(two, least)


def _min_squares(values: Sequence[float]) -> float:
    """Least sum of squares that a fit is taken to have: smaller ones are rounding."""
    return (1e-6 * values[0]) ** 2 * len(values)


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
    (2023), places are found in windows that overlap by half, as a level that comes and goes would
    be lost in what lies around it; then they are judged by t-tests between levels. They are found
    by binary segmentation.
    """
    values = _without_accidents([day.median for day in days])
    count = len(values)
    if count < 2 * _MIN_LEVEL:
        return ()
    sums = _Sums(values)
    levels = [sums.mean(at, at + _MIN_LEVEL) for at in range(count - _MIN_LEVEL + 1)]
    if max(levels) < (1 + _MIN_CHANGE) * min(levels):
        return ()  # no two levels can differ by enough
    windows = [(at, min(at + _WINDOW, count)) for at in range(0, count, _WINDOW // 2)]
    candidates = sorted({at for window in windows for at in sums.divided(*window)})
    inflation = _variance_inflation(values)
    places = sums.significant(candidates, inflation)
    if places:
        # Changes of the level look like autocorrelation: it is estimated once more without those
        # that are significant in spite of it.
        around: list[float] = []
        for start, end in pairwise([0, *places, count]):
            level = sums.mean(start, end)
            around += [value - level for value in values[start:end]]
        inflation = _variance_inflation(around)
        places = sums.significant(candidates, inflation)
        if drifting:
            places = _before_drift(values, places, count - drifting)
            if not places:
                return ()
            sums = _Sums(values[: count - drifting])
            places = sums.significant(places, inflation)
    return tuple(
        ChangePoint(
            index=days[at].index,
            previous=days[at - 1].last,
            at=days[at].started,
            before=sums.mean(start, at),
            after=sums.mean(at, end),
        )
        for start, at, end in sums.around(places)
    )


class _Sums:
    """Values of which the mean and scatter of any part are known at once."""

    def __init__(self, values: Sequence[float]) -> None:
        self._first, self._count = values[0], len(values)
        shifted = [value - values[0] for value in values]  # large numbers would cancel
        self._sums = [0.0, *accumulate(shifted)]
        self._squares = [0.0, *accumulate([value * value for value in shifted])]

    def mean(self, start: int, end: int) -> float:
        return self._first + (self._sums[end] - self._sums[start]) / (end - start)

    def squares(self, start: int, end: int) -> float:
        """Sum of squares around the mean."""
        total = self._sums[end] - self._sums[start]
        squares = self._squares[end] - self._squares[start] - total * total / (end - start)
        return max(squares, 0.0)

    def p_value(self, start: int, at: int, end: int, inflation: float = 1.0) -> float:
        """The p-value of Student's t-test between two levels, both sides.

        Autocorrelated days count for fewer: the mean's variance is inflated.
        """
        before, after = self.mean(start, at), self.mean(at, end)
        dof = end - start - 2
        # Days that agree better than this were rounded, or made by a program.
        least = (MIN_NOISE * before) ** 2 / 4
        variance = max((self.squares(start, at) + self.squares(at, end)) / dof, least)
        error = math.sqrt(inflation * variance * (1 / (at - start) + 1 / (end - at)))
        return 2 * t_sf(abs(after - before) / error, dof)

    def divided(self, start: int, end: int) -> list[int]:
        """Divide a part where two levels fit best, as long as a t-test tells them apart."""
        if end - start < 2 * _MIN_LEVEL:
            return []
        places = range(start + _MIN_LEVEL, end - _MIN_LEVEL + 1)
        at = min(places, key=lambda at: self.squares(start, at) + self.squares(at, end))
        if self.p_value(start, at, end) > _MAX_CANDIDATE_P:
            return []
        return [*self.divided(start, at), at, *self.divided(at, end)]

    def around(self, places: Iterable[int]) -> list[tuple[int, int, int]]:
        """Each place between the ends of the levels on its sides."""
        ends = [0, *places, self._count]
        return list(zip(ends, ends[1:], ends[2:], strict=False))

    def significant(self, places: Sequence[int], inflation: float) -> list[int]:
        """Drop insignificant and small changes, one after the other."""
        places = list(places)
        while places:
            parts = self.around(places)
            p_values = [self.p_value(*part, inflation) for part in parts]
            changes = [abs(self.mean(at, b) / self.mean(a, at) - 1) for a, at, b in parts]
            if max(p_values) > _MAX_CHANGE_P:
                del places[p_values.index(max(p_values))]
            elif min(changes) < _MIN_CHANGE:
                del places[changes.index(min(changes))]
            else:
                break
        return places


def _before_drift(values: Sequence[float], places: Iterable[int], start: int) -> list[int]:
    """Keep the places of changes before the drift that begins at ``start``.

    It may have begun earlier: a change that the same line fits better is part of the drift.
    """
    kept = [place for place in places if place < start]
    while kept and start - kept[-1] < DRIFT_LENGTHS[2]:
        before = kept[-2] if len(kept) > 1 else 0
        part = values[max(before, kept[-1] - 2 * _MIN_LEVEL) :]
        if not _Line.through(part).fits_better_than_steps(part):
            break
        kept.pop()
    return kept
