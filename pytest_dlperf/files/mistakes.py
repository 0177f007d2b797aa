"""What may stand in a file, by the structs that read it: as JSON Schema, and mistakes in words."""

from __future__ import annotations

import ast
import difflib
import inspect
import json
import re
from collections.abc import Collection, Iterable, Iterator
from copy import deepcopy
from functools import reduce
from itertools import pairwise
from operator import getitem
from textwrap import dedent
from typing import Annotated, Any, Final, cast, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from pytest_dlperf.model.keys import SCALAR

KeyPath = tuple[str | int, ...]
"""Keys, and numbers of elements."""
Rule = dict[str, Any]
"""A JSON Schema, or a part of one."""

_SCALAR_TYPES: Final = ["string", "number", "boolean"]
_MAX_SHOWN: Final = 80
"""Characters of a value, or a key, in a message."""
_AT: Final = re.compile(r" - at `(?P<key>(?:key` in `)?)\$(?P<path>[^`]*)`\Z")
_STEP: Final = re.compile(r"\.(\w+)|\[(?:([0-9]+)|\.\.\.)\]")
_NAMES: Final = {
    "array": "list",
    "boolean": "true or false",
    "integer": "integer",
    "number": "number",
    "object": "mapping",
    "string": "text",
}
_SCALARS: Final = {"boolean": bool, "integer": int, "null": None, "number": float, "string": str}
_BOUNDS: Final = {
    "minimum": ("ge", "≥"),
    "exclusiveMinimum": ("gt", ">"),
    "maximum": ("le", "≤"),
    "exclusiveMaximum": ("lt", "<"),
}


def schema_of(kind: Any) -> Rule:
    """Describe what ``msgspec`` reads as a type, as JSON Schema, draft 2020-12."""

    def with_scalars(rule: Rule) -> Rule:
        if rule.get("format") == SCALAR:
            del rule["format"]
            rule["type"] = _SCALAR_TYPES
        return rule

    text = json.dumps(msgspec.json.schema(kind))
    schema: Rule = json.loads(text, object_hook=with_scalars)
    return schema


def documented_schema_of(kind: Any) -> Rule:
    """Describe a type as ``schema_of`` does, with the texts below the fields of its structs."""
    schema = schema_of(kind)
    for name, struct in _structs(kind, {}).items():
        keys = schema["$defs"][name].get("properties", {})
        names = dict(zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True))
        for field, meaning in _meanings(struct):
            keys[names[field]] = {"description": meaning, **keys[names[field]]}
    return schema


def _structs(kind: Any, known: dict[str, type[Struct]]) -> dict[str, type[Struct]]:
    inner = get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Struct) and kind.__name__ not in known:
        known[kind.__name__] = kind
        inner = tuple(get_type_hints(kind).values())
    for each in inner:
        _structs(each, known)
    return known


def _meanings(struct: type[Struct]) -> Iterator[tuple[str, str]]:
    """Yield the text below each field, as Python itself keeps none."""
    for part in struct.__mro__[: struct.__mro__.index(Struct)]:
        [declared] = ast.parse(dedent(inspect.getsource(part))).body
        for field, text in pairwise(cast("ast.ClassDef", declared).body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(meaning))):
                    yield name, " ".join(meaning.replace("``None``", "null").split())


def mistakes_of(
    value: Any, kind: Any, path: KeyPath = (), *, private: Collection[str] = ()
) -> Iterator[tuple[KeyPath, str]]:
    """Yield what keeps a value from being converted, with its key path.

    ``path`` leads to the value. No message quotes what stands below ``private`` keys.
    """
    if error := _error_of(value, kind):
        rules = Rules(schema_of(kind), private)
        mistakes = [*rules.mistakes(value, rules.root, path)]
        # Where a struct or a key has refused a value, no rule is broken.
        yield from mistakes or [((*path, *_place_of(value, kind, error)), _AT.sub("", error))]


def _error_of(value: Any, kind: Any) -> str:
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _place_of(value: Any, kind: Any, error: str) -> KeyPath:
    """Find the place of msgspec's mistake; of a free mapping's keys, by taking each away."""
    place: KeyPath = ()
    at = _AT.search(error)
    for key, number in _STEP.findall(f"{at['path']}{at['key'] and '[...]'}" if at else ""):
        if key or number:
            place = (*place, key or int(number))
            continue
        rest = deepcopy(value)
        mapping = reduce(getitem, place, rest)
        for name in [*mapping]:
            del mapping[name]
            if _error_of(rest, kind) != error:
                place = (*place, name)
                break
    return place


class Rules:
    """The rules of a schema, whose references are followed."""

    def __init__(self, schema: Rule, private: Collection[str] = ()) -> None:
        """Take a schema, and the keys below which no value is quoted."""
        self.root = schema
        self._definitions = schema.get("$defs", {})
        self._private = private

    def whole(self, rule: Rule) -> Rule:
        """Return a rule with what its reference says."""
        if "$ref" not in rule:
            return rule
        name = rule["$ref"].rpartition("/")[2]
        return {**self.whole(self._definitions[name]), **rule}

    def choices(self, rule: Rule) -> Iterator[Rule]:
        """Yield the rules of which one holds."""
        rule = self.whole(rule)
        if "anyOf" not in rule:
            yield rule
        for choice in rule.get("anyOf", ()):
            yield from self.choices(choice)

    def mapping_of(self, rule: Rule) -> str:
        """Name the mapping of known keys that a rule is of; nothing if it is of none."""
        name = rule.get("$ref", "")
        if name and "properties" in self.whole(rule):
            return str(name)
        inner = [*self.whole(rule).get("anyOf", ()), rule.get("items") or {}]
        return next(filter(None, map(self.mapping_of, filter(None, inner))), "")

    def mistakes(self, value: Any, rule: Rule, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
        """Yield what breaks a rule, with its key path."""
        for choice in self.choices(rule):
            kind = choice.get("type")
            if isinstance(value, dict) and kind == "object":
                yield from self._in_mapping(value, choice, path)
                return
            if (
                isinstance(value, list | tuple)
                and kind == "array"
                and choice.get("minItems", 0) <= len(value) <= choice.get("maxItems", len(value))
            ):
                rules = choice.get("prefixItems", [choice["items"]] * len(value))
                for number, (item, inner) in enumerate(zip(value, rules, strict=True)):
                    yield from self.mistakes(item, inner, (*path, number))
                return
            if _fits(value, choice):
                return
        found = "text" if value else "nothing"
        if isinstance(value, dict | list | tuple):
            name = "mapping" if isinstance(value, dict) else "list"
            found = f"a {name}" if value else f"an empty {name}"
        elif value and not set(self._private).intersection(path):
            found = repr(short(value))
        words = [word for choice in self.choices(rule) for word in choice.get("enum", ())]
        hint = nearest(value, words) if isinstance(value, str) else ""
        yield path, f"found {found}; allowed: {self.allowed(rule)}{hint or _braces_hint(value)}"

    def _in_mapping(
        self, values: dict[str, Any], rule: Rule, path: KeyPath
    ) -> Iterator[tuple[KeyPath, str]]:
        keys, others = rule.get("properties", {}), rule.get("additionalProperties", {})
        names = rule.get("propertyNames", {})
        for key, value in values.items():
            place = (*path, key)
            if key in keys or (others and _fits(key, names)):
                yield from self.mistakes(value, keys.get(key, others), place)
            elif others:
                yield place, f"{key!r} is not {self.allowed(names)}"
            elif others is False:
                hint = _braces_hint(values)
                yield place, unknown_key(key, keys) + hint
                if hint:
                    return
        for key in rule.get("required", ()):
            if key not in values:
                yield path, f"the key {key!r} is missing"

    def allowed(self, rule: Rule) -> str:
        """Say what may stand where a rule holds."""
        rule = self.whole(rule)
        if "anyOf" in rule:
            words = [*dict.fromkeys(filter(None, map(self.allowed, rule["anyOf"])))]
            such = [word for word in words if f"list of {word}" in words]
            others = [word for word in words if word.removeprefix("list of ") not in such]
            return " or ".join([*(f"{word}, or a list of such" for word in such), *others])
        if "enum" in rule:
            return ", ".join(map(str, rule["enum"]))
        if "title" in rule and "properties" not in rule:
            return str(rule["title"])
        kind = rule.get("type", "null")
        signs = [f"{sign} {rule[name]:,}" for name, (_, sign) in _BOUNDS.items() if name in rule]
        inner = self.allowed(rule["items"]) if isinstance(rule.get("items"), dict) else ""
        word = "text" if kind == _SCALAR_TYPES else _NAMES.get(kind, "")
        return f"{word}{f' of {inner}' if inner else ''} {' and '.join(signs)}".strip()


def _fits(value: Any, rule: Rule) -> bool:
    """Whether a text, or nothing, is what a rule allows; anything where it allows anything."""
    if not rule.keys() & {"enum", "pattern", "type"}:
        return True
    kind = rule.get("type", "string")
    if isinstance(value, dict | list | tuple) or kind in ("array", "object"):
        return False
    if "enum" in rule:
        return value in rule["enum"]
    bounds = {name: rule[key] for key, (name, _) in _BOUNDS.items() if key in rule}
    scalar: Any = str if kind == _SCALAR_TYPES else _SCALARS[kind]
    meta = Meta(**bounds, pattern=rule.get("pattern"))
    try:
        msgspec.convert(value, Annotated[scalar, meta], strict=False)
    except msgspec.ValidationError:
        return False
    return True


def _braces_hint(value: Any) -> str:
    if isinstance(value, dict) and [*value.values()] == [None]:
        return f'; a text in braces stands in quotes, as in "{{{next(iter(value))}}}"'
    return ""


def short(text: str) -> str:
    """Cut a text that would make a message unreadable."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"


def unknown_key(key: str, names: Iterable[str]) -> str:
    """Say that a key is none of those that are known."""
    names = list(names)
    key = short(key)
    return f"unknown key {key!r}; allowed: {', '.join(names)}{nearest(key, names)}"


def nearest(word: str, names: Iterable[str]) -> str:
    """Return ``; did you mean …?`` if a known word is close, else the empty text."""
    close = difflib.get_close_matches(short(word), list(names), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
