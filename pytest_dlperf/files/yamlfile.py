"""Reads hand-written YAML and tells every mistake with its file, line and key path.

The only home of PyYAML, imported when the first file is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from pytest_dlperf.files.mistakes import KeyPath, mistakes_of, short
from pytest_dlperf.files.writing import open_regular
from pytest_dlperf.model.errors import UsageError

T = TypeVar("T")

MAX_BYTES: Final = 16 * 2**20
"""More than a hand-written file has, and a recorded one of a thousand cases."""
_MAX_VALUES: Final = 250_000
_MAX_DEPTH: Final = 50
_MAX_ERRORS: Final = 100
"""Mistakes that are told of one file."""

_TAG: Final = "tag:yaml.org,2002:"
_NULL: Final = f"{_TAG}null"
_MERGE: Final = f"{_TAG}merge"
_KNOWN_TAGS: Final = {
    f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")
}


class Diagnostic(Struct, frozen=True, kw_only=True):
    """A mistake, or with ``is_error=False`` a remark, at ``FILE:LINE`` or of an option."""

    place: str
    message: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class YamlError(UsageError):
    """All mistakes that were found in one or more files."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(map(str, self.diagnostics)))

    @classmethod
    def at(cls, file: Path, message: str, *, line: int = 1, path: str = "$") -> YamlError:
        """Make the error of one mistake. ``path`` is the key path; ``$`` is the file itself."""
        return cls([Diagnostic(place=f"{file}:{line}", message=f"{path}: {message}")])


class Place(NamedTuple):
    """Where a value stands, and its key."""

    file: Path
    key_line: int
    line: int


class YamlFile:
    """The plain values of a file, and its mistakes, each with its place.

    Scalars are text as it is written; ``None`` stands where nothing is written. Reading goes on
    after a mistake: ``check`` raises all of them.
    """

    def __init__(self, file: Path, text: str | None = None, *, private: Iterable[str] = ()) -> None:
        """Parse a file, or its new text; values below ``private`` keys stand in no message."""
        self.file = file
        self._private = frozenset(private)
        self._errors: dict[tuple[str, str], tuple[int, Diagnostic]] = {}
        self._places: dict[KeyPath, Place] = {}
        node = _with_loader("compose", file, read_text(file) if text is None else text)
        if node is None:
            raise YamlError.at(file, "the file is empty")
        self.value = self._plain(node, (), node)

    def _plain(self, node: Any, path: KeyPath, key: Any) -> Any:
        self._places[path] = Place(self.file, _line(key), _line(node))
        if len(self._places) > _MAX_VALUES or len(path) > _MAX_DEPTH:
            raise YamlError.at(
                self.file,
                f"has more than {_MAX_VALUES:,} values, or {_MAX_DEPTH} levels; is an anchor "
                "within itself?",
                line=_line(node),
            )
        if node.tag not in _KNOWN_TAGS:
            self.error(path, f"found the tag {node.tag}; leave tags out")
            return None
        if node.id == "sequence":
            return [self._plain(item, (*path, at), item) for at, item in enumerate(node.value)]
        if node.id == "scalar":
            if "\0" in node.value:
                self.error(path, "holds a NUL, which no program can be given")
            return None if node.tag == _NULL else node.value
        return self._mapping(node, path)

    def _mapping(self, node: Any, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, value, is_own in _pairs(node):
            place = (*path, name.value)
            if name.id != "scalar":
                kind = "list" if name.id == "sequence" else name.id
                self.error(path, f"found a {kind}; a key is a plain word", _line(name))
            elif name.value not in values:
                values[name.value] = self._plain(value, place, name)
            elif is_own:
                message = f"duplicate key; the first is on line {self.place(place).key_line}"
                self.error(place, message, _line(name))
        return values

    def place(self, path: Iterable[str | int]) -> Place:
        """Find what stands behind a key path, or behind the nearest one above it."""
        path = tuple(path)
        while path not in self._places:
            path = path[:-1]
        return self._places[path]

    def error(self, path: Iterable[str | int], message: str, line: int = 0) -> None:
        """Report a mistake; only the first of each place is told."""
        place, where = self.place(path), dotted(path)
        line = line or place.line
        if len(self._errors) < _MAX_ERRORS:
            mistake = Diagnostic(place=f"{place.file}:{line}", message=f"{where}: {message}")
            self._errors.setdefault((mistake.place, where), (line, mistake))

    def check(self) -> None:
        """Raise the mistakes that were found so far."""
        if self._errors:
            raise YamlError(each for _, each in sorted(self._errors.values(), key=itemgetter(0)))

    def lay_over(self, base: YamlFile) -> None:
        """Lay this file over another one, whose mistakes become its own.

        Mappings merge key by key, other values are replaced, and nothing behind a key takes away
        that of the base.
        """
        self.value = _merged(self.value, base.value)
        self._places = {**base._places, **self._places}
        self._errors |= base._errors

    def read(self, kind: type[T], path: KeyPath = (), value: Any = None) -> T:
        """Convert the file, or what stands at a place in it, or a ``value`` taken from there."""
        if value is None:
            value = self.value
            for step in path:
                value = value[step]
        try:
            converted = msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError:
            for place, message in mistakes_of(value, kind, path, private=self._private):
                self.error(place, message)
        self.check()
        return converted


def load(file: Path, kind: type[T]) -> T:
    """Read a whole file."""
    return YamlFile(file).read(kind)


def dotted(path: Iterable[str | int]) -> str:
    """Write a key path, as in ``$.cases[0].options``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{short(step)}" for step in path)
    return f"${''.join(steps)}"


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _pairs(node: Any) -> Iterator[tuple[Any, Any, bool]]:
    """Yield the keys and values of a mapping, its own before those that it merges (``<<``)."""
    mappings = [node]
    for mapping in mappings:
        for key, value in mapping.value:
            if key.tag != _MERGE:
                yield key, value, mapping is node
                continue
            for base in value.value if value.id == "sequence" else [value]:
                if base.id == "mapping" and not any(base is seen for seen in mappings):
                    mappings.append(base)


def _merged(own: Any, base: Any) -> Any:
    if not (isinstance(own, dict) and isinstance(base, dict)):
        return own
    laid = {key: _merged(value, base.get(key)) for key, value in own.items()}
    return {k: v for k, v in {**base, **laid}.items() if v is not None or k not in base}


def load_plain(file: Path) -> Any:
    """Read a file of another program's format as builtins."""
    return _with_loader("load", file, read_text(file))


@cache
def _loader(act: str) -> Any:
    """Return the loader that, to ``compose``, leaves every scalar but nothing as it is written."""
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {
        first: [resolver for resolver in resolvers if resolver[0] in (_NULL, _MERGE)]
        for first, resolvers in base.yaml_implicit_resolvers.items()
    }
    as_written = type("Loader", (base,), {"yaml_implicit_resolvers": resolvers})
    return as_written if act == "compose" else base


def _with_loader(act: str, file: Path, text: str) -> Any:
    import yaml

    try:
        return getattr(yaml, act)(text, _loader(act))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        parts = [getattr(error, name, None) for name in ("context", "problem")]
        what = ": ".join(filter(None, parts)) or str(error).partition("\n")[0]
        if any(re.match(r"\s*\t", text) for text in text.splitlines()[line - 1 : line]):
            what += "; indent by spaces, not by tabs"
        raise YamlError.at(file, f"not YAML: {what}", line=line) from error
    except (RecursionError, ValueError, TypeError) as error:  # of what a manifest's tags say
        raise YamlError.at(file, f"not YAML: {error}") from error


def read_text(file: Path) -> str:
    """Read a file with its own line ends."""
    try:
        with open(file, "rb", opener=open_regular) as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise YamlError.at(file, f"cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise YamlError.at(file, f"is larger than {MAX_BYTES // 2**20} MiB; it is no such file")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"is not UTF-8: {error.reason} at byte {error.start}"
        raise YamlError.at(file, message) from error
