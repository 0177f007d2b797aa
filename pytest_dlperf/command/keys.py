"""``pytest-dlperf keys``: shows the keys of the files that people write."""

from __future__ import annotations

import json
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.shell import Style, text_argument
from pytest_dlperf.files.yamlfile import nearest
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_FILES: Final = {
    "system": "bench_tests/systems/*.yaml",
    "cluster": "baselines/<cluster>/cluster.yaml",
    "baselines": "baselines/<cluster>/<system>.yaml",
}
_INDENT: Final = "    "
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = "Show the keys of a file, the values that they take, and their meaning."
    parser.add_argument(
        "file",
        nargs="?",
        choices=list(_FILES),
        default="system",
        metavar="FILE",
        help="; ".join(f"{name}: {path}" for name, path in _FILES.items()) + " (default: system)",
    )
    parser.add_argument(
        "key",
        nargs="?",
        type=text_argument,
        metavar="KEY",
        help="show this key and those below it, as in launch.container (default: all)",
    )


def run(options: argparse.Namespace) -> int:
    """Show the keys.

    Raises:
        UsageError: There is no such key.
    """
    from pytest_dlperf.baselines.schemas import schemas

    known = {key.path: key for key in schema_keys(schemas()[options.file])}
    wanted = options.key
    shown = [
        key
        for path, key in known.items()
        if wanted is None or path == wanted or path.startswith(f"{wanted}.")
    ]
    if not shown:
        raise UsageError(f"{_FILES[options.file]} has no key {wanted!r}{nearest(wanted, known)}")
    style = Style(sys.stdout)
    for key in shown:
        meaning = textwrap.wrap(key.meaning, style.width - len(_INDENT))
        style.show(
            [
                f"{style(key.path, 'bold')}  {key.value}",
                *(f"{_INDENT}{line}" for line in meaning),
            ]
        )
    return FINE


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
