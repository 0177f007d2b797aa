"""What a session has changed in baselines, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.reports import numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.model.results import BaselineChange

HEADINGS: Final = ("case", "unit", "old", "new", "diff", "why")


def change_row(change: BaselineChange) -> tuple[str, str, str, str, str, str]:
    """The cells of one change, below ``HEADINGS``."""
    written = numbers.speedup if change.quantity == "speedup" else numbers.throughput
    return (
        change.case_id,
        change.unit,
        written(change.old),
        written(change.new),
        numbers.signed_percent(change.difference_percent),
        change.why,
    )


def change_lines(changes: Sequence[BaselineChange]) -> Iterator[str]:
    """A table of the changes."""
    rows = [HEADINGS, *map(change_row, changes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for case, unit, *figures, why in rows:
        cells = [text.rjust(width) for text, width in zip(figures, widths[2:5], strict=True)]
        yield "  ".join([case.ljust(widths[0]), unit.ljust(widths[1]), *cells, why]).rstrip()
