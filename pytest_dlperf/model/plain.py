"""Dataclasses to builtins and back: how values cross processes and go into JSON.

The types of the fields say it all. Numbers, texts, booleans, ``None`` and ``Any`` stay as they
are; an enum is its value; a class with ``parse`` is what ``str`` makes of it; a tuple is a list; a
mapping is a dictionary; a dataclass is a dictionary of what its ``__init__`` takes.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache, cached_property
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)  # fmt: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

_MAX_SHOWN: Final = 60
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_ABSENT: Final = object()


def to_plain(value: object) -> Any:
    """Turn a dataclass into builtins."""
    kind: Any = type(value)
    write = _form_of(kind).write
    return value if write is None else write(value)


def from_plain(kind: type[T], plain: Any) -> T:
    """Make a ``kind`` of what ``to_plain`` has written; unknown keys are left out.

    Raises:
        FormError: A key is missing, or a value is of another form.
    """
    form: _Form = _form_of(kind)  # type: ignore[arg-type]  # mypy: a class has no hash
    value: T = form.read(plain)
    return value


class FormError(ValueError):
    """Plain data is of another form than it should be; ``path`` leads to the place in it."""

    def __init__(self, problem: str, *path: str | int) -> None:
        """Say what is wrong, and where below the root."""
        super().__init__(problem, *path)
        self.problem = problem
        self.path = path

    def below(self, key: Any) -> FormError:
        """The same error as it is seen from one level up, where ``key`` leads to it."""
        return FormError(self.problem, key, *self.path)

    def __str__(self) -> str:
        """Name the place, unless it is the root, then the problem."""
        return f"{where(self.path)}: {self.problem}" if self.path else self.problem


def where(path: Iterable[str | int]) -> str:
    """Write a place as JSON paths do: ``$.cases[3].runs[0].throughput``."""
    parts = [
        f".{part}" if isinstance(part, str) and _KEY.fullmatch(part) else f"[{shown(part)}]"
        for part in path
    ]
    return "".join(["$", *parts])


def shown(value: Any) -> str:
    """Write a value in short and on one line, whatever it holds."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    text = json.dumps(value, default=str).replace("\x7f", "\\u007f")
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


# ---------------------------------------------------------------------- forms of types


class _Form(NamedTuple):
    """The way values of a type are written and read.

    ``write`` is ``None`` where the value itself is written. ``read`` is for what is not of one of
    the types ``leaves``, which are taken as they are.
    """

    write: Callable[[Any], Any] | None
    read: Callable[[Any], Any]
    leaves: frozenset[type] = frozenset()


_NONE: Final = type(None)
_LEAVES: Final[Mapping[Any, tuple[str, frozenset[type]]]] = {
    str: ("string", frozenset({str})),
    int: ("integer", frozenset({int})),
    float: ("number", frozenset({float, int})),
    bool: ("boolean", frozenset({bool})),
    _NONE: ("null", frozenset({_NONE})),
}
"""Name in JSON and exact types of each simple type: ``True`` is no number."""


@cache
def _form_of(kind: Any) -> _Form:  # noqa: PLR0911 - one for each sort of type
    """Find the form of a type, once.

    Raises:
        TypeError: There is none.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any:
        return _Form(None, lambda plain: plain)
    if kind in _LEAVES:
        return _leaf(kind)
    if origin in {Union, types.UnionType}:
        return _union(arguments)
    if origin is tuple:
        length = None if arguments[-1] is Ellipsis else len(arguments)
        return _tuple(_form_of(arguments[0]), length)
    if origin in {Mapping, dict}:
        return _mapping(arguments[0], _form_of(arguments[1]))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum(kind)
    if hasattr(kind, "parse"):
        return _text(kind.parse)
    if isinstance(kind, type) and is_dataclass(kind):
        known = _Fields(kind)
        return _Form(known.write, known.read)
    raise TypeError(f"{kind} has no plain form")


def _leaf(*kinds: Any) -> _Form:
    allowed = " or ".join(_LEAVES[kind][0] for kind in kinds)
    leaves = frozenset().union(*(_LEAVES[kind][1] for kind in kinds))
    return _Form(None, lambda plain: _refuse(plain, allowed), leaves)


def _refuse(plain: Any, allowed: str) -> NoReturn:
    raise FormError(f"found {shown(plain)}; allowed: {allowed}")


def _union(kinds: tuple[Any, ...]) -> _Form:
    if all(kind in _LEAVES for kind in kinds):
        return _leaf(*kinds)
    [form] = [_form_of(kind) for kind in kinds if kind is not _NONE]
    write = form.write or _itself
    return _Form(
        lambda value: None if value is None else write(value), form.read, form.leaves | {_NONE}
    )


def _itself(value: Any) -> Any:
    return value


def _enum(kind: type[Enum]) -> _Form:
    members = {member.value: member for member in kind}

    def read(plain: Any) -> Any:
        try:
            return members[plain]
        except (KeyError, TypeError):
            known = ", ".join(members)
            raise FormError(f"found {shown(plain)}; this version knows: {known}") from None

    return _Form(attrgetter("_value_"), read)


def _text(parse: Callable[[str], Any]) -> _Form:
    def read(plain: Any) -> Any:
        if not isinstance(plain, str):
            _refuse(plain, "string")
        try:
            return parse(plain)
        except ValueError as error:
            # What parses a text names it first: it may be of any length.
            form = str(error).rpartition("; ")[2]
            raise FormError(f"found {shown(plain)}; {form}") from error

    return _Form(str, read)


def _tuple(item: _Form, length: int | None) -> _Form:
    """The form of a tuple whose items are all of one type."""
    leaves, read_item, write_item = item.leaves, item.read, item.write

    def read(plain: Any) -> Any:
        if not isinstance(plain, list) or length not in {None, len(plain)}:
            _refuse(plain, "array" if length is None else f"array of {length}")
        values: list[Any] = []
        try:
            for one in plain:
                values.append(one if type(one) in leaves else read_item(one))  # noqa: PERF401 - see below
        except FormError as error:
            raise error.below(len(values)) from error.__cause__
        return tuple(values)

    return _Form(list if write_item is None else lambda value: [*map(write_item, value)], read)


def _mapping(key: Any, item: _Form) -> _Form:
    """The form of a mapping from texts, or from members of an enum: unknown keys are left out."""
    leaves, read_item, write_item = item.leaves, item.read, item.write or _itself
    members = {member.value: member for member in key} if key is not str else None

    def read(plain: Any) -> Any:
        if not isinstance(plain, dict):
            _refuse(plain, "object")
        values = {}
        name = None
        try:
            for name, one in plain.items():
                if members is None or name in members:
                    values[name] = one if type(one) in leaves else read_item(one)
        except FormError as error:
            raise error.below(name) from error.__cause__
        return values if members is None else {members[name]: values[name] for name in values}

    def write(value: Any) -> Any:
        if members is None:
            return {name: write_item(one) for name, one in value.items()}
        return {name.value: write_item(one) for name, one in value.items()}

    return _Form(dict if members is None and item.write is None else write, read)


class _Fields:
    """The fields of a dataclass. Their forms wait for the first value: a class may hold itself."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        taken = [field for field in fields(kind) if field.init]
        self._names = tuple(field.name for field in taken)
        self._values = attrgetter(*self._names, self._names[0])  # one alone would be no tuple
        self._needed = {
            field.name
            for field in taken
            if field.default is MISSING and field.default_factory is MISSING
        }

    @cached_property
    def _forms(self) -> list[tuple[str, _Form]]:
        hints = get_type_hints(self._kind)
        return [(name, _form_of(hints[name])) for name in self._names]

    @cached_property
    def _writers(self) -> list[tuple[str, Callable[[Any], Any]]]:
        return [(name, form.write) for name, form in self._forms if form.write is not None]

    def write(self, value: Any) -> dict[str, Any]:
        plain = dict(zip(self._names, self._values(value), strict=False))
        for name, write in self._writers:
            plain[name] = write(plain[name])
        return plain

    def read(self, plain: Any) -> Any:
        if not isinstance(plain, dict):
            _refuse(plain, "object")
        for name in self._needed - plain.keys():
            raise FormError(f"the key {name!r} is missing")
        values = {}
        name = ""
        try:
            for name, (_, read, leaves) in self._forms:
                value = plain.get(name, _ABSENT)
                if type(value) in leaves:
                    values[name] = value
                elif value is not _ABSENT:
                    values[name] = read(value)
        except FormError as error:
            raise error.below(name) from error.__cause__
        return self._kind(**values)
