"""``pytest-dlperf systems``: the systems that come with the package, and the keys of all files."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

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
    for name in systems:
        # The first sentence of its comment.
        summary = " ".join(comment_of(name)[0].split()).partition(". ")[0]
        style.show([f"{style(f'{name:<{widest}}', 'bold')}  {summary}"])
    return FINE


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


class SchemaKey(NamedTuple):
    """One key: its dotted path, what may stand there, and its description."""

    path: str
    value: str
    meaning: str


def schema_keys(schema: dict[str, Any]) -> Iterator[SchemaKey]:
    """Yield every key of a schema once, depth first.

    Keys below a mapping that stands in several places are those of the first place; ``value`` of
    the others names it.
    """
    yield from _keys_below(Rules(schema), Rules(schema).root, "", {}, set())


def _keys_below(
    rules: Rules, rule: dict[str, Any], path: str, places: dict[str, str], seen: set[str]
) -> Iterator[SchemaKey]:
    def below(inner: dict[str, Any], place: str) -> Iterator[SchemaKey]:
        if places.setdefault(rules.mapping_of(inner) or place, place) == place:
            yield from _keys_below(rules, inner, place, places, seen)

    for choice in rules.choices(rule):
        for name, key in choice.get("properties", {}).items():
            place = f"{path}.{name}".lstrip(".")
            if place in seen:
                continue
            seen.add(place)
            value = rules.allowed(key)
            if isinstance(default := key.get("default"), str | int | float) and default != "":
                shown = str(default).lower() if isinstance(default, bool) else str(default)
                value += f", default: {shown.removesuffix('.0')}"
            first = places.get(rules.mapping_of(key), place)
            like = "" if first == place else f" like {first}"
            required = ", required" if name in choice.get("required", ()) else ""
            yield SchemaKey(place, f"{value}{like}{required}", key["description"])
            yield from below(key, place)
        if isinstance(others := choice.get("additionalProperties"), dict):
            yield from below(others, f"{path}.<name>".lstrip("."))
        if isinstance(choice.get("items"), dict):
            yield from _keys_below(rules, choice["items"], path, places, seen)
