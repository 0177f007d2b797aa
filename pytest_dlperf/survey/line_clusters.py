"""Sort the lines of a log by what they look like: the same text around other numbers.

Lines that repeat, with a number that rises, are a trainer's; this is how they are found in a log
of an unknown format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

from msgspec import Struct

from pytest_dlperf.logs.lines import LINE_ENDS, without_colours

SAMPLES: Final = 400
"""Lines that are kept of those that look alike."""
LONGEST: Final = 2000
"""Bytes of a line that are looked at."""

_CLOCK: Final = rb"[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?![0-9:])"
_STAMP: Final = (
    rb"(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}[ T_]+|(?<=[IWEF])[0-9]{4} +"
    rb"|[0-9]{1,2}[-/.][0-9]{1,2}[-/.](?:[0-9]{4}|[0-9]{2}),?[ T]+)%b(?: ?[AP]M\b)?"
    rb"(?:Z|[-+][0-9]{2}:?[0-9]{2})?" % _CLOCK
)
_NUMBER: Final = (
    rb"(?:(?<![0-9A-Za-z)\]])[-+])?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
    rb"(?:\.[0-9]+(?![0-9.]))?(?:[eE][-+]?[0-9]+(?![0-9A-Za-z]))?"
    # Megatron counts the 'number of nan iterations'.
    rb"|(?<![A-Za-z0-9_])(?:nan|inf)\b(?! iterations)"
)
TOKEN: Final = re.compile(b"%b|%b|%b" % (_STAMP, _CLOCK, _NUMBER), re.IGNORECASE)
"""What differs between lines that look alike: a stamp, a time of day, or a number."""
_IS_STAMP: Final = re.compile(_STAMP.replace(rb"(?<=[IWEF])", b""))
_IS_CLOCK: Final = re.compile(_CLOCK)
_BLANKS: Final = re.compile(rb"[ \t\x80-\xff]+")
_HOLE: Final = b"\x01"
_NO_NAME: Final = re.compile(r"[KMGT]?i?B|ms|sec|.*\.py")
_UNIT: Final = re.compile(
    r"[ ]?(?P<unit>[KMGTP]?i?B\b|%|ms\b(?:/[a-z]+)?|s(?:ec(?:ond)?s?)?\b(?:/[a-z]+)?|/s\b"
    r"|[KMG]? ?[A-Za-z]+/s(?:ec(?:ond)?)?(?:/[a-zA-Z]+)?|it/s|J\b|W\b)"
)


class Column(Struct):
    """What stands in one place of lines that look alike."""

    texts: list[bytes]
    before: str
    """What stands between it and the number before it, the same in all lines but for blanks."""
    behind: str
    """What stands behind it, up to the next number."""
    is_padded: bool
    """Whether blanks in front of it fill it up to a width."""
    span: tuple[int, int] = (0, 0)
    """Where it stands on the first line."""

    @property
    def is_stamp(self) -> bool:
        """Whether it is a date with a time."""
        return _IS_STAMP.fullmatch(self.texts[0]) is not None

    @property
    def is_clock(self) -> bool:
        """Whether it is a time of day, or hours, minutes and seconds."""
        return _IS_CLOCK.fullmatch(self.texts[0]) is not None

    @property
    def integers(self) -> list[int] | None:
        """Its numbers, if all are whole and none is negative."""
        if not all(text.isdigit() and len(text) < 16 for text in self.texts):  # noqa: PLR2004 - more is no count
            return None
        return list(map(int, self.texts))

    @property
    def numbers(self) -> list[float] | None:
        """Its numbers, where it holds nothing else."""
        try:
            return [float(text.replace(b",", b"")) for text in self.texts]
        except ValueError:  # stamps and times of day
            return None


class LineCluster(Struct):
    """Lines of a log that look alike, in the order in which they stand."""

    lines: list[bytes] = []
    """The first ones and the last, at most ``SAMPLES``, without colours."""
    count: int = 0

    def columns(self) -> list[Column]:
        """Return what differs, from left to right; the digits of a word such as ``acc1`` do not."""
        rows = [list(TOKEN.finditer(line)) for line in self.lines]
        line, first = self.lines[0], rows[0]
        kept = [at for at in range(len(first)) if not self._is_in_word(rows, at)]
        edges = [0, *(first[at].end() for at in kept)]
        starts = [*(first[at].start() for at in kept), len(line)]
        between = [line[a:b].decode(errors="replace") for a, b in zip(edges, starts, strict=True)]
        return [
            Column(
                [row[at][0] for row in rows],
                between[number],
                between[number + 1],
                is_padded=len({*self._blanks(rows, at)}) > 1,
                span=first[at].span(),
            )
            for number, at in enumerate(kept)
        ]

    def _is_in_word(self, rows: list[list[re.Match[bytes]]], at: int) -> bool:
        start = rows[0][at].start()
        before = self.lines[0][max(start - 1, 0) : start]
        is_glued = before.isalpha() or before in (b"@", b"_")
        return is_glued and all(row[at][0] == rows[0][at][0] for row in rows)

    def _blanks(self, rows: list[list[re.Match[bytes]]], at: int) -> Iterator[int]:
        """Count the blanks in front of a number, line by line."""
        for line, row in zip(self.lines, rows, strict=True):
            front = line[: row[at].start()]
            yield len(front) - len(front.rstrip(b" "))


class LineClusters:
    """All lines of some pieces of a log, by what they look like."""

    def __init__(self, *texts: bytes) -> None:
        self._kinds: dict[bytes, LineCluster] = {}
        for text in texts:
            lines = plain(text).split(b"\n")
            joined = b"\n".join(lines).replace(_HOLE, b"?")
            looks = _BLANKS.sub(b"", TOKEN.sub(_HOLE, joined)).split(b"\n")
            for line, look in zip(lines, looks, strict=True):
                if _HOLE in look:
                    kind = self._kinds.setdefault(look, LineCluster())
                    kind.count += 1
                    kind.lines[SAMPLES - 1 :] = [line]

    @property
    def repeated(self) -> list[LineCluster]:
        """Those that stand there more than twice, the most frequent first."""
        found = [kind for kind in self._kinds.values() if kind.count > 2]  # noqa: PLR2004 - more than twice
        return sorted(found, key=lambda kind: -kind.count)

    @property
    def rare(self) -> list[LineCluster]:
        """Those that stand there once, in their order."""
        return [kind for kind in self._kinds.values() if kind.count == 1]

    @cached_property
    def examples(self) -> bytes:
        """The first lines of each look, as a text."""
        return b"\n".join(line for kind in self._kinds.values() for line in kind.lines[:3]) + b"\n"


def plain(text: bytes) -> bytes:
    """Return a text without colours, in which all lines end with a line feed, and none is long."""
    lines = without_colours(text.translate(LINE_ENDS)).split(b"\n")
    return b"\n".join([line[:LONGEST] for line in lines])


def name_of(column: Column) -> str:
    """Return what the log calls a number: the words in front of it."""
    text = column.before.rstrip(" \t'\"=:([<{")
    text = re.split(r"[,;|{}\t\n\"'\[\]#>]| {2,}| - |: |= |=", text)[-1]
    return text.strip(" .-/'\"(")


def unit_of(column: Column) -> str:
    """Return the unit that stands behind a number, or in its name."""
    found = _UNIT.match(column.behind)
    if found is not None:
        return found["unit"].strip()
    inside = re.search(r"[( ](ms|s|MB|GB|MiB|GiB|%|[a-z]+/s)\)?$|_(ms)$", name_of(column))
    return (inside[1] or inside[2]) if inside else ""


def named_numbers(columns: Sequence[Column]) -> dict[str, Column]:
    """Find the numbers that have a name and are more than counters of the line, by the name."""
    found: dict[str, Column] = {}
    for column in columns:
        name = name_of(column) or unit_of(column)
        # Neither a mere unit, nor a line of a program, as in ``train.py:17]``.
        is_name = re.search("[A-Za-z]{2}|^/s$", name) and not _NO_NAME.fullmatch(name)
        is_place = column.before.endswith(":") and column.behind.startswith((":", "]"))
        if is_name and not is_place and column.numbers is not None:
            found.setdefault(name, column)
    return found
