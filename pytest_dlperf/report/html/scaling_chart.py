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
from pytest_dlperf.report.html.case import CaseView
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
    """One topology of the table."""

    case: Case
    badge: Badge
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


def scaling_charts(
    results: Iterable[CaseResult], views: Mapping[str, CaseView]
) -> Iterator[ScalingChart]:
    """Draw each training that was measured on several topologies; ``views`` are by case id."""
    for name, members in sorted(by_training(results).items()):
        members.sort(key=lambda result: (result.case.topology.world_size, result.case.topology))
        if sum(_median(result) is not None for result in members) > 1:
            yield _chart(name, members, views)


def _base(result: CaseResult) -> MetricResult | None:
    return next(iter(result.metrics().values()), None)


def _ratio(result: CaseResult) -> MetricResult | None:
    return next((one for one in result.metrics().values() if one.metric.ratio_of), None)


def _median(result: CaseResult) -> float | None:
    """Return the measured number; a broken run leaves none that could be drawn beside others."""
    base, measured = _base(result), result.measurement
    if base is None or measured is None or measured.broken_runs:
        return None
    return base.median or None


def _speedup(result: CaseResult) -> float | None:
    if result.case.topology == result.case.reference_topology:
        return None if _median(result) is None else 1.0
    ratio = _ratio(result)
    return ratio.median if ratio is not None else None


def _chart(name: str, members: Sequence[CaseResult], views: Mapping[str, CaseView]) -> ScalingChart:
    case, over = members[0].case, _reference(members)
    base = next(base for result in members if (base := _base(result)) and _median(result))
    unit, value_of = base.metric.unit, _speedup if over else _median
    points = [(one.case.topology.world_size, value) for one in members if (value := value_of(one))]
    devices = sorted({count for count, _ in points})
    # On one ideal line all topologies lie, whatever their nodes.
    ends = (devices[0], devices[-1]) if over else ()
    ideal = [(count, count / over.world_size) for count in ends if over]
    along = _scale(devices, 1.15, FRAME.left, FRAME.right)
    up = _scale([value for _, value in [*points, *ideal]], 1.3, FRAME.bottom, FRAME.top)

    def places(values: Iterable[tuple[int, float]]) -> list[tuple[int, int]]:
        return [(along.at(count), up.at(value)) for count, value in values]

    rows = tuple(_row(result, views[result.case.id].badge) for result in members)
    what = f"Speedup over {over}" if over else base.metric.name.capitalize()
    # The line goes through the fastest of topologies with equally many devices.
    best = {count: max(value for at, value in points if at == count) for count in devices}
    speedups = f"speedups over {over}" if over else "no speedups"
    middle = (FRAME.left + FRAME.right) // 2
    return ScalingChart(
        name=name,
        terms=f"{case.scaling.value} scaling, {speedups}",
        unit=unit,
        is_scaled=over is not None,
        chart=Chart(
            title=f"{what} of {name} against devices, both logarithmic",
            description="; ".join(
                f"{row.case.topology.world_size} devices ({row.case.topology}) {row.median} {unit}"
                f", {row.efficiency}"
                for row in rows
            ),
            frame=FRAME,
            up=up.ticks(),
            along=tuple(_device_ticks(devices, along)),
            shapes=(
                Shape(style="axis", path=f"M{FRAME.left} {FRAME.top}V{FRAME.bottom}"),
                Shape(
                    style="ideal",
                    path=path(places(ideal)) if ideal else "",
                    key="ideal" * bool(ideal),
                ),
                Shape(style="medians", path=path(places(best.items()))),
                Shape(style="points", path=dots(places(points)), key="measured"),
            ),
            labels=(
                Label(x=middle, y=FRAME.height - 8, text="devices", style="m"),
                Label(x=FRAME.left, y=FRAME.top - 14, text=f"times {over}" if over else unit),
            ),
        ),
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


def _row(result: CaseResult, badge: Badge) -> ScalingRow:
    base, ratio, speedup = _base(result), _ratio(result), _speedup(result)
    reference = ratio.reference if ratio is not None else None
    return ScalingRow(
        case=result.case,
        badge=badge,
        median=numbers.number(base.median, base.metric.unit) if base else numbers.ABSENT,
        speedup=numbers.number(speedup, "x"),
        efficiency=numbers.percent(result.efficiency_percent(speedup)),
        reference=numbers.percent(result.efficiency_percent(reference)),
    )


def _scale(values: Sequence[float], air: float, start: int, end: int) -> Scale:
    low, high = min(values) / air, max(values) * air
    return Scale(low=low, high=high, start=start, end=end, logarithmic=True)


def _device_ticks(devices: Iterable[int], along: Scale) -> Iterator[Tick]:
    last = -APART
    for count in devices:
        if along.at(count) - last >= APART:
            last = along.at(count)
            yield Tick(last, str(count))
