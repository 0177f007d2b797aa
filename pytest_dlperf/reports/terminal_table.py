"""The summary's tables: a row per case, as wide as the terminal, and how trainings scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.case_status import CaseStatus, words_of
from pytest_dlperf.reports.figures import by_training, case_cells, efficiency_percent
from pytest_dlperf.reports.tables import listed, stacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.model.records import CaseResult

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
_LEGEND: Final = "sees: the minimum detectable change, found 9 times out of 10"


def case_table(results: Sequence[CaseResult], width: int) -> tuple[list[tuple[str, ...]], str]:
    """Lay out the head and each case, in as many columns as there is room for, and a legend."""
    rows = [{"case": r.case.id, **_cells(r), "verdict": _verdicts(r)} for r in results]
    units = {row["unit"] for row in rows} - {numbers.ABSENT}
    shown = [name for name in rows[0] if any(row[name] != numbers.ABSENT for row in rows)]
    if len(units) == 1:
        shown.remove("unit")
    lines = _laid_out(rows, shown, width)
    for name in _LEAVE_OUT:
        if len(lines[0]) == 1:
            break
        if name in shown:
            shown.remove(name)
            lines = _laid_out(rows, shown, width)
    legend = [f"in {unit}" for unit in units if len(units) == 1]
    legend += [_LEGEND] * any(name.endswith("sees") for name in shown)
    return lines, "; ".join(legend)


def _laid_out(
    rows: Sequence[dict[str, str]], shown: Sequence[str], width: int
) -> list[tuple[str, ...]]:
    head = [name.removeprefix("speedup ") for name in shown]
    cells = [head, *([row[name] for name in shown] for row in rows)]
    return stacked(cells, f"l{'r' * (len(shown) - 2)}l", names=1, width=width)


def _cells(result: CaseResult) -> dict[str, str]:
    cells = case_cells(result)
    del cells["of ideal"]
    if result.case == result.case.single_device:
        cells |= {"speedup": numbers.ABSENT, "speedup reference": numbers.ABSENT}
    return cells


def _verdicts(result: CaseResult) -> str:
    """Say the verdicts; of several, what is simply in order has no room here."""
    found = words_of(result)
    return "; ".join(
        word for word, status in found if len(found) == 1 or status is not CaseStatus.PASS
    )


def speedup_lines(results: Iterable[CaseResult], *, width: int) -> Iterator[str]:
    """Yield the speedups of trainings with several topologies, in lines of ``width`` columns."""
    for name, members in by_training(results).items():
        speedups = {
            result.case.topology: result.speedup
            for result in members
            if result.speedup is not None and result.case.topology != SINGLE_DEVICE
        }
        if len(speedups) <= 1:
            continue  # the table says it all
        pieces = []
        for topology in sorted(speedups, key=lambda topology: (topology.world_size, topology)):
            ideal = topology.world_size
            percent = efficiency_percent(speedups[topology], ideal)
            reached = numbers.speedup(speedups[topology])
            pieces.append(f" {topology} {reached} of {ideal} ({percent:.0f} %)")
        yield from listed(f"{name}  speedup", pieces, width)
