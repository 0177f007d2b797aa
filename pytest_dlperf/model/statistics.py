"""Statistics of a handful of runs, in plain Python.

Only published figures are rounded with NumPy, which is imported for the first of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

MAD_TO_DEVIATION: Final = 1.4826
"""Standard deviation of a normal distribution, in its median absolute deviations."""

# Mean of a normal sample's median absolute deviation, by its size, as Croux and Rousseeuw give it
# ("Time-efficient algorithms for two highly robust estimators of scale", 1992).
_MAD_FACTORS: Final = (1.0, 1.0, 1.196, 1.495, 1.363, 1.206, 1.2, 1.14, 1.129, 1.107)

CLEAR_FALL: Final = 3.0
"""Standard errors by which a noisy series falls that is sure to."""
_ROUNDING: Final = 1e-12
"""What sums of floats may be off by, as a part of their terms."""

MIN_RUNS_FOR_NOISE: Final = 20
"""Runs whose noise is known well enough without further ones."""


def median(values: Sequence[float]) -> float:
    """Median; the mean of the middle two when the count is even. No values: ``ValueError``."""
    if not values:
        raise ValueError("no values: the median is undefined")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def percentile(values: Sequence[float], percent: float) -> float:
    """Percentile, linear between the two nearest values; needs one value at least."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = ordered[int(position)]
    above = ordered[min(int(position) + 1, len(ordered) - 1)]
    return below + (above - below) * (position - int(position))


def mad_deviation(values: Sequence[float]) -> float:
    """Standard deviation by the median absolute deviation, for small samples too."""
    middle = median(values)
    count = len(values)
    small = _MAD_FACTORS[count] if count < len(_MAD_FACTORS) else count / (count - 0.8)
    return MAD_TO_DEVIATION * small * median([abs(value - middle) for value in values])


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean, summed exactly: the order of the values cannot change it.

    A rounded running sum can. Ten published runs of one case have the mean 8773.375 and were
    printed as 8773.38; added up in the order in which they were printed they come out below.
    """
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # a log may say anything
        return math.fsum([value / len(values) for value in values])


def sample_standard_deviation(values: Sequence[float]) -> float:
    """Standard deviation of a sample (n - 1); needs two values at least."""
    middle = mean(values)
    return math.hypot(*[value - middle for value in values]) / math.sqrt(len(values) - 1)


def difference_percent(value: float, reference: float) -> float:
    """Difference of a value from a reference, in percent of that; negative: below."""
    return 100 * (value / reference - 1)


def rounded(value: float, decimals: int | None) -> float:
    """Round with NumPy, as the original benchmark did: scale, round half to even, scale back.

    Python's own ``round`` goes by the exact value of the float and comes out different. ``None``
    decimals leave the value as it is.
    """
    if decimals is None:
        return value
    import numpy as np

    return float(np.round(value, decimals))


def fall(values: Sequence[float]) -> float:
    """How far a noisy series falls from its first half to its second, in standard errors.

    Negative where it rises. The scatter is that of the differences between neighbours, of which a
    trend takes the same off all; a few values far from the others count as less far.
    """
    low, high = percentile(values, 25), percentile(values, 75)
    if reach := 3 * (high - low):
        values = [min(max(value, low - reach), high + reach) for value in values]
    half = len(values) // 2
    difference = mean(values[:half]) - mean(values[half:])
    error = 0.0
    if len(values) > 2:  # noqa: PLR2004 - two values have no scatter
        steps = [after - before for before, after in pairwise(values)]
        scatter = sample_standard_deviation(steps) / math.sqrt(2)
        error = scatter * math.sqrt(1 / half + 1 / (len(values) - half))
    if error <= _ROUNDING * max(map(abs, values)):
        return math.copysign(math.inf, difference) * bool(difference)
    return difference / error
