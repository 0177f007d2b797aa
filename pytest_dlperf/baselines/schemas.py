"""JSON Schemas for editors, made from the structs that read the same files.

They are written beside the baselines, for editors need a path that is the same on all machines.
"""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Final

from pytest_dlperf.baselines.reading import BaselinesFile, MetricValue
from pytest_dlperf.config.cluster import ClusterFile
from pytest_dlperf.config.extends import EXTENDS
from pytest_dlperf.config.system_file import SystemFile
from pytest_dlperf.files.mistakes import Rule, documented_schema_of
from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.model.builtin import BUILTIN

_KINDS: Final = {
    "baselines": (
        BaselinesFile,
        "Accepted numbers by variant (as in fp32-b128), topology (<N>n<D>g) and metric.",
    ),
    "cluster": (ClusterFile, "One set of machines whose numbers are comparable."),
    "system": (
        SystemFile,
        "One trainer: how it is started, what its logs look like, and its cases.",
    ),
}
"""What stands at the root of a file, and what that is, by its kind."""


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Describe the files that people write as JSON Schema, draft 2020-12, by their kind."""
    found = {kind: documented_schema_of(root) for kind, (root, _) in _KINDS.items()}
    metrics = documented_schema_of(MetricValue)
    own = found["baselines"]["$defs"]
    own |= metrics.pop("$defs")
    own["EntryKeys"]["additionalProperties"] = metrics
    found["system"]["$defs"]["SystemFile"]["properties"]["metrics"]["properties"] = {
        name: {"description": row.meaning, "$ref": "#/$defs/MetricEntry"}
        for name, row in BUILTIN.items()
    }
    return {
        kind: {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "description": meaning,
            **found[kind],
        }
        for kind, (_, meaning) in _KINDS.items()
    }


def _loosen(schema: Rule) -> None:
    """Allow what a file with ``extends`` may leave out, or take away with nothing behind a key."""
    root = schema["$defs"]["SystemFile"]
    schema |= {"if": {"required": [EXTENDS]}, "else": {"required": root["required"]}}
    for definition in schema["$defs"].values():
        definition.pop("required", None)
        keys = definition.get("properties", {})
        keys |= {name: _or_nothing(rule) for name, rule in keys.items()}


def _or_nothing(rule: Rule) -> Rule:
    texts: Rule = {}
    for name in ("description", "default"):
        if name in rule:
            texts[name] = rule.pop(name)
    if isinstance(rule.get("additionalProperties"), dict):
        rule["additionalProperties"] = _or_nothing(rule["additionalProperties"])
    return {**texts, "anyOf": [rule, {"type": "null"}]}


@cache
def schema_text(kind: str) -> str:
    """Write the schema of one kind of files, for editors."""
    schema = deepcopy(schemas()[kind])
    if kind == "system":
        _loosen(schema)
    return json.dumps(schema, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> None:
    """Write those that are missing in a folder, or of another version."""
    for kind in _KINDS:
        file, wanted = folder / f"{kind}.json", schema_text(kind)
        try:
            stands = file.read_text(encoding="utf-8") == wanted
        except (OSError, UnicodeDecodeError):
            stands = False
        if not stands:
            write_whole(file, wanted, is_ours=True)
