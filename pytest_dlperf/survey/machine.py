"""What this machine has to train on."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final

from msgspec import Struct

from pytest_dlperf.node.accelerators import find_accelerators

_QUERY_LIMIT_S: Final = 10.0


class Machine(Struct, frozen=True, kw_only=True):
    """What there is to train on."""

    gpus: int = 0
    """Of this machine."""
    has_slurm: bool = False
    in_allocation: bool = False
    gpus_of_nodes: int = 0
    """Of a node of the Slurm cluster, where that says it."""


def look_at_machine(environment: Mapping[str, str] = os.environ) -> Machine:
    """Ask the machine's own tools."""
    try:
        query = ["sinfo", "-h", "-o", "%G"]
        done = subprocess.run(query, capture_output=True, text=True, timeout=_QUERY_LIMIT_S)  # noqa: PLW1510, S603
        nodes = done.stdout if done.returncode == 0 else ""
    except (OSError, subprocess.TimeoutExpired):
        nodes = ""
    gres = re.findall(r"gpu:(?:[^:\s,(]+:)?([0-9]+)", nodes)
    in_allocation = "SLURM_JOB_ID" in environment
    return Machine(
        gpus=len(find_accelerators(None, time.monotonic() + _QUERY_LIMIT_S)["accelerators"]["ids"]),
        has_slurm=bool(nodes.strip()) or in_allocation,
        in_allocation=in_allocation,
        gpus_of_nodes=max(map(int, gres), default=0),
    )


def is_installed(module: str) -> bool:
    """Tell whether this interpreter has a module, without importing it."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):
        return False
