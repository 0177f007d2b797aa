"""A training over its topologies: throughput against devices, and scaling efficiency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.judgement import Quantity
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.figures import by_training, held_against
from pytest_dlperf.reports.html.drawing import (
    Chart,
    Frame,
    Label,
    Scale,
    Shape,
    Tick,
    dots,
    path,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.reports.html.case_view import CaseView

FRAME: Final = Frame(width=920, height=560, left=120, right=890, top=30, bottom=480)
APART: Final = 56
"""Labels of the axis that would stand nearer to each other are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingChart:
    """The chart of one training, and its table."""

    name: str
    unit: str
    chart: Chart
    rows: tuple[CaseView, ...]


def scaling_charts(
    results: Iterable[CaseResult], views: Mapping[str, CaseView]
) -> list[ScalingChart]:
    """Draw each training that was measured on several topologies; ``views`` are by case id."""
    charts = []
    for name, members in sorted(by_training(results).items()):
        members.sort(key=lambda result: (result.case.topology.world_size, result.case.topology))
        if len(_measured(members)) > 1:
            rows = tuple(views[result.case.id] for result in members)
            charts.append(_chart(name, members, rows))
    return charts


def _measured(members: Sequence[CaseResult]) -> list[tuple[int, float]]:
    return [
        (result.case.topology.world_size, measured.median)
        for result in members
        if (measured := result.measurement) is not None
        and measured.median
        and not measured.broken_runs
    ]


def _chart(name: str, members: Sequence[CaseResult], rows: tuple[CaseView, ...]) -> ScalingChart:
    measured = _measured(members)
    references = [
        (result.case.topology.world_size, held)
        for result in members
        if (held := held_against(result, Quantity.THROUGHPUT))
    ]
    single = _single_device(members)
    devices = sorted({count for count, _ in [*measured, *references]})
    ends = (devices[0], devices[-1])
    ideal = [(count, single * count) for count in ends] if single else []
    throughputs = [value for _, value in [*measured, *references, *ideal]]
    along = _scale(ends, 1.15, FRAME.left, FRAME.right)
    up = _scale(throughputs, 1.3, FRAME.bottom, FRAME.top)

    def places(values: Iterable[tuple[int, float]]) -> list[tuple[int, int]]:
        return [(along.at(count), up.at(value)) for count, value in values]

    shapes = (
        Shape(style="axis", path=f"M{FRAME.left} {FRAME.top}V{FRAME.bottom}"),
        Shape(
            style="ideal" if ideal else "absent",
            path=path(places(ideal)),
            key="ideal" if ideal else "no ideal line without one device",
        ),
        Shape(style="reference-scaling", path=path(places(_best(references)))),
        Shape(
            style="reference-points",
            path=dots(places(references)),
            key="reference" if references else "",
        ),
        Shape(style="medians", path=path(places(_best(measured)))),
        Shape(style="points", path=dots(places(measured)), key="measured"),
    )
    unit = rows[0].unit
    return ScalingChart(
        name=name,
        unit=unit,
        chart=Chart(
            title=f"Throughput of {name} against devices, both logarithmic",
            description="; ".join(_describe(row, unit) for row in rows),
            frame=FRAME,
            up=up.ticks(),
            along=tuple(_device_ticks(devices, along)),
            shapes=shapes,
            labels=(
                Label(
                    x=(FRAME.left + FRAME.right) // 2, y=FRAME.height - 8, text="devices", style="m"
                ),
                Label(x=FRAME.left, y=FRAME.top - 10, text=unit),
            ),
        ),
        rows=rows,
    )


def _scale(values: Sequence[float], air: float, start: int, end: int) -> Scale:
    low, high = min(values) / air, max(values) * air
    return Scale(low=low, high=high, start=start, end=end, logarithmic=True)


def _single_device(members: Sequence[CaseResult]) -> float | None:
    """Return what one device reached: the ideal line starts from it."""
    for result in members:
        if result.single_device is not None and not result.single_device.broken_runs:
            return result.single_device.median
    return None


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


def _describe(row: CaseView, unit: str) -> str:
    topology, throughput = row.case.topology, numbers.throughput(row.median)
    efficiency = numbers.percent(row.efficiency_percent)
    return f"{topology.world_size} devices ({topology}) {throughput} {unit}, {efficiency}"
