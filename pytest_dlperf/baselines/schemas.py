"""JSON Schemas for editors, made from the shapes that read the same files.

They are written beside the baselines, for editors need a path that is the same on all machines.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.baselines.reading import BASELINES
from pytest_dlperf.config.cluster import Cluster, cluster_keys
from pytest_dlperf.config.launch_shapes import LAUNCH
from pytest_dlperf.config.system_shape import system_shape
from pytest_dlperf.files.shapes import Record
from pytest_dlperf.files.writing import write_whole

if TYPE_CHECKING:
    from pathlib import Path

# A system without names of formats: plugins add some.
SHAPES: Final[dict[str, Record[Any]]] = {
    "baselines": BASELINES,
    "cluster": Record(Cluster, *cluster_keys()),
    "system": system_shape({}, LAUNCH),
}
"""What stands at the root of a file, by its kind."""
_HEADS: Final = {
    "baselines": (
        "Baselines of one system on one cluster (pytest-dlperf)",
        "Accepted numbers by variant (as in fp32-b128), topology (<N>n<D>g) and metric.",
    ),
    "cluster": (
        "A cluster (pytest-dlperf)",
        "One set of machines whose numbers are comparable.",
    ),
    "system": (
        "A system (pytest-dlperf)",
        "One trainer: how it is started, what its logs look like, and its cases.",
    ),
}
"""Title and description."""


@cache
def schemas() -> dict[str, dict[str, Any]]:
    """Describe the files that people write as JSON Schema, draft 2020-12, by their kind."""
    return {
        kind: {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": title,
            "description": description,
            **SHAPES[kind].json_schema(),
        }
        for kind, (title, description) in _HEADS.items()
    }


@cache
def schema_text(kind: str) -> str:
    """Write the schema of one kind of files."""
    return json.dumps(schemas()[kind], ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> None:
    """Write those that are missing in a folder, or of another version."""
    for kind in SHAPES:
        file, wanted = folder / f"{kind}.json", schema_text(kind)
        try:
            stands = file.read_text(encoding="utf-8") == wanted
        except (OSError, UnicodeDecodeError):
            stands = False
        if not stands:
            write_whole(file, wanted, is_ours=True)
