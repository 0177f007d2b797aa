"""The summary's tables: the metrics of each case, as wide as the terminal, and the scaling."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.metric import SPEEDUP
from pytest_dlperf.night import texts
from pytest_dlperf.night.case_status import CaseStatus, metric_words, status_of
from pytest_dlperf.night.figures import FIGURES, by_training, metric_cells, scaling_of
from pytest_dlperf.reports.tables import listed, stacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.model.results import CaseResult

_LEAVE_OUT: Final = ("mean", "spread", "runs", "of ideal", "unit", "reference", "sees")
"""What makes room for the rest, the least important first."""
_SIMPLY: Final = (CaseStatus.PASS, CaseStatus.RECORDED)
_LEFT: Final = ("case", "metric", "unit", "verdict")
_LEGEND: Final = "sees: the minimum detectable change (9 times out of 10)"


class Row(Struct, frozen=True, kw_only=True):
    """A row of the summary: a metric of a case, or several at once, and the status of it."""

    metric: str
    """Its name; empty where the case has none."""
    status: CaseStatus
    cells: dict[str, str]


def case_rows(result: CaseResult, *, every: bool) -> list[Row]:
    """Choose the metrics of a case that are worth a row, the worst first; or ``every`` judged one.

    Worth a row is what does not simply pass. Of a case of which nothing is, or that broke as a
    whole, the first metric stands for all. The verdict of the last row counts the others.
    """
    known, words, status = result.metrics(), metric_words(result), status_of(result)
    names = sorted(words, key=[*known, *words].index)
    if not names or status in (CaseStatus.LOST, CaseStatus.NOT_MEASURED):
        return [_row(result, next(iter(known), ""), status.value, status)]
    judgements = result.judgements.values()
    if every:
        shown = names
    elif len(set(words.values())) == 1 and all(one.measured is None for one in judgements):
        shown = []  # one cause, and no number of any of them to show
    else:
        shown = [name for name in names if words[name][1] not in _SIMPLY]
    shown = sorted(shown, key=lambda name: words[name][1].rank)
    others = Counter(words[name][0] for name in names if name not in shown)
    is_one = len(names) == 1
    counted = "; ".join(word if is_one else f"{count} {word}" for word, count in others.items())
    if not shown:
        return [_row(result, names[0], counted, status)]
    rows = [_row(result, name, *words[name]) for name in shown]
    rows[-1].cells["verdict"] += f"; {counted}" if counted else ""
    return rows


def _row(result: CaseResult, name: str, word: str, status: CaseStatus) -> Row:
    cells = {**metric_cells(result, name, result.metrics()), "verdict": word}
    return Row(metric=name, status=status, cells=cells)


def case_table(
    cases: Sequence[tuple[CaseResult, Sequence[Row]]], width: int
) -> tuple[list[tuple[str, ...]], str]:
    """Lay out the head and each row, in as many columns as there is room for, and a legend.

    A case's id stands in the first of its rows, or above them where they are wide.
    """
    rows = [
        {**row.cells, "case": "" if number else result.case.id}
        for result, of_case in cases
        for number, row in enumerate(of_case)
    ]
    shown = [name for name in FIGURES if any(row[name] != numbers.ABSENT for row in rows)]
    units: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["unit"] != numbers.ABSENT:
            units.setdefault(row["metric"], {})[row["unit"]] = None
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


def scaling_lines(results: Iterable[CaseResult], *, width: int) -> Iterator[str]:
    """Yield what each training reaches over its reference, in lines of ``width`` columns."""
    for training, members in by_training(results).items():
        pieces: dict[str, list[str]] = {}
        members.sort(key=lambda member: (member.case.topology.world_size, member.case.topology))
        for result in members:
            case = result.case
            for known in result.metrics().values():
                if known.metric.ratio_of is None or known.median is None:
                    continue
                percent = known.efficiency_percent
                reached = numbers.number(known.median, known.metric.unit)
                of = f" of {case.ideal_speedup:g} ({percent:.0f} %)" if percent is not None else ""
                name = known.metric.name
                of_other = "" if name == SPEEDUP else f", {name}"
                head = f"{training}{of_other}{scaling_of(case)}:"
                pieces.setdefault(head, []).append(f" {case.topology} {reached}{of}")
        for head, told in pieces.items():
            yield from listed(head, told, width)
