"""What runs of both ends tell before a hunt: the loss, the noise, and whether there is a loss."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.culprit.hunt import Hunt, worse_by
from pytest_dlperf.gate.noise import location, pooled_noise, t_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_dlperf.model.metric import Better

_MIN_ERRORS: Final = 3.0
"""A loss of fewer standard errors is not taken for one."""
_MIN_NOISE: Final = 1 / 15
_LOSS_OF_NIGHTS: Final = 0.15
_LEVEL_OF_NIGHTS: Final = 0.1
"""Parts of a loss."""


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


def hunt_of(ends: Ends, weights: tuple[float, ...], spread: float | None, error: float) -> Hunt:
    """Make a hunt of what is known of both ends; ``spread`` is ``None`` where no history tells."""
    return Hunt(
        weights=weights,
        loss=ends.loss,
        loss_error=ends.loss_error,
        # Nothing is gained by telling apart what lies so far apart.
        noise=max(ends.noise, _MIN_NOISE * ends.loss),
        noise_dof=ends.noise_dof,
        level_error=ends.level_error,
        spread=ends.noise if spread is None else spread,
        error=error,
    )


def of_nights(hunt: Hunt) -> Hunt:
    """Believe less in ends that are two nights: with other sessions about, levels are others."""
    return replace(
        hunt,
        loss_error=math.hypot(hunt.loss_error, hunt.spread, _LOSS_OF_NIGHTS * hunt.loss),
        level_error=math.hypot(hunt.level_error, _LEVEL_OF_NIGHTS * hunt.loss),
    )
