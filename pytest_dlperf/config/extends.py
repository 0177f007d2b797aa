"""Systems that others extend: those that ship, and a file laid over another one.

A file with ``extends`` says only what differs from another one: a system that ships, by its name,
or a file, by its path from the one that names it. That may extend a further one.
"""

from __future__ import annotations

import re
from itertools import takewhile
from os.path import normpath
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.files.shapes import Text
from pytest_dlperf.files.yamlfile import nearest

if TYPE_CHECKING:
    from pytest_dlperf.files.yamlfile import YamlValue

SHIPPED: Final = Path(__file__).parent.parent / "systems"
"""The folder of the systems that ship."""
EXTENDS: Final = "extends"
BASE: Final = Text("a system that ships, or a file of one")


def shipped_systems() -> dict[str, Path]:
    """Find the system files that ship with the package, by name."""
    return {file.stem: file for file in sorted(SHIPPED.glob("*.yaml"))}


def is_trainer(name: str) -> bool:
    """Whether a system that ships is of trainings; else it is of probes, which have no steps."""
    text = shipped_systems()[name].read_text(encoding="utf-8")
    base = re.search(r"^extends: (\w+)$", text, re.MULTILINE)
    if base is not None and is_trainer(base[1]):
        return True
    return re.search(r"^(?:# +)?(?:unit|window):", text, re.MULTILINE) is not None


def comment_of(name: str) -> tuple[str, str]:
    """Split the comment of a system that ships: its text, and the example of a user's file."""
    lines = shipped_systems()[name].read_text(encoding="utf-8").splitlines()
    comment = (line[1:].removeprefix(" ") for line in takewhile(lambda one: one[:1] == "#", lines))
    prose, _, example = "\n".join(comment).partition("\n\n  ")
    return prose, dedent(f"  {example}\n")


def extended(root: YamlValue) -> YamlValue | None:
    """Put a system file over those that it extends; ``None`` after a mistake of ``extends``."""
    seen = [root.file.resolve()]
    layers = [root]
    while (place := _extends(layers[-1])) is not None:
        name = BASE.read(place)
        file = None if name is None else _base(name, place)
        if file is None:
            return None
        if file.resolve() in seen:
            place.fault(f"{name!r} extends this file in turn")
            return None
        seen.append(file.resolve())
        layers.append(place.parse(file))
        if layers[-1].kind != "mapping":
            layers[-1].fault_found("a mapping, as every system file is one")
            return None
    whole = layers.pop()
    while layers:
        whole = layers.pop().based_on(whole)
    return whole


def _extends(root: YamlValue) -> YamlValue | None:
    place = root.at(EXTENDS)
    return None if place.path == root.path else place


def _base(name: str, place: YamlValue) -> Path | None:
    """Find the file that is meant; ``None`` after a mistake."""
    if "/" in name or name.endswith((".yaml", ".yml")):
        file = Path(normpath(place.file.parent / name))
        if file.is_file():
            return file
        place.fault(f"there is no file {file}")
        return None
    shipped = shipped_systems()
    if name not in shipped:
        place.fault(
            f"unknown system {name!r}; those that ship are {', '.join(shipped)}. A file is "
            f"named by its path, as in ../{name}.yaml{nearest(name, shipped)}"
        )
    return shipped.get(name)


def partial_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Loosen a JSON Schema for files that extend one: any key may be absent, or taken away."""
    loose = {key: value for key, value in schema.items() if key != "required"}
    for key in ("properties", "additionalProperties", "items"):
        inner = schema.get(key)
        if key == "properties" and inner is not None:
            loose[key] = {name: _or_nothing(partial_schema(said)) for name, said in inner.items()}
        elif isinstance(inner, dict):
            found = partial_schema(inner)
            loose[key] = found if key == "items" else _or_nothing(found)
    if "anyOf" in schema:
        loose["anyOf"] = [partial_schema(one) for one in schema["anyOf"]]
    return loose


def _or_nothing(schema: dict[str, Any]) -> dict[str, Any]:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    kind = schema.get("type", [])
    kinds = [kind] if isinstance(kind, str) else kind
    nothing = {"enum": [*schema["enum"], None]} if "enum" in schema else {}
    return {**schema, **nothing, **({"type": [*dict.fromkeys((*kinds, "null"))]} if kinds else {})}
