"""Reads hand-written YAML and tells every mistake with its file, line and key path.

The only home of PyYAML, imported when the first file is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from pytest_dlperf.files.mistakes import mistakes_of, short, unknown_key
from pytest_dlperf.files.writing import open_regular
from pytest_dlperf.model.errors import UsageError

Step = str | int
"""A key, or the number of an element."""

T = TypeVar("T")

MAX_BYTES: Final = 16 * 2**20
"""More than a hand-written file has, and a recorded one of a thousand cases."""
_MAX_VALUES: Final = 250_000
_MAX_DEPTH: Final = 50
_MAX_ERRORS: Final = 100
"""Mistakes that are told of one file."""

# All line ends of YAML 1.1; without the rare ones, the line numbers below them would be wrong.
_LINE = re.compile(r".*?(?:\r\n|[\n\r\x85\u2028\u2029]|\Z)", re.DOTALL)
_TAG: Final = "tag:yaml.org,2002:"
_NULL: Final = f"{_TAG}null"
_MERGE: Final = f"{_TAG}merge"
_KINDS: Final = {"mapping": "a mapping", "sequence": "a list"}
_KNOWN_TAGS: Final = {
    f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null", "map", "seq")
}


class Diagnostic(Struct, frozen=True, kw_only=True):
    """A mistake, or with ``is_error=False`` a remark.

    ``place`` is the file with its line, or the option.
    """

    place: str
    message: str
    is_error: bool = True

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class YamlError(UsageError):
    """All mistakes that were found in one or more files."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(str(diagnostic) for diagnostic in self.diagnostics))

    @classmethod
    def at(cls, file: Path, message: str, *, line: int = 1, path: str = "$") -> YamlError:
        """Make the error of one mistake. ``path`` is the key path; ``$`` is the file itself."""
        return cls([Diagnostic(place=f"{file}:{line}", message=f"{path}: {message}")])


class YamlFile:
    """The plain values of a file, and its mistakes, each with its place.

    Scalars are text as it is written; ``None`` stands where nothing is written. Reading goes on
    after a mistake: ``check`` raises all of them.
    """

    def __init__(self, file: Path, text: str | None = None, *, private: Iterable[str] = ()) -> None:
        """Parse a file, or its new text; values below ``private`` keys stand in no message.

        Raises:
            YamlError: It cannot be read or is not YAML.
        """
        self.file = file
        self._private = frozenset(private)
        self._errors: list[tuple[int, Diagnostic]] = []
        self._told: set[tuple[str, str]] = set()
        self._keys: dict[int, dict[Step, tuple[Any, Any]]] = {}
        self._count = 0
        node = _with_loader("compose", file, read_text(file) if text is None else text)
        if node is None:
            raise YamlError.at(file, "the file is empty")
        self._layers: list[tuple[Path, Any]] = [(file, node)]
        self.value = self._plain(node, ())

    def _plain(self, node: Any, path: tuple[Step, ...]) -> Any:
        self._count += 1
        if self._count > _MAX_VALUES or len(path) > _MAX_DEPTH:
            raise YamlError.at(
                self.file,
                f"has more than {_MAX_VALUES:,} values, or {_MAX_DEPTH} levels; is an anchor "
                "within itself?",
                line=_line(node),
            )
        if node.tag not in _KNOWN_TAGS:
            self._error_at(node, path, f"found the tag {node.tag}; leave tags out")
            return None
        if node.id == "sequence":
            return [self._plain(item, (*path, at)) for at, item in enumerate(node.value)]
        if node.id == "scalar":
            if "\0" in node.value:
                self._error_at(node, path, "holds a NUL, which no program can be given")
            return None if node.tag == _NULL else node.value
        self._check_keys(node, path)
        values: dict[str, Any] = {}
        for key, value in _pairs(node):
            if key.id == "scalar" and key.value not in values:
                values[key.value] = self._plain(value, (*path, key.value))
        return values

    def _check_keys(self, node: Any, path: tuple[Step, ...]) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if key.id != "scalar":
                self._error_at(key, path, f"found {_KINDS[key.id]}; a key is a plain word")
            elif key.value in lines and key.tag != _MERGE:
                message = f"duplicate key; the first is on line {lines[key.value]}"
                self._error_at(key, (*path, key.value), message)
            else:
                lines[key.value] = _line(key)

    # ------------------------------------------------------------------------- places

    def error(self, path: Iterable[Step], message: str) -> None:
        """Report a mistake at a place, or at the nearest one above it: the first one of each."""
        path = tuple(path)
        if len(self._told) < _MAX_ERRORS:
            file, _, node = self._node(path)
            self._error_at(node, path, message, file)

    def _error_at(
        self, node: Any, path: tuple[Step, ...], message: str, file: Path | None = None
    ) -> None:
        place, where = f"{file or self.file}:{_line(node)}", f"{dotted(path)}: "
        if (place, where) not in self._told and len(self._told) < _MAX_ERRORS:
            self._told.add((place, where))
            self._errors.append((_line(node), Diagnostic(place=place, message=f"{where}{message}")))

    def file_of(self, path: Iterable[Step]) -> Path:
        """Return the file that says what stands at a place."""
        return self._node(path)[0]

    def line(self, path: Iterable[Step]) -> int:
        """Return the line of what stands at a place."""
        return _line(self._node(path)[2])

    def key_line(self, path: Iterable[Step]) -> int:
        """Return the line of a key."""
        return _line(self._node(path)[1])

    def _node(self, path: Iterable[Step]) -> tuple[Path, Any, Any]:
        """Find the file, the key and the value at a place, or at the nearest one above it."""
        steps = tuple(path)
        places = []
        for file, root in self._layers:
            depth, key, node = 0, root, root
            while depth < len(steps) and (below := self._below(node, steps[depth])):
                depth, (key, node) = depth + 1, below
            places.append((depth, (file, key, node)))
        return max(places, key=itemgetter(0))[1]

    def _below(self, node: Any, step: Step) -> tuple[Any, Any] | None:
        """Find a key and its value in a mapping, or an element of a list."""
        if id(node) not in self._keys:
            pairs: list[tuple[Step, tuple[Any, Any]]] = []
            if node.id == "mapping":
                pairs = [(pair[0].value, pair) for pair in _pairs(node) if pair[0].id == "scalar"]
            elif node.id == "sequence":
                pairs = [(number, (item, item)) for number, item in enumerate(node.value)]
            self._keys[id(node)] = dict(reversed(pairs))  # the first of a duplicate counts
        return self._keys[id(node)].get(step)

    # ------------------------------------------------------------------------ layers

    def lay_over(self, base: YamlFile) -> None:
        """Lay this file over another one, whose mistakes become its own.

        Mappings merge key by key, other values are replaced, and nothing behind a key takes away
        that of the base.
        """
        self.value = _merged(self.value, base.value)
        self._layers += base._layers
        self._errors += base._errors

    # ----------------------------------------------------------------------- reading

    def check(self) -> None:
        """Raise the mistakes that were found so far.

        Raises:
            YamlError: There are some.
        """
        if self._errors:
            raise YamlError(diagnostic for _, diagnostic in sorted(self._errors, key=itemgetter(0)))

    def read(
        self,
        kind: type[T],
        path: tuple[Step, ...] = (),
        value: Any = None,
        *,
        may_be_empty: bool = False,
    ) -> T:
        """Convert the file, or what stands at a place in it, or a ``value`` taken from there.

        Raises:
            YamlError: With the first mistake of each key.
        """
        value = self._at(path) if value is None else value
        for place in () if may_be_empty else _nothing(value, path):
            self.error(place, self._said_nothing(place))
        try:
            converted = msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError:
            for place, message in mistakes_of(value, kind, path, private=self._private):
                self.error(place, message)
        self.check()
        return converted

    def _at(self, path: tuple[Step, ...]) -> Any:
        value = self.value
        for step in path:
            value = value[step]
        return value

    def unknown_key(self, path: tuple[Step, ...], keys: Iterable[str]) -> None:
        """Report a key that is none of these."""
        self.error(path, unknown_key(str(path[-1]), keys))

    def _said_nothing(self, place: tuple[Step, ...]) -> str:
        above = self._node(place[:-1])[2]
        if above.id == "mapping" and above.flow_style and len(above.value) == 1:
            return f'found nothing; a text in braces stands in quotes, as in "{{{place[-1]}}}"'
        return "found nothing; write a value, or take the key away"


def load(file: Path, kind: type[T]) -> T:
    """Read a whole file.

    Raises:
        YamlError: With its mistakes.
    """
    return YamlFile(file).read(kind)


def dotted(path: Iterable[Step]) -> str:
    """Write a key path, as in ``$.cases[0].options``."""
    return "$" + "".join(
        f"[{step}]" if isinstance(step, int) else f".{short(step)}" for step in path
    )


# --------------------------------------------------------------------------------- nodes


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1


def _pairs(node: Any) -> list[tuple[Any, Any]]:
    """List the keys and values of a mapping, its own before those that it merges (``<<``)."""
    pairs: list[tuple[Any, Any]] = list(node.value)
    seen = {id(node)}
    for key, value in pairs:
        if key.tag == _MERGE:
            for base in value.value if value.id == "sequence" else [value]:
                if base.id == "mapping" and id(base) not in seen:  # the first value of a key counts
                    seen.add(id(base))
                    pairs += base.value
    return [pair for pair in pairs if pair[0].tag != _MERGE]


def _merged(own: Any, base: Any) -> Any:
    if not (isinstance(own, dict) and isinstance(base, dict)):
        return own
    merged = {key: value for key, value in base.items() if key not in own}
    for key, value in own.items():
        if value is not None or key not in base:
            merged[key] = _merged(value, base.get(key))
    return merged


def _nothing(value: Any, path: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """Yield the places behind which nothing is written."""
    if value is None:
        yield path
    pairs: Iterable[tuple[Step, Any]] = ()
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for step, inner in pairs:
        yield from _nothing(inner, (*path, step))


# ----------------------------------------------------------------------------------- text


def load_plain(file: Path) -> Any:
    """Read a file of another program's format as builtins.

    Raises:
        YamlError: It cannot be read or parsed.
    """
    return _with_loader("load", file, read_text(file))


@cache
def _loader() -> Any:
    """Return the loader that leaves every scalar but nothing as it is written."""
    import yaml

    resolvers = {
        first: [resolver for resolver in resolvers if resolver[0] in (_NULL, _MERGE)]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return type("Loader", (base,), {"yaml_implicit_resolvers": resolvers})


def _with_loader(act: str, file: Path, text: str) -> Any:
    import yaml

    loader = _loader() if act == "compose" else getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return getattr(yaml, act)(text, Loader=loader)
    except yaml.YAMLError as error:
        raise _syntax_error(file, text, error) from error
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


def lines_of(text: str) -> list[str]:
    """Split a text into lines with their ends, as YAML counts them."""
    return [line for line in _LINE.findall(text) if line]


def content_lines(text: str) -> list[int]:
    """List, from 0, the lines with content: neither empty nor only a comment."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    lines = lines_of(text)
    content: set[int] = set()
    for token in yaml.scan(text, Loader=loader):
        start, end = int(token.start_mark.line), int(token.end_mark.line)
        if token.start_mark.index == token.end_mark.index:
            continue
        # A block of text below its key ends where the next line begins.
        last = end if token.end_mark.column or end == start else end - 1
        while last > start and not lines[last].strip():
            last -= 1
        content.update(range(start, last + 1))
    return [line for line in sorted(content) if lines[line].strip()]


def _syntax_error(file: Path, text: str, error: Any) -> YamlError:
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark is not None else 1
    what = getattr(error, "problem", None) or str(error).splitlines()[0]
    if any(re.match(r"\s*\t", text) for text in lines_of(text)[line - 1 : line]):
        what += "; indent by spaces, not by tabs"
    context = getattr(error, "context", None)
    message = f"not YAML: {f'{context}: ' if context else ''}{what}"
    return YamlError.at(file, message, line=line)
