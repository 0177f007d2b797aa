"""Records that are read by key instead of by an expression: JSON objects, and rows of CSV.

On the lines of a log, objects may be written as Python writes a dictionary, and stand behind other
text. What a program has written as a whole may be documents of many lines: there, one that is cut
off is told, since the number before it may be an old one. Numbers keep their digits.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from pytest_dlperf.formats.expressions import Expression, compiled

ANY: Final = "*"
"""What ``where`` says of a key that only has to be there; in a path, each key or item in turn."""
BY_KEY: Final = "name"
"""The group that ``*`` fills where no other group names."""
VALUE: Final = "value"

_ABSENT: Final = object()
_LONGEST_LINE: Final = 64 * 1024
_MAX_OBJECTS: Final = 100
"""How many begins of objects on a line are tried: each may go on to the line's end."""
_MAX_DEPTH: Final = 50
_DELIMITERS: Final = (",", ";", "\t")
_NOTHING: Final = ("null", "None", "")
_BYTE_ORDER_MARK: Final = "\xef\xbb\xbf"
_BEGIN: Final = re.compile(rf"^(?:{_BYTE_ORDER_MARK})?(?P<document>[{{\[])", re.MULTILINE)
_SURELY_JSON: Final = re.compile(r'\{\s*"|\[\s*[{\["]')
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


class Match(Struct, frozen=True):
    """A record that was found by key: what its groups took, and where on its line it begins."""

    groupindex: Mapping[str, int]
    texts: Sequence[bytes | None]
    begin: int = 0

    def __getitem__(self, group: int | str) -> Any:
        """Return what a group took; ``None`` where it took no part."""
        number = self.groupindex[group] if isinstance(group, str) else group
        return self.texts[number - 1]

    def start(self) -> int:
        """Return where the record begins."""
        return self.begin


AnyMatch: TypeAlias = "Match | re.Match[bytes]"


class FoundRecord(NamedTuple):
    """A record with numbers, the byte at which it begins, and what is wrong with it."""

    match: Match
    offset: int
    problem: str | None = None


class Keyed(Struct, frozen=True, kw_only=True, dict=True):
    """Where a record's values are: ``keys`` by group, and what others have to be (``where``)."""

    keys: Mapping[str, str]
    where: Mapping[str, str] = {}

    kind = ""

    @cached_property
    def groupindex(self) -> Mapping[str, int]:
        """The number of each group."""
        return {group: number for number, group in enumerate(self.keys, 1)}

    @property
    def pattern(self) -> str:
        """What is looked for, in words."""
        wanted = [*self.keys.values(), *(f"{key} = {text}" for key, text in self.where.items())]
        return f"{self.kind} with {', '.join(wanted)}"

    def _match(self, values: Mapping[str, str], begin: int = 0) -> Match | None:
        """Return the record that has these values, by key, if it is one; ``""`` is none."""
        for key, said in self.where.items():
            if not values[key] or said not in (ANY, _utf8(values[key])):
                return None
        found = [values[key] for key in self.keys.values()]
        return Match(self.groupindex, [_bytes(text) if text else None for text in found], begin)

    def _bad(self, offset: int, problem: str) -> FoundRecord:
        return FoundRecord(Match(self.groupindex, [b""] * len(self.keys)), offset, problem)


# ------------------------------------------------------------------------------------------- JSON


class JsonKeys(Keyed, frozen=True):
    """Objects of JSON, or dictionaries of Python; a dotted key leads into an object or a list."""

    kind = "JSON"

    @cached_property
    def literal(self) -> bytes:
        """A text that stands in each record of a line."""
        needed = [key for group, key in self.keys.items() if group not in {"epoch", "rank"}]
        parts = [part for key in (*needed, *self.where) for part in key.split(".")]
        return max((part.encode() for part in parts if not part.isdigit()), key=len, default=b"{")

    def finditer(self, text: bytes) -> Iterator[Match]:
        """Find all records of a line."""
        if len(text) > _LONGEST_LINE:
            return
        line = text.decode("latin-1")
        begin = line.find("{")
        for _ in range(_MAX_OBJECTS):
            if begin < 0:
                return
            content, end = _object_at(line, begin)
            if content is not None:
                keys = (*self.keys.values(), *self.where)
                values = {key: _text(_value_at(content, _path(key))) for key in keys}
                if (match := self._match(values, begin)) is not None:
                    yield match
            begin = line.find("{", end)

    def find(self, text: bytes) -> Iterator[FoundRecord]:
        """Find the values of all documents; what is missing, no number or cut off is a problem."""
        first = next(_path(key) for group, key in self.keys.items() if group.startswith(VALUE))
        has_found, problem = False, "nothing there is JSON"
        last, offset = None, 0
        for last, offset, why in _documents(text):
            problem = why
            if last is _ABSENT:
                continue
            problem = _missing(last, first)
            said = {path: _text(_value_at(last, _path(path))) for path in self.where}
            if any(_utf8(said[path]) != wanted for path, wanted in self.where.items()):
                continue
            found = [self._record(last, wild, offset) for wild in _wild(last, first)]
            if self.where and not found:
                found = [self._bad(offset, problem)]
            has_found = has_found or bool(found)
            yield from found
        if not has_found or (last is _ABSENT and "cut off" in problem):
            yield self._bad(offset, problem)

    def _record(self, document: Any, wild: Sequence[str], offset: int) -> FoundRecord:
        problem, texts = None, []
        for group, key in self.keys.items():
            left = iter(wild)
            path = tuple(next(left, ANY) if part == ANY else part for part in _path(key))
            found = ".".join(wild) if group == BY_KEY and ANY in key else _value_at(document, path)
            if not (_text(found) if not group.startswith(VALUE) else isinstance(found, _Number)):
                said = (
                    "not there"
                    if found is _ABSENT
                    else f"{json.dumps(found)[:60]}, which is not a number"
                )
                problem = problem or f"{'.'.join(path)} is {said}"
            texts.append(_bytes(_text(found)))
        return FoundRecord(Match(self.groupindex, texts), offset, problem)


class _Number(str):
    """A number as it is printed."""

    __slots__ = ()


_DECODER: Final = json.JSONDecoder(
    parse_float=_Number, parse_int=_Number, parse_constant=_Number, strict=False
)


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


def _documents(text: bytes) -> Iterator[tuple[Any, int, str]]:
    """Decode the JSON documents of a text, with their places; where one does not parse, say why.

    A document begins where a line does and may go over many; lines beside it are passed over.
    """
    decoded, position = text.decode("latin-1"), 0
    end = len(decoded.rstrip())
    while (begun := _BEGIN.search(decoded, position)) is not None:
        begin, position = begun.start("document"), begun.end()
        document, why = _ABSENT, "the JSON there is nested too deeply"
        try:
            document, position = _DECODER.raw_decode(decoded, begin)
        except json.JSONDecodeError as error:
            is_at_end = error.pos >= end or error.msg.startswith("Unterminated string")
            is_cut = is_at_end and _SURELY_JSON.match(decoded, begin) is not None
            what = "is cut off" if is_cut else "does not parse"
            why = f"the JSON there {what}: {error.msg} (line {error.lineno})"
        except RecursionError:
            pass
        yield document, begin, why


def _path(key: str) -> Sequence[str]:
    return key.encode().decode("latin-1").split(".")


def _value_at(document: Any, path: Sequence[str]) -> Any:
    """Return the value at a path of a document, or that there is none."""
    while path:
        document, used = _child_of(document, path)
        path = path[used:]
    return document


def _child_of(place: Any, path: Sequence[str]) -> tuple[Any, int]:
    """Follow the first key of a path, or several that are one with dots; say how many."""
    if isinstance(place, dict):
        for used in range(1, len(path) + 1):
            if (key := ".".join(path[:used])) in place:
                return place[key], used
    elif isinstance(place, list) and path[0].isdecimal() and int(path[0]) < len(place):
        return place[int(path[0])], 1
    return _ABSENT, 1


def _wild(document: Any, path: Sequence[str]) -> Iterator[Sequence[str]]:
    """Find what each ``*`` of a path stands for; nothing where what is before it is missing."""
    if ANY not in path:
        if _value_at(document, path) is not _ABSENT:
            yield ()
        return
    at = path.index(ANY)
    place, rest = _value_at(document, path[:at]), path[at + 1 :]
    keys = [*map(str, range(len(place)))] if isinstance(place, list) else []
    for key in place if isinstance(place, dict) else keys:
        inner = _wild(_value_at(place, (key,)), rest) if ANY in rest else iter([()])
        yield from ((key, *more) for more in inner)


def _missing(document: Any, path: Sequence[str]) -> str:
    """Say which part of a path is missing, and what is there instead."""
    at = 0
    while at < len(path):
        inner, used = _child_of(document, path[at:])
        if path[at] == ANY or inner is _ABSENT:
            is_object = isinstance(document, dict)
            has = ", ".join([*map(str, document)][:8]) if is_object else type(document).__name__
            return f"{'.'.join(path[:at]) or 'the document'} has no {path[at]!r}, but {has}"
        document, at = inner, at + used
    return "what 'where' says is not there"


def _text(value: Any) -> str:
    """Write a value as it is printed; nothing of one that is none."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) and value not in _NOTHING else ""


def _utf8(text: str) -> str:
    return _bytes(text).decode(errors="replace")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1", errors="replace")


# -------------------------------------------------------------------------------------------- CSV


class Header(Struct, frozen=True):
    """What a line says of the columns below it: each by its name."""

    delimiter: str
    columns: tuple[str, ...]


class CsvKeys(Keyed, frozen=True):
    """Rows of CSV below a line that names the columns."""

    kind = "CSV"
    literal = b""

    def finditer(self, text: bytes) -> Iterator[Match]:
        """Find nothing: what a row is, the line above says."""
        del text
        return iter(())

    def header(self, text: bytes) -> Header | None:
        """Return the columns that a line names, if those that are wanted are among them."""
        names = {*self.keys.values(), *self.where}
        if len(text) > _LONGEST_LINE or not all(name.encode() in text for name in names):
            return None
        for delimiter in _DELIMITERS:
            columns = tuple(map(_utf8, _cells(text, delimiter)))
            if names <= {*columns}:
                return Header(delimiter, columns)
        return None

    def row(self, text: bytes, header: Header) -> Match | None:
        """Return the record of a line, if it is a row of these columns."""
        if text.count(header.delimiter.encode()) < len(header.columns) - 1:
            return None
        cells = _cells(text, header.delimiter)
        if len(cells) != len(header.columns):
            return None
        named = zip(header.columns, cells, strict=True)
        match = self._match({name: "" if cell in _NOTHING else cell for name, cell in named})
        step = match["step"] if match is not None and "step" in self.keys else b"0"
        # Among other output there may be lines with as many delimiters.
        return match if step is not None and step.replace(b".", b"").isdigit() else None

    def find(self, text: bytes) -> Iterator[FoundRecord]:
        """Find the rows; one without a value, or that is cut off, has a problem."""
        header, has_found, end = None, False, 0
        mark = _bytes(_BYTE_ORDER_MARK)
        for line in text.replace(mark, b" " * len(mark)).splitlines(keepends=True):
            begin, end = end, end + len(line)
            bare = line.rstrip(b"\r\n")
            if (named := self.header(bare)) is not None:
                header = named
            elif header is not None and (match := self.row(bare, header)) is not None:
                has_found = True
                empty = [key for group, key in self.keys.items() if match[group] is None]
                yield FoundRecord(match, begin, f"{empty[0]!r} is empty" if empty else None)
            elif header is not None and bare == line:
                cells, columns = len(_cells(line, header.delimiter)), len(header.columns)
                if 1 < cells < columns:
                    yield self._bad(begin, f"a row has {cells} cells, the line above it {columns}")
        if not has_found:
            wanted = ", ".join((*self.keys.values(), *self.where))
            yield self._bad(0, f"no line names the columns {wanted}")


def _cells(text: bytes, delimiter: str) -> list[str]:
    """Find the cells of a row, without the blanks around them; none of a broken row."""
    try:
        rows = csv.reader(
            [text.decode("latin-1")], delimiter=delimiter, skipinitialspace=True, strict=True
        )
        return [cell.strip() for cell in next(rows, [])]
    except csv.Error:
        return []


# ------------------------------------------------------------------------------------ all records


AnyRecord: TypeAlias = Expression | JsonKeys | CsvKeys


def declared_record(
    record: str | None,
    json: Mapping[str, str] | None,
    csv: Mapping[str, str] | None,
    where: Mapping[str, str],
) -> AnyRecord:
    """Make a record of what a system file declares; ``ValueError`` if that cannot be used."""
    if [record, json, csv].count(None) != 2:  # noqa: PLR2004 - one of three
        raise ValueError("a record is one of 'record', 'json' and 'csv'")
    if record is not None:
        if where:
            raise ValueError("'where' is of 'json' and 'csv'; write the text into the expression")
        return compiled(record)
    if json is None:
        return CsvKeys(keys=dict(csv or {}), where=dict(where))
    names = {group for group in json if VALUE not in group} - {"step", "rank", "unit"}
    is_wild = any(VALUE in group and ANY in path.split(".") for group, path in json.items())
    return JsonKeys(keys={**json, BY_KEY: ANY} if is_wild and not names else json, where=where)
