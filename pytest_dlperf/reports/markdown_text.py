"""Text that nobody has checked, as GitHub-flavoured Markdown that shows it and does nothing else.

Names, reasons and lines of logs may hold anything. Nothing of them may become markup, HTML, a
link, a mention or a reference, nor end the cell, list or block that it stands in.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_dlperf.reports import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_dlperf.reports.case_status import CaseStatus

LONGEST: Final = 1000
"""Characters of one text that are shown."""

WIDEST: Final = 48
"""Characters that columns are filled up to."""

_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}
_MARKUP: Final = re.compile(r"[&<>|\\`*~\[\]]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
# What begins a heading, a list or a rule at the start of a line.
_BLOCK_START: Final = re.compile(r"(\d*)(?=[-+.)](?:\s|$)|--|=|#)")
# GitHub makes a link, an emoji or a formula of these wherever they stand but in code.
_SPECIAL: Final = re.compile(
    r"[@#$]|://|www\.|\bGH-\d|:[a-z0-9_+-]+:|^\W*[0-9a-f]{7,40}\W*$", re.IGNORECASE
)
_BACKTICKS: Final = re.compile(r"`+")


def inline(text: str) -> str:
    """One line of text among others; also for cells and for the start of a line."""
    words = _one_line(text).strip().split(" ")
    line = " ".join(_coded(word) if _SPECIAL.search(word) else _escaped(word) for word in words)
    return _BLOCK_START.sub(r"\1\\", line, count=1) if _BLOCK_START.match(line) else line


def verdict(word: str, standing: CaseStatus) -> str:
    """What is said of a verdict: in bold what is not good, above all what was not measured."""
    return inline(word) if standing.is_good else f"**{inline(word)}**"


def code(text: str) -> str:
    """One line of text as it is, for names and paths; also for cells."""
    return _coded(_one_line(text))


def _coded(text: str) -> str:
    # A pipe would end a cell, and cannot be escaped in code the same way in and out of tables.
    pieces = text.split("|")
    return _ENTITIES["|"].join(_code_span(piece) if piece.strip() else piece for piece in pieces)


def fenced(lines: Iterable[str]) -> str:
    """A block of lines as they are, such as the end of a log."""
    body = "\n".join(_clipped(numbers.printable(line)) for line in lines)
    fence = _fence(body, least=3)
    return f"{fence}text\n{body}\n{fence}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: str = "") -> str:
    """A table of cells that are Markdown already.

    ``right`` has an ``r`` for each column of numbers: ``"  rr"`` for the third and fourth. The
    columns are filled up, so that the source reads as a table too.
    """
    columns = right.ljust(len(headings))
    cells = [list(headings), *map(list, rows)]
    widths = [min(WIDEST, max(3, *map(len, column))) for column in zip(*cells, strict=True)]
    ruler = [
        "-" * (width - 1) + ":" if column == "r" else "-" * width
        for width, column in zip(widths, columns, strict=True)
    ]
    return "\n".join(
        "| "
        + " | ".join(
            cell.rjust(width) if column == "r" else cell.ljust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        )
        + " |"
        for row in (cells[0], ruler, *cells[1:])
    )


def details(summary: str, body: str) -> str:
    """A body that is shown on demand; the summary is plain text of our own."""
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _code_span(text: str) -> str:
    fence = _fence(text, least=1)
    # A backtick must not join the fence, and one space at both ends would be taken away.
    is_tight = "`" not in (text[0], text[-1]) and not text[0] == text[-1] == " "
    return f"{fence}{text}{fence}" if is_tight else f"{fence} {text} {fence}"


def _fence(text: str, *, least: int) -> str:
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    return "`" * max(least, longest + 1)


def _one_line(text: str) -> str:
    return _clipped(numbers.in_short(text))


def _clipped(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _escaped(text: str) -> str:
    return _MARKUP.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), text)
