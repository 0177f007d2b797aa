"""Slurm as a queue: nodes that are held for a case, from outside of any allocation."""

from __future__ import annotations

import getpass
import math
import shlex
import shutil
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.launch.allocations import (
    Allocation,
    Allocator,
    Holder,
    HostRequest,
    Submission,
    output_of,
    wait_for_hosts,
)
from pytest_dlperf.launch.hosts import slurm_hosts
from pytest_dlperf.launch.inherited import PMI, SLURM
from pytest_dlperf.launch.launchers import SlurmLauncher
from pytest_dlperf.model.errors import BrokenError

_HOPELESS: Final = {
    "BadConstraints": "no node is what it asks for",
    "PartitionNodeLimit": "the partition gives no job so many nodes",
    "PartitionTimeLimit": "the partition gives no job so much time; slurm.job takes --time=…",
    "ReqNodeNotAvail, UnavailableNodes": "its nodes are down or drained",
}
"""Reasons for which a job would wait for ever."""


class _SlurmJob(Struct):
    """A job of ours, which is known by its name before it has a number."""

    name: str
    holder: Holder
    submission: Submission | None = None
    number: str = ""


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
        """Wait for a job to begin."""
        job = self._submitted(request, f"dlperf-{uuid.uuid4().hex[:20]}")
        try:
            return wait_for_hosts(lambda: self._look(job, request), request.wait_limit_s, say)
        except BaseException:
            with suppress(BrokenError):
                self._cancel(job)
            raise

    def release(self, allocation: Allocation) -> None:
        """Cancel the job."""
        self._cancel(allocation.handle)

    def loss(self, allocation: Allocation) -> str | None:
        """Say how the job has ended."""
        number = allocation.handle.number
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

    def _submitted(self, request: HostRequest, name: str) -> _SlurmJob:
        if shutil.which("salloc") is None:
            raise BrokenError("there is no salloc; it needs Slurm's commands on this machine")
        holder = Holder(_cancelling(name))
        return _SlurmJob(name, holder, Submission(self._command(request, name)))

    def _command(self, request: HostRequest, name: str) -> list[str]:
        return ["salloc", *_job_options(request, name), "--no-shell"]

    def _look(self, job: _SlurmJob, request: HostRequest) -> Allocation | str:
        """Give the nodes of a job that has begun; else say why it has not.

        Raises:
            BrokenError: It never will.
        """
        try:
            told = output_of(
                ["squeue", "--noheader", f"--name={job.name}", "--format=%A|%T|%r|%L|%N"]
            )
        except BrokenError as error:
            return str(error)
        if job.submission is not None and job.submission.problem is not None:
            raise BrokenError(job.submission.problem)
        if not told.strip():
            return self._unknown(job)
        job.number, state, reason, left, nodes = told.strip().split("|")
        if state == "RUNNING":
            return Allocation(
                hosts=tuple(
                    replace(host, devices=request.devices_per_node)
                    for host in slurm_hosts({"SLURM_JOB_NODELIST": nodes})
                ),
                launcher=SlurmLauncher(self.python, job=job.number),
                limit_s=_seconds(left),
                handle=job,
            )
        for begin, why in _HOPELESS.items():
            if reason.startswith(begin):
                raise BrokenError(f"Slurm job {job.number} would never begin: {why} ({reason})")
        return f"Slurm job {job.number} is queued: {reason}"

    def _unknown(self, job: _SlurmJob) -> str:
        """Say what it means that Slurm knows no such job."""
        del job
        return "salloc has submitted no job yet"

    def _cancel(self, job: _SlurmJob) -> None:
        try:
            output_of(_cancelling(job.name))
            job.holder.kill()
        finally:
            job.holder.close()
            if job.submission is not None:
                job.submission.close()


@final
class SbatchAllocator(SallocAllocator):
    """Holds nodes by a batch job that waits, where ``salloc`` is forbidden."""

    name = "sbatch"

    def _submitted(self, request: HostRequest, name: str) -> _SlurmJob:
        holder = Holder(_cancelling(name))
        holder.submit(self._command(request, name))
        return _SlurmJob(name, holder)

    def _command(self, request: HostRequest, name: str) -> list[str]:
        waits = ("--no-requeue", "--output=/dev/null", "--wrap=exec sleep 31536000")
        return ["sbatch", *_job_options(request, name), *waits]

    def _unknown(self, job: _SlurmJob) -> str:
        raise BrokenError(
            f"the Slurm job of the name {job.name} was over before it began; slurmctld's log, and "
            "sacct where there is accounting, say why"
        )


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


def _cancelling(name: str) -> list[str]:
    return ["scancel", "--quiet", f"--user={getpass.getuser()}", f"--name={name}"]


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
