"""JSON Schemas of what people write, for editors."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

SCALAR: Final = "scalar"
"""The format of text that an editor may take for a number, or for true and false."""
SCALAR_TYPES: Final = ["string", "number", "boolean"]


def schema_of(kind: Any) -> dict[str, Any]:
    """Describe what ``msgspec`` reads as a type, as JSON Schema, draft 2020-12.

    Nothing behind a key is a mistake where only the default is nothing.
    """
    schema: dict[str, Any] = _with_scalars(msgspec.json.schema(kind))
    for definition in schema.get("$defs", {}).values():
        for rule in definition.get("properties", {}).values():
            default = rule.pop("default", "")
            if default is None:
                _without_null(rule)
            elif default != "" and isinstance(default, str | int | float):
                rule["default"] = default
    return schema


def _with_scalars(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_scalars(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: _with_scalars(item) for name, item in schema.items()}
    if inner.get("format") == SCALAR:
        del inner["format"]
        inner["type"] = SCALAR_TYPES
    return inner


def _without_null(rule: dict[str, Any]) -> None:
    choices = [choice for choice in rule.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        del rule["anyOf"]
        rule |= {**choices[0], **rule}
    elif choices:
        rule["anyOf"] = choices


def loosened(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """Allow a file with a key to leave out any other one, and to have nothing behind it."""
    loose = json.loads(json.dumps(schema).replace('"#/$defs/', '"#/$defs/partial '))
    definitions = loose.pop("$defs")
    for definition in definitions.values():
        definition.pop("required", None)
        for below in (definition.get("properties", {}), definition):
            for name in below if below is not definition else ("additionalProperties",):
                if isinstance(below.get(name), dict):
                    below[name] = _or_nothing(below[name])
    return {
        "if": {"required": [key]},
        "then": loose,
        "else": {name: item for name, item in schema.items() if name != "$defs"},
        "$defs": {
            **schema["$defs"],
            **{f"partial {name}": item for name, item in definitions.items()},
        },
    }


def _or_nothing(rule: dict[str, Any]) -> dict[str, Any]:
    texts: dict[str, Any] = {
        name: rule[name] for name in ("description", "default") if name in rule
    }
    others = {name: item for name, item in rule.items() if name not in texts}
    if isinstance(others.get("additionalProperties"), dict):
        others["additionalProperties"] = _or_nothing(others["additionalProperties"])
    return {**texts, "anyOf": [others, {"type": "null"}]}
