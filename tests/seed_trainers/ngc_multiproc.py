# ruff: noqa: T201 - trainers print

"""In the place of ``multiproc.py`` in NVIDIA/DeepLearningExamples, its launcher."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser

from seed_trainers.processes import run_all, script


def main() -> None:
    """Start the script once for each device of this node; only the first one's output is shown."""
    parser = ArgumentParser(allow_abbrev=False)
    parser.add_argument("--nnodes", type=int, required=True)
    parser.add_argument("--node_rank", type=int, required=True)
    parser.add_argument("--nproc_per_node", type=int, required=True)
    parser.add_argument("--master_addr", required=True)
    parser.add_argument("--master_port", type=int, required=True)
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=REMAINDER)
    given = parser.parse_args()
    command = [given.training_script, *given.training_script_args]
    print([sys.executable, "-u", *command])
    run_all(
        script(
            command,
            {
                "MASTER_ADDR": given.master_addr,
                "MASTER_PORT": str(given.master_port),
                "WORLD_SIZE": str(given.nproc_per_node * given.nnodes),
                "RANK": str(given.nproc_per_node * given.node_rank + local_rank),
                "LOCAL_RANK": str(local_rank),
            },
            output=f"GPU_{local_rank}.log" if local_rank else None,
        )
        for local_rank in range(given.nproc_per_node)
    )
