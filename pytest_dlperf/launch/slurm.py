"""Nodes of a Slurm allocation, each reached as a step of the job."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.launch.launchers import DEFAULT_PYTHON
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.launch.hosts import Host

RESOLVE_LIMIT_S: Final = 20.0
"""How long Slurm may take to tell its nodes' addresses."""

_NODE: Final = re.compile(r"^NodeName=(\S+).*?\bNodeAddr=(\S+)", re.MULTILINE)


@final
class SlurmLauncher:
    """Starts a node's program as a step on that node, inside the allocation of this process.

    A step has its node to itself: Slurm keeps it waiting until the steps of other sessions are
    over, and ends all of it when the step ends, however that comes about.
    """

    __slots__ = ("python",)

    name = "slurm"
    remote = True
    queues = True

    def __init__(self, *, python: str = DEFAULT_PYTHON) -> None:
        """Supervise with this Python on the nodes."""
        self.python = python

    def resolve(self, hosts: Sequence[Host]) -> tuple[Host, ...]:
        """The nodes with the addresses that Slurm knows them by.

        Raises:
            BrokenError: Slurm is not here, or does not know a node.
        """
        names = ",".join(host.name for host in hosts)
        try:
            done = subprocess.run(  # noqa: S603 - names that Slurm has given
                ["scontrol", "--oneliner", "show", "node", names],  # noqa: S607 - as srun is found
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=True,
                stdin=subprocess.DEVNULL,
                timeout=RESOLVE_LIMIT_S,
            )
        except OSError as error:
            raise BrokenError(f"cannot start 'scontrol': {error.strerror}") from error
        except subprocess.TimeoutExpired as error:
            raise BrokenError(f"no answer from Slurm for {RESOLVE_LIMIT_S:g} s") from error
        except subprocess.CalledProcessError as error:
            told = (error.stdout + error.stderr).strip()
            raise BrokenError(f"Slurm does not know the nodes {names}: {told}") from error
        addresses = dict(_NODE.findall(done.stdout))
        return tuple(replace(host, address=addresses.get(host.name, host.name)) for host in hosts)

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        """The ``srun`` that runs the program as one task, with all that the node has."""
        sharing = ["--overlap"] if alongside else []
        return [
            "srun",
            "--nodes=1",
            "--ntasks=1",
            f"--nodelist={host.name}",
            "--kill-on-bad-exit=1",
            "--unbuffered",
            "--cpu-bind=none",
            "--quiet",
            *sharing,
            "--",
            *program,
        ]
