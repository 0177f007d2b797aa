"""What a run needs whose program is started on one node and starts the others' itself.

mpirun reaches the other nodes by itself. What it starts there is found by the run's marker, which
every MPI hands on to its ranks in a way of its own: MPICH and Intel MPI with the whole environment,
Open MPI not at all unless it is asked to, and ``-x`` excludes the variable that would ask. But Open
MPI takes a command that stands before its daemon on each node. There the daemon gets the marker,
hands it down, and stays below a program of ours, with all that comes of it (``node.keeper``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from pytest_dlperf.node import processes

if TYPE_CHECKING:
    from collections.abc import Mapping

_AGENTS: Final = {
    "OMPI_MCA_orte_launch_agent": "orted",
    "PRTE_MCA_prte_launch_agent": "prted",
}
"""What Open MPI 4 and 5 put before the daemon's arguments, and their default."""
_PLAIN: Final = re.compile(r"[\w./:,+-]+", re.ASCII).fullmatch
"""Means the same with a shell on the way and without: both are usual. Open MPI 5 cuts at ``=``."""


def keeper_file(scratch: str, run_id: str) -> str:
    """Name the keeper's file, which is the same on all nodes of a run."""
    return f"{scratch.rstrip('/')}/pytest-dlperf-{run_id}{processes.KEEPER.decode()}"


def launch_agents(python: str, file: str, marker: str) -> Mapping[str, tuple[str, str]]:
    """Give variables of Open MPI: what stands in front of their value, and their default.

    There are none where a path would need quotes: those are taken off on some ways and not on
    others.
    """
    words = [python, "-I", "-S", file, marker]
    if not all(map(_PLAIN, words)):
        return {}
    return {name: (" ".join(words), default) for name, default in _AGENTS.items()}
