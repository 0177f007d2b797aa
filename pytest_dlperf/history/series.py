"""Values of the history: a comparable series, its nights, and what they show."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import (
    Better,
    Metric,
)
from pytest_dlperf.model.statistics import difference_percent

Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Time = Annotated[str, Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T")]
"""ISO 8601 with its zone."""

_NOT_WHOLE: Final = (
    Verdict.LOST.value,
    *(verdict.value for verdict in Verdict if verdict.has_no_number),
)
"""No number was measured that could be judged."""
GREEN: Final = (Verdict.PASS.value, Verdict.IMPROVED.value)
RED: Final = tuple(
    verdict.value for verdict in Verdict if verdict.is_alarm and verdict is not Verdict.NO_BASELINE
)
"""Something was wrong. What was held against nothing, or never ran, is neither good nor bad."""


class Series(Struct, frozen=True, kw_only=True, array_like=True):
    """Comparable numbers: a metric of one case and cluster, in one unit and direction.

    A changed unit or direction begins a new series, and so does a ratio over another topology.
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
        """Make the series of a case's metric; only that of a ratio has a reference topology."""
        return cls(
            case_id=case.id,
            metric=metric.name,
            unit=metric.unit,
            better=metric.better,
            reference_topology=None if metric.ratio_of is None else str(case.reference_topology),
            cluster=cluster,
            estimator=estimator,
        )


class Point(NamedTuple):
    """A session's measurement of a series; a tuple, as there are many of them.

    ``started`` is when the session began, ISO 8601 with its zone, and ``began`` the same in seconds
    of the Unix epoch. ``median``, ``lowest`` and ``highest`` run are in the metric's unit, ``runs``
    is how many runs have a number, ``broken`` how many have not. ``accepted`` is the number that
    was accepted then; the other fields of that name say when, why, by whom and at which commit.
    ``verdict_word`` is as the database has it, ``None`` where nothing was judged.
    ``fingerprint`` is the id of its fingerprint, ``logs_digest`` the SHA-256 of the logs that it
    was read from, ``None`` where it was launched.
    """

    started: Time
    began: Finite
    median: Finite
    lowest: Finite
    highest: Finite
    runs: int
    broken: int = 0
    accepted: Finite | None = None
    accepted_at: str | None = None
    accepted_reason: str | None = None
    accepted_by: str | None = None
    accepted_commit: str | None = None
    verdict_word: str | None = None
    fingerprint: int | None = None
    logs_digest: str | None = None
    measurement_id: int = 0

    @property
    def is_lost(self) -> bool:
        """Whether a test of the case was lost with its worker."""
        return self.verdict_word == Verdict.LOST


class JudgedSession(NamedTuple):
    """A session that judged a metric, with or without a number.

    The fields are as in ``Point``; ``median`` is ``None`` where nothing was measured.
    """

    started: Time
    began: Finite
    median: Finite | None
    measurement_id: int
    broken: int
    verdict_word: str | None

    @property
    def is_red(self) -> bool:
        """Whether the verdict says that something was wrong."""
        return self.verdict_word in RED

    @property
    def is_whole(self) -> bool:
        """Whether the metric was measured, and no run broke."""
        return self.median is not None and not self.broken and self.verdict_word not in _NOT_WHOLE


class Day(Struct, frozen=True, kw_only=True):
    """The sessions of one calendar day, which count as one point.

    ``index`` and ``last`` are those of its first and last session among all nights of the case,
    ``started`` and ``began`` are the first one's. ``median`` is the median of the sessions'
    medians, ``runs`` the number of runs of all. ``sessions`` are the ids of the measurements.
    """

    index: int
    last: int
    started: str
    began: float
    median: float
    runs: int
    sessions: tuple[int, ...] = ()


class AcceptedChange(Struct, frozen=True, kw_only=True):
    """An accepted number in the metric's unit; when, why, by whom and at which commit."""

    at: str
    old: float
    new: float
    why: str
    by: str | None = None
    commit: str | None = None


class ChangePoint(Struct, frozen=True, kw_only=True):
    """The first session of a new level.

    ``index`` counts all nights of the case, and so does ``previous``, that of the last session of
    the old level: one between them may be of another machine. ``before`` and ``after`` are the
    means of the levels on both sides, up to the adjacent change points; ``p_value`` is that of a
    t-test between them.
    """

    index: int
    previous: int
    at: str
    before: float
    after: float
    p_value: float

    @property
    def difference_percent(self) -> float:
        """Difference of the new level from the old one, in percent of that."""
        return difference_percent(self.after, self.before)


class Drift(Struct, frozen=True, kw_only=True):
    """A slow change over weeks that no single night shows.

    ``since`` is the start of its first session, ``percent`` the change from there until now,
    ``percent_per_week`` its slope.
    """

    since: str
    days: int
    percent: float
    percent_per_week: float


class OtherMachine(Struct, frozen=True, kw_only=True):
    """A machine other than the last session's: its nights are shown, and count for nothing.

    ``first`` and ``last`` are the starts of its first and last session. ``facts`` are the facts in
    which it differs from the machine of the last session, by name: its own and the other's. They
    are texts of the results and may say anything.
    """

    first: str
    last: str
    sessions: int
    facts: Mapping[str, tuple[str, str]]


class CaseHistory(Struct, frozen=True, kw_only=True):
    """The history of a metric of one case, the oldest night first.

    ``points`` are those of all machines. Change points, drift and noise are those of the machine of
    the last night, from one point a day; ``other_machines`` are left out.

    ``run_noise_percent`` is the coefficient of variation of the runs of one night, pooled over the
    nights; ``session_noise_percent`` that of nights around their level, beyond the share of their
    runs. Both are ``None`` with too few runs or nights.
    """

    case_id: str
    metric: str
    unit: str
    better: Better | None
    points: tuple[Point, ...]
    accepted: tuple[AcceptedChange, ...] = ()
    change_points: tuple[ChangePoint, ...] = ()
    drift: Drift | None = None
    run_noise_percent: float | None = None
    session_noise_percent: float | None = None
    other_machines: tuple[OtherMachine, ...] = ()
    without_number: tuple[str, ...] = ()
    """When sessions began that judged it and found no number, ISO 8601."""
