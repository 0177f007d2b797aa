"""What a hunt knows of its ends, what it is asked, has seen and says: values without any search."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.noise import location, pooled_noise, t_quantile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_dlperf.model.metric import Better

GOOD_END: Final = 0
"""The setting that has none of the candidates."""
MAX_DIFFERENCES: Final = 8
"""More cannot be tried apart: settings double with each."""
_MIN_ERRORS: Final = 3.0
"""A loss of fewer standard errors is not taken for one."""
_MIN_NOISE: Final = 1 / 15
_LOSS_OF_NIGHTS: Final = 0.15
_LEVEL_OF_NIGHTS: Final = 0.1
"""Parts of a loss."""


class Shape(StrEnum):
    """How candidates combine."""

    ORDERED = "ordered"
    """One after another, as commits: a setting is how many of them are in, from the first."""
    SUBSETS = "subsets"
    """Each by itself, as environment variables: a setting is the bits of those that are in."""


class Hunt(Struct, frozen=True, kw_only=True):
    """What is known before the first run. Losses and noise are natural logarithms of ratios.

    Candidate ``i`` is part of setting ``s`` if ``i < s`` (ordered), or bit ``i`` of ``s`` is set
    (subsets). Setting 0 is the good end, ``bad_end`` has all candidates.
    """

    weights: tuple[float, ...]
    """Prior of each candidate, on any scale: above 0."""
    shape: Shape = Shape.ORDERED
    loss: float
    """By how much the bad end is worse than the good one, above 0."""
    loss_error: float = 0.0
    """Standard error of ``loss``."""
    noise: float
    """Standard deviation between runs of one sitting."""
    noise_dof: int | None = None
    """Degrees of freedom that ``noise`` is known with; ``None``: it is known well."""
    level_error: float = 0.0
    """Standard error of the good end's level, which observations are held against."""
    spread: float = 0.0
    """Standard deviation between the levels of sittings."""
    measured_in: int | None = None
    """The sitting in which the ends were measured, which ``spread`` does not concern."""
    error: float = 0.05
    """Probability of a wrong answer that is allowed."""

    def __post_init__(self) -> None:
        """Refuse what no search can begin with: a ``ValueError``."""
        if not self.weights or min(self.weights) <= 0:
            raise ValueError(f"candidates have weights above 0, not {self.weights}")
        if self.shape is Shape.SUBSETS and len(self.weights) > MAX_DIFFERENCES:
            raise ValueError(
                f"{len(self.weights)} differences are too many to try apart: {MAX_DIFFERENCES}"
            )
        if self.loss <= 0 or self.noise <= 0:
            raise ValueError(f"loss and noise are above 0, not {self.loss:g} and {self.noise:g}")

    @property
    def bad_end(self) -> int:
        """The setting that has all candidates."""
        count = len(self.weights)
        return count if self.shape is Shape.ORDERED else (1 << count) - 1

    def settings_with(self, candidate: int) -> range | tuple[int, ...]:
        """Settings that a candidate is part of."""
        if self.shape is Shape.ORDERED:
            return range(candidate + 1, self.bad_end + 1)
        return tuple(s for s in range(self.bad_end + 1) if s >> candidate & 1)


class Observation(Struct, frozen=True, kw_only=True):
    """One run: which setting, in which sitting, and by how much it was worse than the good end.

    ``worse`` is the natural logarithm of a ratio (``worse_by``); ``None`` if the setting cannot be
    run, such as a commit that does not build: it is never asked for again.
    """

    setting: int
    sitting: int
    worse: float | None


class Outcome(StrEnum):
    """How a hunt stands."""

    FOUND = "found"
    PAIR = "pair"
    NONE = "none"
    UNDECIDED = "undecided"


class Together(StrEnum):
    """How two candidates cause a loss."""

    EACH = "each"
    """Each has a part of it."""
    BOTH = "both"
    """Only both together have it."""
    EITHER = "either"
    """Each alone has all of it."""


class Posterior(Struct, frozen=True, kw_only=True):
    """How probable each answer is."""

    candidates: tuple[float, ...]
    """Of each candidate to be at fault, alone or with another one."""
    everywhere: float
    """Of a loss that the good end has as well: the night's, the host's, the driver's."""
    gone: float
    """Of no loss at the bad end any more."""


class Finding(Struct, frozen=True, kw_only=True):
    """What a hunt has found so far."""

    outcome: Outcome
    culprits: tuple[int, ...] = ()
    """Indices of candidates. ``FOUND``: one, or neighbours that cannot be told apart since what
    lies between them cannot be run. ``PAIR``: two, or two such groups."""
    certainty: float
    """Probability of the outcome; if undecided, of the most probable answer."""
    loss: float | None = None
    """What the culprits cost: natural logarithm of a ratio."""
    interval: tuple[float, float] | None = None
    """Its 95 % interval."""
    together: Together | None = None
    """How a pair acts."""
    second: float = 0.0
    """``FOUND``: probability that one more candidate is at fault."""
    runs_left: float = 0.0
    """Runs to expect until it is decided."""


def worse_by(value: float, good: float, better: Better) -> float:
    """By how much a number is worse than another: natural logarithm of their ratio.

    Raises:
        ValueError: One of them is not above 0, or not finite.
    """
    if not (0 < value < math.inf and 0 < good < math.inf):
        raise ValueError(f"numbers are above 0: {value!r} is held against {good!r}")
    return better.sign * math.log(good / value)


def as_part(worse: float, better: Better) -> float:
    """Turn a logarithm from ``worse_by`` into a loss as a part of the good end's number."""
    return better.loss(math.exp(-better.sign * worse), 1.0)


# --------------------------------------------------------------------------- both ends


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


def hunt_of(ends: Ends, candidates: int, spread: float | None, error: float) -> Hunt:
    """Make a hunt of what is known of both ends; ``spread`` is ``None`` where no history tells."""
    return Hunt(
        weights=(1.0,) * candidates,
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
