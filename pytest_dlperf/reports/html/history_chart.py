"""The sessions of a case's metric over time: medians, ranges, accepted numbers, what happened."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.results import parse_time
from pytest_dlperf.night import history_words
from pytest_dlperf.night.case_status import CaseStatus
from pytest_dlperf.night.explanation_words import dated
from pytest_dlperf.reports.html.drawing import (
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.history.series import AcceptedChange, CaseHistory, Night
    from pytest_dlperf.model.judgement import Explanation, PastNight

_MIN_P: Final = 0.001
"""A smaller probability is no longer told by its size."""
FRAME: Final = Frame(width=1280, height=440, left=130, right=1260, top=24, bottom=376)
FEW: Final = 60
"""Up to so many sessions each has a dot of its own."""
OUTLIERS: Final = 0.05
"""The part of the sessions, at either end, that may lie beyond the chart: only what is far off."""
FAR_OFF: Final = 3
"""Distances between the quartiles beyond which a number is far off."""
LATELY: Final = 7
"""The last sessions, whose medians lie within the chart wherever they are."""
MAX_TICKS: Final = 4
"""Dates along the axis, beside tonight and the change: more run into each other on a telephone."""
DATE_WIDTH: Final = 200
"""Units of the drawing that a date takes there."""
MIN_STEP: Final = 0.01
"""A smaller step, as a part of the level, is none."""
MIN_LEVEL: Final = 4
"""Sessions of a level that change points are found by."""
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

    Marked is since when it is as it is tonight, and the last good night, by the ``explanation``.
    """
    points = history.nights[-max_points:]
    if not points:
        return None
    times = [_seconds(point.started) for point in points]
    first = min(times)
    lacking = [at for at in map(_seconds, history.without_number) if at >= first]
    last = max([*times, *lacking])
    air = (last - first) * 0.015 or _DAY
    along = Scale(low=first - air, high=last + air, start=FRAME.left, end=FRAME.right)
    low, high = _value_limits(points)
    up = Scale(low=low, high=high, start=FRAME.bottom, end=FRAME.top)
    xs = along.places(times)
    missing = dots((x, FRAME.bottom) for x in along.places(lacking))
    changes = [_seconds(change.at) for change in history.change_points]
    changed = [along.at(time) for time in changes if along.holds(time)]
    beyond = sum(point.lowest < up.low or point.highest > up.high for point in points)
    since = explanation.since if explanation is not None else None
    stepped = None if explanation is not None and explanation.is_gradual else since
    facts = tuple(_facts(history, stepped, drawn=len(points), beyond=beyond))
    chart = Chart(
        title=f"History of {history.case_id}: {history.metric} in {history.unit}",
        description=". ".join(facts),
        frame=FRAME,
        style="nights",
        up=up.ticks(4),
        along=_date_ticks([*times, *lacking], along, _changed_at(points, changes, since)),
        shapes=(
            *_since(points, xs, explanation),
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
        last="" if last > times[-1] else dots([(xs[-1], up.within(points[-1].median))]),
        missing=missing,
        facts=facts,
        changes=tuple(
            f"{change.at[:10]}: {history_words.change(change, history.unit)}"
            + (f" (p = {change.p_value:.2g})" if change.p_value >= _MIN_P else f" (p < {_MIN_P})")
            for change in history.change_points
        ),
        accepted_changes=tuple(
            f"{change.at[:10]}: {history_words.accepted(change, history.unit)}"
            for change in history.accepted
        ),
    )


def _series(points: Sequence[Night], xs: Sequence[int], up: Scale, name: str) -> Iterator[Shape]:
    """Draw of each session its range, the accepted number of its day, and its median."""
    medians = list(zip(xs, up.places([point.median for point in points]), strict=True))
    levels = _steps(points, xs, up)
    # A ratio has no runs, and some metrics are alike in all of them.
    if any(point.lowest != point.highest for point in points):
        highest = up.places([point.highest for point in points])
        lowest = up.places([point.lowest for point in points])
        yield Shape(
            style="ranges",
            path=bars(list(zip(xs, highest, strict=True)), lowest),
            key="lowest to highest run",
            is_clipped=True,
        )
    yield Shape(
        style="accepted-line", path=levels, key="accepted" if levels else "", is_clipped=True
    )
    yield Shape(
        style="medians",
        path=path(medians),
        key="median",
        tone="few" if len(points) <= FEW else "",
        name=name,
        is_clipped=True,
    )


def _since(
    points: Sequence[Night], xs: Sequence[int], explanation: Explanation | None
) -> Iterator[Shape]:
    """Draw a band over the nights at tonight's level."""
    since = explanation.since if explanation is not None else None
    at = _place_of(since.at, points) if since is not None else None
    if since is None or at is None:
        return
    # It begins between the last night of the level before and the first of this one.
    word = points[-1].verdict_word
    left = (xs[at - 1] + xs[at]) // 2 if at else FRAME.left
    yield Shape(
        style="since-band",
        path=f"M{min(left, FRAME.right - 8)} {FRAME.top}V{FRAME.bottom}H{FRAME.right}V{FRAME.top}z",
        key=f"since {dated(since.at, points[-1].started)}",
        tone=badge_of(CaseStatus(word)).style if word else "",
    )


def _last_good(
    points: Sequence[Night], xs: Sequence[int], up: Scale, explanation: Explanation | None
) -> Iterator[Shape]:
    good = None
    if explanation is not None:
        good = explanation.last_passed or explanation.last_good
    at = _place_of(good.at, points) if good is not None else None
    if good is not None and at is not None:
        x, y = xs[at], up.within(points[at].median)
        yield Shape(
            style="good-night",
            path=f"M{x - 13} {y}a13 13 0 1 0 26 0a13 13 0 1 0-26 0",
            key=f"last good: {dated(good.at, points[-1].started)}",
        )


def _place_of(started: str, points: Sequence[Night]) -> int | None:
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
    return parse_time(started).replace(tzinfo=timezone.utc).timestamp()


def _accepted_places(changes: Iterable[AcceptedChange], along: Scale) -> Iterator[int]:
    """Place what was accepted; a file written by hand may give its time in words."""
    for change in changes:
        with suppress(ValueError):
            time = _seconds(change.at)
            if along.holds(time):
                yield along.at(time)


def _value_limits(points: Sequence[Night]) -> tuple[float, float]:
    """Find limits for all but a few that are far off; for the last nights and what was accepted."""
    ends = [point.median for point in points[-LATELY:]]
    ends += {point.accepted for point in points if point.accepted is not None}
    for values in (
        [point.lowest for point in points],
        [point.median for point in points],
        [point.highest for point in points],
    ):
        values.sort()
        ends += _usual_ends(values)
    return limits(ends)


def _usual_ends(values: Sequence[float]) -> tuple[float, float]:
    """Return the least and the largest of sorted numbers, without a few that are far off."""
    quarter, few = len(values) // 4, int(len(values) * OUTLIERS)
    low, high = values[quarter], values[-1 - quarter]
    reach = FAR_OFF * (high - low)
    first = next(i for i, value in enumerate(values) if i == few or value >= low - reach)
    last = next(i for i, value in enumerate(reversed(values)) if i == few or value <= high + reach)
    return values[first], values[-1 - last]


def _changed_at(
    points: Sequence[Night], changes: Sequence[float], since: PastNight | None
) -> float | None:
    """Find when tonight's level began: by the verdict, else by the last change point."""
    at = _place_of(since.at, points) if since is not None else None
    return _seconds(points[at].started) if at is not None else max(changes, default=None)


def _date_ticks(times: Sequence[float], along: Scale, changed: float | None) -> tuple[Tick, ...]:
    """Mark tonight and the day of the change, then as many round dates as have room beside them."""
    tonight = Tick(along.at(max(times)), _date(max(times)), "e")
    marks, taken = [tonight], [tonight.at - DATE_WIDTH // 2]
    if changed is not None and along.holds(changed) and _date(changed) != tonight.label:
        at, label = along.at(changed), _date(changed)
        if tonight.at - at < DATE_WIDTH * 3 // 2:
            both = Tick(tonight.at, f"{label} … {tonight.label[5:]}", "e")
            marks = [both, Tick(at, "")]
            taken.append(tonight.at - DATE_WIDTH * 5 // 4)
        else:
            marks.append(Tick(at, label))
            taken.append(at)
    first, last = (datetime.fromtimestamp(time, timezone.utc) for time in (min(times), max(times)))
    midnight = first.replace(hour=0, minute=0, second=0, microsecond=0)
    every = (last - first).days // MAX_TICKS + 1
    for day in range(0, (last - first).days + 1, every):
        time = (midnight + timedelta(days=day)).timestamp()
        at = along.at(time)
        if along.holds(time) and all(abs(at - other) >= DATE_WIDTH for other in taken):
            marks.append(Tick(at, _date(time)))
    return tuple(sorted(marks, key=lambda tick: tick.at))


def _date(time: float) -> str:
    return f"{datetime.fromtimestamp(time, timezone.utc):%Y-%m-%d}"


def _steps(points: Sequence[Night], xs: Sequence[int], up: Scale) -> str:
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


def _marks(points: Sequence[Night], xs: Sequence[int], up: Scale) -> Iterator[Shape]:
    """Mark the sessions that came out other than well."""
    by_status: dict[CaseStatus, list[int]] = {}
    # What was not judged counts as passed, which most are.
    passed = (CaseStatus.PASS.value, None, "")
    for night, point in enumerate(points):
        if point.verdict_word not in passed:
            by_status.setdefault(CaseStatus(point.verdict_word), []).append(night)
    for status, nights in by_status.items():
        badge = badge_of(status)
        yield Shape(
            style="mark",
            path=dots((xs[night], up.within(points[night].median)) for night in nights),
            key=badge.word,
            tone=badge.style,
        )


def _facts(
    history: CaseHistory, since: PastNight | None, *, drawn: int, beyond: int
) -> Iterator[str]:
    points = history.nights
    count = len(points)
    begin = "" if count == 1 else f" since {points[0].started[:10]}"
    yield f"{numbers.counted(count, 'session')}{begin}"
    if drawn < count:
        yield f"the last {drawn} are drawn"
    noise = history_words.noise(history)
    if noise is not None:
        yield noise
    if history.drift is not None:
        yield history_words.drift(history.drift)
    yield from map(history_words.other_machine, history.other_machines)
    if not history.change_points:
        yield _no_change_point(points, since)
    if beyond:
        yield f"runs of {numbers.counted(beyond, 'point')} lie beyond the chart"


def _no_change_point(points: Sequence[Night], since: PastNight | None) -> str:
    """Say that there is none: not so below a step that everybody sees."""
    at = _place_of(since.at, points) if since is not None else _last_step(points)
    if at is None:
        return "no change point"
    is_short = len(points) - at < MIN_LEVEL
    why = f"a change point takes {MIN_LEVEL} sessions" if is_short else "no change point is certain"
    return f"a step on {points[at].started[:10]}; {why}"


def _last_step(points: Sequence[Night]) -> int | None:
    """Find the last session from which on the next ones lie apart from those before."""
    medians = [point.median for point in points]
    reach = 2 * MIN_LEVEL
    for at in range(len(points) - 1, MIN_LEVEL - 1, -1):
        least = MIN_STEP * abs(medians[at - 1])
        if abs(medians[at] - medians[at - 1]) <= least:
            continue
        before, after = medians[max(at - reach, 0) : at], medians[at : at + reach]
        width = max(max(before) - min(before), least)
        if min(after) > max(before) + width or max(after) < min(before) - width:
            return at
    return None
