"""How much runs of one night differ, and how much nights differ beyond that."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate.noise import median_variance, pooled_noise
from pytest_dlperf.history.smoothing import without_accidents
from pytest_dlperf.history.swings import night_variance

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MIN_NIGHTS: Final = 10
"""Fewer nights do not say how much nights differ."""

_SHORT: Final = 3


def run_noise_percent(nights: Iterable[Sequence[float]]) -> float | None:
    """The coefficient of variation of the runs of one night, pooled; ``None`` from too few."""
    pooled = pooled_noise(nights)
    return None if pooled is None else 100 * pooled.deviation


def night_noise_percent(
    medians: Sequence[float],
    runs: Sequence[int],
    run_noise: float | None,
    *,
    levels: Sequence[int] | None,
    drifting: int = 0,
) -> float | None:
    """The coefficient of variation of nights around their level, beyond what their runs make.

    Slow swings count, changes of the level do not: ``levels`` are where one begins, and the last
    ``drifting`` nights lie around a line. Where nobody has looked for levels (``None``), nights a
    week apart are compared, and slower swings are missing. Single slow nights are left out.

    ``run_noise`` is that of ``run_noise_percent``. ``None`` from too few nights.
    """
    if len(medians) < MIN_NIGHTS or run_noise is None:
        return None
    values = [math.log(value) for value in without_accidents(medians)]
    if levels is None:
        whole = night_variance(values)
    else:
        start = len(values) - drifting
        ends = sorted({0, *(place for place in levels if 0 < place < start), start})
        parts = [_around_a_level(values[left:right]) for left, right in pairwise(ends)]
        parts.append(_around_a_line(values[start:]))
        dof = sum(count for _, count in parts)
        if dof < MIN_NIGHTS - 1:
            return None
        whole = math.fsum([square for square, _ in parts]) / dof
    own = math.fsum(map(median_variance, runs)) / len(runs) * run_noise**2
    return math.sqrt(max(100**2 * whole - own, 0.0))


def _around_a_level(values: Sequence[float]) -> tuple[float, int]:
    """The sum of squares around the mean, and its degrees of freedom."""
    if len(values) < _SHORT:
        return 0.0, 0
    mean = math.fsum(values) / len(values)
    return math.fsum([(value - mean) ** 2 for value in values]), len(values) - 1


def _around_a_line(values: Sequence[float]) -> tuple[float, int]:
    """The sum of squares around the line that fits best, and its degrees of freedom."""
    count = len(values)
    if count < _SHORT:
        return 0.0, 0
    middle = (count - 1) / 2
    around, dof = _around_a_level(values)
    both = math.fsum([(number - middle) * value for number, value in enumerate(values)])
    along = count * (count * count - 1) / 12
    return max(around - both * both / along, 0.0), dof - 1
