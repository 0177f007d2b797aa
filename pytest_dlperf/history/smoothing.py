"""Nights without their accidents: one slow night is no new level."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate.noise import MIN_NOISE, median

if TYPE_CHECKING:
    from collections.abc import Sequence

_REACH: Final = 3
_RADIUS: Final = 4.0
_TO_DEVIATION: Final = 1.4826


def step_deviation(values: Sequence[float]) -> float:
    """Standard deviation of values around a level that may change now and then.

    By the median difference of neighbours, which a few changes of the level do not move. In the
    unit of the values; needs two.
    """
    steps = [abs(after - before) for before, after in pairwise(values)]
    return _TO_DEVIATION * median(steps) / 2**0.5


def without_accidents(values: Sequence[float]) -> list[float]:
    """The values, with those far from all their neighbours replaced by the neighbours' median.

    A change of the level that lasts for four nights stays; of two or three nights it is an
    accident, unless they are the last ones: then it cannot be told yet, and they count as one.
    Values are positive.
    """
    if len(values) <= 2 * _REACH:
        return list(values)
    noise = max(step_deviation(values), MIN_NOISE * median(values))
    smooth = []
    for index, value in enumerate(values):
        # Near an end the neighbours are the nearest seven.
        start = min(max(index - _REACH, 0), len(values) - 2 * _REACH - 1)
        middle = median(values[start : start + 2 * _REACH + 1])
        smooth.append(value if abs(value - middle) <= _RADIUS * noise else middle)
    return smooth
