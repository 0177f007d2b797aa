"""The table of a comparison: one row per case, in a narrow terminal two lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.reports import comparison as words
from pytest_dlperf.reports import numbers
from pytest_dlperf.results.comparison import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.command.shell import Style
    from pytest_dlperf.reports.comparison_names import SideName
    from pytest_dlperf.results.comparison import ComparedCase

_GAP: Final = "  "
_MARKUP: Final = {
    Difference.FASTER: ("green",),
    Difference.SLOWER: ("red",),
    Difference.BROKEN: ("bold", "red"),
    Difference.TOO_FEW: ("yellow",),
    Difference.NONE_SEEN: (),
}


def table_lines(
    cases: Sequence[ComparedCase], sides: Sequence[SideName], style: Style
) -> Iterator[str]:
    """The table, the cases in their order; the sides by their names where these have room."""
    cells = [words.cells(case) for case in cases]
    names = [f"{case.case_id} ({numbers.printable(case.unit)})" for case in cases]
    first = max(map(numbers.columns, ("case", *names)))
    last = max(len(difference.value) for difference in Difference)
    by_name, by_letter = (
        ("runs", *called, "B/A", "95 % interval", "speedup B/A")
        for called in ([side.heading for side in sides], [side.letter for side in sides])
    )
    around = first + len(_GAP) + last
    fits = around + _width(by_letter, cells) <= style.width
    has_room = (around if fits else 0) + _width(by_name, cells) <= style.width
    headings = by_name if has_room else by_letter
    widths = _widths(headings, cells)
    head = _GAP.join(_right(headings, widths))
    if fits:
        yield style(f"{'case'.ljust(first)}{_GAP}{head}", "bold")
    else:
        yield style("case", "bold")
        yield style(f"{_GAP}{head}", "bold")
    for case, name, numbers_of_case in zip(cases, names, cells, strict=True):
        word = style(case.difference.value, *_MARKUP[case.difference])
        row = _GAP.join(_right(numbers_of_case, widths))
        if fits:
            yield f"{name}{' ' * (first - numbers.columns(name))}{_GAP}{row}{_GAP}{word}"
        else:
            yield f"{name}: {word}"
            yield f"{_GAP}{row}"


def _widths(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(numbers.columns, column)) for column in zip(headings, *cells, strict=True)]


def _width(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """Columns that the numbers take, each with the gap before it."""
    return sum(len(_GAP) + width for width in _widths(headings, cells))


def _right(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [
        " " * (width - numbers.columns(cell)) + cell
        for cell, width in zip(cells, widths, strict=True)
    ]
