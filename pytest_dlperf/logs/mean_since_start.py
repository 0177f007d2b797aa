"""Tell whether what is printed of each step is a mean of all steps so far.

A mean shows what a slow first step took for hundreds of steps: Keras prints ``250ms/step`` where
steps take 120. The series tells: the total that it implies grows by the same from line to line, but
the mean still comes down to that. Of what single steps take, ``k`` times the k-th jumps to and fro.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from pytest_dlperf.model import statistics

_LEAST: Final = 6
"""Fewer records do not tell how a series moves, nor so few differences what is noise."""
_MANY: Final = 10
_STRETCHES: Final = 16
_OFF: Final = 0.05
"""A mean that is no further off does no harm."""
_SPREAD: Final = 0.35
_LEVEL: Final = 0.07
"""What is added varies by these parts of what the mean is off, with noise and without, at most."""
_DIGITS: Final = b"0123456789"


def step_behind_mean(
    steps: Sequence[int], means: Sequence[float], texts: Sequence[bytes]
) -> float | None:
    """Compute the seconds of a step if these are means of all steps since 0; ``None`` if not.

    The ``texts`` say how the means are rounded.
    """
    if len(steps) < _LEAST or not all(one < other for one, other in pairwise(steps)):
        return None
    totals = [step * mean for step, mean in zip(steps, means, strict=True)]
    digits = (bytes(filter(_DIGITS.__contains__, text)) for text in texts)
    errors = [total / max(int(each or b"1"), 1) for total, each in zip(totals, digits, strict=True)]
    for (one, error), (other, its_error) in pairwise(zip(totals, errors, strict=True)):
        if other - one < -error - its_error:
            return None  # a total never shrinks
    stretches = min(_STRETCHES, len(steps) - 1)
    places = [number * (len(steps) - 1) // stretches for number in range(stretches + 1)]
    added = [
        (totals[end] - totals[begin]) / (steps[end] - steps[begin])
        for begin, end in pairwise(places)
    ]
    usual = statistics.median(added)
    off = abs(statistics.median(means) - usual)
    # Some of many may hold pauses.
    rest = 25 if len(added) >= _MANY else 0
    spread = statistics.percentile(added, 100 - rest) - statistics.percentile(added, rest)
    if usual <= 0 or off <= _OFF * usual or spread > _SPREAD * off:
        return None
    rounding = max(errors) * stretches / (steps[-1] - steps[0])
    # What is left has to be noise: a warm-up, or a drift, comes down in a line.
    if spread <= _LEVEL * off + min(rounding, _SPREAD * off) / 2:
        return usual
    return usual if len(added) > _LEAST and _is_noise(added) else None


def _is_noise(values: Sequence[float]) -> bool:
    """Say whether neighbours differ as much as any two (von Neumann, 1941), a pause left out."""
    most = statistics.median(values) + 3 * statistics.mad_deviation(values)
    values = [min(value, most) for value in values]
    steps = statistics.mean([(other - one) ** 2 for one, other in pairwise(values)])
    return steps > statistics.sample_standard_deviation(values) ** 2
