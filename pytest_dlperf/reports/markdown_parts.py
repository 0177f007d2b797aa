"""A page put together from parts; of a page with a limit, what matters least is left out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ROOM_FOR_THE_NOTE: Final = 1000
"""Bytes that the sentence about what was left out may take."""


class Weight(IntEnum):
    """What a part is about; the last ones are the first to be left out."""

    COUNTS = 0
    ALARM = 1
    BAD_TABLE = 2
    ABSENT = 3
    ACCEPTED = 4
    TABLE = 5
    REMARKS = 6
    HOSTS = 7
    DETAILS = 8
    IGNORED = 9
    ENVIRONMENT = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A piece of a page that is shown as a whole or not at all.

    ``section`` is the title of the section that it is in, ``name`` what it is one of, in the
    plural.
    """

    text: str
    weight: Weight
    section: str
    name: str


def assembled(head: str, parts: Iterable[Part], *, max_bytes: int | None) -> str:
    """The page: its head and the parts in their order, as many as have room.

    Empty if not even the head has.
    """
    parts = list(parts)
    page = _joined(head, parts)
    if max_bytes is None or _size(page) <= max_bytes:
        return page
    room = max_bytes - _size(head) - _ROOM_FOR_THE_NOTE
    if room < 0:
        return ""
    shown, left_out = _chosen(parts, room)
    return _joined(f"{head}\n\n{_note(left_out)}", shown)


def _chosen(parts: Sequence[Part], room: int) -> tuple[list[Part], list[Part]]:
    """The parts that have room, those of most weight first, and those that have none."""
    kept: set[int] = set()
    full: set[Weight] = set()
    for number, part in sorted(enumerate(parts), key=lambda pair: (pair[1].weight, pair[0])):
        # More than it takes where the title stands there already; never less.
        size = _size(part.text) + _size(part.section) + len("\n\n## \n\n")
        if part.weight in full or size > room:
            # Of one kind the first are shown, without gaps.
            full.add(part.weight)
            continue
        kept.add(number)
        room -= size
    shown = [part for number, part in enumerate(parts) if number in kept]
    return shown, [part for number, part in enumerate(parts) if number not in kept]


def _note(left_out: Sequence[Part]) -> str:
    """What is missing, by what it is."""
    found = Counter(part.name for part in left_out)
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
