"""``pytest-dlperf systems``: the systems that come with the package, and the keys of all files."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct

from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.shell import Style
from pytest_dlperf.config.extends import comment_of, shipped_systems
from pytest_dlperf.files.mistakes import Rules, nearest
from pytest_dlperf.model.errors import UsageError

_FILES: Final = {
    "system": "bench_tests/systems/*.yaml",
    "cluster": "baselines/<cluster>/cluster.yaml",
    "baselines": "baselines/<cluster>/<system>.yaml",
}
_INDENT: Final = "    "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "List the systems that come with the package, or show the file of one. A system file of "
        "your own builds on one with 'extends: NAME', and holds only what differs."
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "name",
        nargs="?",
        choices=list(shipped_systems()),
        metavar="NAME",
        help="show the file of this system (default: list all)",
    )
    shown.add_argument(
        "--keys",
        metavar="FILE[.KEY]",
        help="show the keys of a file instead, with their values and meanings: "
        + "; ".join(f"{name}: {path}" for name, path in _FILES.items())
        + "; or a key and those below it, as in system.launch.container",
    )


def run(options: argparse.Namespace) -> int:
    """List the systems, or show one, or keys."""
    style = Style(sys.stdout)
    if options.keys is not None:
        file, _, key = options.keys.partition(".")
        return _show_keys(file, key, style)
    systems = shipped_systems()
    if options.name is not None:
        print(systems[options.name].read_text(encoding="utf-8"), end="")  # noqa: T201 - it prints
        return FINE
    widest = max(map(len, systems))
    style.show(f"{style(f'{name:<{widest}}', 'bold')}  {summary(name)}" for name in systems)
    return FINE


def summary(name: str) -> str:
    """Return the first sentence of the comment of a shipped system."""
    return " ".join(comment_of(name)[0].split()).partition(". ")[0]


# ---------------------------------------------------------------------------------------- keys


def _show_keys(file: str, wanted: str, style: Style) -> int:
    from pytest_dlperf.baselines.schemas import schemas

    if file not in _FILES:
        raise UsageError(f"--keys: {file!r} is not one of: {', '.join(_FILES)}")
    known = {key.path: key for key in schema_keys(schemas()[file])}
    shown = [key for path, key in known.items() if f"{path}.".startswith(wanted and f"{wanted}.")]
    if not shown:
        raise UsageError(f"{_FILES[file]} has no key {wanted!r}{nearest(wanted, known)}")
    for key in shown:
        meaning = textwrap.wrap(key.meaning, style.width - len(_INDENT))
        lines = (f"{_INDENT}{line}" for line in meaning)
        style.show([f"{style(key.path, 'bold')}  {key.value}", *lines])
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
    rules = Rules(schema)
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
            if isinstance(one.get("items"), dict):
                yield from walked(one["items"], path)

    yield from walked(rules.root, "")


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    return (
        f"{default:g}"
        if isinstance(default, int | float)
        else default
        if isinstance(default, str)
        else ""
    )
