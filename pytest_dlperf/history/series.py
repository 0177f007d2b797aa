"""What the history says of one case: its nights, its accepted numbers, and what they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.model.judgement import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What one session measured of a case.

    ``started`` is when the session began, ISO 8601 with its zone. ``median``, ``slowest`` and
    ``fastest`` run are throughputs in the unit per second, ``runs`` how many of them count.
    ``baseline`` and the verdict are those of that night; ``is_lost`` says that a test of the case
    was lost with its worker, whatever the others told.
    """

    started: str
    median: float
    slowest: float
    fastest: float
    runs: int
    speedup: float | None = None
    baseline: float | None = None
    verdict: Verdict | None = None
    is_lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedChange:
    """A throughput that a session accepted, in the unit per second, and why."""

    at: str
    old: float | None
    new: float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """The first session of a new level.

    ``index`` counts the points of the series. ``before`` and ``after`` are the mean throughputs of
    the levels on both sides, up to the change points next to it; ``p_value`` is that of a t-test
    between them.
    """

    index: int
    at: str
    before: float
    after: float
    p_value: float

    @property
    def difference_percent(self) -> float:
        """How far the new level lies above the old one."""
        return (self.after / self.before - 1) * 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """A slow change over weeks that no single night shows.

    ``since`` is the session it is seen from, ``percent`` the change from there until now,
    ``percent_per_week`` its slope.
    """

    since: str
    nights: int
    percent: float
    percent_per_week: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMachine:
    """A machine of which nights are shown, and compared with nothing.

    ``first`` and ``last`` are when the first and the last of its sessions began. ``facts`` are
    what it has, and what the machine of the last session has instead, by name; they may say
    anything.
    """

    first: str
    last: str
    sessions: int
    facts: Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseHistory:
    """All that the history says of one case, the oldest first.

    ``points`` are all sessions. Change points, drift and noise are those of the machine of the last
    one, by one point for each day; ``other_machines`` are what is left out.

    ``run_noise_percent`` is the coefficient of variation of the runs of one night, pooled over the
    nights; ``night_noise_percent`` that of nights around their level, beyond what their runs make;
    ``None`` from too few to say.
    ``change_points`` is ``None`` where nothing could look for them.
    """

    case_id: str
    unit: str
    points: tuple[Point, ...]
    accepted: tuple[AcceptedChange, ...] = ()
    change_points: tuple[ChangePoint, ...] | None = None
    drift: Drift | None = None
    run_noise_percent: float | None = None
    night_noise_percent: float | None = None
    other_machines: tuple[OtherMachine, ...] = ()
