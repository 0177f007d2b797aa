"""How much runs of one case differ: their noise, their location and which of them are strays.

For lists of some forty runs at most, and called for every run that is taken, so in plain Python:
NumPy would take longer to be asked than this takes to answer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_NOISE: Final = 0.002
"""Runs that agree better than this, by their luck or by rounding, are not taken at their word."""

NOISE_RADIUS_MADS: Final = 3.5
"""Runs further than this from the median say nothing about the noise."""

STRAY_RADIUS_NOISE: Final = 4.0
"""A run further than this many times the noise from the median does not count for the location."""

LEAST_STRAY_RADIUS: Final = 0.03
"""A run nearer than this to the median is not called a stray, however quiet the others are."""

# Mean of a normal sample's median absolute deviation, by its size, as Croux and Rousseeuw give it
# ("Time-efficient algorithms for two highly robust estimators of scale", 1992).
_MAD_FACTORS: Final = (1.0, 1.0, 1.196, 1.495, 1.363, 1.206, 1.2, 1.14, 1.129, 1.107)
_MAD_TO_DEVIATION: Final = 1.4826


def median(values: Sequence[float]) -> float:
    """Median; the mean of the middle two when the count is even.

    Raises:
        ValueError: There are no values.
    """
    if not values:
        raise ValueError("no runs: there is no median of nothing")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def corrected_mad(values: Sequence[float]) -> float:
    """Median absolute deviation that estimates the standard deviation, for small samples too."""
    middle = median(values)
    count = len(values)
    small = _MAD_FACTORS[count] if count < len(_MAD_FACTORS) else count / (count - 0.8)
    return _MAD_TO_DEVIATION * small * median([abs(value - middle) for value in values])


def noise(runs: Sequence[float]) -> float:
    """Relative standard deviation between runs, without those far from the median; 0.002 at least.

    Raises:
        ValueError: There are no runs, or they are not positive.
    """
    middle = median(runs)
    if middle <= 0:
        raise ValueError(f"throughputs are positive; the median of {list(runs)} is {middle:g}")
    radius = NOISE_RADIUS_MADS * max(corrected_mad(runs), LEAST_NOISE * middle)
    near = [value for value in runs if abs(value - middle) <= radius]
    if len(near) < 2:  # noqa: PLR2004 - one value has no deviation
        return LEAST_NOISE
    mean = math.fsum(near) / len(near)
    square = math.fsum([(value - mean) ** 2 for value in near]) / (len(near) - 1)
    return max(math.sqrt(square) / mean, LEAST_NOISE)


def location(runs: Sequence[float], noise: float) -> float:
    """Where runs with this relative noise lie: their mean without strays.

    The median where fewer than half of them would remain. The order of the runs changes nothing.
    """
    middle = median(runs)
    radius = STRAY_RADIUS_NOISE * noise * middle
    near = [value for value in runs if abs(value - middle) <= radius]
    if 2 * len(near) < len(runs):
        return middle
    return math.fsum(near) / len(near)


def strays(runs: Sequence[float], noise: float) -> list[float]:
    """Runs so far from the median of all that they tell of an accident, not of the software."""
    middle = median(runs)
    radius = max(STRAY_RADIUS_NOISE * noise, LEAST_STRAY_RADIUS) * middle
    return [value for value in runs if abs(value - middle) > radius]


def are_unstable(runs: Sequence[float], noise: float) -> bool:
    """Whether more than a third of a session's runs are strays: nothing follows from such runs."""
    return 3 * len(strays(runs, noise)) > len(runs)


def median_variance(count: int) -> float:
    """Variance of the median of so many normal values, as a part of the variance of one.

    Exact for one and two values, within 2 % for up to nine, and pi / 2n for many.
    """
    return math.pi / 2 / (count + (0.5708 if count % 2 else 1.1416))


def tail(deviations: float) -> float:
    """Probability that a normal value lies more than so many standard deviations above its mean."""
    return math.erfc(deviations / math.sqrt(2)) / 2
