"""A training over its topologies: throughput against devices, and scaling efficiency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.judgement import Quantity
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.case_status import standing_of
from pytest_dlperf.reports.figures import by_training, efficiency_percent, held_against
from pytest_dlperf.reports.html.badge import Badge, badge_of
from pytest_dlperf.reports.html.drawing import Scale, Tick, dots, path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.model.records import CaseResult

# Two units of the drawing are a pixel where there is room: places are whole numbers.
LEFT, RIGHT, TOP, BOTTOM = 120, 890, 30, 480
APART: Final = 56
"""Labels of the axis that would stand nearer to each other are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRow:
    """One topology, as it stands in the table; bars are 100 wide for an efficiency of 100 %."""

    topology: str
    case_id: str
    devices: int
    standing: Badge
    throughput: str
    speedup: str
    efficiency: str
    bar: int | None
    accepted_efficiency: str
    accepted_bar: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingChart:
    """All that is drawn of one training, and its table."""

    name: str
    unit: str
    title: str
    description: str
    up: tuple[Tick, ...]
    along: tuple[Tick, ...]
    line: str
    points: str
    accepted_line: str
    accepted_points: str
    ideal: str
    rows: tuple[ScalingRow, ...]


def scaling_charts(results: Iterable[CaseResult]) -> list[ScalingChart]:
    """One chart for each training that was measured on several topologies."""
    charts = []
    for name, members in sorted(by_training(results).items()):
        members.sort(key=lambda result: (result.case.topology.world_size, result.case.topology))
        if len(_measured(members)) > 1:
            charts.append(_chart(name, members))
    return charts


def _measured(members: Sequence[CaseResult]) -> list[tuple[int, float]]:
    """Devices and median throughput of the cases that were measured whole."""
    return [
        (result.case.topology.world_size, measured.median)
        for result in members
        if (measured := result.measurement) is not None
        and measured.median
        and not measured.broken_runs
    ]


def _chart(name: str, members: Sequence[CaseResult]) -> ScalingChart:
    measured = _measured(members)
    accepted = [
        (result.case.topology.world_size, held)
        for result in members
        if (held := held_against(result, Quantity.THROUGHPUT))
    ]
    single = _single_device(members)
    devices = sorted({count for count, _ in [*measured, *accepted]})
    along = Scale(
        low=devices[0] / 1.15,
        high=devices[-1] * 1.15,
        start=LEFT,
        end=RIGHT,
        logarithmic=True,
    )
    ideal = [(count, single * count) for count in (devices[0], devices[-1])] if single else []
    throughputs = [value for _, value in [*measured, *accepted, *ideal]]
    up = Scale(
        low=min(throughputs) / 1.3,
        high=max(throughputs) * 1.3,
        start=BOTTOM,
        end=TOP,
        logarithmic=True,
    )

    def places(values: Sequence[tuple[int, float]]) -> list[tuple[int, int]]:
        return [(along.at(count), up.at(value)) for count, value in values]

    rows = tuple(map(_row, members))
    unit = next(r.measurement.unit for r in members if r.measurement is not None)
    return ScalingChart(
        name=name,
        unit=unit,
        title=f"Throughput of {name} against devices, both logarithmic",
        description="; ".join(_told(row, unit) for row in rows),
        up=up.ticks(),
        along=tuple(_device_ticks(devices, along)),
        line=path(places(_best(measured))),
        points=dots(places(measured)),
        accepted_line=path(places(_best(accepted))) if accepted else "",
        accepted_points=dots(places(accepted)),
        ideal=path(places(ideal)) if ideal else "",
        rows=rows,
    )


def _single_device(members: Sequence[CaseResult]) -> float | None:
    """What one device reached, by what the ideal line is drawn."""
    for result in members:
        if result.single_device is not None and not result.single_device.broken_runs:
            return result.single_device.median
    return None


def _best(values: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """Of topologies with equally many devices the fastest: the line goes through these."""
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


def _row(result: CaseResult) -> ScalingRow:
    devices = result.case.topology.world_size
    measured = result.measurement
    efficiency = efficiency_percent(result.speedup, devices)
    was = efficiency_percent(held_against(result, Quantity.SPEEDUP), devices)
    return ScalingRow(
        topology=str(result.case.topology),
        case_id=result.case.id,
        devices=devices,
        standing=badge_of(standing_of(result)),
        throughput=numbers.throughput(measured.median if measured else None),
        speedup=numbers.speedup(result.speedup),
        efficiency=numbers.percent(efficiency),
        bar=None if efficiency is None else round(efficiency),
        accepted_efficiency=numbers.percent(was),
        accepted_bar=None if was is None else round(was),
    )


def _told(row: ScalingRow, unit: str) -> str:
    return f"{row.devices} devices ({row.topology}) {row.throughput} {unit}, {row.efficiency}"
