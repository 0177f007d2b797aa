"""Records that are read by key instead of by an expression: JSON objects, and rows of CSV.

Objects may be written as Python writes a dictionary, and stand behind other text of their line.
Only the values that are wanted are looked at, as they are printed: a stamp keeps its digits.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from pytest_dlperf.formats.expressions import Match

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ANY: Final = "*"
"""What ``where`` says of a key that only has to be there."""

_LONGEST_LINE: Final = 64 * 1024
_MAX_OBJECTS: Final = 100
"""How many begins of objects on a line are tried: each may go on to the line's end."""
_MAX_DEPTH: Final = 50
_DELIMITERS: Final = (",", ";", "\t")

_TOKEN: Final = re.compile(
    rb"\s*(?:"
    rb'"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"'
    rb"|'(?P<single>[^'\\]*(?:\\.[^'\\]*)*)'"
    rb"|(?P<mark>[{}\[\]():,])"
    rb"|(?P<bare>[^\s{}\[\]():,\"']+)"
    rb")"
)
_NOTHING: Final = (b"null", b"None", b"")
_CLOSES: Final = {b"{": b"}", b"[": b"]", b"(": b")"}

_Span: TypeAlias = "tuple[int, int]"


class Keyed(Struct, frozen=True, kw_only=True, dict=True):
    """Where a record's values are: ``keys`` by group, and what others have to be (``where``)."""

    keys: Mapping[str, str]
    where: Mapping[str, str] = {}

    @cached_property
    def groupindex(self) -> Mapping[str, int]:
        """The number of each group."""
        return {group: number for number, group in enumerate(self.keys, 1)}

    @cached_property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self.keys)

    @property
    def pattern(self) -> str:
        """What is looked for, in words."""
        wanted = [*self.keys.values(), *(f"{key} = {text}" for key, text in self.where.items())]
        return f"{self._kind} with {', '.join(wanted)}"

    @property
    def _kind(self) -> str:
        raise NotImplementedError

    def _match(self, text: bytes, whole: _Span, spans: Mapping[str, _Span]) -> Match | None:
        """Return the record whose values stand at ``spans``, by key, if it is one."""
        for key, said in self.where.items():
            if key not in spans or (said != ANY and text[slice(*spans[key])] != said.encode()):
                return None
        found = [spans.get(key, (-1, -1)) for key in self.keys.values()]
        return Match(text, [whole, *found], self.groupindex)


class JsonRecord(Keyed, frozen=True):
    """Objects of JSON, or dictionaries of Python; a dotted key leads into an object or a list."""

    @property
    def _kind(self) -> str:
        return "a JSON object"

    @cached_property
    def literal(self) -> bytes:
        """A text that stands in each record."""
        needed = [key for group, key in self.keys.items() if group not in {"epoch", "rank"}]
        parts = [part for key in (*needed, *self.where) for part in key.split(".")]
        return max((part.encode() for part in parts if not part.isdigit()), key=len, default=b"{")

    @cached_property
    def _wanted(self) -> Mapping[bytes, str]:
        return {key.encode(): key for key in (*self.keys.values(), *self.where)}

    def search(self, text: bytes, begin: int = 0, end: int | None = None) -> Match | None:
        """Find the first record."""
        return next(self.finditer(text[begin:end]), None)

    def finditer(self, text: bytes) -> Iterator[Match]:
        """Find all records of a line."""
        begin = text.find(b"{")
        for _ in range(_MAX_OBJECTS):
            if begin < 0 or len(text) > _LONGEST_LINE:
                return
            spans: dict[str, _Span] = {}
            end = self._read(text, begin, spans)
            match = None if end is None else self._match(text, (begin, end), spans)
            if match is not None:
                yield match
            begin = text.find(b"{", begin + 1 if end is None else end)

    def _read(self, text: bytes, begin: int, spans: dict[str, _Span]) -> int | None:
        """Go through an object; return where it ends, or ``None`` where it is none."""
        brackets = [_OpenBracket(b"{", b"")]
        position = begin + 1
        while brackets:
            token = _TOKEN.match(text, position)
            if token is None:
                return None
            position = token.end()
            inner = brackets[-1]
            mark = token["mark"]
            if mark is None:
                group = token.lastgroup or "bare"
                key = None if inner.take(token[group]) else self._wanted.get(inner.path)
                if key is not None and token[group] not in _NOTHING:
                    spans.setdefault(key, token.span(group))
            elif mark in _CLOSES:
                if len(brackets) == _MAX_DEPTH:
                    return None
                brackets.append(_OpenBracket(mark, inner.path))
            elif mark == _CLOSES[inner.mark]:
                brackets.pop()
            elif mark == b",":
                inner.go_on()
            elif mark != b":":
                return None
        return position


class _OpenBracket:
    """An object, a list or a call that has not been closed."""

    __slots__ = ("_index", "_key", "_prefix", "mark")

    def __init__(self, mark: bytes, prefix: bytes) -> None:
        self.mark = mark
        self._prefix = prefix + b"." if prefix else b""
        self._key: bytes | None = None
        self._index = 0

    def take(self, text: bytes) -> bool:
        """Take a text if it is a key; else it is a value."""
        if self.mark != b"{" or self._key is not None:
            return False
        self._key = text
        return True

    def go_on(self) -> None:
        self._key = None
        self._index += 1

    @property
    def path(self) -> bytes:
        """The dotted key of the value that stands here."""
        if self.mark == b"{":
            return self._prefix + (self._key or b"")
        return self._prefix + b"%d" % self._index


class Header(Struct, frozen=True):
    """What a line says of the columns below it: each by its name."""

    delimiter: str
    columns: tuple[str, ...]

    def cells(self, text: bytes) -> list[bytes]:
        """Return the cells of a row, which may be more or fewer than the columns."""
        return [text[slice(*cell)] for cell in _cells(text, self.delimiter)]


class CsvRecord(Keyed, frozen=True):
    """Rows of CSV below a line that names the columns."""

    @property
    def _kind(self) -> str:
        return "a CSV row below a line"

    def header(self, text: bytes) -> Header | None:
        """Return the columns that a line names, if those that are wanted are among them."""
        names = {*self.keys.values(), *self.where}
        if len(text) > _LONGEST_LINE or not all(name.encode() in text for name in names):
            return None
        for delimiter in _DELIMITERS:
            columns = tuple(
                text[slice(*cell)].decode(errors="replace") for cell in _cells(text, delimiter)
            )
            if names <= {*columns}:
                return Header(delimiter, columns)
        return None

    def search(self, text: bytes, begin: int = 0, end: int | None = None) -> Match | None:
        """Find the first record of a text, below its header."""
        header = None
        for line in text[begin:end].splitlines():
            if header is not None and (match := self.row(line, header)) is not None:
                return match
            header = self.header(line) or header
        return None

    def row(self, text: bytes, header: Header) -> Match | None:
        """Return the record of a line, if it is a row of these columns."""
        if text.count(header.delimiter.encode()) < len(header.columns) - 1:
            return None
        cells = _cells(text, header.delimiter)
        if len(cells) != len(header.columns):
            return None
        named = zip(header.columns, cells, strict=True)
        spans = {name: cell for name, cell in named if text[slice(*cell)] not in _NOTHING}
        match = self._match(text, (0, len(text)), spans)
        step = match["step"] if match is not None and "step" in self.keys else b"0"
        # Among other output there may be lines with as many delimiters.
        return match if step is not None and step.replace(b".", b"").isdigit() else None


def _cells(text: bytes, delimiter: str) -> list[_Span]:
    """Find the cells of a row, without the quotes and blanks around them; none of a broken row."""
    cells = []
    position = -1
    while position < len(text):
        cell = _CELLS[delimiter].match(text, position + 1)
        if cell is None:
            return []
        group = cell.lastgroup or "bare"
        begin, end = cell.span(group)
        if group == "bare":
            begin += len(cell[group]) - len(cell[group].lstrip())
            end = begin + len(cell[group].strip())
        cells.append((begin, end))
        position = cell.end()
    return cells


_CELLS: Final = {
    delimiter: re.compile(
        rb'(?: *"(?P<quoted>[^"]*(?:""[^"]*)*)" *|(?P<bare>[^"%b]*))(?=%b|$)'
        % (delimiter.encode(), delimiter.encode())
    )
    for delimiter in _DELIMITERS
}
