"""GitHub-flavoured Markdown: untrusted text, and tables.

Names, reasons and lines of logs may hold anything. Nothing of them may become markup, HTML, a
link or a mention, nor end the cell, list or block that it stands in: ``inline``, ``code`` and
``fenced`` are the only ways in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from pytest_dlperf.report import printing
from pytest_dlperf.report.printing import padded
from pytest_dlperf.report.text import Piece, Role, Text

LONGEST: Final = 1000
"""Characters of one text that are shown."""

WIDEST: Final = 48
"""Characters that columns are filled up to."""

FOLDED: Final = "<details>"
"""Begins what is folded away."""

# All else GitHub may take for markup, a mention, a reference, a link, an emoji or a formula.
_PLAIN: Final = re.compile(
    r"(?!.*(?:://|www\.|\bGH-\d|:[^\s:]*[a-z+-][^\s:]*:))"
    r"(?:[^\W_]|(?<=[^\W_])_(?=[^\W_])|[ .,:;!?()%/'\"+=…-])*",
    re.IGNORECASE,
)
# What begins a list or a rule at the start of a line, or a heading of the line above.
_BLOCK_START: Final = re.compile(r"\d*[-+.)](?:\s|$)|--|=")
_BACKTICKS: Final = re.compile(r"`+")


def inline(text: str) -> str:
    """Write one line of text among others: as code where it may be anything but words.

    Also for cells and for the start of a line.
    """
    line = _one_line(text).strip()
    return code(line) if _BLOCK_START.match(line) else _words(line)


def code(text: str) -> str:
    """Write one line of text as it is, for names and paths; also for cells."""
    # A pipe would end a cell, and cannot be escaped in code the same way in and out of tables.
    pieces = _one_line(text).split("|")
    return "&#124;".join(_code_span(piece) if piece.strip() else piece for piece in pieces)


def rendered(text: Text) -> str:
    """Write a text of the session: each piece by its role."""
    line = ""
    for piece in text.pieces:
        shown = _piece(piece)
        # Two spans of code without a blank between them would be one.
        line += f"{' ' * (line.endswith('`') and shown.startswith('`'))}{shown}"
    return line.strip()


def _piece(piece: Piece) -> str:
    line = piece.text.strip()
    if not line:
        return piece.text
    if piece.role in (Role.CASE, Role.CODE):
        line = code(line)
    else:
        line = inline(line) if piece.role is Role.UNTRUSTED else _words(line)
    if piece.address is not None:
        return f"[{line}]({piece.address})"
    if piece.role in (Role.CASE, Role.CODE):
        return line
    if piece.role is Role.STRONG:
        return f"**{line}**"
    # Blanks at the ends part it from its neighbours.
    return f"{' ' * piece.text.startswith(' ')}{line}{' ' * piece.text.endswith(' ')}"


def _words(line: str) -> str:
    return line if _PLAIN.fullmatch(line) else code(line)


def fenced(lines: Iterable[str]) -> str:
    """Write a block of lines as they are, such as the end of a log."""
    body = "\n".join(_clipped(printing.printable(line)) for line in lines)
    fence = _fence(body, least=3)
    return f"{fence}text\n{body}\n{fence}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: str = "") -> str:
    """Write a table of cells that are Markdown already.

    ``right`` has an ``r`` for each column of numbers: ``"  rr"`` for the third and fourth. The
    columns are filled up, so that the source reads as a table too. Empty without rows.
    """
    align = right.replace(" ", "l").ljust(len(headings), "l")
    head, *below = padded([headings, *rows], align, min_width=3, max_width=WIDEST)
    if not below:
        return ""
    ruler = [
        "-" * (min(len(cell), WIDEST) - (side == "r")) + ":" * (side == "r")
        for cell, side in zip(head, align, strict=True)
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ruler, *below))


def bullets(lines: Iterable[str]) -> str:
    """Write a list of lines that are Markdown already."""
    return "\n".join(f"- {line}" for line in lines)


def details(summary: str, body: str) -> str:
    """Fold a body away; the summary is plain text of our own."""
    return f"{FOLDED}<summary>{summary}</summary>\n\n{body}\n\n</details>"


def _code_span(text: str) -> str:
    fence = _fence(text, least=1)
    # A backtick must not join the fence, and one space at both ends would be taken away.
    is_tight = "`" not in (text[0], text[-1]) and not text[0] == text[-1] == " "
    return f"{fence}{text}{fence}" if is_tight else f"{fence} {text} {fence}"


def _fence(text: str, *, least: int) -> str:
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    return "`" * max(least, longest + 1)


def _one_line(text: str) -> str:
    return _clipped(printing.in_short(text))


def _clipped(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
