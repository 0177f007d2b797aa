"""Reads hand-written YAML and reports every mistake with its file, line and key path.

The only home of PyYAML, imported when the first file is read.
"""

from __future__ import annotations

import difflib
import re
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec import Struct

from pytest_dlperf.files.writing import open_regular
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

T = TypeVar("T")

# All line ends of YAML 1.1; without the rare ones, the line numbers below them would be wrong.
_LINE = re.compile(r".*?(?:\r\n|[\n\r\x85\u2028\u2029]|\Z)", re.DOTALL)
_TAG: Final = "tag:yaml.org,2002:"
_KINDS: Final = {
    f"{_TAG}str": "text",
    f"{_TAG}int": "a number",
    f"{_TAG}float": "a number",
    f"{_TAG}bool": "a yes-or-no",
    f"{_TAG}null": "nothing",
    f"{_TAG}timestamp": "a date",
    f"{_TAG}map": "a mapping",
    f"{_TAG}seq": "a list",
}


class Problem(Struct, frozen=True, kw_only=True):
    """A mistake, or with ``is_fault=False`` a remark.

    ``place`` is the file with its line, or the option.
    """

    place: str
    message: str
    is_fault: bool = True

    def __str__(self) -> str:
        """Return the place and the message in one line."""
        return f"{self.place}: {self.message}"


_Faults = list[tuple[int, Problem]]  # with their lines


class YamlError(UsageError):
    """All mistakes that were found in one or more files."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        """Keep the problems in their order."""
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def at(cls, file: Path, message: str, *, line: int = 1, path: str = "$") -> YamlError:
        """Make the error of one mistake. ``path`` is the key path; ``$`` is the file itself."""
        return cls([Problem(place=f"{file}:{line}", message=f"{path}: {message}")])


class YamlValue:
    """A place in a YAML file, with its line and key path, at which mistakes are reported.

    Reading goes on after a mistake; ``load`` raises all mistakes of a file at its end.
    """

    __slots__ = ("_faults", "_node", "file", "key_line", "path")

    def __init__(
        self, file: Path, node: Any, path: str, faults: _Faults, key_line: int = 1
    ) -> None:
        """Take a node of a parsed file; ``key_line`` is the line of its key."""
        self.file = getattr(node, "origin", file)
        self.path = path
        self.key_line = key_line
        self._node = node
        self._faults = faults

    @property
    def line(self) -> int:
        """Line number in the file, from 1."""
        return int(self._node.start_mark.line) + 1

    @property
    def kind(self) -> str:
        """``scalar``, ``sequence`` or ``mapping``."""
        return str(self._node.id)

    @property
    def is_empty(self) -> bool:
        """Whether the value is missing."""
        return self._node.id == "scalar" and self.is_tagged("null")

    @property
    def is_empty_list(self) -> bool:
        """Whether the value is a list without elements."""
        return self._node.id == "sequence" and not self._node.value

    @property
    def is_flow(self) -> bool:
        """Whether a mapping or list is written in braces or brackets."""
        return bool(getattr(self._node, "flow_style", False))

    @property
    def is_quoted(self) -> bool:
        """Whether a scalar is written in quotes, or below a ``|`` or ``>``."""
        return self._node.id == "scalar" and bool(self._node.style)

    @property
    def is_bare_placeholder(self) -> bool:
        """Whether this is an unquoted ``{placeholder}``, which is a mapping to YAML."""
        return (
            self.is_flow
            and self._node.id == "mapping"
            and len(self._node.value) == 1
            and self._node.value[0][1].tag == f"{_TAG}null"
        )

    @property
    def scalar(self) -> str:
        """A scalar as it is written, without its quotes."""
        return str(self._node.value)

    def is_tagged(self, tag: str) -> bool:
        """Whether YAML reads the value as ``str``, ``int``, ``bool``, ``null``, …."""
        return bool(self._node.tag == _TAG + tag)

    @property
    def faults(self) -> int:
        """Number of mistakes reported so far in the whole file."""
        return len(self._faults)

    def fault(self, message: str) -> None:
        """Report a mistake at this place, once however often it is found."""
        place = f"{self.file}:{self.line}"
        found = self.line, Problem(place=place, message=f"{self.path}: {message}")
        if found not in self._faults:
            self._faults.append(found)

    def fault_found(self, allowed: str) -> None:
        """Report that the value is not one of the allowed ones."""
        self.fault(f"found {self._found()}; allowed: {allowed}")

    def _found(self) -> str:
        if self.is_empty_list:
            return "an empty list"
        kind = _KINDS.get(self._node.tag, f"the tag {self._node.tag}")
        if self._node.id != "scalar":
            return kind
        return f"{self._node.value!r}, {kind}" if self._node.value else kind

    def items(self) -> list[YamlValue]:
        """Return the elements of a list."""
        return [
            YamlValue(self.file, node, f"{self.path}[{index}]", self._faults)
            for index, node in enumerate(self._node.value)
        ]

    def entries(self) -> list[tuple[str, YamlValue]]:
        """Return keys and values of a mapping; a duplicate key is a mistake."""
        first_lines: dict[str, int] = {}
        found = []
        for key_node, value_node in self._node.value:
            if key_node.id != "scalar":
                YamlValue(self.file, key_node, self.path, self._faults).fault_found(
                    "a plain word as the key"
                )
                continue
            key = str(key_node.value)
            line = int(key_node.start_mark.line) + 1
            value = YamlValue(self.file, value_node, f"{self.path}.{key}", self._faults, line)
            if key in first_lines:
                YamlValue(self.file, key_node, value.path, self._faults).fault(
                    f"duplicate key; the first is on line {first_lines[key]}"
                )
                continue
            first_lines[key] = line
            found.append((key, value))
        return found

    def plain(self) -> Any:
        """Return the value as builtins: ``int``, ``bool``, and text for all other scalars."""
        return _plain(self._node)

    def based_on(self, base: YamlValue) -> YamlValue:
        """Merge this value over another file's.

        Mappings merge key by key, other values are replaced, and an empty value deletes the key of
        the base. Each value keeps its own file and line.
        """
        _keep_origin(base._node, base.file)
        return YamlValue(self.file, _merged(self._node, base._node), self.path, self._faults)

    def parse(self, file: Path) -> YamlValue:
        """Parse another file and report its mistakes among this one's.

        Raises:
            YamlError: It cannot be read or parsed.
        """
        return _parsed(file, self._faults)

    def reporting_to(self, faults: _Faults) -> YamlValue:
        """Return the same place with another list of mistakes."""
        return YamlValue(self.file, self._node, self.path, faults, self.key_line)

    def at(self, path: str) -> YamlValue:
        """Find the place at a path below, as in ``a.b[2]``, or the nearest place above it."""
        full = self.path + (path if path.startswith("[") else f".{path}")
        inner = [
            one
            for one in self._children()
            if f"{full}.".startswith((f"{one.path}.", f"{one.path}["))
        ]
        if not path or not inner:
            return self
        next_one = max(inner, key=lambda one: len(one.path))
        return next_one.at(full[len(next_one.path) :].removeprefix("."))

    def _children(self) -> list[YamlValue]:
        if self.kind == "sequence":
            return self.items()
        pairs = self._node.value if self.kind == "mapping" else ()
        return [
            YamlValue(self.file, value, f"{self.path}.{key.value}", self._faults)
            for key, value in pairs
        ]


def _plain(node: Any) -> Any:
    if node.id == "mapping":
        return {key.value: _plain(value) for key, value in node.value}
    if node.id == "sequence":
        return [_plain(item) for item in node.value]
    if node.tag == f"{_TAG}int":
        return int(node.value)
    return node.value == "true" if node.tag == f"{_TAG}bool" else node.value


def _keep_origin(node: Any, file: Path) -> None:
    """Mark the nodes with their file, as they will be merged into another's."""
    if hasattr(node, "origin"):
        return
    node.origin = file
    if node.id == "scalar":
        return
    for part in node.value:
        for inner in part if isinstance(part, tuple) else (part,):
            _keep_origin(inner, file)


def _merged(own: Any, base: Any) -> Any:
    if own.id != "mapping" or base.id != "mapping":
        return own
    keys = {_word(key) for key, _ in own.value}
    inherited = {_word(key): value for key, value in base.value}
    pairs = [(key, value) for key, value in base.value if _word(key) not in keys]
    for key, value in own.value:
        if _word(key) not in inherited:
            pairs.append((key, value))
        elif value.tag != f"{_TAG}null":
            pairs.append((key, _merged(value, inherited[_word(key)])))
    return _mapping(own, pairs)


def _word(key: Any) -> object:
    """Return a key as text, or its node if it is not a scalar: a mistake, reported later."""
    return key.value if key.id == "scalar" else key


def _mapping(like: Any, pairs: list[tuple[Any, Any]]) -> Any:
    """Make a mapping at the place of another one."""
    made = type(like)(like.tag, pairs, like.start_mark, like.end_mark, like.flow_style)
    if hasattr(like, "origin"):
        made.origin = like.origin
    return made


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean …?`` if a known word is close, else the empty text."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def load(file: Path, read: Callable[[YamlValue], T | None], *, text: str | None = None) -> T:
    """Parse a file and read it with ``read``, which reports mistakes and then returns ``None``.

    Raises:
        YamlError: The file cannot be read or parsed, or ``read`` reported mistakes.
    """
    faults: _Faults = []
    return _read_whole(read, _parsed(file, faults, text), faults)


def load_plain(file: Path) -> Any:
    """Read a file of another program's format as builtins.

    Raises:
        YamlError: It cannot be read or parsed.
    """
    import yaml

    return _with_loader(yaml.load, file, read_text(file))


def _with_loader(act: Callable[..., Any], file: Path, text: str) -> Any:
    import yaml

    try:
        return act(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise _syntax_error(file, text, error) from error


def _parsed(file: Path, faults: _Faults, text: str | None = None) -> YamlValue:
    import yaml

    node = _with_loader(yaml.compose, file, read_text(file) if text is None else text)
    if node is None:
        raise YamlError.at(file, "the file is empty")
    return YamlValue(file, node, "$", faults)


def read_text(file: Path) -> str:
    """Read a file with its own line ends."""
    try:
        with open(file, "rb", opener=open_regular) as opened:
            return opened.read().decode("utf-8")
    except OSError as error:
        raise YamlError.at(file, f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        message = f"is not UTF-8: {error.reason} at byte {error.start}"
        raise YamlError.at(file, message) from error


def _read_whole(read: Callable[[YamlValue], T | None], place: YamlValue, faults: _Faults) -> T:
    result = read(place)
    if faults or result is None:
        raise YamlError(problem for _, problem in sorted(faults, key=itemgetter(0)))
    return result


class Later(Generic[T]):
    """A part of a file that is read on first use, once."""

    __slots__ = ("_place", "_read", "_value")

    def __init__(self, place: YamlValue, read: Callable[[YamlValue], T | None]) -> None:
        """Take the place and its reader."""
        self._place = place
        self._read = read
        self._value: T | None = None

    def read_now(self) -> None:
        """Read the part with its file, and report its mistakes among the file's."""
        self._value = self._read(self._place)

    def __call__(self) -> T:
        """Return the value, or raise the ``YamlError`` of its mistakes."""
        if self._value is None:
            faults: _Faults = []
            self._value = _read_whole(self._read, self._place.reporting_to(faults), faults)
        return self._value


def lines_of(text: str) -> list[str]:
    """Split a text into lines with their ends, as YAML counts them."""
    return [line for line in _LINE.findall(text) if line]


def content_lines(text: str) -> list[int]:
    """List, from 0, the lines with content: neither empty nor only a comment."""
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    lines = lines_of(text)
    found: set[int] = set()
    for token in yaml.scan(text, Loader=loader):
        start, end = int(token.start_mark.line), int(token.end_mark.line)
        if token.start_mark.index == token.end_mark.index:
            continue
        # A block of text below its key ends where the next line begins.
        last = end if token.end_mark.column or end == start else end - 1
        while last > start and not lines[last].strip():
            last -= 1
        found.update(range(start, last + 1))
    return [line for line in sorted(found) if lines[line].strip()]


def _syntax_error(file: Path, text: str, error: Any) -> YamlError:
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark is not None else 1
    what = getattr(error, "problem", None) or str(error).splitlines()[0]
    if any(re.match(r"\s*\t", one) for one in lines_of(text)[line - 1 : line]):
        what += "; indent by spaces, not by tabs"
    context = getattr(error, "context", None)
    message = f"not YAML: {f'{context}: ' if context else ''}{what}"
    return YamlError.at(file, message, line=line)
