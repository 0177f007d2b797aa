"""Queues: engines that take a run as a job, and start it when and where they choose."""

from __future__ import annotations

import os
import subprocess
from abc import abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import Struct

from pytest_dlperf.launch.launchers import Engine
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_dlperf.config.slurm_container import Container
CALL_LIMIT_S: Final = 30.0
"""An engine's command may take so long to answer."""


class SilentQueueError(BrokenError):
    """The engine does not answer; it may in a moment."""


class Job(Struct, frozen=True, kw_only=True):
    """One run, as a queue takes it: a Python program that each of its nodes runs once.

    ``name`` is unique: by it the job can be cancelled before it is known whether it was
    submitted. ``purpose`` is for people. ``devices_per_node`` are accelerators where it
    ``needs_devices``. ``hosts`` are those that it may run on; without any, on all. The engine ends
    it ``limit_s`` after its start, whatever happens here; the run waits no longer than
    ``queue_limit_s`` for that start. ``folder`` is for files of the job on this machine. What nodes
    print goes to ``logs``, what the program reports to ``reports``, node 0 first. ``options`` are
    those that users set for the engine, by the names that it ``takes``.
    """

    name: str
    purpose: str
    nodes: int
    devices_per_node: int
    needs_devices: bool
    program: bytes
    hosts: tuple[str, ...] = ()
    limit_s: float
    queue_limit_s: float
    folder: Path
    logs: tuple[Path, ...]
    reports: tuple[Path, ...]
    options: Mapping[str, tuple[str, ...]] = {}
    container: Container | None = None


class Phase(Enum):
    """The progress of a job."""

    QUEUED = "it waits"
    RUNNING = "it has its nodes"
    OVER = "nothing of it runs any more"


class NodeEnd(Struct, frozen=True, kw_only=True):
    """The end of one node of a job, as the engine tells it; ``reason`` where it has one."""

    exit_code: int | None
    reason: str = ""


class JobState(Struct, frozen=True, kw_only=True):
    """How far a job is.

    ``reason`` is the engine's: why it waits, or why it is over. ``broken`` is why it will never
    get anywhere. ``ends`` has the nodes that have ended, by rank, as far as the engine tells.
    """

    phase: Phase
    reason: str = ""
    broken: str | None = None
    ends: Mapping[int, NodeEnd] = {}


class Queue(Engine):
    """An engine that takes jobs; plugins add more (``pytest_dlperf_queues``).

    A handle is what ``submit`` gives, and belongs to the queue. All methods but ``submit`` may be
    called again and again, ``cancel`` for a job that is over too.
    """

    rank_variable: ClassVar[str]
    """Environment variable that tells a node its number, from 0 on."""
    host_variable: ClassVar[str] = ""
    """Environment variable that tells a node its host's name, where its own name is another."""
    shares_disk: ClassVar[bool] = True
    """The nodes see the session directory. If not, ``logs`` fetches what they print."""
    program_file: ClassVar[str] = ""
    """File in a job's folder with its program, and so with secrets: it is removed with the run."""

    def node_names(self, name: str, nodes: int) -> Sequence[str]:
        """Give the names by which the nodes of a job find each other, where they are known before.

        Without them, nodes tell each other their addresses in the job's folder.
        """
        del name, nodes
        return ()

    @abstractmethod
    def dry_run_text(self, job: Job) -> str:
        """Show what would be submitted, as text."""

    @abstractmethod
    def submit(self, job: Job) -> str:
        """Submit a job, and give its handle.

        Raises:
            BrokenError: The engine refuses it.
        """

    @abstractmethod
    def state(self, handle: str) -> JobState:
        """Say how far a job is.

        Raises:
            SilentQueueError: The engine does not answer.
        """

    def logs(self, handle: str) -> bool:
        """Bring what the nodes have printed to the job's files; say whether all of it is there."""
        del handle
        return True

    def close(self, handle: str) -> Sequence[str]:
        """Be done with a job that is over, and say what of its output is lost."""
        del handle
        return ()

    @abstractmethod
    def cancel(self, handle: str) -> None:
        """Have a job ended, in order at first, and everything that it has made removed.

        Raises:
            SilentQueueError: The engine does not answer.
        """

    @abstractmethod
    def cancel_command(self, name: str) -> list[str]:
        """Give a command that does the same, to be run when this process is gone.

        It ends with 0 where there is no job of this name, too.
        """


def output_of(
    command: Sequence[str], *, name: str, stdin: str = "", **environment: str | None
) -> str:
    """Return what a command of an engine prints, for the queue of this name.

    A variable of ``environment`` that is ``None`` is not set for it.

    Raises:
        SilentQueueError: It has not ended after ``CALL_LIMIT_S`` seconds.
        BrokenError: It cannot be started or has failed, with its last words.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the engine's
            command,
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=CALL_LIMIT_S,
            # A signal to the tests is none to what they submit, or cancel.
            start_new_session=True,
            env={
                name: value
                for name, value in {**os.environ, **environment}.items()
                if value is not None
            },
        )
    except OSError as error:
        raise BrokenError(
            f"cannot start {command[0]!r}: {error.strerror}; the launcher {name} needs its "
            "engine's commands on this machine"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SilentQueueError(
            f"{command[0]} did not answer within {CALL_LIMIT_S:g} s; try it by hand: the service "
            "behind it may be down, or slow"
        ) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
        raise BrokenError(f"{command[0]}: {'; '.join(said) or f'status {done.returncode}'}")
    return done.stdout
