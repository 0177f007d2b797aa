"""A training over its topologies: speedup against devices beside the ideal, and efficiency.

Where speedups are taken over nothing, it is the throughput against devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.results import CaseResult, MetricResult
from pytest_dlperf.report.columns import by_training
from pytest_dlperf.report.html.case_view import CaseView
from pytest_dlperf.report.html.drawing import (
    Badge,
    Chart,
    Frame,
    Label,
    Scale,
    Shape,
    Tick,
    dots,
    path,
)

FRAME: Final = Frame(width=920, height=560, left=120, right=890, top=40, bottom=480)
APART: Final = 56
"""Labels of the axis that would stand nearer to each other are left out."""


class ScalingRow(Struct, frozen=True, kw_only=True):
    """One topology of the table: its numbers as texts, and efficiencies for the bar."""

    case: Case
    badge: Badge
    median: str
    speedup: str
    efficiency: float | None
    reference: float | None


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


class _Point(Struct, frozen=True, kw_only=True):
    """One topology: the first metric of its measurement, and the ratio that is over another's."""

    result: CaseResult
    base: MetricResult | None
    ratio: MetricResult | None

    @property
    def devices(self) -> int:
        return self.result.case.topology.world_size

    @property
    def is_reference(self) -> bool:
        return self.result.case.topology == self.result.case.reference_topology

    @property
    def median(self) -> float | None:
        """The measured number; a broken run leaves none that could be drawn beside others."""
        measured = self.result.measurement
        if self.base is None or measured is None or measured.broken_runs:
            return None
        return self.base.median or None

    @property
    def speedup(self) -> float | None:
        if self.is_reference:
            return 1.0 if self.median is not None else None
        return self.ratio.median if self.ratio is not None else None


def scaling_charts(
    results: Iterable[CaseResult], views: Mapping[str, CaseView]
) -> Iterator[ScalingChart]:
    """Draw each training that was measured on several topologies; ``views`` are by case id."""
    for name, members in sorted(by_training(results).items()):
        members.sort(key=lambda result: (result.case.topology.world_size, result.case.topology))
        points = [_point(result) for result in members]
        if sum(point.median is not None for point in points) > 1:
            yield _chart(name, points, views)


def _point(result: CaseResult) -> _Point:
    known = result.metrics()
    ratio = next((one for one in known.values() if one.metric.ratio_of is not None), None)
    return _Point(result=result, base=next(iter(known.values()), None), ratio=ratio)


def _chart(name: str, points: Sequence[_Point], views: Mapping[str, CaseView]) -> ScalingChart:
    over = _reference(points)
    case = points[0].result.case
    base = next(point.base for point in points if point.base is not None and point.median)
    unit = base.metric.unit
    measured = _pairs((point, point.speedup if over else point.median) for point in points)
    held = _pairs(
        (point, known.reference)
        for point in points
        if (known := point.ratio if over else point.base) is not None
    )
    devices = sorted({count for count, _ in [*measured, *held]})
    # On one ideal line all topologies lie, whatever their nodes.
    ideal = (
        [(count, count / over.world_size) for count in (devices[0], devices[-1])] if over else []
    )
    along = _scale(devices, 1.15, FRAME.left, FRAME.right)
    up = _scale([value for _, value in [*measured, *held, *ideal]], 1.3, FRAME.bottom, FRAME.top)

    def places(values: Iterable[tuple[int, float]]) -> list[tuple[int, int]]:
        return [(along.at(count), up.at(value)) for count, value in values]

    rows = tuple(_row(point, views[point.result.case.id].badge) for point in points)
    what = f"Speedup over {over}" if over else base.metric.name.capitalize()
    shapes = (
        Shape(style="axis", path=f"M{FRAME.left} {FRAME.top}V{FRAME.bottom}"),
        Shape(style="ideal", path=path(places(ideal)) if ideal else "", key="ideal" * bool(ideal)),
        Shape(style="reference-scaling", path=path(places(_best(held)))),
        Shape(style="reference-points", path=dots(places(held)), key="reference" if held else ""),
        Shape(style="medians", path=path(places(_best(measured)))),
        Shape(style="points", path=dots(places(measured)), key="measured"),
    )
    return ScalingChart(
        name=name,
        terms=f"{case.scaling.value} scaling, "
        + (f"speedups over {over}" if over else "no speedups"),
        unit=unit,
        is_scaled=over is not None,
        chart=Chart(
            title=f"{what} of {name} against devices, both logarithmic",
            description="; ".join(_describe(row, unit) for row in rows),
            frame=FRAME,
            up=up.ticks(),
            along=tuple(_device_ticks(devices, along)),
            shapes=shapes,
            labels=(
                Label(
                    x=(FRAME.left + FRAME.right) // 2, y=FRAME.height - 8, text="devices", style="m"
                ),
                Label(x=FRAME.left, y=FRAME.top - 14, text=f"times {over}" if over else unit),
            ),
        ),
        rows=rows,
    )


def _pairs(values: Iterable[tuple[_Point, float | None]]) -> list[tuple[int, float]]:
    return [(point.devices, value) for point, value in values if value]


def _reference(points: Sequence[_Point]) -> Topology | None:
    """Return what all speedups are over; ``None`` where there are none, or they are over several.

    One measured speedup and the reference itself make two points.
    """
    over = {
        point.result.case.reference_topology
        for point in points
        if point.speedup is not None and not point.is_reference
    }
    return over.pop() if len(over) == 1 else None


def _row(point: _Point, badge: Badge) -> ScalingRow:
    result, ratio = point.result, point.ratio
    speedup = point.speedup
    return ScalingRow(
        case=result.case,
        badge=badge,
        median=numbers.ABSENT
        if point.base is None
        else numbers.number(point.base.median, point.base.metric.unit),
        speedup=numbers.number(speedup, "x"),
        efficiency=result.efficiency_percent(speedup),
        reference=result.efficiency_percent(ratio.reference if ratio is not None else None),
    )


def _scale(values: Sequence[float], air: float, start: int, end: int) -> Scale:
    low, high = min(values) / air, max(values) * air
    return Scale(low=low, high=high, start=start, end=end, logarithmic=True)


def _best(values: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """Keep the fastest of topologies with equally many devices: the line goes through it."""
    best: dict[int, float] = {}
    for count, value in values:
        best[count] = max(value, best.get(count, value))
    return sorted(best.items())


def _device_ticks(devices: Iterable[int], along: Scale) -> Iterator[Tick]:
    last = -APART
    for count in devices:
        if along.at(count) - last >= APART:
            last = along.at(count)
            yield Tick(last, str(count))


def _describe(row: ScalingRow, unit: str) -> str:
    topology = row.case.topology
    return (
        f"{topology.world_size} devices ({topology}) {row.median} {unit}, "
        f"{numbers.percent(row.efficiency)}"
    )
