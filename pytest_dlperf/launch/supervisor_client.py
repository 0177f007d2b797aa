"""A node of a run that a connection leads to: orders to its supervisor, and what went wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, final

from pytest_dlperf.launch import channel
from pytest_dlperf.launch.channel import Channel
from pytest_dlperf.launch.inherited import foreign_names
from pytest_dlperf.launch.launchers import Launcher, lock_name
from pytest_dlperf.launch.node_progress import (
    CONNECTED,
    START_IS_KNOWN,
    TO_CLEAN_UP,
    TRANSITIONS,
    FinalReport,
    NodeState,
    Report,
    first_known,
)
from pytest_dlperf.launch.plan import Node, NodeCommand
from pytest_dlperf.logs.arrivals import ArrivalsWriter
from pytest_dlperf.model.errors import BrokenError
from pytest_dlperf.node import processes
from pytest_dlperf.node.remains import describe_survivors

TERMINATION_GRACE_S: Final = 3.0
"""The processes of a run may take so long to end after SIGTERM."""


_NOTHING: Final[Mapping[str, tuple[str, str]]] = MappingProxyType({})


@final
class SupervisorClient:
    """A node of a run, whose supervisor takes orders over a connection of its own."""

    def __init__(self, launcher: Launcher, node: Node, marker: str, *, again: bool = False) -> None:
        """Start the supervisor, which waits for orders.

        With ``again`` the log may hold what an earlier try of the same run has left in it.
        """
        self.node = node
        self.state = NodeState.CONNECTING
        self.pid: int | None = None
        """The number of the program's process, once it was started."""
        self.exit_code: int | None = None
        """The program's exit code, or the negative number of the signal that ended it."""
        self.problem: str | None = None
        """Why the node cannot be prepared, or its program not be started."""
        self.holder: str | None = None
        """Who held a device of the host when it was busy."""
        self.notes: list[str] = []
        """What the user has to know, and has not been told: no problem of the run itself."""
        self.final: FinalReport | None = None
        """What it has reported at its end."""
        self._lost_output: str | None = None
        self._at_end: list[str] = []
        self._arrivals = ArrivalsWriter(node.log)
        self.marker = marker
        self._command: NodeCommand | None = None
        self._signal: str | None = None
        self._channel = Channel(launcher, node.host, node.log, marker, again=again)

    @property
    def is_gone(self) -> bool:
        """Whether the supervisor has ended, or is out of reach."""
        return self._channel.closed

    @property
    def lost(self) -> str | None:
        """Why it is out of reach, or was stopped."""
        return self._channel.lost

    @property
    def where(self) -> str:
        """The node, for people."""
        return f"host {self.node.host.name}"

    @property
    def is_done(self) -> bool:
        """Whether the program has ended."""
        return self.is_gone or self.exit_code is not None

    @property
    def failed(self) -> bool:
        """Whether the program has ended with an error, or in an unknown way."""
        return self.is_done and self.exit_code != 0

    @property
    def is_broken_off(self) -> bool:
        """Whether the program was started and has not ended without an error."""
        return self.pid is not None and self.exit_code != 0

    @property
    def is_connected(self) -> bool:
        """Whether the node itself has reported."""
        return self.state in CONNECTED

    @property
    def is_reached(self) -> bool:
        """Whether it is known if the supervisor is there."""
        return self.is_gone or self.is_connected

    @property
    def preparation_is_known(self) -> bool:
        """Whether it is known if the node is ready to start its program."""
        return self.is_gone or self.state in CONNECTED - {NodeState.READY}

    @property
    def start_is_known(self) -> bool:
        """Whether it is known if the program was started."""
        return self.is_gone or self.state in START_IS_KNOWN

    @property
    def has_remains(self) -> bool:
        """Whether there is something of the run on the node."""
        return self.state in TO_CLEAN_UP

    @property
    def was_prepared(self) -> bool:
        """Whether there was something of the run on the node."""
        return self.has_remains or self.state is NodeState.CLEANED_UP

    @property
    def needs_sweep(self) -> bool:
        """Whether its supervisor ended without having cleaned up, so that another one has to."""
        return self.is_gone and self.has_remains

    # ------------------------------------------------------------------ orders

    def prepare(self, *, sweep: str, folder: str, files: Mapping[str, str]) -> None:
        """Have the devices locked and the run's folder made, with these files."""
        scope, devices = self.node.lock_scope, self.node.locked_devices
        run_id = self.marker.partition(".")[0]
        details = {
            "sweep": sweep,
            "node_folder": _as_text(folder),
            "files": dict(files),
            "run_lock": lock_name(scope, f"run-{run_id}") if devices else None,
            "device_locks": [lock_name(scope, device) for device in devices],
        }
        self._channel.send(_order("prepare", **details))

    def release(self) -> None:
        """Have taken back what was prepared, for another run to have it."""
        self.state = NodeState.READY
        self._channel.send(_order("release"))

    def start(
        self,
        command: NodeCommand,
        *,
        inherits: Sequence[str],
        in_front: Mapping[str, tuple[str, str]] = _NOTHING,
    ) -> None:
        """Have the program started; it ``inherits`` what belongs to how it is started.

        ``in_front`` is what stands before the values that variables have there, or else before
        these defaults.
        """
        self._command = command
        details = _start_details(command, self.marker, inherits, in_front)
        self._channel.send(_order("start", **details))

    def end(self) -> None:
        """Have all that the program has started ended, politely at first."""
        self._channel.send(_order("end"))

    def kill(self) -> None:
        """Have all that the program has started killed."""
        self._channel.send(_order("kill"))
        self._channel.end_orders()

    def show_life(self) -> None:
        """Show the supervisor a sign of life."""
        self._channel.send(b"\n")

    def sweep_order(self, sweep: str, folder: str) -> bytes:
        """Give the order to end what a lost supervisor has left: processes, and the run's folder.

        It is for a program of its own, that comes over another connection.
        """
        at_end = () if self._command is None else self._command.at_end
        environment = {} if self._command is None else self._command.environment
        order = {
            "marker": self.marker,
            "sweep": sweep,
            "folder": _as_text(folder),
            "at_end": [[_as_text(argument) for argument in one] for one in at_end],
            "environment": {_as_text(k): _as_text(value) for k, value in environment.items()},
        }
        return f"{json.dumps(order)}\n".encode("ascii")

    # ------------------------------------------------------------------ reports

    def fileno(self) -> int:
        """Return the descriptor at which the reports of the supervisor come in."""
        return self._channel.fileno()

    def receive(self) -> bool:
        """Take what the supervisor reports, waiting for it if need be; say whether it is news."""
        changed = [self.take(report) for report in self._channel.receive()]
        return self.is_gone or any(changed)

    def take(self, report: Report) -> bool:
        """Take a report; say whether it is more than a sign of life, and output's time."""
        if report.arrivals is not None and self.is_connected:
            self._arrivals.add(report.arrivals, report.anchor)
            self._lost_output = report.lost or self._lost_output
            return False
        for word, (before, after) in TRANSITIONS.items():
            if getattr(report, word) is not None and self.state in before:
                self.state = after
        if not self.is_connected:
            return False  # it was printed by something on the way
        self.pid = first_known(report.started, self.pid)
        self.problem = first_known(report.cannot_prepare, report.cannot_start, self.problem)
        self.holder = first_known(report.busy, self.holder)
        self.final = first_known(report.final, self.final)
        self.exit_code = first_known(report.ended, self.exit_code)
        self.notes += report.notes
        if report.at_end is not None:
            self._at_end.append(report.at_end)
        self._signal = report.signal or self._signal
        if report.deserted:
            self._channel.lost = (
                f"its supervisor heard nothing for {channel.HEARTBEAT_TIMEOUT_S:g} s, as when the "
                "network is cut or the tests are stopped, and ended the run"
            )
        return report.alive is None

    def check_life(self, now: float) -> None:
        """Give up a supervisor that shows no sign of life.

        Before its node is prepared and after it is cleaned up there are limits of their own: to
        remove files may take long.
        """
        if self.has_remains:
            self._channel.check_heartbeat(now)

    # ------------------------------------------------------------------ what went wrong

    def check_reached(self, limit_s: float | None) -> None:
        """Check that the supervisor is there; with ``None``, that it may still come."""
        if self.state is NodeState.CONNECTING:
            self._check_not_gone()
            if limit_s is not None:
                raise BrokenError(f"{self.where}: no answer for {limit_s:g} s")

    def check_prepared(self, limit_s: float) -> None:
        """Check that the node is ready or busy, as opposed to unusable."""
        if self.state is NodeState.UNUSABLE:
            raise BrokenError(f"{self.where}: {self.problem}")
        self._check_not_gone()
        if not self.preparation_is_known:
            raise BrokenError(f"{self.where}: no answer for {limit_s:g} s when it was prepared")

    def check_started(self, limit_s: float) -> None:
        """Check that the program was started."""
        command = self._command
        if self.state is NodeState.NOT_STARTED and command is not None:
            on_host = f" on {self.node.host.name}" if self._channel.remote else ""
            what = f"cannot start node {command.node_rank}{on_host}"
            if not self.problem:
                folder = command.working_directory
                raise BrokenError(f"{what}: its working directory {folder!r} is not a folder there")
            program = command.arguments[0]
            where = "" if "/" in program else " in the folders of PATH"
            raise BrokenError(f"{what}: program {program!r}{where}: {self.problem}")
        if self.pid is None:
            self._check_not_gone()
        if not self.start_is_known:
            raise BrokenError(f"{self.where}: no answer for {limit_s:g} s at the start")

    def _check_not_gone(self) -> None:
        if self.is_gone:
            raise BrokenError(f"{self.where}: {self.lost or self._channel.last_words()}")

    # ------------------------------------------------------------------ the end

    def abandon(self) -> None:
        """Be done with a supervisor that has nothing to clean up: the end of its input ends it."""
        self._channel.cut()
        self._channel.close()

    def close(self) -> list[str]:
        """Be done with the supervisor, which has ended or should have; say what went wrong."""
        if self._channel.is_done:
            return []  # abandoned
        problems = []
        if not self.is_gone:
            # One that has cleaned up removes what the run has written: the next one does the rest.
            self._channel.cut()
            if self.state is not NodeState.CLEANED_UP:
                problems.append("its supervisor did not end as it should")
        elif self.lost is not None:
            problems.append(self.lost)
        elif self.pid is not None and self.exit_code is None:
            problems.append(self._channel.sudden_end())
        if self._signal is not None:
            problems.append(f"its supervisor was ended by {self._signal}")
        self._channel.close()
        return [*problems, *self._problems_of_output()]

    def _problems_of_output(self) -> list[str]:
        """Say what output is lost, and what could not be cleaned up."""
        problems = []
        if self._lost_output is not None:
            problems.append(
                f"some of the output is lost: cannot write the log {self.node.log}: "
                f"{self._lost_output}"
            )
        problems += [f"at the end of the run, {problem}" for problem in self._at_end]
        left = () if self.final is None else self.final.left
        return [*problems, describe_survivors(left)] if left else problems


def _start_details(
    command: NodeCommand,
    marker: str,
    inherits: Sequence[str],
    in_front: Mapping[str, tuple[str, str]] = _NOTHING,
) -> dict[str, Any]:
    """Word the order that starts a node's program."""
    folder = command.working_directory
    environment = {"PYTHONUNBUFFERED": "1", **command.environment, processes.MARKER: marker}
    return {
        "arguments": [_as_text(argument) for argument in command.arguments],
        "container": command.container is not None,
        "environment": {_as_text(key): _as_text(value) for key, value in environment.items()},
        "without": foreign_names(inherits),
        "in_front": dict(in_front),
        "python_path": [_as_text(path) for path in command.python_path],
        "folder": _as_text(str(Path.cwd() / (folder or ""))),
        "log_file": None if command.log_file is None else _as_text(command.log_file),
        "log_file_whole": command.log_file_whole,
        "needs_folder": folder is not None,
        "grace_s": TERMINATION_GRACE_S,
        "at_end": [[_as_text(argument) for argument in one] for one in command.at_end],
    }


def _order(word: str, **details: object) -> bytes:
    return f"{word} {json.dumps(details)}\n".encode("ascii")


def _as_text(text: str) -> str:
    """Write bytes that are no text so that they survive the way, whatever both encodings are."""
    return os.fsencode(text).decode("latin-1")
