"""Why a number moved: since when, and what is not as it was before."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class DifferenceKind(str, Enum):
    """What may differ between two nights."""

    COMMAND = "command"
    """An argument of the trainer's command line."""
    ENVIRONMENT = "environment"
    """A variable that the launch sets."""
    LAUNCH = "launch"
    """Another part of the launch: launcher, working directory, options of srun or a container."""
    COMMIT = "commit"
    """The suite's commit, or that of a checkout that the trainer runs from."""
    SOFTWARE = "software"
    """A version: packages, runtime, driver, firmware."""
    MACHINE = "machine"
    HOSTS = "hosts"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastNight:
    """An earlier session of the case's metric, or tonight's.

    ``at`` is when it began, ISO 8601 with its zone; ``commit`` is the suite's and ``ci_run`` the
    address of the CI's run, as far as known; ``median`` is in the metric's unit, ``None`` where
    nothing was measured.
    """

    at: str
    commit: str | None = None
    ci_run: str | None = None
    median: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that is not the same on all sides.

    A side is ``None`` where nobody knows, and ``-`` (``differences.ABSENT``) where it is known to
    lack the thing.

    ``accepted`` is how it was when the number was accepted, ``last_good`` how it was in the last
    good night. ``came_with_it``: it changed between the last good night and the first that was not.
    """

    kind: DifferenceKind
    name: str
    accepted: str | None = None
    last_good: str | None = None
    tonight: str | None = None
    came_with_it: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What the history and the surroundings tell of a number that did not simply pass.

    Nights are those of its machine since the number was accepted.
    """

    since: PastNight | None = None
    """The first night at tonight's level; tonight itself where that is new. ``None``: nobody
    knows."""
    last_good: PastNight | None = None
    """The night before that; where the history has none, that of the accepted number."""
    nights: int | None = None
    """Calendar nights from the last good one to tonight."""
    nights_at_level: int = 1
    """How many nights there were at this level, tonight included."""
    unmeasured_nights: int = 0
    """Calendar nights between the last good one and ``since`` on which nothing was measured: the
    change may be as old as the first of them."""
    or_earlier: bool = False
    """Whether ``since`` is only the first night that the history knows after the last good one."""
    is_gradual: bool = False
    """Whether it came little by little since then: ``since`` is when that began, and the last good
    night the one before."""
    differences: tuple[Difference, ...] = ()
    """What differs, the most suspicious first."""
