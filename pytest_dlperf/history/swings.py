"""How far nights hang together: what one night tells of the next is no news of the level."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate.noise import median

if TYPE_CHECKING:
    from collections.abc import Sequence

MIN_NIGHTS: Final = 20
"""Of fewer nights nobody can say whether they hang together."""

_REACH: Final = 5
_APART: Final = (7, 8, 9)
_RADIUS: Final = 3.5
_TO_DEVIATION: Final = 1.4826
_MOST: Final = 10.0
# About the standard error for independent nights: else half of all series were inflated.
_DOUBT: Final = 7.0


def variance_inflation(values: Sequence[float]) -> float:
    """How much more the mean of many nights varies than that of independent nights; 1 at least.

    By what nights one to five apart differ by, beside nights a week apart, of which the larger
    differences are left out: a few changes of the level, and a slow one, move that little. Slower
    swings than these look like changes of the level, and are.
    """
    if len(values) < MIN_NIGHTS:
        return 1.0
    far = math.fsum([_apart(values, lag) for lag in _APART]) / len(_APART)
    if far <= 0:
        return 1.0
    alike = [1 - _apart(values, lag) / far for lag in range(1, _REACH + 1)]
    doubt = _DOUBT / math.sqrt(len(values))
    return min(max(1 + 2 * math.fsum(alike) - doubt, 1.0), _MOST)


def night_variance(values: Sequence[float]) -> float:
    """Variance of nights around a level that is not known: half of what a week makes."""
    return math.fsum([_apart(values, lag) for lag in _APART]) / len(_APART) / 2


def _apart(values: Sequence[float], lag: int) -> float:
    """The mean square of what nights so far apart differ by, without a slope and the largest."""
    steps = [later - value for value, later in zip(values, values[lag:], strict=False)]
    middle = median(steps)
    squares = [(step - middle) ** 2 for step in steps]
    radius = (_RADIUS * _TO_DEVIATION) ** 2 * median(squares)
    near = [square for square in squares if square <= radius]
    return math.fsum(near) / len(near)
