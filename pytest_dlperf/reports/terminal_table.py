"""The summary's tables: a row per case, as wide as the terminal, and how trainings scale."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.case_status import CaseStatus, words_of
from pytest_dlperf.reports.figures import (
    by_training,
    case_cells,
    efficiency_percent,
)
from pytest_dlperf.reports.tables import listed, stacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.model.case import Topology
    from pytest_dlperf.model.records import CaseResult

_OF_SPEEDUP: Final = "speedup "
_LEAVE_OUT: Final = (
    "mean",
    "spread",
    "speedup reference",
    "runs",
    "speedup sees",
    "reference",
    "unit",
    "speedup diff",
    "speedup",
    "sees",
)
"""What makes room for the rest, the least important first."""
_NO_REASON: Final = ("unit", "runs", "mean")
"""What does not explain a verdict: the single runs stand below it."""
_VERDICT_ROOM: Final = 20
"""Verdicts that are wider together stand in a line each."""
_MIN_TOPOLOGIES: Final = 2
"""With fewer the table says it all."""
_LEGEND: Final = "sees: the minimum detectable change, found 9 times out of 10"


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a case, by column, and its verdicts."""

    case_id: str
    cells: dict[str, str]
    verdicts: tuple[str, ...]


def row_of(result: CaseResult, *, is_reference: bool = False) -> Row:
    """Fill the cells of a case; ``is_reference``: it was measured without being selected."""
    cells = {name: cell for name, cell in case_cells(result).items() if name != "of ideal"}
    if result.case == result.case.single_device:
        cells |= {"speedup": numbers.ABSENT, "speedup reference": numbers.ABSENT}
    return Row(result.case.id, cells, ("for speedups",) if is_reference else _verdicts(result))


def _verdicts(result: CaseResult) -> tuple[str, ...]:
    """Say the verdicts; of several, what is simply in order has no room here."""
    found = words_of(result)
    return tuple(word for word, status in found if len(found) == 1 or status is not CaseStatus.PASS)


class CaseTable:
    """The rows in as many columns as the terminal has room for.

    ``head`` and each of ``rows`` are lines; ``left_out`` are columns that there was no room for.
    """

    def __init__(self, rows: Sequence[Row], *, width: int) -> None:
        """Choose the columns for a terminal of ``width`` columns."""
        units = {row.cells["unit"] for row in rows} - {numbers.ABSENT}
        unit = units.pop() if len(units) == 1 else None
        self.left_out: list[str] = []
        shown = [
            name
            for name in rows[0].cells
            if any(row.cells[name] != numbers.ABSENT for row in rows)
            and (name != "unit" or unit is None)
        ]
        joined = [replace(row, verdicts=("; ".join(row.verdicts),)) for row in rows]
        if len(self._laid_out(joined, shown, width)[0]) == 1:
            rows = joined
        else:
            pairs = zip(rows, joined, strict=True)
            rows = [row if len(one.verdicts[0]) > _VERDICT_ROOM else one for row, one in pairs]
        for name in _LEAVE_OUT:
            if len(self._laid_out(rows, shown, width)[0]) == 1:
                break
            if name in shown:
                shown.remove(name)
                self.left_out.append(name)
        self.head, *rest = self._laid_out(rows, shown, width)
        remaining = iter(rest)
        self.rows = [
            [line for _ in row.verdicts for line in next(remaining) if line.strip()] for row in rows
        ]
        sees = _LEGEND if {"sees", "speedup sees"} & set(shown) else None
        self.legend = "; ".join(filter(None, (unit and f"in {unit}", sees)))

    @staticmethod
    def _laid_out(rows: Sequence[Row], shown: Sequence[str], width: int) -> list[tuple[str, ...]]:
        """Lay out the head and, for each verdict of each row, its lines: two if one is too long."""
        headings = [name.removeprefix(_OF_SPEEDUP) for name in shown]
        cells = [["case", *headings, "verdict"]]
        for row in rows:
            first, *below = row.verdicts
            cells.append([row.case_id, *(row.cells[name] for name in shown), first])
            cells += [["", *("" for _ in shown), verdict] for verdict in below]
        return stacked(cells, f"l{'r' * len(shown)}l", names=1, width=width)

    def missing(self, row: Row, *, with_all: bool) -> Iterator[str]:
        """Yield the numbers of a row that have no column; without all, those that explain."""
        for name in reversed(self.left_out):
            if row.cells[name] != numbers.ABSENT and (with_all or name not in _NO_REASON):
                yield f"{name} {row.cells[name]}"


def speedup_lines(results: Iterable[CaseResult], *, width: int) -> Iterator[str]:
    """Yield the speedups of trainings with several topologies, in lines of ``width`` columns."""
    for name, members in by_training(results).items():
        speedups = {
            result.case.topology: result.speedup
            for result in members
            if result.speedup is not None and result.case.topology != SINGLE_DEVICE
        }
        if len(speedups) >= _MIN_TOPOLOGIES:
            yield from _speedups(name, speedups, width)


def _speedups(name: str, speedups: dict[Topology, float], width: int) -> Iterator[str]:
    by_size = sorted(speedups, key=lambda topology: (topology.world_size, topology))
    pieces = []
    for topology in by_size:
        ideal = topology.world_size
        percent = efficiency_percent(speedups[topology], ideal)
        reached = numbers.speedup(speedups[topology])
        pieces.append(f" {topology} {reached} of {ideal} ({percent:.0f} %)")
    yield from listed(f"{name}  speedup", pieces, width)
