"""Numbers by key, in what a program has written as a whole: JSON, lines of JSON, CSV.

They are looked for when the program has ended. A document of JSON begins where a line does and may
go over many; lines beside it are passed over. What is cut off, or there twice, is told: the number
before it may be an old one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Struct

from pytest_dlperf.formats.keyed import (
    ABSENT,
    CsvRecord,
    Header,
    Keyed,
    Match,
    Path,
    child_of,
    value_at,
)
from pytest_dlperf.formats.printed import printed_number

ANY: Final = "*"
BY_KEY: Final = "name"
"""The group that ``*`` fills where no other group names."""
VALUE: Final = "value"
_BYTE_ORDER_MARK: Final = "\ufeff"
_BEGIN: Final = re.compile(rf"^{_BYTE_ORDER_MARK}?(?P<document>[{{\[])", re.MULTILINE)
_SURELY_JSON: Final = re.compile(r'\{\s*"|\[\s*[{\["]')
_LINE_END: Final = re.compile(r"$", re.MULTILINE)
_SHOWN: Final = 8


class FoundRecord(Struct, frozen=True):
    """A record with numbers, the byte at which it begins, and what is wrong with it."""

    match: Match
    offset: int
    problem: str | None = None


class _Unread(Struct, frozen=True):
    """A document that does not parse, and whether it is one that was not written to its end."""

    why: str
    is_cut: bool = False


class CsvTable(CsvRecord, frozen=True):
    """Rows of CSV below a line that names the columns."""

    def find(self, text: bytes) -> Iterator[FoundRecord]:
        """Find the rows; one without a value, or with too many or few cells, has a problem."""
        header: Header | None = None
        end = 0
        mark = _BYTE_ORDER_MARK.encode()
        for line in text.replace(mark, b" " * len(mark)).splitlines(keepends=True):
            begin, end = end, end + len(line)
            bare = line.rstrip(b"\r\n")
            named = self.header(bare)
            match = self.row(bare, header) if header is not None and named is None else None
            if match is not None:
                empty = [key for group, key in self.keys.items() if match[group] is None]
                yield FoundRecord(match, begin, f"{empty[0]!r} is empty" if empty else None)
            elif header is not None and named is None:
                problem = self._why_no_row(header, header.cells(bare), has_end=bare != line)
                if problem is not None:
                    yield FoundRecord(_no_match(self), begin, problem)
            header = named or header

    def _why_no_row(self, header: Header, cells: Sequence[str], *, has_end: bool) -> str | None:
        """Say what is wrong with a row of too many or few cells; nothing of another line."""
        columns = header.columns
        if len(cells) > len(columns):
            keys = [key for group, key in self.keys.items() if group.startswith(VALUE)]
            if not all(_is_number(cells[columns.index(key)].encode()) for key in keys):
                return None
        elif has_end or not 1 < len(cells) < len(columns):
            return None
        return f"a row has {len(cells)} cells, the line above it {len(columns)}"

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
    def _values(self) -> dict[str, Path]:
        paths = {group: tuple(path.split(".")) for group, path in self.keys.items()}
        return {group: path for group, path in paths.items() if group.startswith(VALUE)}

    def find(self, text: bytes) -> Iterator[FoundRecord]:
        """Find the values of all documents; where one is missing or no number is a problem."""
        cut: FoundRecord | None = None
        for document, offset in _documents(text):
            if isinstance(document, _Unread):
                cut = FoundRecord(_no_match(self), offset, document.why) if document.is_cut else cut
                continue
            cut = None
            said = {path: value_at(document, tuple(path.split("."))) for path in self.where}
            if all(_text(said[path]) == wanted for path, wanted in self.where.items()):
                first = next(iter(self._values.values()))
                found = [self._record(document, wild, offset) for wild in _wild(document, first)]
                if self.where and not found:
                    found = [FoundRecord(_no_match(self), offset, _missing(document, first))]
                yield from found
        if cut is not None:
            yield cut

    def why_nothing(self, text: bytes) -> str:
        """Say what is there instead, where nothing was found."""
        why = "nothing there is JSON"
        for document, _ in _documents(text):
            if not isinstance(document, _Unread):
                return _missing(document, next(iter(self._values.values())))
            why = document.why
        return why

    def _record(self, document: Any, wild: Path, offset: int) -> FoundRecord:
        problem, texts = None, []
        for group, key in self.keys.items():
            path = _filled(tuple(key.split(".")), wild)
            found = ".".join(wild) if group == BY_KEY and ANY in key else value_at(document, path)
            is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
            if not is_number and (group in self._values or _text(found) is None):
                problem = problem or f"{'.'.join(path)} is {_shown(found)}"
            texts.append((_text(found) or "").encode(errors="replace"))
        return FoundRecord(Match(self, texts), offset, problem)


def _documents(text: bytes) -> Iterator[tuple[Any, int]]:
    """Decode the JSON documents of a text; where one does not parse, say why."""
    decoded = text.decode("utf-8", "surrogateescape")
    position = offset = counted = 0
    while (begun := _BEGIN.search(decoded, position)) is not None:
        begin, position = begun.start("document"), begun.end()
        try:
            document, position = _DECODER.raw_decode(decoded, begin)
        except json.JSONDecodeError as error:
            document = _unread(decoded, begin, error)
        except RecursionError:
            document = _Unread("the JSON there is nested too deeply")
        offset += len(decoded[counted:begin].encode("utf-8", "surrogateescape"))
        counted = begin
        yield document, offset


def _unread(text: str, begin: int, error: json.JSONDecodeError) -> _Unread:
    """Tell a document that ends too soon, with its line or the text, from a line of another kind.

    A text in quotes without an end goes on to that of its line.
    """
    line_end = _LINE_END.search(text, begin)
    end = line_end.start() if line_end is not None else len(text)
    between = text[end : error.pos].strip() if error.pos >= end else text[error.pos :].strip()
    is_at_end = not between or error.msg.startswith("Unterminated string")
    why = f"{error.msg} (line {error.lineno})"
    if is_at_end and _SURELY_JSON.match(text, begin):
        return _Unread(f"the JSON there is cut off: {why}", is_cut=True)
    return _Unread(f"the JSON there does not parse: {why}")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of its keys; one that is there twice has no value unless both are equal."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        found[key] = _TWICE if key in found and found[key] != value else value
    return found


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object)
_TWICE: Final = object()


def _wild(document: Any, path: Path) -> Iterator[Path]:
    """Find what each ``*`` of a path stands for; nothing where what is before it is missing."""
    if ANY not in path:
        if value_at(document, path) is not ABSENT:
            yield ()
        return
    at = path.index(ANY)
    place = value_at(document, path[:at])
    keys = list(place) if isinstance(place, dict) else []
    keys = [str(index) for index in range(len(place))] if isinstance(place, list) else keys
    for key in keys:
        rest = path[at + 1 :]
        inner = _wild(value_at(place, (key,)), rest) if ANY in rest else iter([()])
        yield from ((key, *more) for more in inner)


def _filled(path: Path, wild: Path) -> Path:
    left = iter(wild)
    return tuple(next(left, ANY) if key == ANY else key for key in path)


def _text(value: Any) -> str | None:
    """Write a number or a text; ``None`` for anything else."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, (int, float, str)) else None


def _shown(value: Any) -> str:
    if value in (ABSENT, _TWICE):
        return "not there" if value is ABSENT else "there twice"
    text = json.dumps(value, default=lambda _: "there twice")
    return f"{text[:60]}, which is not a number"


def _missing(document: Any, path: Path) -> str:
    place, number = document, 0
    while number < len(path):
        inner, used = child_of(place, path[number:])
        if path[number] == ANY or inner is ABSENT:
            has = ", ".join(list(map(str, place))[:_SHOWN]) if isinstance(place, dict) else ""
            has = has or f"a {type(place).__name__}"
            before = ".".join(path[:number]) or "the document"
            return f"{before} has no {path[number]!r}, but {has}"
        place, number = inner, number + used
    return "what 'where' says is not there"


def _is_number(text: bytes) -> bool:
    try:
        printed_number(text)
    except ValueError:
        return False
    return True


def _no_match(keyed: Keyed) -> Match:
    """Stand for a record that cannot be read."""
    return Match(keyed, [b""] * len(keyed.keys))
