"""Dated changes of a level: Apache Otava's only home, which is an optional extra."""

from __future__ import annotations

import math
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate.noise import MIN_NOISE, t_sf
from pytest_dlperf.history.drift import is_a_line
from pytest_dlperf.history.series import ChangePoint
from pytest_dlperf.history.smoothing import without_accidents
from pytest_dlperf.history.swings import variance_inflation

if TYPE_CHECKING:
    from collections.abc import Sequence

HOW_TO_GET: Final = "pip install 'pytest-dlperf[change-points]'"
"""What makes change points available."""

MIN_NIGHTS: Final = 8
"""Fewer nights show no change of the level that chance would not show as well."""

MIN_CHANGE: Final = 0.01
"""Smaller changes of the level, as a part of it, are not told."""

_MAX_P: Final = 0.00001
_CANDIDATE_P: Final = 0.001
_WINDOW: Final = 50
_EARLIER: Final = 45
_MIN_LEVEL: Final = 4


def is_available() -> bool:
    """Whether change points can be looked for; imports nothing."""
    return find_spec("otava") is not None


def change_points(
    throughputs: Sequence[float], nights: Sequence[tuple[int, str]], *, drifting: int = 0
) -> tuple[ChangePoint, ...] | None:
    """Where the level of a series changes; ``None`` where Apache Otava is missing.

    ``nights`` are, for each of the throughputs, its index in the whole series and when the session
    began. The last ``drifting`` of them are known to drift, and have no level that could change.

    The algorithm is that of Fleming et al., "Hunter: Using Change Point Detection to Hunt for
    Performance Regressions" (2023): E-divisive means in windows, then t-tests between levels.
    """
    if not is_available():
        return None
    if len(throughputs) < MIN_NIGHTS:
        return ()
    values = without_accidents(throughputs)
    if not _may_change(values):
        return ()
    from otava.analysis import compute_change_points

    candidates, _ = compute_change_points(values, window_len=_WINDOW, max_pvalue=_CANDIDATE_P)
    if not candidates:
        return ()
    places = [int(candidate.index) for candidate in candidates]
    # Changes of the level make nights hang together: those that are certain in spite of that are
    # taken out, and the rest is looked at once more.
    certain = _certain(values, places, variance_inflation(values))
    autocorrelation = variance_inflation(_around(values, certain)) if certain else 1.0
    steps = _certain(values, places, autocorrelation) if certain else []
    if drifting and steps:
        start = len(values) - drifting
        steps = _certain(values[:start], _before_drift(values, steps, start), autocorrelation)
    return tuple(
        ChangePoint(
            index=nights[step.at][0],
            at=nights[step.at][1],
            before=step.before,
            after=step.after,
            p_value=step.p_value,
        )
        for step in steps
    )


def _may_change(values: Sequence[float]) -> bool:
    """Whether any two levels of four nights or more can differ by enough to be told.

    The mean of so many lies between those of four to seven in a row. Much cheaper than to look for
    changes: quiet cases need no more.
    """
    sums = [0.0, *accumulate(values)]
    means = [
        (after - before) / count
        for count in range(_MIN_LEVEL, 2 * _MIN_LEVEL)
        for before, after in zip(sums, sums[count:], strict=False)
    ]
    return max(means) >= (1 + MIN_CHANGE) * min(means)


def _around(values: Sequence[float], steps: Sequence[_Step]) -> list[float]:
    """The values around the levels between these steps."""
    ends = [0, *(step.at for step in steps), len(values)]
    rest = []
    for start, end in pairwise(ends):
        mean = math.fsum(values[start:end]) / (end - start)
        rest += [value - mean for value in values[start:end]]
    return rest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A change of the level at an index, with the mean levels on both sides."""

    at: int
    before: float
    after: float
    p_value: float

    @property
    def change(self) -> float:
        return abs(self.after / self.before - 1)


def _before_drift(values: Sequence[float], steps: Sequence[_Step], start: int) -> list[int]:
    """Where levels change before the drift that is known from ``start`` on.

    It may have begun earlier: what the same line explains better is no change of a level.
    """
    places = [step.at for step in steps if step.at < start]
    while places and start - places[-1] < _EARLIER:
        before = places[-2] if len(places) > 1 else 0
        if not is_a_line(values[max(before, places[-1] - MIN_NIGHTS) :]):
            break
        places.pop()
    return places


def _certain(
    values: Sequence[float], candidates: Sequence[int], autocorrelation: float
) -> list[_Step]:
    """The steps that remain when the least certain are left out, one after the other.

    Otava does the same, but it does not look again at the step before one that it leaves out: of
    two candidates near each other, which divide a level, it may lose both.
    """
    places = sorted(set(candidates))
    while places:
        ends = [0, *places, len(values)]
        steps = [
            _step(values, start, at, end, autocorrelation)
            for start, at, end in zip(ends, ends[1:], ends[2:], strict=False)
        ]
        doubtful = [step for step in steps if step.p_value > _MAX_P]
        small = [step for step in steps if step.change < MIN_CHANGE]
        if doubtful:
            places.remove(max(doubtful, key=lambda step: step.p_value).at)
        elif small:
            places.remove(min(small, key=lambda step: step.change).at)
        else:
            return steps
    return []


def _step(values: Sequence[float], start: int, at: int, end: int, autocorrelation: float) -> _Step:
    """A step and the p-value of Student's t-test between its levels, both sides.

    Nights that hang together count for fewer, by how much the mean of many varies more.
    """
    left, right = values[start:at], values[at:end]
    before, after = math.fsum(left) / len(left), math.fsum(right) / len(right)
    dof = len(left) + len(right) - 2
    squares = math.fsum([(value - before) ** 2 for value in left])
    squares += math.fsum([(value - after) ** 2 for value in right])
    # Nights that agree better than this were rounded, or made by a program.
    variance = max(squares / max(dof, 1), (MIN_NOISE * before) ** 2 / 4)
    error = math.sqrt(autocorrelation * variance * (1 / len(left) + 1 / len(right)))
    p_value = 2 * t_sf(abs(after - before) / error, dof) if dof else 1.0
    return _Step(at=at, before=before, after=after, p_value=p_value)
