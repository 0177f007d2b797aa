"""Numbers by key, in what a program has written as a whole: JSON, lines of JSON, CSV.

They are looked for when the program has ended. A document of JSON begins where a line does and may
go over many; lines beside it are passed over.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import Struct

from pytest_dlperf.formats.expressions import Match
from pytest_dlperf.formats.keyed import CsvRecord, Keyed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_dlperf.formats.keyed import Header

ANY: Final = "*"
BY_KEY: Final = "name"
"""The group that ``*`` fills where no other group names."""
VALUE: Final = "value"
_BEGIN: Final = re.compile(r"^[{\[]", re.MULTILINE)
_SHOWN: Final = 8
_DECODER: Final = json.JSONDecoder()

_Path: TypeAlias = "tuple[str, ...]"


class Found(Struct, frozen=True):
    """A record with numbers, the byte at which it begins, and what is wrong with it."""

    match: Match
    offset: int
    problem: str | None = None


class CsvTable(CsvRecord, frozen=True):
    """Rows of CSV below a line that names the columns."""

    def find(self, text: bytes) -> Iterator[Found]:
        """Find the rows; one without a value has a problem."""
        header: Header | None = None
        end = 0
        for line in text.splitlines(keepends=True):
            begin, end = end, end + len(line)
            bare = line.rstrip(b"\r\n")
            named = self.header(bare)
            match = self.row(bare, header) if header is not None and named is None else None
            header = named or header
            if match is not None:
                empty = [key for group, key in self.keys.items() if match[group] is None]
                yield Found(match, begin, f"{empty[0]!r} is empty" if empty else None)

    def why_nothing(self, text: bytes) -> str:
        """Say what is there instead, where nothing was found."""
        del text
        return f"no line names the columns {', '.join((*self.keys.values(), *self.where))}"


class JsonTree(Keyed, frozen=True):
    """Values of JSON documents by dotted paths, in which ``*`` is each key or item in turn."""

    @property
    def _kind(self) -> str:
        return "JSON"

    @property
    def _values(self) -> dict[str, _Path]:
        paths = {group: tuple(path.split(".")) for group, path in self.keys.items()}
        return {group: path for group, path in paths.items() if group.startswith(VALUE)}

    def find(self, text: bytes) -> Iterator[Found]:
        """Find the values of all documents; where one is missing or no number is a problem."""
        for document, offset in _documents(text):
            if isinstance(document, str):
                continue
            said = {path: _at(document, tuple(path.split("."))) for path in self.where}
            if all(_text(said[path]) == wanted for path, wanted in self.where.items()):
                first = next(iter(self._values.values()))
                for wild in _wild(document, first):
                    yield self._record(document, wild, offset)

    def why_nothing(self, text: bytes) -> str:
        """Say what is there instead, where nothing was found."""
        why = "nothing there is JSON"
        for document, _ in _documents(text):
            if not isinstance(document, str):
                return _missing(document, next(iter(self._values.values())))
            why = document
        return why

    def _record(self, document: Any, wild: _Path, offset: int) -> Found:
        problem, texts = None, {}
        for group, key in self.keys.items():
            path = _filled(tuple(key.split(".")), wild)
            found = ".".join(wild) if group == BY_KEY and ANY in key else _at(document, path)
            is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
            if not is_number and (group in self._values or _text(found) is None):
                problem = problem or f"{'.'.join(path)} is {_shown(found)}"
            texts[group] = (_text(found) or "").encode("utf-8", "surrogateescape")
        return Found(_match(texts, self.groupindex), offset, problem)


def _documents(text: bytes) -> Iterator[tuple[Any, int]]:
    """Decode the JSON documents of a text; where one does not parse, say why."""
    decoded = text.decode("utf-8", "surrogateescape")
    position = offset = counted = 0
    while (begin := _BEGIN.search(decoded, position)) is not None:
        position = begin.end()
        try:
            document, position = _DECODER.raw_decode(decoded, begin.start())
        except json.JSONDecodeError as error:
            document = f"the JSON there does not parse: {error.msg} (line {error.lineno})"
        except RecursionError:
            document = "the JSON there is nested too deeply"
        offset += len(decoded[counted : begin.start()].encode("utf-8", "surrogateescape"))
        counted = begin.start()
        yield document, offset


_ABSENT: Final = object()


def _child(place: Any, path: _Path) -> tuple[Any, int]:
    """Follow the first key of a path, or several that are one with dots; say how many."""
    if isinstance(place, dict):
        for used in range(1, len(path) + 1):
            if (key := ".".join(path[:used])) in place:
                return place[key], used
    elif isinstance(place, list) and path[0].isdecimal() and int(path[0]) < len(place):
        return place[int(path[0])], 1
    return _ABSENT, 1


def _at(document: Any, path: _Path) -> Any:
    while path:
        document, used = _child(document, path)
        path = path[used:]
    return document


def _wild(document: Any, path: _Path) -> Iterator[_Path]:
    """Find what each ``*`` of a path stands for; nothing where what is before it is missing."""
    if ANY not in path:
        if _at(document, path) is not _ABSENT:
            yield ()
        return
    at = path.index(ANY)
    place = _at(document, path[:at])
    keys = list(place) if isinstance(place, dict) else []
    keys = [str(index) for index in range(len(place))] if isinstance(place, list) else keys
    for key in keys:
        rest = path[at + 1 :]
        inner = _wild(_at(place, (key,)), rest) if ANY in rest else iter([()])
        yield from ((key, *more) for more in inner)


def _filled(path: _Path, wild: _Path) -> _Path:
    left = iter(wild)
    return tuple(next(left, ANY) if key == ANY else key for key in path)


def _text(value: Any) -> str | None:
    """Write a number or a text; ``None`` for anything else."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float, str)) else None


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "not there"
    return f"{json.dumps(value)[:60]}, which is not a number"


def _missing(document: Any, path: _Path) -> str:
    place, number = document, 0
    while number < len(path):
        inner, used = _child(place, path[number:])
        if path[number] == ANY or inner is _ABSENT:
            has = ", ".join(list(map(str, place))[:_SHOWN]) if isinstance(place, dict) else ""
            has = has or f"a {type(place).__name__}"
            before = ".".join(path[:number]) or "the document"
            return f"{before} has no {path[number]!r}, but {has}"
        place, number = inner, number + used
    return "what 'where' says is not there"


def _match(texts: Mapping[str, bytes], index: Mapping[str, int]) -> Match:
    """Make the match of a record, whose groups took these texts."""
    whole, spans = b"", []
    for text in texts.values():
        spans.append((len(whole), len(whole) + len(text)))
        whole += text + b"\n"
    return Match(whole, [(0, len(whole)), *spans], index)
