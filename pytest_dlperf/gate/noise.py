"""The noise between runs of a case, and the standard error of a difference between so many runs.

In plain Python: there are some forty runs at most, and importing NumPy would take longer than all
of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from pytest_dlperf.model.baseline import PooledNoise
from pytest_dlperf.model.statistics import (
    MAD_TO_DEVIATION,
    mad_deviation,
    mean,
    median,
    sample_standard_deviation,
)

MIN_NOISE: Final = 0.002
"""The least noise that is assumed: runs agree better by chance, or because they were rounded."""

_MAX_RANGE_OF_EQUALS: Final = 1e-4
"""Runs of a session that lie no further apart, as a part of their median, are taken for equal.

Three runs with a noise of 0.3 %, the quietest timing there is, come so near to each other once in
3,000 times.
"""

_NOISE_RADIUS_MADS: Final = 3.5
"""Runs further than this from the median do not count for the noise."""

OUTLIER_RADIUS_NOISE: Final = 4.0
"""A run further than this many times the noise from the median does not count for the location."""

QUANTILE_90: Final = 1.2816
"""Normal deviations that nine values of ten stay below."""
QUANTILE_97_5: Final = 1.96
"""The same of 97.5 %: 95 values of 100 stay within it on both sides."""

_MAX_MODE_DISTANCE: Final = 0.1
"""Runs further than this from the median are accidents, however many; nearer ones may be a mode."""

_MAX_ACCIDENTS: Final = 0.1
"""The share of runs near the median that may be accidents; more of them are a mode."""

# In a handful of runs the median deviation is too unsure for a smaller radius.
_GROSS_RADIUS_MADS: Final = 5.0


def noise(runs: Sequence[float]) -> float:
    """Relative standard deviation between runs, without those far from the median; at least 0.002.

    Where runs are in two modes, those of the rarer one count too.

    Raises:
        ValueError: There are no runs, or they are not positive.
    """
    middle = median(runs)
    if middle <= 0:
        raise ValueError(f"runs are positive; the median of {list(runs)} is {middle:g}")
    relative = [run / middle - 1 for run in runs]
    radius = _radius(relative, _NOISE_RADIUS_MADS * max(mad_deviation(runs) / middle, MIN_NOISE))
    near = [run for run, far in zip(runs, relative, strict=True) if abs(far) <= radius]
    if len(near) < 2:  # noqa: PLR2004 - one value has no deviation
        return MIN_NOISE
    return max(sample_standard_deviation(near) / mean(near), MIN_NOISE)


def _radius(relative: Sequence[float], radius: float) -> float:
    """Widen the radius within which runs count for the noise, so that it has the rarer mode.

    Where more than half of the runs are in one tight mode, the median absolute deviation does not
    show the other. ``relative`` are the runs' differences from the median.
    """
    beyond = sum(radius < abs(far) <= _MAX_MODE_DISTANCE for far in relative)
    return _MAX_MODE_DISTANCE if beyond > max(1, _MAX_ACCIDENTS * len(relative)) else radius


def is_noise_free(sessions: Sequence[Sequence[float]]) -> bool:
    """Whether runs of one session are equal, as those of allocated memory are.

    That takes three runs. Sessions of one run are compared with each other.
    """
    several = [runs for runs in sessions if len(runs) > 1]
    compared = several or [[run for runs in sessions for run in runs]]
    comparisons = sum(len(runs) - 1 for runs in compared)
    return comparisons > 1 and all(map(are_alike, compared))


def are_alike(runs: Sequence[float]) -> bool:
    """Whether runs of one session are practically equal."""
    return max(runs) - min(runs) <= _MAX_RANGE_OF_EQUALS * median(runs)


def pooled_noise(sessions: Iterable[Sequence[float]]) -> PooledNoise | None:
    """Noise of runs around the mean of their own session; ``None`` with too few runs.

    Unlike ``noise`` it does not come out too small for a handful of runs: only runs that are
    accidents by any measure are left out. Differences between sessions are no noise between runs.
    """
    relative = []
    far = []
    for runs in sessions:
        if len(runs) < 2:  # noqa: PLR2004 - one value has no deviation
            continue
        middle = median(runs)
        relative.append([run / middle - 1 for run in runs])
        # The run nearest to the median is the median, or as near as its pair: it shows no noise.
        far += sorted(map(abs, relative[-1]))[1:]
    if not far:
        return None
    radius = _radius(
        [value for session in relative for value in session],
        _GROSS_RADIUS_MADS * max(MAD_TO_DEVIATION * median(far), MIN_NOISE),
    )
    square, dof = 0.0, 0
    for session in relative:
        near = [value for value in session if abs(value) <= radius]
        if len(near) < 2:  # noqa: PLR2004 - one value has no deviation
            continue
        center = mean(near)
        square += math.fsum([(value - center) ** 2 for value in near])
        dof += len(near) - 1
    if dof < 2:  # noqa: PLR2004 - one difference of two runs may be nothing by chance
        return None
    return PooledNoise(deviation=max(math.sqrt(square / dof), MIN_NOISE), dof=dof)


def location(runs: Sequence[float], deviation: float) -> float:
    """Locate runs with this relative deviation: their mean without those four deviations off.

    The median where fewer than half of them would remain. The order of the runs changes nothing.
    """
    middle = median(runs)
    radius = OUTLIER_RADIUS_NOISE * deviation * middle
    near = [value for value in runs if abs(value - middle) <= radius]
    return mean(near) if 2 * len(near) >= len(runs) else middle


def median_variance(count: int) -> float:
    """Variance of the median of so many normal values, as a part of the variance of one.

    Exact for one and two values, within 2 % for up to nine, and pi / 2n for many.
    """
    return math.pi / 2 / (count + (0.5708 if count % 2 else 1.1416))


def t_sf(deviations: float, dof: int) -> float:
    """Probability of a value this far above the mean (Student), in estimated deviations.

    The finite sums of Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 4.
    """
    angle = math.atan(deviations / math.sqrt(dof))
    sine, cosine = math.sin(angle), math.cos(angle)
    is_odd = dof % 2
    total = 0.0
    if dof > 1:
        term = total = cosine if is_odd else 1.0
        for power in range(2 + is_odd, dof - 1, 2):
            term *= cosine * cosine * (power - 1) / power
            total += term
    within = (angle + sine * total) * 2 / math.pi if is_odd else sine * total
    return min(max((1 - within) / 2, 0.0), 1.0)


@lru_cache(maxsize=1024)
def t_quantile(deviations: float, dof: int) -> float:
    """Estimated deviations that are exceeded as seldom as so many true ones (Student)."""
    wanted = math.erfc(deviations / math.sqrt(2)) / 2
    low, high = 0.0, deviations
    while t_sf(high, dof) > wanted:
        low, high = high, 2 * high
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_sf(middle, dof) > wanted else (low, middle)
    return high


class StandardError(Struct, frozen=True, kw_only=True):
    """Relative standard error of a difference, and the degrees of freedom it is known with."""

    value: float
    dof: int

    @classmethod
    def combined(cls, errors: Iterable[StandardError]) -> StandardError:
        """Combine independent errors; the degrees of freedom by Welch and Satterthwaite."""
        squares = [(error.value**2, error.dof) for error in errors]
        square = math.fsum([part for part, _ in squares])
        dof = square**2 / math.fsum([part**2 / dof for part, dof in squares])
        return cls(value=math.sqrt(square), dof=int(dof))

    @property
    def interval(self) -> float:
        """Half the width of the 95 % interval."""
        return t_quantile(QUANTILE_97_5, self.dof) * self.value

    def interval_percent(self, difference: float) -> tuple[float, float]:
        """95 % interval of a relative difference, in percent; at least -100."""
        low, high = difference - self.interval, difference + self.interval
        return max(100 * low, -100.0), max(100 * high, -100.0)
