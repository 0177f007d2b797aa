"""Slurm as a queue: nodes that are held for a case, from outside of any allocation."""

from __future__ import annotations

import getpass
import math
import shlex
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from pytest_dlperf.launch.inherited import PMI, SLURM
from pytest_dlperf.launch.launchers import SlurmLauncher, last_words, output_of
from pytest_dlperf.model.errors import BrokenError

_HOPELESS: Final = {
    "BadConstraints": "no node is what it asks for",
    "PartitionNodeLimit": "the partition gives no job so many nodes",
    "PartitionTimeLimit": "the partition gives no job so much time; slurm.job takes --time=…",
    "ReqNodeNotAvail, UnavailableNodes": "its nodes are down or drained",
}
"""Reasons for which a job would wait for ever."""


class SallocAllocator(Allocator):
    """Holds nodes for each case by ``salloc``, from any machine that has Slurm's commands."""

    name = "salloc"
    sets = (*SLURM, *PMI)
    takes = ("slurm.job", "slurm.srun")

    @property
    def launcher(self) -> SlurmLauncher:
        """What starts steps."""
        return SlurmLauncher(self.python)

    def describe(self, request: HostRequest) -> str:
        """Show the command."""
        return shlex.join(self._command(request, "dlperf-NAME"))

    def acquire(self, request: HostRequest, say: Callable[[str], None]) -> Allocation:
        """Wait for a job to begin, which is known by its name before it has a number."""
        name = f"dlperf-{uuid.uuid4().hex[:20]}"
        command = self._command(request, name)
        if shutil.which(command[0]) is None:
            raise BrokenError(f"there is no {command[0]}; it needs Slurm's commands here")
        holder = Holder(["scancel", "--quiet", f"--user={getpass.getuser()}", f"--name={name}"])
        with _started(command) as problem:
            return wait_for_hosts(
                lambda: self._look(name, request, holder, problem()),
                request.wait_limit_s,
                say,
                holder,
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

    def _command(self, request: HostRequest, name: str) -> list[str]:
        return ["salloc", *_job_options(request, name), "--no-shell"]

    def _look(
        self, name: str, request: HostRequest, holder: Holder, problem: str | None
    ) -> Allocation | str:
        """Give the nodes of a job that has begun; else say why it has not.

        Raises:
            BrokenError: It never will.
        """
        asked = ["squeue", "--noheader", f"--name={name}", "--format=%A|%T|%r|%L|%N"]
        try:
            told = output_of(asked).strip()
        except BrokenError as error:
            return str(error)
        if not told:
            if problem is not None:
                raise BrokenError(problem)
            return f"{self.name} has submitted no job yet"
        number, state, reason, left, nodes = told.split("|")
        if state == "RUNNING":
            hosts = slurm_hosts({"SLURM_JOB_NODELIST": nodes})
            return Allocation(
                hosts=tuple(replace(host, devices=request.devices_per_node) for host in hosts),
                launcher=SlurmLauncher(self.python, job=number),
                limit_s=_seconds(left),
                holder=holder,
                handle=number,
            )
        for begin, why in _HOPELESS.items():
            if reason.startswith(begin):
                raise BrokenError(f"Slurm job {number} would never begin: {why} ({reason})")
        return f"Slurm job {number} is queued: {reason}"


@final
class SbatchAllocator(SallocAllocator):
    """Holds nodes by a batch job that waits, where ``salloc`` is forbidden."""

    name = "sbatch"

    def _command(self, request: HostRequest, name: str) -> list[str]:
        waits = ("--no-requeue", "--output=/dev/null", "--wrap=exec sleep 31536000")
        return ["sbatch", *_job_options(request, name), *waits]


@contextmanager
def _started(command: Sequence[str]) -> Iterator[Callable[[], str | None]]:
    """Have a command submit a job, apart from signals to pytest; give what says why there is none.

    While there is no job, it may come yet.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(  # noqa: S603 - the queue's
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )

        def problem() -> str | None:
            if process.poll() is None:
                return None
            errors.seek(0)
            last = last_words(errors.read().decode("utf-8", "replace").splitlines())
            ended = f"{command[0]} ended with status {process.returncode}, and there is no job"
            return last if process.returncode and last else ended

        try:
            yield problem
        finally:
            process.kill()
            process.wait()


def _job_options(request: HostRequest, name: str) -> list[str]:
    gpus = [f"--gpus-per-node={request.devices_per_node}"] if request.needs_devices else []
    hosts = [f"--nodelist={','.join(request.hosts)}"] if request.hosts else []
    return [
        f"--comment=pytest-dlperf {request.purpose}",
        "--exclusive",
        *gpus,
        f"--time={math.ceil(request.limit_s / 60)}",
        *request.options.get("slurm.job", ()),
        # The last one holds.
        f"--job-name={name}",
        f"--nodes={request.nodes}",
        *hosts,
    ]


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
