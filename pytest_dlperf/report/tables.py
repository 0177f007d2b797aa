"""Lay out plain text: tables of aligned columns, and sentences and lists in lines of a width."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from pytest_dlperf.report.texts import columns, inert

GAP: Final = "  "
"""What stands between two columns."""

_BELOW: Final = " " * 7
_NO_BREAK: Final = "\N{NO-BREAK SPACE}%"


def padded(
    rows: Iterable[Sequence[str]], align: str, *, min_width: int = 0, max_width: int | None = None
) -> list[list[str]]:
    """Fill the cells of each column up to the same width, within bounds.

    ``align`` has an ``l`` or an ``r`` for each column; its last letter holds for all that follow.
    """
    rows = list(rows)
    widths = [max(min_width, *map(columns, column)) for column in zip(*rows, strict=True)]
    if max_width is not None:
        widths = [min(width, max_width) for width in widths]
    sides = align.ljust(len(widths), align[-1])
    return [list(map(_filled, row, widths, sides)) for row in rows]


def _filled(cell: str, width: int, side: str) -> str:
    blanks = " " * (width - columns(cell))
    return blanks + cell if side == "r" else cell + blanks


def aligned(rows: Iterable[Sequence[str]], align: str) -> list[str]:
    """Return one line for each row; see ``padded``."""
    return [GAP.join(row).rstrip() for row in padded(rows, align)]


def stacked(
    rows: Sequence[Sequence[str]], align: str, *, names: int, width: int
) -> list[tuple[str, ...]]:
    """Return the lines of each row: one, or where the table is wider than ``width`` two.

    Of two lines the first has the cells of the first ``names`` columns, and is left out if these
    are empty.
    """
    whole = aligned(rows, align)
    if max(map(columns, whole)) <= width:
        return [(line,) for line in whole]
    heads = aligned([row[:names] for row in rows], align)
    rest = aligned([row[names:] for row in rows], align[names:] or align[-1])
    return [
        (head, GAP + line) if head else (GAP + line,)
        for head, line in zip(heads, rest, strict=True)
    ]


def wrapped(text: str, width: int, *, indent: int = 0) -> list[str]:
    """Break a text between words; lines after the first are indented.

    Options stay whole, a percentage stays with its sign, and no line is a command to what runs
    the session.
    """
    lines = _wrapped(text, width, indent)
    safe = list(map(inert, lines))
    # Where a line broke, its rest may begin as no line may; the backslash takes a column.
    return safe if safe == lines else list(map(inert, _wrapped(text, width - 1, indent)))


def _wrapped(text: str, width: int, indent: int) -> list[str]:
    lines = textwrap.wrap(
        text.replace(" %", _NO_BREAK),
        width,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " %") for line in lines]


def listed(head: str, pieces: Iterable[str], width: int) -> list[str]:
    """Break a head and what belongs to it before the pieces; empty without any."""
    lines = [head]
    for piece in (pieces := list(pieces)):
        if len(lines[-1]) + 1 + len(piece) > width:
            lines.append(_BELOW)
        lines[-1] += f" {piece}"
    return lines if pieces else []
