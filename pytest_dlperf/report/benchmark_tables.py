"""The tables and the result JSON of the original benchmark, by system.

Below the folder: ``<system>.md`` with the table and the logs of each training, and
``<system>/<precision>-b<batch>[-<options>]_result.json`` with its numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.model import numbers, statistics
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import PUBLISHED_DECIMALS, Measurement
from pytest_dlperf.model.metric import THROUGHPUT
from pytest_dlperf.model.results import CaseResult, Results
from pytest_dlperf.report.markdown_text import fenced, inline, table
from pytest_dlperf.report.status import by_training

_BY_NODE: Final = frozenset(("ngc_pytorch", "pytorch"))
"""Frameworks whose original tables give devices by node, and the batch."""
_WITHOUT_NODES: Final = frozenset(("ngc_pytorch",))
"""Frameworks whose original tables do not count nodes, since they are all of one."""


class _Row(Struct, frozen=True):
    """A topology; without numbers where a run broke, for then nothing is a result."""

    case: Case
    measurement: Measurement
    average: float | None = None
    median: float | None = None
    speedup: float | None = None


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
        entries = {
            str(row.case.topology): {
                "average_speed": row.average,
                "batch_size_per_device": row.case.batch_per_replica,
                "median_speed": row.median,
                "speedup": row.speedup,
            }
            for row in rows
            if row.median is not None
        }
        if rows or file.exists():
            plain = {results.log_names.get(case.system, case.system): entries}
            write_whole(file, json.dumps(plain, indent=2, allow_nan=False) + "\n")
        of_system = sections.setdefault(case.system, [])
        if rows:
            of_system.append(_section(rows, results))
    for system, of_system in sections.items():
        page = folder / f"{system}.md"
        if of_system or page.exists():
            title = f"# {system}, cluster {inline(results.cluster)}"
            told = of_system or ["Nothing of it was measured."]
            write_whole(page, "\n\n".join([title, *told]) + "\n")


def _rows(members: Sequence[CaseResult]) -> list[_Row]:
    rows = {
        result.case.topology: _row(result.case, result.measurement, result.speedup)
        for result in members
        if result.measurement is not None
    }
    over = members[0].case.reference
    # It is measured for the speedups of others, selected or not.
    reference = next(filter(None, (result.reference for result in members)), None)
    if over is not None and over.topology not in rows and reference is not None:
        rows[over.topology] = _row(over, reference, 1.0)
    return [rows[topology] for topology in sorted(rows)]


def _row(case: Case, measurement: Measurement, speedup: float | None) -> _Row:
    if measurement.broken_runs:
        return _Row(case, measurement)
    found = measurement.samples(THROUGHPUT)
    values = (found.mean, found.median, speedup)
    return _Row(
        case, measurement, *(v and statistics.rounded(v, PUBLISHED_DECIMALS) for v in values)
    )


def _section(rows: Sequence[_Row], results: Results) -> str:
    case, unit = rows[0].case, rows[0].measurement.samples(THROUGHPUT).metric.unit
    options = f", {', '.join(case.options)}" if case.options else ""
    work = str(case.work)
    if work == f"b{case.training_work.batch}":
        work = f"batch size per device {case.training_work.batch}"
    headings = ["gpu_num", "samples/s", "speedup"]
    if case.framework in _BY_NODE:
        headings = ["gpu_num_per_node", "batch_size_per_device", "samples/s(PyTorch)", "speedup"]
    cells = [_cells(row) for row in rows]
    if case.framework not in _WITHOUT_NODES or any(row.case.topology.nodes > 1 for row in rows):
        headings.insert(0, "node_num")
        cells = [
            [str(row.case.topology.nodes), *of_row] for row, of_row in zip(rows, cells, strict=True)
        ]
    lines: list[str] = []
    for row in rows:
        so_far: dict[int, float] = {}
        for run in row.measurement.runs:
            if run.log is not None and THROUGHPUT in run.metrics:
                so_far[run.run] = statistics.rounded(run.metrics[THROUGHPUT], PUBLISHED_DECIMALS)
                lines.append(f"{run.log} {so_far}")
    about = f"{results.estimator.value} estimator, {inline(unit)}"
    blocks = [
        f"## {case.precision}, {work}{options}",
        f"{about}, session of {inline(results.started)}",
        table(headings, cells),
    ]
    return "\n\n".join(blocks + [fenced(lines)] * bool(lines))


def _cells(row: _Row) -> list[str]:
    case, topology = row.case, row.case.topology
    median, speedup = (
        numbers.ABSENT if value is None else f"{value:.2f}" for value in (row.median, row.speedup)
    )
    if case.framework in _BY_NODE:
        return [str(topology.devices_per_node), str(case.batch_per_replica), median, speedup]
    is_one = row.speedup is not None and topology == case.reference_topology
    return [str(topology.world_size), median, "1" if is_one else speedup]
