"""The table of a comparison: one row per case, in a narrow terminal two lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.reports import comparison_words as words
from pytest_dlperf.reports import numbers
from pytest_dlperf.results.comparing import Difference

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.command.style import Style
    from pytest_dlperf.results.comparing import ComparedCase

_HEADINGS: Final = ("runs", "A", "B", "B/A", "95 % interval", "speedup B/A")
_GAP: Final = "  "
_MARKUP: Final = {
    Difference.FASTER: ("green",),
    Difference.SLOWER: ("red",),
    Difference.BROKEN: ("bold", "red"),
    Difference.TOO_FEW: ("yellow",),
    Difference.NONE_SEEN: (),
}


def table_lines(cases: Sequence[ComparedCase], style: Style) -> Iterator[str]:
    """The table, the cases in their order."""
    cells = [words.cells(case) for case in cases]
    names = [f"{case.case_id} ({numbers.printable(case.unit)})" for case in cases]
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *cells, strict=True)]
    first = max(map(len, ("case", *names)))
    last = max(len(difference.value) for difference in Difference)
    fits = first + sum(len(_GAP) + width for width in widths) + len(_GAP) + last <= style.width
    head = _GAP.join(_right(_HEADINGS, widths))
    if fits:
        yield style(f"{'case'.ljust(first)}{_GAP}{head}", "bold")
    else:
        yield style("case", "bold")
        yield style(f"{_GAP}{head}", "bold")
    for case, name, numbers_of_case in zip(cases, names, cells, strict=True):
        word = style(case.difference.value, *_MARKUP[case.difference])
        row = _GAP.join(_right(numbers_of_case, widths))
        if fits:
            yield f"{name.ljust(first)}{_GAP}{row}{_GAP}{word}"
        else:
            yield f"{name}: {word}"
            yield f"{_GAP}{row}"


def _right(cells: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
