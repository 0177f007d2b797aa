"""The charts of the page: the sessions of a metric over time, a training over its topologies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from itertools import groupby
from typing import Final

from msgspec import Struct

from pytest_dlperf.history.series import CaseHistory, Point, verdict_of
from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import Topology
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.results import CaseResult, MetricResult, parse_time
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
from pytest_dlperf.report.status import by_training

HISTORY: Final = Frame(width=1280, height=440, left=130, right=1260, top=24, bottom=376)
_FEW: Final = 60
"""Up to so many sessions each has a dot of its own."""
_DATES: Final = 4
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
    along = Scale(first - air, last + air, HISTORY.left, HISTORY.right)
    levels = [point.accepted for point in points if point.accepted is not None]
    up = Scale(*limits([*levels, *(it.median for it in points)]), HISTORY.bottom, HISTORY.top)
    xs, ys = along.places(times), up.places(point.median for point in points)
    missing = dots((x, HISTORY.bottom) for x in along.places(lacking))
    facts = tuple(_facts(history, drawn=len(points)))
    changed = [along.at(at) for it in history.change_points if along.holds(at := _seconds(it.at))]
    lines = [f"M{x} {HISTORY.top}V{HISTORY.bottom}" for x in changed]
    few = "few" if len(points) <= _FEW else ""
    chart = Chart(
        title=f"History of {history.case_id}: {history.metric} in {history.unit}",
        description=". ".join(facts),
        frame=HISTORY,
        style="history",
        up=up.ticks(4),
        along=_dates(first, last, along),
        shapes=(
            *_ranges(points, xs, up),
            *_levels(history, points, xs, along, up),
            _shape("change-line", "change point", lines),
            Shape("medians", path(zip(xs, ys, strict=True)), "median", few, name),
            *_marks(points, xs, ys),
            Shape("missing", missing, "no number" if lacking else "", "failed"),
        ),
        labels=tuple(Label(x, HISTORY.top - 6, "▼", "m change-sign") for x in changed),
    )
    unit = history.unit
    return HistoryChart(
        chart=chart,
        name=name,
        last="" if last > times[-1] else dots([(xs[-1], ys[-1])]),
        missing=missing,
        facts=facts,
        changes=tuple(f"{it.at[:10]}: {trends.change(it, unit)}" for it in history.change_points),
        accepted_changes=tuple(
            f"{it.at[:10]}: {trends.accepted(it, unit)}" for it in history.accepted
        ),
    )


@lru_cache(1000)
def _seconds(started: str) -> float:
    """Read a time by the clock on the wall: a session has the date that its session wrote.

    All cases of a session have the same.
    """
    return parse_time(started).replace(tzinfo=UTC).timestamp()


def _shape(style: str, key: str, pieces: Sequence[str]) -> Shape:
    return Shape(style, "".join(pieces), key if pieces else "")


def _ranges(points: Sequence[Point], xs: Sequence[int], up: Scale) -> Iterator[Shape]:
    """Draw the range of each session; a ratio has no runs, and some metrics are alike in all."""
    if any(point.lowest != point.highest for point in points):
        # A single odd run ends at the edge: it would press all sessions into a line.
        highest = up.places(min(point.highest, up.high) for point in points)
        lowest = up.places(max(point.lowest, up.low) for point in points)
        yield Shape("ranges", bars(xs, highest, lowest), "lowest to highest run")


def _levels(
    history: CaseHistory, points: Sequence[Point], xs: Sequence[int], along: Scale, up: Scale
) -> Iterator[Shape]:
    pieces, held = [], None
    for level, same in groupby(zip(xs, points, strict=True), key=lambda both: both[1].accepted):
        at = [x for x, _ in same]
        if level is not None:
            y = up.at(level)
            pieces.append(f"M{at[0]} {y}" if held is None else f"H{at[0]}V{y}")
            pieces.append(f"H{at[-1]}" if at[-1] != at[0] or held is not None else "h2")
        held = level
    yield _shape("accepted-line", "accepted", pieces)
    diamonds = []
    for change in history.accepted:
        with suppress(ValueError):  # a file written by hand may give its time in words
            if along.holds(time := _seconds(change.at)):
                diamonds.append(f"M{along.at(time)} {HISTORY.bottom - 12}l11 12-11 12-11-12z")
    yield _shape("accepted-sign", "newly accepted", diamonds)


def _marks(points: Sequence[Point], xs: Sequence[int], ys: Sequence[int]) -> Iterator[Shape]:
    by_status: dict[Verdict, list[tuple[int, int]]] = {}
    for x, y, point in zip(xs, ys, points, strict=True):
        verdict = verdict_of(point.verdict_word)
        # What was not judged counts as passed, which most are.
        if verdict not in (Verdict.PASS, None):
            by_status.setdefault(verdict, []).append((x, y))
    for status, places in by_status.items():
        badge = badge_of(status)
        yield Shape("mark", dots(places), badge.word, badge.style)


def _dates(first: float, last: float, along: Scale) -> list[Tick]:
    found: dict[str, Tick] = {}
    for step in range(_DATES):
        time = first + (last - first) * step / (_DATES - 1)
        date = f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d}"
        found[date] = Tick(along.at(time), date)
    *others, ending = found.values()
    return [*others, Tick(ending.at, ending.label, "e")]


def _facts(history: CaseHistory, *, drawn: int) -> Iterator[str]:
    count = len(history.points)
    begin = "" if count == 1 else f" since {history.points[0].started[:10]}"
    yield f"{numbers.counted(count, 'session')}{begin}"
    if drawn < count:
        yield f"the last {drawn} are drawn"
    noise = trends.noise(history)
    if noise is not None:
        yield noise
    if history.drift is not None:
        yield trends.drift(history.drift)
    yield from map(trends.other_machine, history.other_machines)


SCALING: Final = Frame(width=920, height=560, left=120, right=890, top=40, bottom=480)
_APART: Final = 56
"""Labels of the axis that would stand nearer to each other are left out."""


class ScalingRow(Struct, frozen=True, kw_only=True):
    """One topology of the table."""

    result: CaseResult
    median: str
    speedup: str
    efficiency: str
    reference: str


class ScalingChart(Struct, frozen=True, kw_only=True):
    """The chart of one training, and its table."""

    name: str
    terms: str
    """What stays the same over the topologies, and what speedups are over."""
    unit: str
    is_scaled: bool
    """Whether there are speedups."""
    chart: Chart
    rows: tuple[ScalingRow, ...]


def scaling_charts(results: Iterable[CaseResult]) -> Iterator[ScalingChart]:
    """Draw each training that was measured on several topologies."""
    for name, members in sorted(by_training(results).items()):
        if sum(_median(result) is not None for result in members) > 1:
            yield _chart(name, members)


def _base(result: CaseResult) -> MetricResult | None:
    return next(iter(result.metrics().values()), None)


def _median(result: CaseResult) -> float | None:
    """Return the measured number; a broken run leaves none that could be drawn beside others."""
    base, measured = _base(result), result.measurement
    if base is None or measured is None or measured.broken_runs:
        return None
    return base.median or None


def _ratio(result: CaseResult) -> MetricResult | None:
    return next((one for one in result.metrics().values() if one.metric.ratio_of), None)


def _speedup(result: CaseResult) -> float | None:
    if result.case.topology == result.case.reference_topology:
        return None if _median(result) is None else 1.0
    ratio = _ratio(result)
    return ratio.median if ratio is not None else None


def _chart(name: str, members: Sequence[CaseResult]) -> ScalingChart:
    case, over = members[0].case, _reference(members)
    base = next(base for result in members if (base := _base(result)) and _median(result))
    unit, value_of = base.metric.unit, _speedup if over else _median
    points = [(one.case.topology.world_size, value) for one in members if (value := value_of(one))]
    devices = sorted({count for count, _ in points})
    # On one ideal line all topologies lie, whatever their nodes.
    ideal = [(count, count / over.world_size) for count in (devices[0], devices[-1]) if over]
    along = _scale(devices, 1.15, SCALING.left, SCALING.right)
    up = _scale([value for _, value in [*points, *ideal]], 1.3, SCALING.bottom, SCALING.top)

    def places(values: Iterable[tuple[int, float]]) -> list[tuple[int, int]]:
        return [(along.at(count), up.at(value)) for count, value in values]

    rows = tuple(map(_row, members))
    what = f"Speedup over {over}" if over else base.metric.name.capitalize()
    # The line goes through the fastest of topologies with equally many devices.
    best = {count: max(value for at, value in points if at == count) for count in devices}
    chart = Chart(
        title=f"{what} of {name} against devices, both logarithmic",
        description="; ".join(
            f"{topology.world_size} devices ({topology}) {row.median} {unit}, {row.efficiency}"
            for row in rows
            if (topology := row.result.case.topology)
        ),
        frame=SCALING,
        up=up.ticks(),
        along=list(_ticks(devices, along)),
        shapes=(
            Shape("axis", f"M{SCALING.left} {SCALING.top}V{SCALING.bottom}"),
            Shape("ideal", path(places(ideal)) if ideal else "", "ideal" if ideal else ""),
            Shape("medians", path(places(best.items()))),
            Shape("points", dots(places(points)), "measured"),
        ),
        labels=(
            Label((SCALING.left + SCALING.right) // 2, SCALING.height - 8, "devices", "m"),
            Label(SCALING.left, SCALING.top - 14, f"times {over}" if over else unit),
        ),
    )
    speedups = f"speedups over {over}" if over else "no speedups"
    return ScalingChart(
        name=name,
        terms=f"{case.scaling.value} scaling, {speedups}",
        unit=unit,
        is_scaled=over is not None,
        chart=chart,
        rows=rows,
    )


def _reference(members: Iterable[CaseResult]) -> Topology | None:
    """Return what all speedups are over; ``None`` where there are none, or they are over several.

    One measured speedup and the reference itself make two points.
    """
    over = {
        result.case.reference_topology
        for result in members
        if _speedup(result) is not None and result.case.topology != result.case.reference_topology
    }
    return over.pop() if len(over) == 1 else None


def _row(result: CaseResult) -> ScalingRow:
    base, ratio, speedup = _base(result), _ratio(result), _speedup(result)
    reference = ratio.reference if ratio is not None else None
    return ScalingRow(
        result=result,
        median=numbers.number(base.median, base.metric.unit) if base else numbers.ABSENT,
        speedup=numbers.number(speedup, "x"),
        efficiency=numbers.percent(result.efficiency_percent(speedup)),
        reference=numbers.percent(result.efficiency_percent(reference)),
    )


def _scale(values: Sequence[float], air: float, start: int, end: int) -> Scale:
    return Scale(min(values) / air, max(values) * air, start, end, logarithmic=True)


def _ticks(devices: Iterable[int], along: Scale) -> Iterator[Tick]:
    last = -_APART
    for count in devices:
        if along.at(count) - last >= _APART:
            last = along.at(count)
            yield Tick(last, str(count))
