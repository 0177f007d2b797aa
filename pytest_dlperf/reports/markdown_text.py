"""GitHub-flavoured Markdown: untrusted text, tables, and a page with a limit.

Names, reasons and lines of logs may hold anything. Nothing of them may become markup, HTML, a
link, a mention or a reference, nor end the cell, list or block that it stands in: ``inline``,
``code`` and ``fenced`` are the only ways in.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.night import texts
from pytest_dlperf.night.pieces import Role
from pytest_dlperf.reports.tables import padded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_dlperf.night.pieces import Piece, Text

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
    """Write one line of text among others; also for cells and for the start of a line."""
    return _begun(_within(text))


def _within(text: str) -> str:
    return " ".join(map(_word, _one_line(text).strip().split(" ")))


def _begun(line: str) -> str:
    return _BLOCK_START.sub(r"\1\\", line, count=1) if _BLOCK_START.match(line) else line


def _word(word: str) -> str:
    if not _SPECIAL.search(word):
        return _escaped(word)
    named = word.rstrip(",;:")
    return f"{_coded(named)}{word[len(named) :]}"


def code(text: str) -> str:
    """Write one line of text as it is, for names and paths; also for cells."""
    return _coded(_one_line(text))


def _coded(text: str) -> str:
    # A pipe would end a cell, and cannot be escaped in code the same way in and out of tables.
    pieces = text.split("|")
    return _ENTITIES["|"].join(_code_span(piece) if piece.strip() else piece for piece in pieces)


def rendered(text: Text) -> str:
    """Write a text of the night: each piece by its role."""
    return _begun("".join(map(_piece, text.pieces)).strip())


def _piece(piece: Piece) -> str:
    if not piece.text.strip():
        return piece.text
    if piece.role in (Role.CASE, Role.CODE):
        return code(piece.text)
    line = _within(piece.text)
    if piece.address is not None:
        return f"[{line}]({piece.address})"
    if piece.role is Role.STRONG:
        return f"**{line}**"
    # Blanks at the ends part it from its neighbours.
    begin = " " * (len(piece.text) - len(piece.text.lstrip(" ")) > 0)
    end = " " * (len(piece.text) - len(piece.text.rstrip(" ")) > 0)
    return f"{begin}{line}{end}"


def fenced(lines: Iterable[str]) -> str:
    """Write a block of lines as they are, such as the end of a log."""
    body = "\n".join(_clipped(texts.printable(line)) for line in lines)
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
    return _clipped(texts.in_short(text))


def _clipped(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _escaped(text: str) -> str:
    return _MARKUP.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), text)


class Part(Struct, frozen=True, kw_only=True):
    """A piece of a page that is shown as a whole or not at all."""

    text: str
    section: str
    """The title of the section that it is in."""
    kind: str
    """In the plural."""


def assembled(
    head: str, parts: Iterable[Part], kinds: Sequence[str], *, max_bytes: int | None
) -> str:
    """Join the head and as many parts as have room, earlier ``kinds`` first; empty without any."""
    parts = list(parts)
    page = _joined(head, parts)
    if max_bytes is None or _size(page) <= max_bytes:
        return page
    room = max_bytes - _size(head) - 1000  # for the sentence about what was left out
    if room < 0:
        return ""
    kept: set[int] = set()
    full: set[str] = set()
    for number, part in sorted(enumerate(parts), key=lambda pair: kinds.index(pair[1].kind)):
        # More than it takes where the title stands there already; never less.
        size = _size(part.text) + _size(part.section) + len("\n\n## \n\n")
        if part.kind in full or size > room:
            # Of one kind the first are shown, without gaps.
            full.add(part.kind)
            continue
        kept.add(number)
        room -= size
    shown = [part for number, part in enumerate(parts) if number in kept]
    left_out = [part for number, part in enumerate(parts) if number not in kept]
    return _joined(f"{head}\n\n{_note(left_out)}", shown)


def _note(left_out: Sequence[Part]) -> str:
    found = Counter(part.kind for part in left_out)
    named = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in found.items())
    return f"**There is no room here for all. Left out: {named}.**"


def _joined(head: str, parts: Sequence[Part]) -> str:
    pieces = [head]
    section = ""
    for part in parts:
        if part.section != section:
            section = part.section
            pieces.append(f"## {section}")
        pieces.append(part.text)
    return "\n\n".join(pieces) + "\n"


def _size(text: str) -> int:
    return len(text.encode("utf-8"))
