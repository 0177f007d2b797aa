"""The summary's table: the metrics of each case, as wide as the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.metric import MEMBER
from pytest_dlperf.night import texts
from pytest_dlperf.night.figures import FIGURES
from pytest_dlperf.reports.tables import stacked

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.night.case_text import Row

_LEAVE_OUT: Final = ("mean", "spread", "runs", "of ideal", "unit", "reference", "sees")
"""What makes room for the rest, the least important first."""
_LEFT: Final = ("case", "metric", "unit", "verdict")
_LEGEND: Final = "sees: the minimum detectable change (9 times out of 10)"


def case_table(
    cases: Sequence[tuple[str, Sequence[Row]]], width: int
) -> tuple[list[tuple[str, ...]], str]:
    """Lay out the head and each row, in as many columns as there is room for, and a legend.

    A case's id stands in the first of its rows, or above them where they are wide.
    """
    rows = [
        {**row.cells, "case": "" if number else case_id}
        for case_id, of_case in cases
        for number, row in enumerate(of_case)
    ]
    shown = [name for name in FIGURES if any(row[name] != numbers.ABSENT for row in rows)]
    units: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["unit"] != numbers.ABSENT:
            units.setdefault(row["metric"].partition(MEMBER)[0], {})[row["unit"]] = None
    if len({unit for of_metric in units.values() for unit in of_metric}) == 1:
        shown.remove("unit")
    lines, kept = _fitting(rows, shown, width)
    legend = []
    if "unit" not in kept and any(unit for of_metric in units.values() for unit in of_metric):
        told = (f"{metric} in {' or '.join(of_metric)}" for metric, of_metric in units.items())
        legend.append(", ".join(told))
    legend += [_LEGEND] * ("sees" in kept)
    return lines, "; ".join(legend)


def _fitting(
    rows: Sequence[dict[str, str]], shown: Sequence[str], width: int
) -> tuple[list[tuple[str, ...]], list[str]]:
    """Leave out columns until a row is a line; if none is left to go, give the case its own."""
    lines: list[tuple[str, ...]] = []
    kept: list[str] = []
    for room in (width, 0):
        kept = ["case", *shown, "verdict"]
        for name in ("", *_LEAVE_OUT):
            kept = [other for other in kept if other != name]
            align = "".join("l" if column in _LEFT else "r" for column in kept)
            cells = [kept, *([row[column] for column in kept] for row in rows)]
            lines = stacked(cells, align, names=1, width=room)
            widest = max(texts.columns(line) for of_row in lines for line in of_row)
            if widest <= width and (room == 0 or len(lines[0]) == 1):
                return lines, kept
    return lines, kept
