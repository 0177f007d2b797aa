"""The runs of a case as dots, beside what they are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.judgement import Quantity
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.figures import accepted, held_against
from pytest_dlperf.reports.html.drawing import Scale, Tick, limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.records import CaseResult

# Two units of the drawing are a pixel where there is room: places are whole numbers.
LEFT: Final = 40
LEFT_OF_NAMES: Final = 330
RIGHT: Final = 1240
ROW: Final = 96
DOT: Final = 22
FARTHEST: Final = 0.25
"""A dot farther than this from the median, in parts of it, stands at the edge as an arrow: else
one stray would press all others into a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One run; ``sign`` is an arrow where it lies beyond the chart."""

    x: int
    y: int
    title: str
    sign: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The runs of one arm."""

    name: str
    y: int
    dots: tuple[Dot, ...]
    median_x: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """From one place of the axis to another."""

    x: int
    width: int
    y: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An entry of the legend: the style of its sign, and what it says with its numbers."""

    style: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsChart:
    """All that is drawn; what is not known is ``None``."""

    title: str
    description: str
    height: int
    left: int
    axis_y: int
    ticks: tuple[Tick, ...]
    rows: tuple[Row, ...]
    allowed: Span | None
    interval: Span | None
    baseline_x: int | None
    accepted_x: int | None
    visible_x: int | None
    keys: tuple[Key, ...]


def runs_chart(result: CaseResult) -> RunsChart | None:
    """The chart of a case; ``None`` without any run that counts."""
    arms = [(name, measured) for name, measured in _arms(result) if measured.throughputs]
    if not arms:
        return None
    judged = result.judgements.get(Quantity.THROUGHPUT)
    held = held_against(result, Quantity.THROUGHPUT)
    agreed = accepted(judged)
    lost = _after_loss(held, judged.min_detectable_percent if judged else None)
    passing = _after_loss(held, judged.tolerance_percent if judged else None)
    left = LEFT_OF_NAMES if len(arms) > 1 else LEFT
    scale = _scale(arms[0][1], arms, (held, agreed, lost, passing), left)
    axis_y = 40 + ROW * len(arms) + 20
    rows = tuple(
        _row(name, measured, 40 + ROW * number + ROW // 2, scale)
        for number, (name, measured) in enumerate(arms)
    )
    keys = tuple(_keys(result, judged, held, agreed))
    unit = arms[0][1].unit
    return RunsChart(
        title=f"Runs of {result.case.id} in {unit}",
        description="; ".join(key.text for key in keys),
        height=axis_y + 60,
        left=left,
        axis_y=axis_y,
        ticks=scale.ticks(6 if left == LEFT else 4),
        rows=rows,
        allowed=_span(scale, passing, held),
        interval=_interval(scale, judged, held, rows[0].y),
        baseline_x=_place(scale, held),
        accepted_x=_place(scale, agreed),
        visible_x=_place(scale, lost),
        keys=keys,
    )


def _arms(result: CaseResult) -> Iterator[tuple[str, Measurement]]:
    if result.measurement is not None:
        yield "measured", result.measurement
    if result.interleaved is not None:
        yield "in turn: tested", result.interleaved.candidate
        yield "in turn: accepted", result.interleaved.control


def _after_loss(held: float | None, percent: float | None) -> float | None:
    return None if held is None or percent is None else held * (1 - percent / 100)


def _scale(
    measured: Measurement,
    arms: Sequence[tuple[str, Measurement]],
    lines: Sequence[float | None],
    left: int,
) -> Scale:
    median = measured.median or measured.throughputs[0]
    values = [value for _, arm in arms for value in arm.throughputs]
    values += [line for line in lines if line is not None]
    near = [value for value in values if abs(value - median) <= FARTHEST * median]
    low, high = limits([*near, median])
    return Scale(low=low, high=high, start=left, end=RIGHT)


def _place(scale: Scale, value: float | None) -> int | None:
    return scale.at(value) if value is not None and scale.holds(value) else None


def _span(scale: Scale, low: float | None, high: float | None) -> Span | None:
    if low is None or high is None or high < scale.low or low > scale.high:
        return None
    start, end = scale.within(low), scale.within(high)
    return Span(x=start, width=max(end - start, 1))


def _interval(scale: Scale, judged: Judgement | None, held: float | None, y: int) -> Span | None:
    if judged is None or judged.interval_percent is None or held is None:
        return None
    low, high = (held * (1 + percent / 100) for percent in judged.interval_percent)
    span = _span(scale, low, high)
    return Span(x=span.x, width=span.width, y=y + ROW // 2 - 8) if span else None


def _row(name: str, measured: Measurement, y: int, scale: Scale) -> Row:
    placed: list[Dot] = []
    for run in measured.runs:
        if run.throughput is None:
            continue
        x = scale.within(run.throughput)
        sign = "" if scale.holds(run.throughput) else "◂" if run.throughput < scale.low else "▸"
        free = (
            y + lane
            for lane in (0, -DOT, DOT, 0)
            if not any(abs(x - dot.x) < DOT and dot.y == y + lane for dot in placed)
        )
        told = f"run {run.run}: {numbers.throughput(run.throughput)} {measured.unit}"
        placed.append(Dot(x=x, y=next(free, y), title=told, sign=sign))
    return Row(
        name=name,
        y=y,
        dots=tuple(placed),
        median_x=scale.within(measured.median or measured.throughputs[0]),
    )


def _keys(
    result: CaseResult, judged: Judgement | None, held: float | None, accepted: float | None
) -> Iterator[Key]:
    measured = result.measurement
    if measured is not None and measured.throughputs:
        count = len(measured.throughputs)
        of = "1 run" if count == 1 else f"{count} runs"
        median = numbers.throughput(measured.median)
        yield Key(style="median", text=f"median of {of}: {median} {measured.unit}")
    if held is not None:
        yield Key(style="baseline", text=f"baseline: {numbers.throughput(held)}")
    if accepted is not None:
        yield Key(style="accepted", text=f"accepted: {numbers.throughput(accepted)}")
    if judged is None:
        return
    if judged.tolerance_percent is not None:
        told = f"a loss that passes: up to {numbers.percent(judged.tolerance_percent)}"
        yield Key(style="allowed", text=told)
    if judged.min_detectable_percent is not None:
        sees = numbers.detectable_loss(judged.min_detectable_percent)
        yield Key(style="visible", text=f"the smallest loss that is seen: {sees}")
    if judged.interval_percent is not None:
        interval = numbers.interval(judged.interval_percent)
        yield Key(style="interval", text=f"95 % interval of the difference: {interval}")
