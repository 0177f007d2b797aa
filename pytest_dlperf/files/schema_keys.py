"""The keys of a JSON Schema as people read them: path, value and meaning."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

_TYPES: Final = {
    "array": "list",
    "boolean": "true or false",
    "integer": "integer",
    "number": "number",
    "object": "mapping",
    "string": "text",
}
_SCALAR: Final = ["string", "number", "boolean"]
_BOUNDS: Final = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
}


class SchemaKey(Struct, frozen=True, kw_only=True):
    """One key: its dotted path, what may stand there, and its description."""

    path: str
    value: str
    meaning: str


def schema_keys(schema: dict[str, Any]) -> Iterator[SchemaKey]:
    """Yield every key of a schema once, depth first.

    Keys below a mapping that stands in several places are those of the first place; ``value`` of
    the others names it.
    """
    seen: set[str] = set()
    places: dict[str, str] = {}

    def walked(rule: dict[str, Any], path: str) -> Iterator[SchemaKey]:
        for inner in (*rule.get("anyOf", ()), *filter(None, [rule.get("items")])):
            yield from walked(inner, path)
        for name, said in rule.get("properties", {}).items():
            place = f"{path}.{name}".lstrip(".")
            if place in seen:
                continue
            seen.add(place)
            first = places.setdefault(_below(said) or place, place)
            required = ", required" if name in rule.get("required", ()) else ""
            like = "" if first == place else f" like {first}"
            value = f"{_value(said)}{like}{required}"
            yield SchemaKey(path=place, value=value, meaning=said["description"])
            if first == place:
                yield from walked(said, place)
        if isinstance(rule.get("additionalProperties"), dict):
            place = f"{path}.<name>".lstrip(".")
            if places.setdefault(_below(rule["additionalProperties"]) or place, place) == place:
                yield from walked(rule["additionalProperties"], place)

    yield from walked(schema.get("else", schema), "")


def _below(rule: dict[str, Any]) -> str:
    """Write a rule without its description; nothing if no key stands below it."""
    text = json.dumps({name: said for name, said in rule.items() if name != "description"})
    return text if '"properties"' in text else ""


def _value(rule: dict[str, Any]) -> str:
    if "anyOf" in rule:
        return " or ".join(dict.fromkeys(filter(None, map(_value, rule["anyOf"]))))
    if "enum" in rule:
        return ", ".join(str(word) for word in rule["enum"] if word is not None)
    found = rule.get("type", [])
    types = [found] if isinstance(found, str) else found
    if types == _SCALAR:
        return "text"
    bounds = " and ".join(f"{sign} {rule[name]}" for name, sign in _BOUNDS.items() if name in rule)
    inner = _value(rule["items"]) if isinstance(rule.get("items"), dict) else ""
    words = " or ".join(_TYPES[name] for name in types if name != "null")
    return f"{words}{f' of {inner}' if inner else ''} {bounds}".strip()
