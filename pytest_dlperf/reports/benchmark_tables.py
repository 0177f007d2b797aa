"""The tables and the result JSON of the original benchmark, by system.

Below the folder: ``<system>.md`` with the table and the logs of each training, and
``<system>/<precision>-b<batch>[-<options>]_result.json`` with its numbers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.model import numbers, statistics
from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.model.measurement import PUBLISHED_DECIMALS
from pytest_dlperf.model.metric import THROUGHPUT
from pytest_dlperf.night.figures import by_training
from pytest_dlperf.reports.markdown_text import code, fenced, inline, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Measurement, Samples
    from pytest_dlperf.model.results import CaseResult, Results

_SIGNIFICANT_DIGITS: Final = 4

_BY_NODE: Final = frozenset(("ngc_pytorch", "pytorch"))
"""Frameworks whose original tables give devices by node, and the batch."""
_WITHOUT_NODES: Final = frozenset(("ngc_pytorch",))
"""Frameworks whose original tables do not count nodes, since they are all of one."""


class _Row(Struct, frozen=True):
    case: Case
    measurement: Measurement
    speedup: float | None

    @property
    def is_reference(self) -> bool:
        """Whether speedups are taken over it."""
        return self.case.topology == self.case.reference_topology

    @property
    def fault(self) -> str:
        """Why there is no number: of a case with a broken run nothing is a result."""
        broken = [f"run {run.run} {run.status.value}" for run in self.measurement.broken_runs]
        return "; ".join(broken) or ("no run" if self.throughput.median is None else "")

    @property
    def throughput(self) -> Samples:
        """What the original's numbers are of."""
        return self.measurement.samples(THROUGHPUT)


def write_tables(folder: Path, results: Results) -> None:
    """Write the tables of every system that was measured.

    A training of which nothing was measured has none; its result file from an earlier session, if
    there is one, is emptied.
    """
    sections: dict[str, list[str]] = {}
    trainings = [result for result in results.cases if result.case.work is not None]
    for members in by_training(trainings).values():
        case, rows = members[0].case, _rows(members)
        file = folder / case.system / f"{case.variant}_result.json"
        if rows or file.exists():
            log_name = results.log_names.get(case.system, case.system)
            plain = {log_name: _entries(rows)}
            write_whole(file, json.dumps(plain, indent=2, allow_nan=False) + "\n")
        of_system = sections.setdefault(case.system, [])
        if rows:
            of_system.append(_section(members, rows, results))
    for system, of_system in sections.items():
        page = folder / f"{system}.md"
        if of_system or page.exists():
            title = f"# {system}, cluster {inline(results.cluster)}"
            told = of_system or ["Nothing of it was measured."]
            write_whole(page, "\n\n".join([title, *told]) + "\n")


def _rows(members: Sequence[CaseResult]) -> list[_Row]:
    rows = {
        result.case.topology: _Row(result.case, result.measurement, result.speedup)
        for result in members
        if result.measurement is not None
    }
    over = members[0].case.reference
    if over is not None and over.topology not in rows:
        # It is measured for the speedups of others, selected or not.
        reference = next(filter(None, (result.reference for result in members)), None)
        if reference is not None:
            rows[over.topology] = _Row(over, reference, 1.0)
    return [rows[topology] for topology in sorted(rows)]


def _rounded(value: float | None) -> float | None:
    """Round to two decimals as the original does, or to more where little would be left."""
    if value is None:
        return None
    if abs(value) < 1:
        return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
    return statistics.rounded(value, PUBLISHED_DECIMALS)


def _entries(rows: Sequence[_Row]) -> dict[str, dict[str, Any]]:
    return {
        str(row.case.topology): {
            "average_speed": _rounded(row.throughput.mean),
            "batch_size_per_device": row.case.batch_per_replica,
            "median_speed": _rounded(row.throughput.median),
            "speedup": _rounded(row.speedup),
        }
        for row in rows
        if not row.fault
    }


def _section(members: Sequence[CaseResult], rows: Sequence[_Row], results: Results) -> str:
    case = members[0].case
    options = f", {', '.join(case.options)}" if case.options else ""
    work = str(case.work)
    if work == f"b{case.training_work.batch}":
        work = f"batch size per device {case.training_work.batch}"
    unit = rows[0].throughput.metric.unit
    session = f"session of {inline(results.started)}"
    headings, *cells = _columns(rows)
    lines = [
        f"## {case.precision}, {work}{options}",
        "",
        f"{results.estimator.value} estimator, {inline(unit)}, {session}",
        "",
        table(headings, cells),
    ]
    absent = [str(m.case.topology) for m in members if m.measurement is None]
    notes = [f"- {code(str(row.case.topology))}: {inline(row.fault)}" for row in rows if row.fault]
    if absent:
        notes.append(f"- not measured: {', '.join(absent)}")
    over = case.reference_topology
    if over is None:
        notes.append("- no reference topology: there is no speedup")
    elif not any(row.is_reference and not row.fault for row in rows):
        notes.append(f"- without a measurement of {over} there is no speedup")
    elif over != SINGLE_DEVICE:
        notes.append(f"- speedups are over {over}")
    blocks = ["\n".join(lines), "\n".join(notes), _logs(rows)]
    return "\n\n".join(filter(None, blocks))


def _columns(rows: Sequence[_Row]) -> list[tuple[str, ...]]:
    """Return the headings and the cells of each row, as the original has them for a framework."""
    framework = rows[0].case.framework
    has_nodes = framework not in _WITHOUT_NODES or any(row.case.topology.nodes > 1 for row in rows)
    headings: tuple[str, ...] = ("gpu_num", "samples/s", "speedup")
    if framework in _BY_NODE:
        headings = ("gpu_num_per_node", "batch_size_per_device", "samples/s(PyTorch)", "speedup")
    nodes = [(str(row.case.topology.nodes),) if has_nodes else () for row in rows]
    return [
        (("node_num", *headings) if has_nodes else headings),
        *((*node, *_cells(row)) for node, row in zip(nodes, rows, strict=True)),
    ]


def _cells(row: _Row) -> tuple[str, ...]:
    topology, is_by_node = row.case.topology, row.case.framework in _BY_NODE
    devices: tuple[str, ...] = (str(topology.world_size),)
    if is_by_node:
        devices = str(topology.devices_per_node), str(row.case.batch_per_replica)
    if row.fault:
        return *devices, numbers.ABSENT, numbers.ABSENT
    is_one = row.is_reference and row.speedup and not is_by_node
    speedup = "1" if is_one else _written(row.speedup)
    return *devices, _written(row.throughput.median), speedup


def _logs(rows: Sequence[_Row]) -> str:
    """Write a line for each log: the throughputs of its topology so far, by run."""
    lines: list[str] = []
    for row in rows:
        so_far: dict[int, float | None] = {}
        for run in row.measurement.runs:
            if run.log is not None and THROUGHPUT in run.metrics:
                so_far[run.run] = _rounded(run.metrics[THROUGHPUT])
                lines.append(f"{run.log} {so_far}")
    return fenced(lines) if lines else ""


def _written(value: float | None) -> str:
    rounded = _rounded(value)
    if rounded is None:
        return numbers.ABSENT
    return f"{rounded:.2f}" if abs(rounded) >= 1 else f"{rounded:.{_SIGNIFICANT_DIGITS}g}"
