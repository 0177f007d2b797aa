"""The JSON Schemas of baseline and cluster files: for the loaders, and for editors."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

BASELINES_SCHEMA: Final = "baselines.json"
CLUSTER_SCHEMA: Final = "cluster.json"

SCHEMA_FOLDER: Final = ".schema"
"""The folder, beside those of the clusters, where editors find the schemas of recorded files."""

# importlib.resources would take longer than the schemas do.
_SHIPPED: Final = Path(__file__).parent / "schemas"


@lru_cache
def schema_text(name: str) -> str:
    """The text of a schema that ships with the package."""
    return (_SHIPPED / name).read_text(encoding="utf-8")


@lru_cache
def schema(name: str) -> dict[str, Any]:
    """A schema that ships with the package."""
    parsed: dict[str, Any] = json.loads(schema_text(name))
    return parsed


def schema_comment(name: str) -> str:
    """The first line of a new file in a cluster's folder: where editors find its schema."""
    return f"# yaml-language-server: $schema=../{SCHEMA_FOLDER}/{name}"
