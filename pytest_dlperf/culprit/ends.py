"""What runs of both ends tell before a hunt: the loss, the noise, and whether there is a loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.culprit.hunt import worse_by
from pytest_dlperf.gate.noise import location, pooled_noise, t_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_dlperf.model.metric import Better

_MIN_ERRORS: Final = 3.0
"""A loss of fewer standard errors is not taken for one."""


class Ends(Struct, frozen=True, kw_only=True):
    """Both ends of a hunt, by their runs in one sitting.

    ``good`` and ``bad`` are their numbers in the metric's unit; the others have the meanings of
    the fields of ``Hunt`` and go there as they are.
    """

    good: float
    bad: float
    loss: float
    loss_error: float
    noise: float
    noise_dof: int
    level_error: float

    @property
    def is_loss(self) -> bool:
        """Whether the bad end is worse beyond doubt."""
        return self.loss > t_quantile(_MIN_ERRORS, self.noise_dof) * self.loss_error


def ends_of(
    good: Sequence[float],
    bad: Sequence[float],
    better: Better,
    *,
    sessions: Iterable[Sequence[float]] = (),
) -> Ends | None:
    """Measure both ends by their runs; ``None`` if there are too few to know their noise.

    ``sessions`` are runs of earlier sessions of the case, which show noise alone: those that its
    baseline keeps.

    Raises:
        ValueError: A run is not above 0, or an end has none.
    """
    if not good or not bad or min(*good, *bad) <= 0:
        raise ValueError(f"both ends have runs above 0; these are {list(good)} and {list(bad)}")
    noise = pooled_noise([good, bad, *sessions])
    if noise is None:
        return None
    levels = location(good, noise.deviation), location(bad, noise.deviation)
    each = [noise.deviation / math.sqrt(len(runs)) for runs in (good, bad)]
    return Ends(
        good=levels[0],
        bad=levels[1],
        loss=worse_by(levels[1], levels[0], better),
        loss_error=math.hypot(*each),
        noise=noise.deviation,
        noise_dof=noise.dof,
        level_error=each[0],
    )
