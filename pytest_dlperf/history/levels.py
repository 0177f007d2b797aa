"""When a number came to its level, by the sessions before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final, NamedTuple

from pytest_dlperf.history.trends import level_began
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.statistics import median

_MIN_CHANGE: Final = 0.01
"""An inconclusive number that is nearer to its reference, as a part of that, has not changed."""


class SessionPoint(NamedTuple):
    """A session of the history, tonight's, or one that the baseline names.

    ``day`` is in tonight's time zone. ``measurement_id`` is ``None`` where the history does not
    have the session. ``is_green``: it was judged, and passed.
    """

    day: date
    started: str
    began: float
    median: float | None = None
    measurement_id: int | None = None
    is_green: bool = False


class Levels(NamedTuple):
    """The level that tonight is held against, and tonight's."""

    reference: float
    tonight: float

    @property
    def are_alike(self) -> bool:
        """Whether they are too near to each other to differ."""
        return abs(self.tonight / self.reference - 1) < _MIN_CHANGE

    def is_tonights(self, one: SessionPoint) -> bool:
        """Whether a session is nearer to tonight's level."""
        middle, number = (self.reference + self.tonight) / 2, one.median or 0.0
        return number == self.tonight or (number > middle) == (self.tonight > middle)

    def start(self, values: Sequence[float]) -> int:
        """Index of the first value at tonight's level."""
        return level_began(values, reference=self.reference, now=self.tonight)


def has_moved(judgement: Judgement) -> bool:
    """Whether tonight's number is off its reference in the verdict's direction.

    A control arm may show a loss where it is not; the history has no control arm of other nights.
    """
    measured, decision = judgement.measured, judgement.decision
    better, verdict = judgement.metric.better, judgement.verdict
    if verdict is Verdict.INCONCLUSIVE:
        return True
    if measured is None or decision is None or better is None or measured == decision.reference:
        return False
    gained = (measured > decision.reference) == (better.sign > 0)
    return verdict is Verdict.ENVIRONMENT_SHIFT or gained == (verdict is Verdict.IMPROVED)


def start_of_level(known: Sequence[SessionPoint], levels: Levels) -> int:
    """Index of the first session at tonight's level, by one number a day."""
    days = _by_date(known)
    day = levels.start([_median_of(there) for there in days])
    # Of a day with several sessions, some may have been before the change.
    first = max(day - 1, 0)
    around = [one.median or 0.0 for there in days[first : day + 1] for one in there]
    return sum(map(len, days[:first])) + levels.start(around)


def _by_date(sessions: Iterable[SessionPoint]) -> list[list[SessionPoint]]:
    days: dict[date, list[SessionPoint]] = {}
    for one in sessions:
        days.setdefault(one.day, []).append(one)
    return list(days.values())


def _median_of(sessions: Iterable[SessionPoint]) -> float:
    return median([one.median or 0.0 for one in sessions])


def days_between(one: SessionPoint, other: SessionPoint) -> int:
    """Count the calendar nights between two sessions."""
    return (other.day - one.day).days
