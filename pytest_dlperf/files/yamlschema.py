"""JSON Schemas of what people write: for editors, and the words for what may stand at a place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_TYPES: Final = {
    "array": "list",
    "boolean": "true or false",
    "integer": "integer",
    "number": "number",
    "object": "mapping",
    "string": "text",
}
SCALAR: Final = "scalar"
"""The format of text that an editor may take for a number, or for true and false."""
_SCALAR_TYPES: Final = ["string", "number", "boolean"]
_BOUNDS: Final = {
    "minimum": "≥",
    "exclusiveMinimum": ">",
    "maximum": "≤",
    "exclusiveMaximum": "<",
}


def schema_of(kind: Any) -> dict[str, Any]:
    """Describe what ``msgspec`` reads as a type, as JSON Schema, draft 2020-12.

    Nothing behind a key is a mistake where only the default is nothing.
    """
    schema: dict[str, Any] = _with_scalars(msgspec.json.schema(kind))
    for one in schema.get("$defs", {}).values():
        for rule in one.get("properties", {}).values():
            default = rule.pop("default", "")
            if default is None:
                _without_null(rule)
            elif default != "" and isinstance(default, str | int | float):
                rule["default"] = default
    return schema


def _with_scalars(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_scalars(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: _with_scalars(one) for name, one in schema.items()}
    if inner.get("format") == SCALAR:
        del inner["format"]
        inner["type"] = _SCALAR_TYPES
    return inner


def _without_null(rule: dict[str, Any]) -> None:
    choices = [one for one in rule.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        del rule["anyOf"]
        rule |= {**choices[0], **rule}
    elif choices:
        rule["anyOf"] = choices


def loosened(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """Allow a file with a key to leave out any other one, and to have nothing behind it."""
    loose = json.loads(json.dumps(schema).replace('"#/$defs/', '"#/$defs/partial '))
    definitions = loose.pop("$defs")
    for one in definitions.values():
        one.pop("required", None)
        for below in (one.get("properties", {}), one):
            for name in below if below is not one else ("additionalProperties",):
                if isinstance(below.get(name), dict):
                    below[name] = _or_nothing(below[name])
    return {
        "if": {"required": [key]},
        "then": loose,
        "else": {name: one for name, one in schema.items() if name != "$defs"},
        "$defs": {
            **schema["$defs"],
            **{f"partial {name}": one for name, one in definitions.items()},
        },
    }


def _or_nothing(rule: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {name: rule[name] for name in ("description", "default") if name in rule}
    others = {name: one for name, one in rule.items() if name not in said}
    if isinstance(others.get("additionalProperties"), dict):
        others["additionalProperties"] = _or_nothing(others["additionalProperties"])
    return {**said, "anyOf": [others, {"type": "null"}]}


class Rules:
    """The rules of a schema, whose references are followed."""

    def __init__(self, root: dict[str, Any], definitions: dict[str, Any]) -> None:
        """Take the rule of a whole file, and what it refers to."""
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
        for one in rule.get("anyOf", ()):
            yield from self.choices(one)

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
            for one in self.choices(rule):
                if isinstance(step, int):
                    below.append(one.get("items", {}))
                else:
                    others = one.get("additionalProperties")
                    others = others if isinstance(others, dict) else {}
                    below.append(one.get("properties", {}).get(step, others))
            rule = next(filter(None, below), {})
        return self.whole(rule)

    def keys_at(self, path: Iterable[str | int]) -> list[str]:
        """List the keys of the mapping at a place."""
        return [key for one in self.choices(self.at(path)) for key in one.get("properties", {})]

    def names_at(self, path: Iterable[str | int]) -> dict[str, Any]:
        """Find the rule for the names of the mapping at a place."""
        found = (one.get("propertyNames") for one in self.choices(self.at(path)))
        return next(filter(None, found), {})

    def words_at(self, path: Iterable[str | int]) -> list[str]:
        """List the words that may stand at a place, where only some may."""
        return [word for one in self.choices(self.at(path)) for word in one.get("enum", ())]

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
        found = rule.get("type", [])
        types = [found] if isinstance(found, str) else found
        if types == _SCALAR_TYPES:
            return "text"
        signs = [f"{sign} {rule[name]:,}" for name, sign in _BOUNDS.items() if name in rule]
        inner = self.allowed(rule["items"]) if isinstance(rule.get("items"), dict) else ""
        words = " or ".join(_TYPES[name] for name in types if name != "null")
        return f"{words}{f' of {inner}' if inner else ''} {' and '.join(signs)}".strip()
