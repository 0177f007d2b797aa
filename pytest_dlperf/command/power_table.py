"""The table of what the gate sees: one row per metric of a case, two lines if it is narrow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.tables import stacked, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.command.shell import Style
    from pytest_dlperf.gate.qualification import Qualification

_HEADINGS: Final = (
    "runs",
    "sessions",
    "noise",
    "alarms",
    "at 1/2",
    "at 1",
    "at 2",
    "sees",
    "tolerance",
    "least",
)
_LEGEND: Final = (
    "noise      standard deviation between runs",
    "alarms     verdicts 'regressed' when nothing has changed",
    "at 1/2..2  the same when so many tolerances are lost: so often it is seen",
    "sees       the smallest loss that is seen 9 times out of 10",
    "least      the smallest tolerance that the noise allows",
)
_INDENT: Final = "    "


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One qualified metric of a case, with its tolerance in percent."""

    case_id: str
    metric: str
    tolerance_percent: float
    qualification: Qualification


def table_lines(rows: Sequence[Row], style: Style) -> Iterator[str]:
    """Lay out the cases in their order, below each refused one the reason."""
    cells = [("case", "metric", "rule", *_HEADINGS), *map(_cells, rows)]
    head, *below = stacked(cells, "lllr", names=3, width=style.width)
    yield from (style(line, "bold") for line in head)
    for row, lines in zip(rows, below, strict=True):
        fault = row.qualification.fault
        refusal = () if fault is None else wrapped(f"refused: {fault}", style.width - len(_INDENT))
        markup = ("green",) if fault is None else ("red",)
        for line in (*lines, *(f"{_INDENT}{line}" for line in refusal)):
            yield style(line, *markup)


def legend_lines(rows: Sequence[Row], *, trials: int, seed: int) -> Iterator[str]:
    """Explain the headings, and how the numbers were found."""
    yield from _LEGEND
    untried = sum(not row.qualification.nights for row in rows)
    if untried:
        # With them, alarms would be more: it takes several nights to know how nights differ.
        rows_of = "row" if untried == 1 else "rows"
        yield f"Differences between nights not tried in {untried} {rows_of}: too few sessions."
    yield f"From noise on, all in percent; {trials} trials of each loss, seed {seed}."


def _cells(row: Row) -> tuple[str, ...]:
    found = row.qualification
    half, once, twice = found.power
    return (
        row.case_id,
        row.metric,
        found.rule.value,
        str(found.runs),
        str(found.sessions),
        f"{found.noise_percent:.2f}",
        f"{100 * found.false_alarms:.1f}",
        f"{100 * half:.1f}",
        f"{100 * once:.1f}",
        f"{100 * twice:.1f}",
        _percent(found.min_detectable_percent),
        f"{row.tolerance_percent:g}",
        # Rounded up: with the next smaller number the tolerance would be refused.
        _percent(math.ceil(10 * found.smallest_tolerance_percent) / 10),
    )


def _percent(value: float | None) -> str:
    return numbers.ABSENT if value is None else f"{value:.1f}"
