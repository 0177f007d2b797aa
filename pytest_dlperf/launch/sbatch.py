"""Slurm as a queue: each run is a job of its own, submitted from outside any allocation."""

from __future__ import annotations

import getpass
import math
import re
import shlex
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.launch.inherited import PMI, SLURM
from pytest_dlperf.launch.queue import (
    JobState,
    NodeEnd,
    Phase,
    Queue,
    SilentQueueError,
    output_of,
)
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_dlperf.launch.queue import Job

_SCRIPT: Final = """\
#!/bin/sh
# Each node runs the same program, which finds the others by the addresses that Slurm has for them.
scontrol --oneliner show node "$SLURM_JOB_NODELIST" |
    sed -n 's/^NodeName=\\([^ ]*\\).* NodeAddr=\\([^ ]*\\).*/\\1 \\2/p' > {addresses}
exec {srun}
"""
_WAITS: Final = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
_RUNS: Final = frozenset(
    {"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}
)
_HOPELESS: Final = {
    "BadConstraints": "no node is what it asks for",
    "PartitionNodeLimit": "the partition gives no job so many nodes",
    "PartitionTimeLimit": "the partition gives no job so much time; slurm.sbatch takes --time=…",
}
"""Reasons for which a job would wait for ever."""
_FIELD: Final = re.compile(r"(?:^|\s)(JobName|JobState|Reason|ExitCode)=(\S*)")
# Behind a semicolon comes the name of a cluster, where there are several. A site's own wrapper may
# print more, and leave out options.
_HANDLE: Final = re.compile(
    r"^(?P<parsable>\d+(?:;\S+)?)$|^Submitted batch job (?P<plain>\d+)", re.MULTILINE
)
_KILLED: Final = re.compile(r"^srun: error: .*: tasks? ([0-9,-]+): Killed", re.MULTILINE)
_RANKS: Final = re.compile(r"(?<![0-9-])([0-9]{1,9})(?:-([0-9]{1,9}))?(?![0-9-])")
_GONE: Final = "Invalid job id"
_NO_OUTPUT: Final = "0:53"
"""What a job has ended with whose output its node cannot write."""


@final
class SbatchQueue(Queue):
    """Submits each run by ``sbatch``, from any machine that has Slurm's commands.

    The session directory has to lie on a disk that this machine and the nodes share.
    """

    name = "sbatch"
    rank_variable = "SLURM_PROCID"
    host_variable = "SLURMD_NODENAME"
    program_file = "program.py"
    sets = (*SLURM, *PMI)
    takes = ("slurm.sbatch", "slurm.srun")

    def __init__(self, python: str) -> None:
        """Begin without a job."""
        super().__init__(python)
        self._jobs: dict[str, Job] = {}

    def dry_run_text(self, job: Job) -> str:
        """Show the command and the script."""
        return f"{shlex.join(self._sbatch(job))} <<'END'\n{self._script(job)}END"

    def submit(self, job: Job) -> str:
        """Submit the job; its program and what it prints itself lie in the job's folder."""
        program = _program(job)
        program.write_bytes(job.program)
        try:
            printed = _slurm(self._sbatch(job), stdin=self._script(job))
        except BrokenError:
            program.unlink()
            raise
        found = _HANDLE.search(printed)
        if found is None:
            program.unlink()
            words = printed.strip() or "nothing"
            raise SilentQueueError(f"sbatch: no number of a job is in what it has printed: {words}")
        handle = found["parsable"] or found["plain"]
        self._jobs[handle] = job
        return handle

    def state(self, handle: str) -> JobState:
        """Ask the controller, which remembers a job for some minutes after its end."""
        number, _, cluster = handle.partition(";")
        at = [f"--cluster={cluster}"] if cluster else []
        try:
            told = _slurm(["scontrol", *at, "--oneliner", "show", "job", number])
        except BrokenError as error:
            if _GONE in str(error):
                return JobState(phase=Phase.OVER, reason="Slurm has forgotten it")
            raise SilentQueueError(str(error)) from error
        fields = dict(_FIELD.findall(told))
        if "JobState" not in fields:
            raise SilentQueueError(f"scontrol: no state of job {number} is in what it has printed")
        if fields.get("JobName") != self._jobs[handle].name:
            # A controller that has lost its memory counts from the beginning.
            return JobState(phase=Phase.OVER, reason="Slurm has another job of this number")
        state, reason = fields["JobState"], fields.get("Reason", "")
        reason = "" if reason == "None" else reason
        if state in _WAITS:
            why = _HOPELESS.get(reason)
            broken = None if why is None else f"it would never begin: {why} ({reason})"
            return JobState(phase=Phase.QUEUED, reason=reason, broken=broken)
        if state in _RUNS:
            return JobState(
                phase=Phase.RUNNING,
                reason=reason if state == "SUSPENDED" else "",
                ends=_killed_tasks(self._jobs[handle]),
            )
        how = "" if state == "COMPLETED" else state
        how = f"{how} ({reason})" if reason else how
        if fields.get("ExitCode") == _NO_OUTPUT:
            how += "; its nodes have to see the session directory (--dlperf-run-dir)"
        return JobState(phase=Phase.OVER, reason=how)

    def close(self, handle: str) -> Sequence[str]:
        """Remove the program: in it are the variables of the trainer, secrets too."""
        _program(self._jobs.pop(handle)).unlink(missing_ok=True)
        return ()

    def cancel(self, handle: str) -> None:
        """Have Slurm end all steps of the job, and then the job."""
        cluster = handle.partition(";")[2]
        at = [f"--clusters={cluster}"] if cluster else []
        try:
            _slurm([*self.cancel_command(self._jobs[handle].name), *at])
        except BrokenError as error:
            raise SilentQueueError(str(error)) from error

    def cancel_command(self, name: str) -> list[str]:
        """Give the command that cancels by name."""
        return ["scancel", "--quiet", f"--user={getpass.getuser()}", f"--name={name}"]

    def _sbatch(self, job: Job) -> list[str]:
        gpus = [f"--gpus-per-node={job.devices_per_node}"] if job.needs_devices else []
        hosts = [f"--nodelist={','.join(job.hosts)}"] if job.hosts else []
        return [
            "sbatch",
            f"--comment=pytest-dlperf {job.purpose}",
            "--exclusive",
            *gpus,
            f"--time={math.ceil(job.limit_s / 60)}",
            *job.options.get("slurm.sbatch", ()),
            # The last one holds.
            "--parsable",
            f"--job-name={job.name}",
            f"--nodes={job.nodes}",
            "--ntasks-per-node=1",
            "--no-requeue",
            *hosts,
            # Slurm puts a job's number and the like for a letter behind a percent sign.
            f"--output={str(job.folder / 'output.log').replace('%', '%%')}",
        ]

    def _script(self, job: Job) -> str:
        srun = [
            "srun",
            # The others may go on for a moment, to write their own errors.
            "--kill-on-bad-exit=0",
            "--wait=0",
            "--unbuffered",
            "--cpu-bind=none",
            "--quiet",
            *job.options.get("slurm.srun", ()),
            f"--nodes={job.nodes}",
            f"--ntasks={job.nodes}",
            "--ntasks-per-node=1",
            "--",
            self.python,
            "-I",
            "-S",
            str(_program(job)),
        ]
        addresses = shlex.quote(str(job.folder / "addresses"))
        return _SCRIPT.format(addresses=addresses, srun=shlex.join(srun))


def _killed_tasks(job: Job) -> dict[int, NodeEnd]:
    """Return the nodes whose program was killed, by what ``srun`` has printed."""
    with suppress(OSError):
        printed = (job.folder / "output.log").read_text(encoding="utf-8", errors="replace")
        return {
            rank: NodeEnd(exit_code=None, reason="Slurm says that its task was killed")
            for ranks in _KILLED.findall(printed)
            for first, last in _RANKS.findall(ranks)
            for rank in range(int(first), min(int(last or first) + 1, job.nodes))
        }
    return {}


def _program(job: Job) -> Path:
    return job.folder / SbatchQueue.program_file


def _slurm(command: Sequence[str], *, stdin: str = "") -> str:
    # With SBATCH_WAIT, sbatch would answer at the end of the job only.
    return output_of(
        command, name="sbatch", stdin=stdin, SLURM_TIME_FORMAT="standard", SBATCH_WAIT=None
    )
