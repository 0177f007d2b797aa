"""The runs of a case as dots, beside what they are held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.night.figures import accepted
from pytest_dlperf.night.runs import arms_of
from pytest_dlperf.reports.html.drawing import Chart, Frame, Label, Scale, Shape, limits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.model.measurement import Measurement, Samples
    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.model.results import CaseResult, MetricResult

ROW: Final = 96
RADIUS: Final = 10
LANE: Final = 22
"""Dots nearer than this to each other stand in lanes of a row, so far apart."""
FARTHEST: Final = 0.25
"""A dot farther than this from the median, in parts of it, stands at the edge as an arrow: else
one outlier would press all others into a line."""


def runs_chart(result: CaseResult, known: MetricResult) -> Chart | None:
    """Draw the runs of a case's metric; ``None`` without any that has it."""
    arms = [
        (name, measured, samples)
        for name, measured in arms_of(result)
        if known.metric in measured.metrics
        and (samples := measured.samples(known.metric.name)).values
    ]
    if not arms:
        return None
    rule = _Rule(known)
    frame = _frame(len(arms))
    scale = _scale([samples for *_, samples in arms], rule.lines, frame)
    unit = known.metric.unit
    shapes = [
        *_of_rule(rule, scale, frame),
        _line(scale, frame, rule.accepted, unit, "accepted"),
        _line(scale, frame, rule.held, unit, "reference"),
    ]
    labels: list[Label] = []
    for number, (name, measured, samples) in enumerate(arms):
        y = frame.top + ROW * number + ROW // 2
        if len(arms) > 1:
            labels.append(Label(x=10, y=y + 8, text=name))
        median = scale.within(samples.median or samples.values[0])
        key = "" if number else _median_key(samples)
        shapes.append(Shape(style="median-line", path=f"M{median} {y - 40}v80", key=key))
        shapes += _dots(measured, known.metric, y, scale)
    shapes = [shape for shape in shapes if shape.path or shape.key]
    return Chart(
        title=f"Runs of {result.case.id}: {known.metric.name} in {unit}",
        description="; ".join(shape.key for shape in shapes if shape.key),
        frame=frame,
        along=scale.ticks(4 if len(arms) > 1 else 6),
        shapes=tuple(shapes),
        labels=tuple(labels),
    )


class _Rule:
    """What the judgement on a metric allows and finds: places along its axis."""

    def __init__(self, known: MetricResult) -> None:
        self.judged = known.judgement
        self.held = known.reference
        self.accepted = accepted(self.judged)
        self._better = known.metric.better
        self.detectable = self.after_loss(
            self.judged.min_detectable_percent if self.judged else None
        )
        self.passing = self.after_loss(self.judged.tolerance_percent if self.judged else None)

    @property
    def lines(self) -> tuple[float | None, ...]:
        return self.held, self.accepted, self.detectable, self.passing

    def above(self, percent: float) -> float | None:
        """Place what lies so far above the reference."""
        return None if self.held is None else self.held * (1 + percent / 100)

    def after_loss(self, percent: float | None) -> float | None:
        """Place what is so much worse than the reference, on the side where worse is."""
        if percent is None or self._better is None:
            return None
        return self.above(-self._better.sign * percent)


def _frame(arms: int) -> Frame:
    """Make room for the rows; the names of several stand on the left."""
    bottom = 40 + ROW * arms + 20
    left = 390 if arms > 1 else 40
    return Frame(width=1280, height=bottom + 60, left=left, right=1240, top=40, bottom=bottom)


def _scale(arms: Sequence[Samples], lines: Sequence[float | None], frame: Frame) -> Scale:
    median = arms[0].median or arms[0].values[0]
    values = [value for samples in arms for value in samples.values]
    values += [line for line in lines if line is not None]
    near = [value for value in values if abs(value - median) <= FARTHEST * abs(median)]
    low, high = limits([*near, median])
    return Scale(low=low, high=high, start=frame.left, end=frame.right)


def _line(scale: Scale, frame: Frame, value: float | None, unit: str, name: str) -> Shape:
    """Draw a line across all rows; a value beyond the scale is in the legend only."""
    key = "" if value is None else f"{name}: {numbers.number(value, unit)}"
    return Shape(style=f"{name}-line", path=_upright(scale, frame, value), key=key)


def _upright(scale: Scale, frame: Frame, value: float | None) -> str:
    if value is None or not scale.holds(value):
        return ""
    return f"M{scale.at(value)} {frame.top - 10}V{frame.bottom}"


def _span(scale: Scale, one: float | None, other: float | None) -> tuple[int, int] | None:
    """Place two ends, the lower one first, as far as the scale has what lies between them."""
    if one is None or other is None:
        return None
    low, high = sorted((one, other))
    if high < scale.low or low > scale.high:
        return None
    start, end = scale.within(low), scale.within(high)
    return start, max(end, start + 1)


def _of_rule(rule: _Rule, scale: Scale, frame: Frame) -> Iterator[Shape]:
    """Draw what the rule allows and finds, and its interval at the foot of the first row."""
    judged = rule.judged
    if judged is None:
        return
    if judged.tolerance_percent is not None:
        span = _span(scale, rule.passing, rule.held)
        top, bottom = frame.top - 10, frame.bottom
        band = f"M{span[0]} {top}H{span[1]}V{bottom}H{span[0]}z" if span else ""
        key = f"a loss that passes: up to {numbers.percent(judged.tolerance_percent)}"
        yield Shape(style="allowed-band", path=band, key=key)
    if judged.min_detectable_percent is not None:
        line = _upright(scale, frame, rule.detectable)
        key = f"minimum detectable change: {numbers.detectable_loss(judged.min_detectable_percent)}"
        yield Shape(style="detectable-line", path=line, key=key)
    if judged.interval_percent is not None:
        span, y = _span(scale, *map(rule.above, judged.interval_percent)), frame.top + ROW - 8
        line = f"M{span[0]} {y}m0-7v14m0-7H{span[1]}m0-7v14" if span else ""
        key = f"95 % interval of the difference: {numbers.interval(judged.interval_percent)}"
        yield Shape(style="interval-line", path=line, key=key)


def _median_key(samples: Samples) -> str:
    runs = numbers.counted(len(samples.values), "run")
    return f"median of {runs}: {numbers.quantity(samples.median, samples.metric.unit)}"


def _dots(measured: Measurement, metric: Metric, y: int, scale: Scale) -> Iterator[Shape]:
    """Draw a dot for each run, in lanes; an arrow where it lies beyond the chart."""
    taken: list[tuple[int, int]] = []
    for run in measured.runs:
        value = run.metrics.get(metric.name)
        if value is None:
            continue
        x = scale.within(value)
        free = (
            lane
            for lane in (y, y - LANE, y + LANE)
            if not any(abs(x - at) < LANE and lane == other for at, other in taken)
        )
        lane = next(free, y)
        taken.append((x, lane))
        title = f"run {run.run}: {numbers.quantity(value, metric.unit)}"
        style = "run" if scale.holds(value) else "far-run"
        yield Shape(style=style, path=_dot(x, lane, value, scale), title=title)


def _dot(x: int, y: int, value: float, scale: Scale) -> str:
    if scale.holds(value):
        return f"M{x} {y}h0"
    inwards = RADIUS if value < scale.low else -RADIUS
    return f"M{x} {y}l{inwards} {-RADIUS}v{2 * RADIUS}z"
