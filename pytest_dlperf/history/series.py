"""Values of the history: what is comparable, what sessions measured of it, what they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_dlperf.history.rows import LOST
from pytest_dlperf.model.judgement import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.metric import Better, Metric

_NOT_WHOLE: Final = (LOST, *(verdict.value for verdict in Verdict if verdict.is_of_nothing))
"""What stands for a verdict where nothing was measured, or nothing that could be judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What is comparable: a metric of one case and cluster, in one unit and direction.

    A metric that has changed its unit or its direction begins anew, and so does a ratio over
    another topology.
    """

    case_id: str
    metric: str
    unit: str
    better: Better | None
    reference_topology: str | None
    cluster: str
    estimator: str

    @classmethod
    def of(cls, case: Case, metric: Metric, *, cluster: str, estimator: str) -> Series:
        """Give the series of a case's metric; only that of a ratio has a reference topology."""
        return cls(
            case_id=case.id,
            metric=metric.name,
            unit=metric.unit,
            better=metric.better,
            reference_topology=None if metric.ratio_of is None else str(case.reference_topology),
            cluster=cluster,
            estimator=estimator,
        )


class Night(NamedTuple):
    """What one session measured of a case's metric: a tuple, as there are many of them.

    ``started`` is when the session began, ISO 8601 with its zone, and ``began`` the same in seconds
    of the Unix epoch. ``median``, ``lowest`` and ``highest`` run are in the metric's unit, ``runs``
    is how many runs count, ``broken`` how many others there were. ``accepted`` is the number that
    was accepted then, the others of the kind are what is known of that.
    ``verdict_word`` is as the database has it, ``None`` where the gate was not asked.
    ``fingerprint`` is the id of what it was taken on.
    """

    started: str
    began: float
    median: float
    lowest: float
    highest: float
    runs: int
    broken: int = 0
    accepted: float | None = None
    accepted_at: str | None = None
    accepted_reason: str | None = None
    accepted_by: str | None = None
    accepted_commit: str | None = None
    verdict_word: str | None = None
    fingerprint: int | None = None
    measurement_id: int = 0

    @property
    def is_from_logs(self) -> bool:
        """Whether nobody can have looked at the machine."""
        return self.fingerprint is None

    @property
    def is_lost(self) -> bool:
        """Whether a test of the case was lost with its worker."""
        return self.verdict_word == LOST


class AskedSession(NamedTuple):
    """A session that had a verdict on a metric, whether it came to a number or not.

    The fields are as in ``Night``; ``median`` is ``None`` where nothing was measured.
    """

    started: str
    began: float
    median: float | None
    measurement_id: int
    broken: int
    verdict_word: str | None

    @property
    def is_whole(self) -> bool:
        """Whether the metric was measured, and nothing broke."""
        return self.median is not None and not self.broken and self.verdict_word not in _NOT_WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """The sessions of one calendar day, which count as one point.

    ``index`` is the place of its first session among all of the case, ``started`` and ``began`` are
    that session's. ``median`` is the median of the sessions' medians, ``runs`` how many runs all
    have. ``sessions`` are the ids of the measurements.
    """

    index: int
    started: str
    began: float
    median: float
    runs: int
    sessions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedChange:
    """A number that a session accepted, in the metric's unit; who did, why, at which commit."""

    at: str
    old: float | None
    new: float
    why: str
    by: str | None = None
    commit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """The first session of a new level.

    ``index`` counts all sessions of the case. ``before`` and ``after`` are the means of
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
    """A machine whose sessions are shown, and compared with nothing.

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
    """All that the history says of a metric of one case, the oldest first.

    ``nights`` are all sessions. Change points, drift and noise are those of the machine of the last
    one, by one point for each day; ``other_machines`` are what is left out.

    ``run_noise_percent`` is the coefficient of variation of the runs of one night, pooled over the
    nights; ``night_noise_percent`` that of nights around their level, beyond what their runs make;
    ``None`` from too few to say.
    ``change_points`` is ``None`` where nothing could look for them.
    """

    case_id: str
    metric: str
    unit: str
    better: Better | None
    nights: tuple[Night, ...]
    accepted: tuple[AcceptedChange, ...] = ()
    change_points: tuple[ChangePoint, ...] | None = None
    drift: Drift | None = None
    run_noise_percent: float | None = None
    night_noise_percent: float | None = None
    other_machines: tuple[OtherMachine, ...] = ()
