"""One run: what is ordered, how it ends, and what is written of it beside its logs."""

from __future__ import annotations

import json
import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from msgspec import Struct

from pytest_dlperf.files.masking import hide_variables, hide_words
from pytest_dlperf.files.writing import make_folder, open_at_end, write_whole
from pytest_dlperf.launch.hosts import Node
from pytest_dlperf.launch.plan import SCRATCH, NodeCommand, run_dir
from pytest_dlperf.model.errors import BrokenError


class Stop(Enum):
    """What brings a run to its end."""

    EXITED = "exited"  # its programs ended, or were not started
    COMPLETE = "complete"  # every rank has shown the steps that count
    BROKEN = "broken"  # the log breaks its contract for good
    HUNG = "hung"  # a rank shows no new step
    DISK_FULL = "disk_full"  # where the logs lie
    TIME_LIMIT = "time_limit"


class Stopped(NamedTuple):
    """The end of a run, and why it came, for people."""

    stop: Stop
    reason: str = ""

    def problems(self, signals: Sequence[int]) -> list[str]:
        """Say what kept the run from its own end; ``signals`` have come meanwhile."""
        ended = [f"it was ended by {signal.Signals(signals[0]).name}"] if signals else []
        return [*ended, self.reason] if self.stop is Stop.DISK_FULL else ended


class RunOrder(Struct, frozen=True, kw_only=True):
    """One run: where its nodes go, what they will run there, and how long it may take.

    ``plan`` says what each node runs, node 0 first, once addresses and ports are known. With
    ``head_only`` it says so of node 0 alone, whose program starts the others' itself.
    ``time_limit_s`` counts from the start of the programs. ``scratch`` is the folder on each host
    in which runs make their own.
    """

    nodes: tuple[Node, ...]
    plan: Callable[[Sequence[Node]], Sequence[NodeCommand]]
    time_limit_s: float
    scratch: str = SCRATCH
    head_only: bool = False
    files: Mapping[str, str] = {}
    """What the nodes' folders get, by name."""
    look: Callable[[], Stopped | None] = lambda: None
    """Looks at the run while it lives, and says why it has to end, if it has."""
    say: Callable[[str], None] = lambda _: None
    """Tells the user what the run waits for, and what it has found."""
    wait_limit_s: float = math.inf
    """A run may wait so long for hosts that others hold."""
    loss: Callable[[], str | None] = lambda: None
    """Says why the hosts were taken away, or what else is known of a run that has failed."""


class FirstStep(Struct, frozen=True, kw_only=True):
    """When the first step of all ranks was seen: seconds since the launch, or why unknown."""

    seconds: float | None = None
    problem: str = "logs do not tell when their run was launched; it is known of launches only"


class LaunchOutcome(Struct, frozen=True, kw_only=True):
    """The end of the processes of one run.

    ``exit_codes`` has one entry per command, node 0 first: the program's exit code, the negative
    number of the signal that ended it, or ``None`` where it was not started or is unknown.
    ``first_failed`` are the ranks of the nodes that had failed when a failure was first seen.
    ``elapsed_s`` counts from the first start to the end of the clean-up. ``error`` says what kept
    the run from being started, recorded, watched or ended. ``log_sizes_at_end`` are how many bytes
    each node's log had when the run was seen to be broken, or to have shown enough: what follows
    does not count, or is what its programs said of being ended. They are not there where every
    program that was started ended by itself without an error.
    """

    exit_codes: tuple[int | None, ...]
    elapsed_s: float
    stopped: Stopped
    error: str | None = None
    log_sizes_at_end: tuple[int, ...] = ()
    first_failed: tuple[int, ...] = ()
    first_step: FirstStep = FirstStep()

    @property
    def succeeded(self) -> bool:
        """Whether every program ended by itself without an error, or as soon as it could be."""
        if self.error is not None or self.stopped.stop in (Stop.HUNG, Stop.TIME_LIMIT):
            return False
        # A log that is broken for good says itself what is wrong with the run.
        could_be = self.stopped.stop in (Stop.COMPLETE, Stop.BROKEN)
        return could_be or all(code == 0 for code in self.exit_codes)


def open_log(log: Path) -> BinaryIO:
    """Open the log of a run, which has to be new.

    Raises:
        BrokenError: It cannot be written, or another run has written it.
    """
    try:
        make_folder(log.parent)
        opened = open_at_end(log)
    except OSError as error:
        raise BrokenError(
            f"cannot write the log {log}: {error.filename or log}: {error.strerror}"
        ) from error
    if os.fstat(opened.fileno()).st_size:
        opened.close()
        raise BrokenError(f"the log {log} is not empty: another run has written it")
    return opened


def record_problem(
    commands: Sequence[NodeCommand],
    outcome: LaunchOutcome | None,
    *,
    launcher: str,
    time_limit_s: float,
    started: datetime,
) -> str | None:
    """Write ``command.json`` before a run, and again with its outcome; say why it cannot be."""
    record = {
        "started": started.isoformat(),
        "launcher": launcher,
        "time_limit_s": time_limit_s,
        "elapsed_s": round(outcome.elapsed_s, 3) if outcome else None,
        "stop": outcome.stopped.stop.value if outcome else None,
        "reason": outcome.stopped.reason or None if outcome else None,
        "error": outcome.error if outcome else None,
        "nodes": [_node(rank, each, outcome) for rank, each in enumerate(commands)],
    }
    path = run_dir(commands[0].log) / "command.json"
    try:
        write_whole(path, json.dumps(record, indent=2) + "\n", is_private=True)
    except OSError as error:
        return f"cannot write {path}: {error.strerror}"
    return None


def _node(rank: int, command: NodeCommand, outcome: LaunchOutcome | None) -> dict[str, Any]:
    sizes = outcome.log_sizes_at_end if outcome else ()
    return {
        "node_rank": command.node_rank,
        "host": command.host,
        "address": command.address,
        "arguments": hide_words(command.arguments),
        "working_directory": command.working_directory or os.getcwd(),  # noqa: PTH109
        "environment": hide_variables(command.environment),
        "python_path": list(command.python_path),
        "log": str(command.log),
        "log_file": command.log_file,
        "log_size_at_end": sizes[rank] if sizes else None,
        "exit_code": outcome.exit_codes[rank] if outcome else None,
    }
