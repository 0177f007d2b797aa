"""The runs of a case as dots, beside what they are held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.judgement import Quantity
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.figures import accepted, held_against, interleaved_arms
from pytest_dlperf.reports.html.drawing import Chart, Frame, Label, Scale, Shape, limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.records import CaseResult

ROW: Final = 96
RADIUS: Final = 10
LANE: Final = 22
"""Dots nearer than this to each other stand in lanes of a row, so far apart."""
FARTHEST: Final = 0.25
"""A dot farther than this from the median, in parts of it, stands at the edge as an arrow: else
one outlier would press all others into a line."""


def runs_chart(result: CaseResult) -> Chart | None:
    """Draw the runs of a case; ``None`` without any that counts."""
    own = [("measured", result.measurement)] if result.measurement else []
    arms = [
        (name, measured)
        for name, measured in (*own, *interleaved_arms(result.interleaved))
        if measured.throughputs
    ]
    if not arms:
        return None
    judged = result.judgements.get(Quantity.THROUGHPUT)
    held = held_against(result, Quantity.THROUGHPUT)
    agreed = accepted(judged)
    detectable = _after_loss(held, judged.min_detectable_percent if judged else None)
    passing = _after_loss(held, judged.tolerance_percent if judged else None)
    frame = _frame(len(arms))
    scale = _scale(arms, (held, agreed, detectable, passing), frame)
    shapes = [
        *_of_rule(judged, held, scale, frame),
        _line(scale, frame, agreed, "accepted"),
        _line(scale, frame, held, "reference"),
    ]
    labels: list[Label] = []
    for number, (name, measured) in enumerate(arms):
        y = frame.top + ROW * number + ROW // 2
        if len(arms) > 1:
            labels.append(Label(x=10, y=y + 8, text=name))
        median = scale.within(measured.median or measured.throughputs[0])
        key = "" if number else _median_key(measured)
        shapes.append(Shape(style="median-line", path=f"M{median} {y - 40}v80", key=key))
        shapes += _dots(measured, y, scale)
    shapes = [shape for shape in shapes if shape.path or shape.key]
    return Chart(
        title=f"Runs of {result.case.id} in {arms[0][1].unit}",
        description="; ".join(shape.key for shape in shapes if shape.key),
        frame=frame,
        along=scale.ticks(4 if len(arms) > 1 else 6),
        shapes=tuple(shapes),
        labels=tuple(labels),
    )


def _frame(arms: int) -> Frame:
    """Make room for the rows; the names of several stand on the left."""
    bottom = 40 + ROW * arms + 20
    left = 390 if arms > 1 else 40
    return Frame(width=1280, height=bottom + 60, left=left, right=1240, top=40, bottom=bottom)


def _after_loss(held: float | None, percent: float | None) -> float | None:
    return None if held is None or percent is None else held * (1 - percent / 100)


def _scale(
    arms: Sequence[tuple[str, Measurement]], lines: Sequence[float | None], frame: Frame
) -> Scale:
    _, measured = arms[0]
    median = measured.median or measured.throughputs[0]
    values = [value for _, arm in arms for value in arm.throughputs]
    values += [line for line in lines if line is not None]
    near = [value for value in values if abs(value - median) <= FARTHEST * median]
    low, high = limits([*near, median])
    return Scale(low=low, high=high, start=frame.left, end=frame.right)


def _line(scale: Scale, frame: Frame, value: float | None, name: str) -> Shape:
    """Draw a line across all rows; a value beyond the scale is in the legend only."""
    key = "" if value is None else f"{name}: {numbers.throughput(value)}"
    return Shape(style=f"{name}-line", path=_upright(scale, frame, value), key=key)


def _upright(scale: Scale, frame: Frame, value: float | None) -> str:
    if value is None or not scale.holds(value):
        return ""
    return f"M{scale.at(value)} {frame.top - 10}V{frame.bottom}"


def _span(scale: Scale, low: float | None, high: float | None) -> tuple[int, int] | None:
    """Place two ends, as far as the scale has what lies between them."""
    if low is None or high is None or high < scale.low or low > scale.high:
        return None
    start, end = scale.within(low), scale.within(high)
    return start, max(end, start + 1)


def _of_rule(
    judged: Judgement | None, held: float | None, scale: Scale, frame: Frame
) -> Iterator[Shape]:
    """Draw what the rule allows and finds, and its interval at the foot of the first row."""
    if judged is None:
        return
    allowed, detectable = judged.tolerance_percent, judged.min_detectable_percent
    if allowed is not None:
        span = _span(scale, _after_loss(held, allowed), held)
        top, bottom = frame.top - 10, frame.bottom
        band = f"M{span[0]} {top}H{span[1]}V{bottom}H{span[0]}z" if span else ""
        key = f"a loss that passes: up to {numbers.percent(allowed)}"
        yield Shape(style="allowed-band", path=band, key=key)
    if detectable is not None:
        line = _upright(scale, frame, _after_loss(held, detectable))
        key = f"minimum detectable change: {numbers.detectable_loss(detectable)}"
        yield Shape(style="detectable-line", path=line, key=key)
    if judged.interval_percent is not None:
        low, high = (_after_loss(held, -percent) for percent in judged.interval_percent)
        span, y = _span(scale, low, high), frame.top + ROW - 8
        line = f"M{span[0]} {y}m0-7v14m0-7H{span[1]}m0-7v14" if span else ""
        key = f"95 % interval of the difference: {numbers.interval(judged.interval_percent)}"
        yield Shape(style="interval-line", path=line, key=key)


def _median_key(measured: Measurement) -> str:
    runs = numbers.counted(len(measured.throughputs), "run")
    return f"median of {runs}: {numbers.throughput(measured.median)} {measured.unit}"


def _dots(measured: Measurement, y: int, scale: Scale) -> Iterator[Shape]:
    """Draw a dot for each run, in lanes; an arrow where it lies beyond the chart."""
    taken: list[tuple[int, int]] = []
    for run in measured.runs:
        if run.throughput is None:
            continue
        x = scale.within(run.throughput)
        free = (
            lane
            for lane in (y, y - LANE, y + LANE)
            if not any(abs(x - at) < LANE and lane == other for at, other in taken)
        )
        lane = next(free, y)
        taken.append((x, lane))
        title = f"run {run.run}: {numbers.throughput(run.throughput)} {measured.unit}"
        yield Shape(style="run", path=_dot(x, lane, run.throughput, scale), title=title)


def _dot(x: int, y: int, throughput: float, scale: Scale) -> str:
    if scale.holds(throughput):
        arc = f"a{RADIUS} {RADIUS} 0 1 0"
        return f"M{x - RADIUS} {y}{arc} {2 * RADIUS} 0{arc}-{2 * RADIUS} 0z"
    inwards = RADIUS if throughput < scale.low else -RADIUS
    return f"M{x} {y}l{inwards} {-RADIUS}v{2 * RADIUS}z"
