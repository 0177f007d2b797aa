"""Texts in pieces, each with a role: a renderer escapes and marks a piece by its role alone.

A plain string that becomes part of a text is ``UNTRUSTED``: who forgets to say a role shows too
much escaping, never too little.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from functools import partial
from typing import Final

from msgspec import Struct

from pytest_dlperf.report import printing


class Role(Enum):
    """What a piece is."""

    WORD = "word"
    """The package's own words."""
    STRONG = "strong"
    """Own words that a reader is to see first."""
    NUMBER = "number"
    """What was measured or counted, with its unit."""
    CASE = "case"
    """The id of a case of this session."""
    CODE = "code"
    """A name or value that is to be read letter by letter: an option, a package, a commit."""
    UNTRUSTED = "untrusted"
    """What a log, a host, a file or a person says."""


class Piece(Struct, frozen=True):
    """A part of a text, on one line."""

    text: str
    role: Role = Role.UNTRUSTED
    address: str | None = None
    """Where it links to; nothing but an address (``printing.address``)."""


class Text(Struct, frozen=True):
    """One line in pieces."""

    pieces: tuple[Piece, ...] = ()

    def __str__(self) -> str:
        return printing.printable("".join(piece.text for piece in self.pieces))

    def __bool__(self) -> bool:
        return any(piece.text for piece in self.pieces)

    def cut(self, room: int) -> Text:
        """Return the first columns, with dots where more follows."""
        if printing.columns(str(self)) <= room:
            return self
        kept: list[Piece] = []
        for piece in self.pieces:
            shown = printing.cut(printing.printable(piece.text), room)
            kept.append(Piece(shown, piece.role, piece.address))
            room -= printing.columns(printing.printable(piece.text))
            if room <= len("..."):
                break
        if not kept[-1].text.endswith("..."):
            kept.append(Piece("...", Role.WORD))
        return Text(tuple(kept))


NOTHING: Final = Text()


word: Final = partial(Piece, role=Role.WORD)
number: Final = partial(Piece, role=Role.NUMBER)
strong: Final = partial(Piece, role=Role.STRONG)
case: Final = partial(Piece, role=Role.CASE)
code: Final = partial(Piece, role=Role.CODE)


def phrase(template: str, *values: Text | Piece | int | str) -> Text:
    """Fill the ``{}`` of a sentence of the package's own.

    An integer is a number, a string is untrusted.
    """
    first, *rest = template.split("{}")
    pieces = [word(first)] if first else []
    for value, following in zip(values, rest, strict=True):
        pieces += _pieces(value)
        pieces += [word(following)] if following else []
    return Text(tuple(pieces))


def join(separator: str, parts: Iterable[Text | Piece | str]) -> Text:
    """Join texts; those that say nothing are left out."""
    pieces: list[Piece] = []
    for part in parts:
        found = _pieces(part)
        if any(piece.text for piece in found):
            pieces += [word(separator), *found] if pieces else found
    return Text(tuple(pieces))


def cases_named(case_ids: Iterable[str], most: int) -> Text:
    """Name the first cases, and count the others."""
    every = list(case_ids)
    shown = join(", ", map(case, every[:most]))
    return phrase("{} and {} more", shown, len(every) - most) if len(every) > most else shown


def _pieces(value: Text | Piece | int | str) -> list[Piece]:
    if isinstance(value, Text):
        return list(value.pieces)
    if isinstance(value, Piece):
        return [value]
    return [Piece(str(value), Role.NUMBER if isinstance(value, int) else Role.UNTRUSTED)]
