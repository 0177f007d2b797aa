"""What ``msgspec`` finds wrong, in words: where, what was found, and what is allowed."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from pytest_dlperf.files.yamlschema import SCALAR_TYPES, schema_of

Path = tuple[str | int, ...]
"""Keys, and numbers of elements."""

_MAX_SHOWN: Final = 80
"""Characters of a value, or a key, in a message."""
_AT: Final = re.compile(r" - at `(?P<key>key` in `)?\$(?P<path>[^`]*)`\Z")
_STEP: Final = re.compile(r"\.(?P<key>\w+)|\[(?P<index>[0-9]+)\]|\[\.\.\.\]")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<key>.*)`\Z", re.DOTALL)
_MISSING: Final = re.compile(r"Object missing required field `(?P<key>.*)`\Z")
_TYPES: Final = {
    "array": "list",
    "boolean": "true or false",
    "integer": "integer",
    "number": "number",
    "object": "mapping",
    "string": "text",
}
_BOUNDS: Final = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
}


def mistakes_of(
    value: Any, kind: Any, path: Path = (), *, private: Collection[str] = ()
) -> Iterator[tuple[Path, str]]:
    """Yield the first mistake of each key of a struct, or of another value, with its key path.

    ``path`` leads to the value. No message quotes what stands below ``private`` keys.
    """
    is_struct = isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, Struct)
    fields = (
        {field.encode_name: field for field in msgspec.structs.fields(kind)} if is_struct else {}
    )
    has_any = False
    for key in value if is_struct else ():
        mistake = None
        if key in fields:
            mistake = _mistake(value[key], fields[key].type, (*path, key), private)
        elif kind.__struct_config__.forbid_unknown_fields:
            mistake = (*path, key), unknown_key(key, fields)
        if mistake is not None:
            has_any = True
            yield mistake
    for key, field in fields.items():
        if field.required and key not in value:
            has_any = True
            yield path, f"the key {key!r} is missing"
    if not has_any and (mistake := _mistake(value, kind, path, private)):
        yield mistake


def _mistake(
    value: Any, kind: Any, path: Path, private: Collection[str]
) -> tuple[Path, str] | None:
    try:
        msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        inner, is_name = _place_of(value, kind, str(error))
        place = (*path, *inner)
        if error.__cause__ is not None:  # what a struct says of its own values
            return place, _AT.sub("", str(error))
        schema = schema_of(kind)
        rules = Rules(schema, schema.get("$defs", {}))
        message = _AT.sub("", str(error))
        if missing := _MISSING.match(message):
            return place, f"the key {missing['key']!r} is missing"
        if unknown := _UNKNOWN.match(message):
            return (*place, unknown["key"]), unknown_key(unknown["key"], rules.keys_at(inner))
        if is_name:
            allowed = rules.allowed(rules.names_at(inner[:-1]))
            return place, f"{inner[-1]!r} is not {allowed}"
        culprit = _at(value, inner)
        found = _kind_of(culprit)
        if found == "text" and not set(private).intersection(place):
            found = repr(short(culprit))
        near = nearest(culprit, rules.words_at(inner)) if isinstance(culprit, str) else ""
        return place, f"found {found}; allowed: {rules.allowed(rules.at(inner))}{near}"
    return None


def _kind_of(value: Any) -> str:
    if isinstance(value, dict | list):
        kind = "mapping" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    return "text" if value else "nothing"


def _place_of(value: Any, kind: Any, error: str) -> tuple[Path, bool]:
    """Find the place of msgspec's mistake, and whether a name is wrong.

    msgspec does not say which name of a free mapping it is: it is the one with which the mistake
    remains.
    """
    at = _AT.search(error)
    if at is None:
        return (), False
    place: Path = ()
    for step in [*_STEP.finditer(at["path"]), *([None] if at["key"] else [])]:
        if step is not None and step["key"]:
            place = (*place, step["key"])
        elif step is not None and step["index"]:
            place = (*place, int(step["index"]))
        else:
            place = (*place, _name_of(value, kind, place, error))
    return place, bool(at["key"])


def _name_of(value: Any, kind: Any, place: Path, error: str) -> str:
    mapping = _at(value, place)
    for name in mapping:
        try:
            msgspec.convert(_with(value, place, {name: mapping[name]}), kind, strict=False)
        except msgspec.ValidationError as again:
            if str(again) == error:
                return str(name)
    return str(next(iter(mapping)))


def _at(value: Any, path: Path) -> Any:
    for step in path:
        value = value[step]
    return value


def _with(value: Any, place: Path, new: Any) -> Any:
    """Copy a value with something else at a place."""
    if not place:
        return new
    copy: Any = value.copy()
    copy[place[0]] = _with(value[place[0]], place[1:], new)
    return copy


class Rules:
    """The rules of a schema, whose references are followed."""

    def __init__(self, root: dict[str, Any], definitions: dict[str, Any]) -> None:
        self.root = root
        self._definitions = definitions

    def whole(self, rule: dict[str, Any]) -> dict[str, Any]:
        """Return a rule with what its reference says."""
        if "$ref" not in rule:
            return rule
        name = rule["$ref"].rpartition("/")[2]
        return {**self.whole(self._definitions[name]), **rule}

    def choices(self, rule: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the rules of which one holds."""
        rule = self.whole(rule)
        if "anyOf" not in rule:
            yield rule
        for choice in rule.get("anyOf", ()):
            yield from self.choices(choice)

    def mapping_of(self, rule: dict[str, Any]) -> str:
        """Name the mapping of known keys that a rule is of; nothing if it is of none."""
        whole = self.whole(rule)
        inner = [*whole.get("anyOf", ()), *filter(None, [whole.get("items")])]
        name = rule.get("$ref", "") if "properties" in whole else ""
        return next(filter(None, [name, *map(self.mapping_of, inner)]), "")

    def at(self, path: Iterable[str | int]) -> dict[str, Any]:
        """Find the rule of a place; an empty one if anything may stand there."""
        rule = self.root
        for step in path:
            below: list[dict[str, Any]] = []
            for choice in self.choices(rule):
                if isinstance(step, int):
                    below.append(choice.get("items", {}))
                else:
                    others = choice.get("additionalProperties")
                    others = others if isinstance(others, dict) else {}
                    below.append(choice.get("properties", {}).get(step, others))
            rule = next(filter(None, below), {})
        return self.whole(rule)

    def keys_at(self, path: Iterable[str | int]) -> list[str]:
        """List the keys of the mapping at a place."""
        return [
            key for choice in self.choices(self.at(path)) for key in choice.get("properties", {})
        ]

    def names_at(self, path: Iterable[str | int]) -> dict[str, Any]:
        """Find the rule for the names of the mapping at a place."""
        rules = (choice.get("propertyNames") for choice in self.choices(self.at(path)))
        return next(filter(None, rules), {})

    def words_at(self, path: Iterable[str | int]) -> list[str]:
        """List the words that may stand at a place, where only some may."""
        return [word for choice in self.choices(self.at(path)) for word in choice.get("enum", ())]

    def allowed(self, rule: dict[str, Any]) -> str:
        """Say what may stand where a rule holds."""
        rule = self.whole(rule)
        if "anyOf" in rule:
            every = [*dict.fromkeys(filter(None, map(self.allowed, rule["anyOf"])))]
            such = [word for word in every if f"list of {word}" in every]
            others = [word for word in every if word.removeprefix("list of ") not in such]
            return " or ".join([*(f"{word}, or a list of such" for word in such), *others])
        if "enum" in rule:
            return ", ".join(str(word) for word in rule["enum"])
        if "title" in rule and "properties" not in rule:
            return str(rule["title"])
        kinds = rule.get("type", [])
        types = [kinds] if isinstance(kinds, str) else kinds
        if types == SCALAR_TYPES:
            return "text"
        signs = [f"{sign} {rule[name]:,}" for name, sign in _BOUNDS.items() if name in rule]
        inner = self.allowed(rule["items"]) if isinstance(rule.get("items"), dict) else ""
        words = " or ".join(_TYPES[name] for name in types if name != "null")
        return f"{words}{f' of {inner}' if inner else ''} {' and '.join(signs)}".strip()


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
