"""Shapes: what may stand at a place of a YAML file, declared once.

A shape reads a place, reporting every mistake with its line and key path, and describes itself as
JSON Schema, so that editors and the reader agree.
"""

from __future__ import annotations

import math
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec import Struct

from pytest_dlperf.files.yamlfile import YamlValue, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from enum import Enum

T = TypeVar("T")
U = TypeVar("U")
E = TypeVar("E", bound="Enum")

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,14})")
_NUMBER = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?")
_YES: Final = ("true", "yes", "on")


class Shape(Generic[T]):
    """What may stand at a place.

    After a mistake ``read`` has reported it and gives ``None``, so that reading goes on.
    """

    allowed: str
    """What may stand there, in words."""

    def read(self, value: YamlValue) -> T | None:
        """Read the place; ``None`` after a mistake."""
        raise NotImplementedError

    def json_schema(self) -> dict[str, Any]:
        """Describe the shape as JSON Schema, draft 2020-12."""
        raise NotImplementedError

    def parsed(self, parse: Callable[[T], U], *, pattern: str = "") -> Shape[U]:
        """Pass each value through ``parse``; its ``ValueError`` is a mistake of the place."""
        return _Parsed(self, lambda read, _: parse(read), pattern)

    def placed(self, build: Callable[[T, YamlValue], U | None]) -> Shape[U]:
        """Pass each value and its place, which takes mistakes, through ``build``."""
        return _Parsed(self, build, "")


class _Parsed(Shape[U]):
    """A shape whose values pass through a function."""

    def __init__(
        self, inner: Shape[T], build: Callable[[T, YamlValue], U | None], pattern: str
    ) -> None:
        self.allowed = inner.allowed
        self._inner: Shape[Any] = inner
        self._build = build
        self._pattern = pattern

    def read(self, value: YamlValue) -> U | None:
        found = self._inner.read(value)
        if found is None:
            return None
        try:
            return self._build(found, value)
        except ValueError as error:
            value.fault(str(error))
            return None

    def json_schema(self) -> dict[str, Any]:
        pattern = {"pattern": self._pattern} if self._pattern else {}
        return {**self._inner.json_schema(), **pattern}


# --------------------------------------------------------------------------------- scalars


class Text(Shape[str]):
    """Text, to YAML too; ``pattern`` has to be found in it."""

    def __init__(self, allowed: str = "text", *, pattern: str = r"\S") -> None:
        """Take text; ``allowed`` says in words which."""
        self.allowed = allowed
        self._pattern = pattern

    def read(self, value: YamlValue) -> str | None:
        if value.kind == "scalar" and value.is_tagged("str"):
            # Python's "$" also matches before a last line break; JSON Schema's does not.
            pattern = re.sub(r"\$$", r"\\Z", self._pattern)
            if value.scalar.strip() and re.search(pattern, value.scalar):
                return value.scalar
            value.fault_found(self.allowed)
        else:
            hint = " (quote it to make it text)" if value.kind == "scalar" and value.scalar else ""
            value.fault_found(self.allowed + hint)
        return None

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": self._pattern}


class Scalar(Shape[str]):
    """Any scalar, as written: a version such as 10.20 keeps its zero.

    Empty text has to be in quotes, and so have ``null`` and ``~``: without them YAML takes them
    for nothing.
    """

    def __init__(self, allowed: str = "text or a number") -> None:
        """Take a scalar; ``allowed`` says in words which."""
        self.allowed = allowed

    def read(self, value: YamlValue) -> str | None:
        if (
            value.kind == "scalar"
            and not value.is_empty
            and (value.scalar.strip() or value.is_quoted)
        ):
            return value.scalar
        hint = " (in quotes, if the braces belong to it)" if value.is_flow else ""
        value.fault_found(self.allowed + hint)
        return None

    def json_schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean"]}


class Choice(Shape[str]):
    """One of a set of words; ``otherwise`` says what else may stand there.

    Without words, as where only a session knows them, the schema allows any text.
    """

    def __init__(self, words: Collection[str], *, otherwise: str = "") -> None:
        """Take one of ``words``."""
        self._words = tuple(words)
        self.allowed = ", ".join(words) + (f", or {otherwise}" if otherwise else "")

    def read(self, value: YamlValue) -> str | None:
        if value.kind == "scalar" and value.is_tagged("str") and value.scalar in self._words:
            return value.scalar
        value.fault_found(self.allowed + nearest(value.scalar, self._words))
        return None

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string", **({"enum": list(self._words)} if self._words else {})}


def one_of(choices: type[E]) -> Shape[E]:
    """Return the shape of an enum's members, written as their values."""
    return Choice([choice.value for choice in choices]).parsed(choices)


class YesNo(Shape[bool]):
    """True or false, in YAML's words."""

    allowed = "true or false"

    def read(self, value: YamlValue) -> bool | None:
        if value.kind == "scalar" and value.is_tagged("bool"):
            return value.scalar.lower() in _YES
        value.fault_found(self.allowed)
        return None

    def json_schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Integer(Shape[int]):
    """An integer from ``minimum`` on."""

    def __init__(self, minimum: int) -> None:
        """Take integers from ``minimum`` on."""
        self.allowed = f"an integer ≥ {minimum}"
        self._minimum = minimum

    def read(self, value: YamlValue) -> int | None:
        if value.kind == "scalar" and value.is_tagged("int") and _INTEGER.fullmatch(value.scalar):
            number = int(value.scalar)
            if number >= self._minimum:
                return number
        value.fault_found(self.allowed)
        return None

    def json_schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self._minimum}


class Number(Shape[float]):
    """A finite number above zero, or zero too where that is allowed, or any with ``any_sign``."""

    def __init__(
        self,
        *,
        or_zero: bool = False,
        any_sign: bool = False,
        below: float = math.inf,
        unit: str = "",
    ) -> None:
        """Take numbers up to ``below``, which count ``unit``."""
        limit = f" and < {below:g}" if math.isfinite(below) else ""
        least = "" if any_sign else f" {'≥' if or_zero else '>'} 0"
        self.allowed = f"a finite number{least}{limit}" + (f", in {unit}" if unit else "")
        self._or_zero = or_zero
        self._any_sign = any_sign
        self._below = below

    def read(self, value: YamlValue) -> float | None:
        # Not the tag: YAML 1.1 takes 1e5 for text.
        if value.kind == "scalar" and not value.is_quoted and _NUMBER.fullmatch(value.scalar):
            number = float(value.scalar)
            least = -math.inf if self._any_sign else 0
            if least < number < self._below or (self._or_zero and number == 0):
                return number
        value.fault_found(self.allowed)
        return None

    def json_schema(self) -> dict[str, Any]:
        lowest = {"minimum": 0} if self._or_zero else {"exclusiveMinimum": 0}
        if self._any_sign:
            lowest = {}
        limit = {"exclusiveMaximum": self._below} if math.isfinite(self._below) else {}
        return {"type": "number", **lowest, **limit}


# ----------------------------------------------------------------------- lists and mappings


class ListOf(Shape[tuple[T, ...]]):
    """A list whose elements have one shape; not empty, and with ``may_be_empty`` also nothing."""

    def __init__(
        self, item: Shape[T], allowed: str = "a list", *, may_be_empty: bool = False
    ) -> None:
        """Take lists of ``item``."""
        self.allowed = allowed
        self._item = item
        self._may_be_empty = may_be_empty

    def read(self, value: YamlValue) -> tuple[T, ...] | None:
        if self._may_be_empty and (value.is_empty or value.is_empty_list):
            return ()
        if value.kind != "sequence" or value.is_empty_list:
            value.fault_found(self.allowed)
            return None
        read = [self._item.read(item) for item in value.items()]
        found = tuple(item for item in read if item is not None)
        return found if len(found) == len(read) else None

    def json_schema(self) -> dict[str, Any]:
        if self._may_be_empty:
            return {"type": ["array", "null"], "items": self._item.json_schema()}
        return {"type": "array", "minItems": 1, "items": self._item.json_schema()}


class OneOrMore(Shape[tuple[T, ...]]):
    """A value, or a list of values of its shape."""

    def __init__(self, item: Shape[T]) -> None:
        """Take ``item``."""
        self.allowed = f"{item.allowed}, or a list of such"
        self._item = item
        self._list = ListOf(item, self.allowed)

    def read(self, value: YamlValue) -> tuple[T, ...] | None:
        if value.kind == "sequence":
            return self._list.read(value)
        item = self._item.read(value)
        return None if item is None else (item,)

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [self._item.json_schema(), self._list.json_schema()]}


class MapOf(Shape[dict[str, T]]):
    """A mapping of free names to values of one shape, and with ``may_be_empty`` also nothing.

    A name has to match ``names`` as a whole; ``refused`` ends the message about one that does not.
    """

    def __init__(
        self,
        item: Shape[T],
        allowed: str = "a mapping",
        *,
        names: str = ".*",
        refused: str = "",
        may_be_empty: bool = False,
    ) -> None:
        """Take mappings to ``item``."""
        self.allowed = allowed
        self._item = item
        self._names = names
        self._refused = refused
        self._may_be_empty = may_be_empty

    def read(self, value: YamlValue) -> dict[str, T] | None:
        if self._may_be_empty and value.is_empty:
            return {}
        if value.kind != "mapping":
            value.fault_found(self.allowed)
            return None
        found: dict[str, T] = {}
        faults = value.faults
        for name, place in value.entries():
            if self._refused and not re.fullmatch(self._names, name):
                place.fault(f"{name!r} {self._refused}")
            elif (item := self._item.read(place)) is not None:
                found[name] = item
        return found if value.faults == faults else None

    def json_schema(self) -> dict[str, Any]:
        names = {"propertyNames": {"pattern": f"^({self._names})$"}} if self._refused else {}
        return {
            "type": ["object", "null"] if self._may_be_empty else "object",
            **names,
            "additionalProperties": self._item.json_schema(),
        }


class Key(Struct, frozen=True):
    """One key of a record."""

    name: str
    shape: Shape[Any]
    description: str
    """For the person who writes the file."""
    required: bool = False
    argument: str = ""
    """What the builder calls the value, where it has another name."""


class Record(Shape[T]):
    """A mapping with known keys, whose values are the arguments of ``build``.

    Keys that are absent are left to the builder's own defaults; after a mistake it is not called.
    Keys beyond the known ones are mistakes, or of the shape ``others``, and then given by their
    names, which an editor checks against ``other_names``.
    """

    def __init__(
        self,
        build: Callable[..., T],
        *keys: Key,
        allowed: str = "",
        others: Shape[Any] | None = None,
        other_names: str = "",
        is_other: Callable[[str, YamlValue], bool] = lambda _name, _place: True,
    ) -> None:
        """Take mappings with these keys; ``is_other`` says of others which may be there."""
        names = [key.name for key in keys]
        self.allowed = allowed or f"a mapping with {', '.join(names)}"
        self._build = build
        self._keys = {key.name: key for key in keys}
        self._others = others
        self._other_names = other_names
        self._is_other = is_other

    def read(self, value: YamlValue) -> T | None:
        faults = value.faults
        found = self.parts(value)
        return self._build(**found) if value.faults == faults else None

    def parts(self, value: YamlValue) -> dict[str, Any]:
        """Read the values that are there and right, by the builder's arguments."""
        if value.kind != "mapping":
            value.fault_found(self.allowed)
            return {}
        found: dict[str, Any] = {}
        present, meant = set(), set()
        for name, place in value.entries():
            present.add(name)
            key = self._keys.get(name)
            shape = self._others if key is None else key.shape
            if shape is None or (key is None and not self._is_other(name, place)):
                known = ", ".join(self._keys)
                place.fault(f"unknown key {name!r}; allowed: {known}{nearest(name, self._keys)}")
                meant.update(get_close_matches(name, self._keys, n=1))
                continue
            item = shape.read(place)
            if item is not None:
                found[name if key is None else key.argument or name] = item
        for key in self._keys.values():
            if key.required and key.name not in present | meant:
                value.fault(f"the key {key.name!r} is missing")
        return found

    def json_schema(self) -> dict[str, Any]:
        required = [key.name for key in self._keys.values() if key.required]
        names = self._other_names
        return {
            "type": "object",
            **({"required": required} if required else {}),
            **({"propertyNames": {"pattern": f"^({names})$"}} if names else {}),
            "properties": {
                key.name: {"description": key.description, **key.shape.json_schema()}
                for key in self._keys.values()
            },
            "additionalProperties": self._others.json_schema() if self._others else False,
        }


class ByKind(Shape[T]):
    """One shape for a scalar, another for a list or a mapping; those left out are mistakes."""

    def __init__(
        self,
        *,
        scalar: Shape[T],
        sequence: Shape[T] | None = None,
        mapping: Shape[T] | None = None,
    ) -> None:
        """Take what the shapes take."""
        self._shapes = {"scalar": scalar, "sequence": sequence, "mapping": mapping}
        self._usual = scalar
        self.allowed = scalar.allowed

    def read(self, value: YamlValue) -> T | None:
        # An unquoted {placeholder} is meant to be a scalar.
        kind = "scalar" if value.is_bare_placeholder else value.kind
        return (self._shapes[kind] or self._usual).read(value)

    def json_schema(self) -> dict[str, Any]:
        return {"anyOf": [shape.json_schema() for shape in self._shapes.values() if shape]}
