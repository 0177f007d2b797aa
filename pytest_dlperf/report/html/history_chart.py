"""The sessions of a case's metric over time: medians, ranges, accepted numbers, what happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from typing import Final

from msgspec import Struct

from pytest_dlperf.history.series import AcceptedChange, CaseHistory, Point, verdict_of
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.results import parse_time
from pytest_dlperf.report import trends
from pytest_dlperf.report.html.drawing import (
    Chart,
    Frame,
    Label,
    Scale,
    Shape,
    Tick,
    badge_of,
    bars,
    dots,
    limits,
    path,
)

FRAME: Final = Frame(width=1280, height=440, left=130, right=1260, top=24, bottom=376)
FEW: Final = 60
"""Up to so many sessions each has a dot of its own."""
DATES: Final = 4
"""Along the axis, the last session's among them: more run into each other on a telephone."""
_DAY: Final = 86400.0


class HistoryChart(Struct, frozen=True, kw_only=True):
    """The chart of a case's metric, and the text below it.

    The small picture in the table is made of the line of the medians, whose id is ``name``, and the
    paths of the last session, if it has a number, and of the sessions without one, ``missing``.
    """

    chart: Chart
    name: str
    last: str
    missing: str
    facts: tuple[str, ...]
    changes: tuple[str, ...]
    accepted_changes: tuple[str, ...]


def history_chart(
    history: CaseHistory, *, name: str = "h1", max_points: int = 1000
) -> HistoryChart | None:
    """Draw the last sessions, the line of medians under this ``name``; ``None`` without any."""
    points = history.points[-max_points:]
    if not points:
        return None
    times = [_seconds(point.started) for point in points]
    first = min(times)
    lacking = [at for at in map(_seconds, history.without_number) if at >= first]
    last = max([*times, *lacking])
    air = (last - first) * 0.015 or _DAY
    along = Scale(low=first - air, high=last + air, start=FRAME.left, end=FRAME.right)
    values = [point.median for point in points]
    values += [point.accepted for point in points if point.accepted is not None]
    low, high = limits(values)
    up = Scale(low=low, high=high, start=FRAME.bottom, end=FRAME.top)
    xs = along.places(times)
    missing = dots((x, FRAME.bottom) for x in along.places(lacking))
    medians = path(list(zip(xs, up.places([point.median for point in points]), strict=True)))
    few = "few" if len(points) <= FEW else ""
    facts = tuple(_facts(history, drawn=len(points)))
    chart = Chart(
        title=f"History of {history.case_id}: {history.metric} in {history.unit}",
        description=". ".join(facts),
        frame=FRAME,
        style="history",
        up=up.ticks(4),
        along=_date_ticks(first, last, along),
        shapes=(
            *_shapes(history, points, xs, along, up),
            Shape(style="medians", path=medians, key="median", tone=few, name=name),
            *_marks(points, xs, up),
            Shape(style="missing", path=missing, key="no number" if lacking else "", tone="failed"),
        ),
        labels=tuple(
            Label(x=along.at(at), y=FRAME.top - 6, text="▼", style="m change-sign")
            for at in _change_times(history, along)
        ),
    )
    return HistoryChart(
        chart=chart,
        name=name,
        last="" if last > times[-1] else dots([(xs[-1], up.at(points[-1].median))]),
        missing=missing,
        facts=facts,
        changes=tuple(
            f"{change.at[:10]}: {trends.change(change, history.unit)}"
            for change in history.change_points
        ),
        accepted_changes=tuple(
            f"{change.at[:10]}: {trends.accepted(change, history.unit)}"
            for change in history.accepted
        ),
    )


def _shapes(
    history: CaseHistory, points: Sequence[Point], xs: Sequence[int], along: Scale, up: Scale
) -> Iterator[Shape]:
    """Draw the range of each session, the accepted number of its day, and what happened."""
    # A ratio has no runs, and some metrics are alike in all of them.
    if any(point.lowest != point.highest for point in points):
        # A single odd run ends at the edge: it would press all sessions into a line.
        highest = up.places([min(point.highest, up.high) for point in points])
        lowest = up.places([max(point.lowest, up.low) for point in points])
        ranges = bars(list(zip(xs, highest, strict=True)), lowest)
        yield Shape(style="ranges", path=ranges, key="lowest to highest run")
    if levels := _steps(points, xs, up):
        yield Shape(style="accepted-line", path=levels, key="accepted")
    if changed := [along.at(at) for at in _change_times(history, along)]:
        lines = "".join(f"M{x} {FRAME.top}V{FRAME.bottom}" for x in changed)
        yield Shape(style="change-line", path=lines, key="change point")
    if accepted := list(_accepted_places(history.accepted, along)):
        diamonds = "".join(f"M{x} {FRAME.bottom - 12}l11 12-11 12-11-12z" for x in accepted)
        yield Shape(style="accepted-sign", path=diamonds, key="newly accepted")


def _change_times(history: CaseHistory, along: Scale) -> list[float]:
    times = (_seconds(change.at) for change in history.change_points)
    return [at for at in times if along.holds(at)]


@lru_cache(1000)
def _seconds(started: str) -> float:
    """Read a time by the clock on the wall: a session has the date that its session wrote.

    All cases of a session have the same.
    """
    return parse_time(started).replace(tzinfo=UTC).timestamp()


def _accepted_places(changes: Iterable[AcceptedChange], along: Scale) -> Iterator[int]:
    """Place what was accepted; a file written by hand may give its time in words."""
    for change in changes:
        with suppress(ValueError):
            time = _seconds(change.at)
            if along.holds(time):
                yield along.at(time)


def _date_ticks(first: float, last: float, along: Scale) -> tuple[Tick, ...]:
    """Mark dates in even steps; that of the last session ends at its mark."""
    found: dict[str, Tick] = {}
    for step in range(DATES):
        time = first + (last - first) * step / (DATES - 1)
        date = _date(time)
        found[date] = Tick(along.at(time), date, "e" if date == _date(last) else "m")
    return tuple(found.values())


def _date(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d}"


def _steps(points: Sequence[Point], xs: Sequence[int], up: Scale) -> str:
    """Draw the accepted number: a level as long as it held, a step where it changed."""
    pieces = []
    held = None
    for level, same in groupby(zip(xs, points, strict=True), key=lambda both: both[1].accepted):
        at = [x for x, _ in same]
        if level is not None:
            y = up.at(level)
            pieces.append(f"M{at[0]} {y}" if held is None else f"H{at[0]}V{y}")
            pieces.append(f"H{at[-1]}" if at[-1] != at[0] or held is not None else "h2")
        held = level
    return "".join(pieces)


def _marks(points: Sequence[Point], xs: Sequence[int], up: Scale) -> Iterator[Shape]:
    """Mark the sessions that came out other than well."""
    by_status: dict[Verdict, list[int]] = {}
    for place, point in enumerate(points):
        verdict = verdict_of(point.verdict_word)
        # What was not judged counts as passed, which most are.
        if verdict not in (Verdict.PASS, None):
            by_status.setdefault(verdict, []).append(place)
    for status, places in by_status.items():
        badge = badge_of(status)
        yield Shape(
            style="mark",
            path=dots((xs[place], up.at(points[place].median)) for place in places),
            key=badge.word,
            tone=badge.style,
        )


def _facts(history: CaseHistory, *, drawn: int) -> Iterator[str]:
    points = history.points
    count = len(points)
    begin = "" if count == 1 else f" since {points[0].started[:10]}"
    yield f"{numbers.counted(count, 'session')}{begin}"
    if drawn < count:
        yield f"the last {drawn} are drawn"
    noise = trends.noise(history)
    if noise is not None:
        yield noise
    if history.drift is not None:
        yield trends.drift(history.drift)
    yield from map(trends.other_machine, history.other_machines)
