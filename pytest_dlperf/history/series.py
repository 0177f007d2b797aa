"""Values of the history: a comparable series, its sessions, and what they show."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better, Metric
from pytest_dlperf.model.statistics import difference_percent

Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Time = Annotated[str, Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T")]
"""ISO 8601 with its zone."""

GREEN: Final = (Verdict.PASS.value, Verdict.IMPROVED.value)
RED: Final = tuple(
    verdict.value for verdict in Verdict if verdict.is_alarm and verdict is not Verdict.NO_BASELINE
)
"""Something was wrong. What was held against nothing, or never ran, is neither good nor bad."""


_VERDICTS: Final[Mapping[str | None, Verdict]] = {verdict.value: verdict for verdict in Verdict}


def verdict_of(word: str | None) -> Verdict | None:
    """Return the verdict of a word in the database; ``None`` for one of another version."""
    return _VERDICTS.get(word)


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


class JudgedSession(NamedTuple):
    """A session that judged a metric, with or without a number; a tuple, as there are many.

    ``started`` is when it began, ISO 8601 with its zone, and ``began`` the same in seconds of the
    Unix epoch; ``median`` is ``None`` where nothing was measured. ``measurement_id`` is 0 for a
    session that the history does not have. ``broken`` is how many runs have no number,
    ``verdict_word`` as the database has it, ``None`` where nothing was judged.
    """

    started: Time
    began: Finite
    median: Finite | None
    measurement_id: int = 0
    broken: int = 0
    verdict_word: str | None = None

    @property
    def is_green(self) -> bool:
        """Whether it was judged, and passed."""
        return self.verdict_word in GREEN

    @property
    def is_red(self) -> bool:
        """Whether the verdict says that something was wrong."""
        return self.verdict_word in RED

    @property
    def is_whole(self) -> bool:
        """Whether the metric was measured, and no run broke."""
        verdict = verdict_of(self.verdict_word)
        is_lost = verdict is not None and (verdict.has_no_number or verdict is Verdict.LOST)
        return self.median is not None and not self.broken and not is_lost


class Point(NamedTuple):
    """A session's measurement of a series.

    The first fields are as in ``JudgedSession``. ``lowest`` and ``highest`` are those of the runs,
    ``runs`` how many have a number. ``accepted`` is the number that was accepted then; the other
    fields of that name say when, why, by whom and at which commit. ``fingerprint`` is the id of its
    fingerprint, ``run_values`` the runs' numbers as JSON.
    """

    started: Time
    began: Finite
    median: Finite
    measurement_id: int = 0
    broken: int = 0
    verdict_word: str | None = None
    lowest: Finite = 0.0
    highest: Finite = 0.0
    runs: int = 0
    accepted: Finite | None = None
    accepted_at: str | None = None
    accepted_reason: str | None = None
    accepted_by: str | None = None
    accepted_commit: str | None = None
    fingerprint: int | None = None
    run_values: str = "[]"

    @property
    def as_judged(self) -> JudgedSession:
        """The same as a session that judged the metric."""
        return JudgedSession(*self[:6])


class Day(Struct, frozen=True, kw_only=True):
    """The sessions of one calendar day, which count as one point.

    ``index`` and ``last`` are those of its first and last session among all points of the case,
    ``started`` and ``began`` are the first one's. ``median`` is the median of the sessions'
    medians, ``runs`` the number of runs of all.
    """

    index: int
    last: int
    started: str
    began: float
    median: float
    runs: int
    sessions: tuple[Point, ...] = ()


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

    ``index`` counts all points of the case, and so does ``previous``, that of the last session of
    the old level: one between them may be of another machine. ``before`` and ``after`` are the
    means of the levels on both sides, up to the adjacent change points.
    """

    index: int
    previous: int
    at: str
    before: float
    after: float

    @property
    def difference_percent(self) -> float:
        """Difference of the new level from the old one, in percent of that."""
        return difference_percent(self.after, self.before)


class Drift(Struct, frozen=True, kw_only=True):
    """A slow change over weeks that no single session shows.

    ``since`` is the start of its first session, ``percent`` the change from there until now,
    ``percent_per_week`` its slope.
    """

    since: str
    days: int
    percent: float
    percent_per_week: float


class OtherMachine(Struct, frozen=True, kw_only=True):
    """A machine other than the last session's: its sessions are shown, and count for nothing.

    ``first`` and ``last`` are the starts of its first and last session. ``facts`` are the facts in
    which it differs from the machine of the last session, by name: its own and the other's. They
    are texts of the results and may say anything.
    """

    first: str
    last: str
    sessions: int
    facts: Mapping[str, tuple[str, str]]


class CaseHistory(Struct, frozen=True, kw_only=True):
    """The history of a metric of one case, the oldest session first.

    ``points`` are those of all machines. Change points, drift and noise are those of the machine of
    the last session, from one point a day; ``other_machines`` are left out.

    ``noise_percent`` is the coefficient of variation of the runs of one session, pooled over the
    sessions; ``None`` with too few. ``without_number`` is when sessions began that judged the
    metric and found no number, ISO 8601.
    """

    case_id: str
    metric: str
    unit: str
    better: Better | None
    points: tuple[Point, ...]
    accepted: tuple[AcceptedChange, ...] = ()
    change_points: tuple[ChangePoint, ...] = ()
    drift: Drift | None = None
    noise_percent: float | None = None
    other_machines: tuple[OtherMachine, ...] = ()
    without_number: tuple[str, ...] = ()
