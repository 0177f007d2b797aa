"""Records that are read by key instead of by an expression: JSON objects, and rows of CSV.

Objects may be written as Python writes a dictionary, and stand behind other text of their line.
Only the values that are wanted are looked at, as they are printed: a stamp keeps its digits.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

from msgspec import Struct

ANY: Final = "*"
"""What ``where`` says of a key that only has to be there."""
ABSENT: Final = object()
"""What stands where a path leads nowhere."""

_LONGEST_LINE: Final = 64 * 1024
_MAX_OBJECTS: Final = 100
"""How many begins of objects on a line are tried: each may go on to the line's end."""
_MAX_DEPTH: Final = 50
_DELIMITERS: Final = (",", ";", "\t")

_PART: Final = re.compile(
    r"(?P<mark>[{}\[\]():,])"
    r"|'(?P<single>[^'\\]*(?:\\.[^'\\]*)*)'"
    r'|"(?P<double>[^"\\]*(?:\\.[^"\\]*)*)"'
    r"|(?P<open>[\"'])"
    r"|(?P<bare>\w[\w.]*\([^()]*\)|[^\s{}\[\]():,\"']+)",
    re.DOTALL,
)
"""A part of a dictionary of Python. What is bare is a number, a word or the call of a type."""
_LISTS: Final = str.maketrans("()", "[]")
_NOTHING: Final = ("null", "None", "")

Path: TypeAlias = "tuple[str, ...]"
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

    def _match(self, line: bytes, place: _Span, values: Mapping[str, str]) -> Match | None:
        """Return the record that has these values, by key, if it is one; ``""`` is none."""
        for key, said in self.where.items():
            if not values[key] or said not in (ANY, values[key]):
                return None
        found = [values[key] for key in self.keys.values()]
        texts = [text.encode(errors="replace") if text else None for text in found]
        return Match(self, texts, line, place)


class Match(Struct, frozen=True):
    """A record that was found by key: what its groups took, its line and its place there."""

    keyed: Keyed
    texts: Sequence[bytes | None]
    string: bytes = b""
    place: _Span = (0, 0)

    def __getitem__(self, group: int | str) -> bytes | Any:
        number = self.keyed.groupindex[group] if isinstance(group, str) else group
        return self.texts[number - 1] if number else self.string[slice(*self.place)]

    def start(self, group: int | str = 0) -> int:
        """Return where a group begins."""
        return self.span(group)[0]

    def end(self, group: int | str = 0) -> int:
        """Return where a group ends."""
        return self.span(group)[1]

    def span(self, group: int | str = 0) -> _Span:
        """Return where the record stands; of a group, where its value follows its key."""
        text = self[group] if group else None
        if text is None:
            return self.place
        name = group if isinstance(group, str) else [*self.keyed.keys][group - 1]
        key = self.keyed.keys[name].rpartition(".")[2].encode()
        value = rb"[\"']%b[\"']\s*:\s*[\"']?(%b)" % (re.escape(key), re.escape(text))
        found = re.compile(value).search(self.string, self.place[0])
        return self.place if found is None else found.span(1)


AnyMatch: TypeAlias = "Match | re.Match[bytes]"


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

    def search(self, text: bytes, begin: int = 0, end: int | None = None) -> Match | None:
        """Find the first record."""
        return next(self.finditer(text[begin:end]), None)

    def finditer(self, text: bytes) -> Iterator[Match]:
        """Find all records of a line."""
        if len(text) > _LONGEST_LINE:
            return
        line = text.decode("utf-8", "surrogateescape")
        begin = line.find("{")
        for _ in range(_MAX_OBJECTS):
            if begin < 0:
                return
            content, end = _object_at(line, begin)
            if content is not None:
                place = _bytes_of(line[:begin]), _bytes_of(line[:end])
                keys = (*self.keys.values(), *self.where)
                values = {key: _text(value_at(content, tuple(key.split(".")))) for key in keys}
                if (match := self._match(text, place, values)) is not None:
                    yield match
            begin = line.find("{", end)


_DECODER: Final = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str, strict=False)
"""Leaves numbers as they are printed."""


def _object_at(line: str, begin: int) -> tuple[Any, int]:
    """Decode the object that begins there, of JSON or of Python; return where to go on."""
    try:
        return _DECODER.raw_decode(line, begin)
    except (ValueError, RecursionError):
        pass
    parts, depth = [], 0
    for part in _PART.finditer(line, begin):
        is_mark = part.lastgroup == "mark"
        parts.append(
            part[0].translate(_LISTS) if is_mark else json.dumps(part[part.lastgroup or 0])
        )
        depth += (part[0] in "{[(") - (part[0] in "}])")
        if not depth:
            try:
                return _DECODER.decode("".join(parts)), part.end()
            except (ValueError, RecursionError):
                break
        if part["open"] or depth == _MAX_DEPTH:
            break
    return None, begin + 1


def value_at(document: Any, path: Path) -> Any:
    """Return the value at a path of a document, or that there is none."""
    while path:
        document, used = child_of(document, path)
        path = path[used:]
    return document


def child_of(place: Any, path: Path) -> tuple[Any, int]:
    """Follow the first key of a path, or several that are one with dots; say how many."""
    if isinstance(place, dict):
        for used in range(1, len(path) + 1):
            if (key := ".".join(path[:used])) in place:
                return place[key], used
    elif isinstance(place, list) and path[0].isdecimal() and int(path[0]) < len(place):
        return place[int(path[0])], 1
    return ABSENT, 1


def _text(value: Any) -> str:
    """Write a value as it is printed; nothing of one that is none."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) and value not in _NOTHING else ""


def _bytes_of(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


class Header(Struct, frozen=True):
    """What a line says of the columns below it: each by its name."""

    delimiter: str
    columns: tuple[str, ...]

    def cells(self, text: bytes) -> list[str]:
        """Return the cells of a row, which may be more or fewer than the columns."""
        return _cells(text, self.delimiter)


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
            columns = tuple(_cells(text, delimiter))
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
        values = {name: "" if cell in _NOTHING else cell for name, cell in named}
        match = self._match(text, (0, len(text)), values)
        step = match["step"] if match is not None and "step" in self.keys else b"0"
        # Among other output there may be lines with as many delimiters.
        return match if step is not None and step.replace(b".", b"").isdigit() else None


def _cells(text: bytes, delimiter: str) -> list[str]:
    """Find the cells of a row, without the blanks around them; none of a broken row."""
    line = text.decode("utf-8", "surrogateescape")
    try:
        rows = csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True)
        return [cell.strip() for cell in next(rows, [])]
    except csv.Error:
        return []
