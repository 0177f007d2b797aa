"""``pytest-dlperf keys``: shows the keys of the files that people write."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.shell import Style, text_argument
from pytest_dlperf.files.mistakes import Rules, nearest
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
    rules = Rules(schema.get("else", schema), schema["$defs"])
    places: dict[str, str] = {}
    seen: set[str] = set()

    def walked(rule: dict[str, Any], path: str) -> Iterator[SchemaKey]:
        for one in rules.choices(rule):
            required = one.get("required", ())
            for name, said in one.get("properties", {}).items():
                place = f"{path}.{name}".lstrip(".")
                if place in seen:
                    continue
                seen.add(place)
                first = places.setdefault(rules.mapping_of(said) or place, place)
                value = rules.allowed(said)
                if default := _shown(said.get("default")):
                    value += f", default: {default}"
                like = "" if first == place else f" like {first}"
                needed = ", required" if name in required else ""
                yield SchemaKey(
                    path=place, value=f"{value}{like}{needed}", meaning=said["description"]
                )
                if first == place:
                    yield from walked(said, place)
            if isinstance(one.get("additionalProperties"), dict):
                others = one["additionalProperties"]
                place = f"{path}.<name>".lstrip(".")
                if places.setdefault(rules.mapping_of(others) or place, place) == place:
                    yield from walked(others, place)
            if "items" in one:
                yield from walked(one["items"], path)

    yield from walked(rules.root, "")


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, int | float) else str(default or "")
