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
from pytest_dlperf.model.judgement import Explanation, Verdict
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
from pytest_dlperf.report.words import dated

_MIN_P: Final = 0.001
"""A smaller probability is no longer told by its size."""
FRAME: Final = Frame(width=1280, height=440, left=130, right=1260, top=24, bottom=376)
FEW: Final = 60
"""Up to so many sessions each has a dot of its own."""
DATES: Final = 4
"""Along the axis, tonight's among them: more run into each other on a telephone."""
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
    history: CaseHistory,
    *,
    name: str = "h1",
    max_points: int = 1000,
    explanation: Explanation | None = None,
) -> HistoryChart | None:
    """Draw the last sessions, the line of medians under this ``name``; ``None`` without any.

    Marked is the last good night, by the ``explanation``.
    """
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
    changes = [_seconds(change.at) for change in history.change_points]
    changed = [along.at(time) for time in changes if along.holds(time)]
    facts = tuple(_facts(history, drawn=len(points)))
    chart = Chart(
        title=f"History of {history.case_id}: {history.metric} in {history.unit}",
        description=". ".join(facts),
        frame=FRAME,
        style="nights",
        up=up.ticks(4),
        along=_date_ticks(first, last, along),
        shapes=(
            *_series(points, xs, up, name),
            *_happenings(changed, list(_accepted_places(history.accepted, along))),
            *_marks(points, xs, up),
            Shape(style="missing", path=missing, key="no number" if lacking else "", tone="failed"),
            *_last_good(points, xs, up, explanation),
        ),
        labels=tuple(Label(x=x, y=FRAME.top - 6, text="▼", style="m change-sign") for x in changed),
    )
    return HistoryChart(
        chart=chart,
        name=name,
        last="" if last > times[-1] else dots([(xs[-1], up.at(points[-1].median))]),
        missing=missing,
        facts=facts,
        changes=tuple(
            f"{change.at[:10]}: {trends.change(change, history.unit)}"
            + (f" (p = {change.p_value:.2g})" if change.p_value >= _MIN_P else f" (p < {_MIN_P})")
            for change in history.change_points
        ),
        accepted_changes=tuple(
            f"{change.at[:10]}: {trends.accepted(change, history.unit)}"
            for change in history.accepted
        ),
    )


def _series(points: Sequence[Point], xs: Sequence[int], up: Scale, name: str) -> Iterator[Shape]:
    """Draw of each session its range, the accepted number of its day, and its median."""
    medians = list(zip(xs, up.places([point.median for point in points]), strict=True))
    levels = _steps(points, xs, up)
    # A ratio has no runs, and some metrics are alike in all of them.
    if any(point.lowest != point.highest for point in points):
        # A single odd run ends at the edge: it would press all nights into a line.
        highest = up.places([min(point.highest, up.high) for point in points])
        lowest = up.places([max(point.lowest, up.low) for point in points])
        yield Shape(
            style="ranges",
            path=bars(list(zip(xs, highest, strict=True)), lowest),
            key="lowest to highest run",
        )
    yield Shape(style="accepted-line", path=levels, key="accepted" if levels else "")
    yield Shape(
        style="medians",
        path=path(medians),
        key="median",
        tone="few" if len(points) <= FEW else "",
        name=name,
    )


def _last_good(
    points: Sequence[Point], xs: Sequence[int], up: Scale, explanation: Explanation | None
) -> Iterator[Shape]:
    good = explanation.last_good if explanation is not None else None
    at = _place_of(good.at, points) if good is not None else None
    if good is not None and at is not None:
        x, y = xs[at], up.at(points[at].median)
        yield Shape(
            style="good-night",
            path=f"M{x - 13} {y}a13 13 0 1 0 26 0a13 13 0 1 0-26 0",
            key=f"last good: {dated(good.at, points[-1].started)}",
        )


def _place_of(started: str, points: Sequence[Point]) -> int | None:
    """Find the session that began then, from the last one on; older ones may not be drawn."""
    moment = parse_time(started)
    places = range(len(points) - 1, -1, -1)
    return next((n for n in places if parse_time(points[n].started) == moment), None)


def _happenings(changed: Sequence[int], accepted: Sequence[int]) -> Iterator[Shape]:
    lines = "".join(f"M{x} {FRAME.top}V{FRAME.bottom}" for x in changed)
    diamonds = "".join(f"M{x} {FRAME.bottom - 12}l11 12-11 12-11-12z" for x in accepted)
    if changed:
        yield Shape(style="change-line", path=lines, key="change point")
    if accepted:
        yield Shape(style="accepted-sign", path=diamonds, key="newly accepted")


@lru_cache(1000)
def _seconds(started: str) -> float:
    """Read a time by the clock on the wall: a night has the date that its session wrote.

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
    """Mark dates in even steps; the last one, tonight, ends at its mark."""
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
