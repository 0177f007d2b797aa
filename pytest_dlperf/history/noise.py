"""How much runs of one night differ, and how much nights differ beyond that."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate.noise import median_variance, pooled_noise
from pytest_dlperf.history.smoothing import step_deviation

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_NIGHTS: Final = 10
"""Fewer nights do not say how much nights differ."""


def run_noise_percent(nights: Sequence[Sequence[float]]) -> float | None:
    """The coefficient of variation of the runs of one night, pooled; ``None`` from too few."""
    pooled = pooled_noise(nights)
    return None if pooled is None else 100 * pooled.deviation


def night_noise_percent(
    medians: Sequence[float], runs: Sequence[int], run_noise: float | None
) -> float | None:
    """The coefficient of variation of nights, beyond what their ``runs`` differ by themselves.

    ``run_noise`` is that of ``run_noise_percent``. Neighbouring nights are compared, so that
    changes of the level are no noise. ``None`` from too few nights.
    """
    if len(medians) < LEAST_NIGHTS or run_noise is None:
        return None
    whole = 100 * step_deviation([math.log(value) for value in medians])
    own = math.fsum(map(median_variance, runs)) / len(runs) * run_noise**2
    return math.sqrt(max(whole**2 - own, 0.0))
