"""Slurm as a queue: batch jobs that sleep hold nodes for a case, from outside of any allocation."""

from __future__ import annotations

import getpass
import math
import shlex
import uuid
from collections.abc import Callable
from typing import Final, final

from msgspec.structs import replace

from pytest_dlperf.launch.allocations import (
    Allocation,
    Allocator,
    Holder,
    HostRequest,
    wait_for_hosts,
)
from pytest_dlperf.launch.hosts import slurm_hosts
from pytest_dlperf.launch.launchers import PMI, SLURM, SlurmLauncher, output_of
from pytest_dlperf.model.errors import BrokenError

_HOPELESS: Final = {
    "BadConstraints": "no node is what it asks for",
    "PartitionNodeLimit": "the partition gives no job so many nodes",
    "PartitionTimeLimit": "the partition gives no job so much time; slurm.job takes --time=…",
    "ReqNodeNotAvail, UnavailableNodes": "its nodes are down or drained",
}
"""Reasons for which a job would wait for ever."""


@final
class SbatchAllocator(Allocator):
    """Holds nodes for each case, from any machine that has Slurm's commands."""

    name = "sbatch"
    sets = (*SLURM, *PMI)
    takes = ("slurm.job", "slurm.srun")

    @property
    def launcher(self) -> SlurmLauncher:
        """What starts steps."""
        return SlurmLauncher(self.python)

    def describe(self, request: HostRequest) -> str:
        """Show the command."""
        return shlex.join(_command(request, "dlperf-NAME"))

    def acquire(self, request: HostRequest, say: Callable[[str], None]) -> Allocation:
        """Wait for a job to begin; it is given back by its name, before it has a number."""
        name = f"dlperf-{uuid.uuid4().hex[:20]}"
        holder = Holder(["scancel", "--quiet", f"--user={getpass.getuser()}", f"--name={name}"])
        number = holder.submit(_command(request, name)).strip().partition(";")[0]
        nodes, limit_s = wait_for_hosts(lambda: _look(number), request.wait_limit_s, say, holder)
        hosts = slurm_hosts({"SLURM_JOB_NODELIST": nodes})
        return Allocation(
            hosts=tuple(replace(host, devices=request.devices_per_node) for host in hosts),
            launcher=SlurmLauncher(self.python, job=number),
            limit_s=limit_s,
            holder=holder,
            handle=number,
        )

    def loss(self, allocation: Allocation) -> str | None:
        """Say how the job has ended."""
        number = allocation.handle
        try:
            told = output_of(["scontrol", "--oneliner", "show", "job", number])
        except BrokenError as error:
            return f"Slurm job {number} is gone: {error}"
        words = dict(word.partition("=")[::2] for word in told.split())
        state, reason = words.get("JobState", ""), words.get("Reason", "None")
        if state in {"RUNNING", "SUSPENDED"}:
            return None
        # While its nodes clean up, that is all that is told.
        how = "" if state == "COMPLETING" else f": {state}"
        why = "" if reason == "None" else f" ({reason})"
        return f"Slurm job {number} was ended from outside{how}{why}"


def _command(request: HostRequest, name: str) -> list[str]:
    gpus = [f"--gpus-per-node={request.devices_per_node}"] if request.needs_devices else []
    hosts = [f"--nodelist={','.join(request.hosts)}"] if request.hosts else []
    return [
        "sbatch",
        f"--comment=pytest-dlperf {request.purpose}",
        "--exclusive",
        *gpus,
        f"--time={math.ceil(request.limit_s / 60)}",
        *request.options.get("slurm.job", ()),
        # The last one holds.
        f"--job-name={name}",
        f"--nodes={request.nodes}",
        *hosts,
        "--parsable",
        "--no-requeue",
        "--output=/dev/null",
        "--wrap=exec sleep 31536000",
    ]


def _look(number: str) -> tuple[str, float] | str:
    """Give the nodes of a job that has begun, and how long it has them; else say why it has not.

    Raises:
        BrokenError: It never will.
    """
    asked = ["squeue", "--noheader", f"--jobs={number}", "--format=%T|%r|%L|%N"]
    try:
        told = output_of(asked).strip()
    except BrokenError as error:
        return str(error)
    if not told:
        raise BrokenError(f"Slurm job {number} was ended before it began")
    state, reason, left, nodes = told.split("|")
    if state == "RUNNING":
        return nodes, _seconds(left)
    for begin, why in _HOPELESS.items():
        if reason.startswith(begin):
            raise BrokenError(f"Slurm job {number} would never begin: {why} ({reason})")
    return f"Slurm job {number} is queued: {reason}"


def _seconds(left: str) -> float:
    """Read the time that Slurm leaves a job: ``1-02:03:04``, ``29:59`` or a word for no limit."""
    days, _, clock = left.rpartition("-")
    parts = clock.split(":")
    if not all(map(str.isdigit, parts)):
        return math.inf
    seconds = 0
    for part in parts:
        seconds = 60 * seconds + int(part)
    return 86400 * int(days or 0) + seconds
