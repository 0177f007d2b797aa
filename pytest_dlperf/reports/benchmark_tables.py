"""The tables and the result JSON of the original benchmark, by system.

Below the folder: ``<system>.md`` with the table of each training, and
``<system>/<precision>-b<batch>[-<options>]_result.json`` with its numbers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.files.locks import write_whole
from pytest_dlperf.model import statistics
from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.model.measurement import PUBLISHED_DECIMALS
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.figures import by_training
from pytest_dlperf.reports.markdown_text import code, inline, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_dlperf.model.case import Case, Topology
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.model.results import Results

_SIGNIFICANT_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class _Row:
    topology: Topology
    measurement: Measurement
    speedup: float | None

    @property
    def fault(self) -> str:
        """Why there is no number: of a case with a broken run nothing is a result."""
        broken = [f"run {run.run} {run.status.value}" for run in self.measurement.broken_runs]
        return "; ".join(broken) or ("no run" if self.measurement.median is None else "")


def write_tables(folder: Path, results: Results) -> None:
    """Write the tables of every system that was measured.

    A training of which nothing was measured has none; its result file from an earlier session, if
    there is one, is emptied.
    """
    sections: dict[str, list[str]] = {}
    for members in by_training(results.cases).values():
        case, rows = members[0].case, _rows(members)
        file = folder / case.system / f"{case.variant}_result.json"
        if rows or file.exists():
            log_name = results.log_names.get(case.system, case.system)
            plain = {log_name: _entries(case, rows)}
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
        result.case.topology: _Row(result.case.topology, result.measurement, result.speedup)
        for result in members
        if result.measurement is not None
    }
    if SINGLE_DEVICE not in rows:
        # It is measured for the speedups of others, selected or not.
        single = next(filter(None, (result.single_device for result in members)), None)
        if single is not None:
            rows[SINGLE_DEVICE] = _Row(SINGLE_DEVICE, single, 1.0)
    return [rows[topology] for topology in sorted(rows)]


def _rounded(value: float | None) -> float | None:
    """Round to two decimals as the original does, or to more where little would be left."""
    if value is None:
        return None
    if abs(value) < 1:
        return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")
    return statistics.rounded(value, PUBLISHED_DECIMALS)


def _entries(case: Case, rows: Sequence[_Row]) -> dict[str, dict[str, Any]]:
    return {
        str(row.topology): {
            "average_speed": _rounded(row.measurement.mean),
            "batch_size_per_device": case.batch_per_replica,
            "median_speed": _rounded(row.measurement.median),
            "speedup": _rounded(row.speedup),
        }
        for row in rows
        if not row.fault
    }


def _section(members: Sequence[CaseResult], rows: Sequence[_Row], results: Results) -> str:
    case = members[0].case
    options = f", {', '.join(case.options)}" if case.options else ""
    unit = next(filter(None, map(results.unit_of, members)), "samples/s")
    session = f"session of {inline(results.started)}"
    lines = [
        f"## {case.precision}, batch size per device {case.batch_per_replica}{options}",
        "",
        f"{results.estimator.value} estimator, {inline(unit)}, {session}",
        "",
        table(("node_num", "gpu_num", "samples/s", "speedup"), map(_cells, rows)),
    ]
    absent = [str(m.case.topology) for m in members if m.measurement is None]
    notes = [f"- {code(str(row.topology))}: {inline(row.fault)}" for row in rows if row.fault]
    if absent:
        notes.append(f"- not measured: {', '.join(absent)}")
    if SINGLE_DEVICE not in {row.topology for row in rows if not row.fault}:
        notes.append("- without a measurement of one device there is no speedup")
    return "\n".join([*lines, *(["", *notes] if notes else [])])


def _cells(row: _Row) -> tuple[str, ...]:
    places = str(row.topology.nodes), str(row.topology.world_size)
    if row.fault:
        return *places, numbers.ABSENT, numbers.ABSENT
    speedup = "1" if row.topology == SINGLE_DEVICE and row.speedup else _written(row.speedup)
    return *places, _written(row.measurement.median), speedup


def _written(value: float | None) -> str:
    rounded = _rounded(value)
    if rounded is None:
        return numbers.ABSENT
    return f"{rounded:.2f}" if abs(rounded) >= 1 else f"{rounded:.{_SIGNIFICANT_DIGITS}g}"
