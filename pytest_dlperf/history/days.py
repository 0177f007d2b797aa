"""One point for each day: what many sessions of an afternoon share is no level."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_dlperf.gate.noise import median

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_dlperf.history.night import Night


class Day(NamedTuple):
    """The sessions of one calendar day.

    ``place`` is the index of its first session among the points, ``began`` when that began in
    seconds of the Unix epoch, ``median`` the median of the sessions' medians, ``counted`` how many
    runs all have, ``sessions`` are the ids of the measurements.
    """

    place: int
    started: str
    began: float
    median: float
    counted: int
    sessions: tuple[int, ...]


def days_of(nights: Iterable[tuple[int, Night]]) -> list[Day]:
    """The days of nights, which come with their index; a day is that of the session's own zone."""
    by_date: dict[str, list[tuple[int, Night]]] = {}
    for index, night in nights:
        by_date.setdefault(night.started[:10], []).append((index, night))
    return [_day(together) for together in by_date.values()]


def _day(together: list[tuple[int, Night]]) -> Day:
    index, first = together[0]
    if len(together) == 1:
        # Nearly all days, and there are many.
        sessions = (first.measurement_id,)
        return Day(index, first.started, first.began, first.median, first.counted, sessions)
    return Day(
        place=index,
        started=first.started,
        began=first.began,
        median=median([night.median for _, night in together]),
        counted=sum(night.counted for _, night in together),
        sessions=tuple(night.measurement_id for _, night in together),
    )
