"""One node of a run: the connection to its supervisor, the orders it is given, what it reports."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import IO, Any, Final, cast, final

from pytest_dlperf.launch.hosts import Node
from pytest_dlperf.launch.launchers import Launcher, foreign_names, last_words, lock_name
from pytest_dlperf.launch.plan import NodeCommand
from pytest_dlperf.launch.record import open_log
from pytest_dlperf.launch.remote_call import describe_exit, sent_program, source_of, start
from pytest_dlperf.logs.arrivals import ArrivalsWriter
from pytest_dlperf.model.errors import BrokenError
from pytest_dlperf.node import processes, supervisor
from pytest_dlperf.node.remains import describe_survivors

HEARTBEAT_TIMEOUT_S: Final = 3.5
"""Seconds of silence after which each side gives the other up."""
TERMINATION_GRACE_S: Final = 3.0
"""The processes of a run may take so long to end after SIGTERM."""
_EXIT_LIMIT_S: Final = 2.0
"""The launcher's command may take so long to end after what it has brought."""
_LAST_WORDS_BYTES: Final = 2048
_CONNECTION_LOST: Final = re.compile(
    r"Connection (?:to|closed|reset|timed)\b|client_loop: |Timeout, server |Read from remote host "
    r"|packet_write_|srun: error: Node failure|slurmstepd: error: .* DUE TO NODE FAILURE"
    r"|error: .*(?:stream|connection|EOF)"
).match
"""What OpenSSH, Slurm and kubectl say where it is not the other end that has ended."""


class NodeState(IntEnum):
    """How far a node has come, by its reports; ``release`` leads back to ``READY``."""

    CONNECTING = 0  # nothing was heard yet
    READY = 1  # the supervisor waits for orders
    BUSY = 2  # another run has locked a device of the host
    PREPARED = 3  # devices are locked, the run's folder is there
    UNUSABLE = 4  # the host cannot be prepared, or the program not be started
    RUNNING = 5
    EXITED = 6  # the program has ended, what it has started may live
    CLEANED_UP = 7  # all is ended, and the supervisor is about to end


_STATES: Final = {
    "ready": NodeState.READY,
    "busy": NodeState.BUSY,
    "prepared": NodeState.PREPARED,
    "cannot": NodeState.UNUSABLE,
    "started": NodeState.RUNNING,
    "ended": NodeState.EXITED,
    "final": NodeState.CLEANED_UP,
}


@final
class RemoteNode:
    """A node of a run, whose supervisor takes orders over a connection of its own."""

    def __init__(self, launcher: Launcher, node: Node, marker: str) -> None:
        """Start the supervisor, which waits for orders; its errors go to the node's log.

        The ``marker`` among its arguments identifies it on the host.
        """
        self.node = node
        self.marker = marker
        self.state = NodeState.CONNECTING
        self.reports: dict[str, Any] = {}
        """What it has reported last, by the word."""
        self.notes: list[str] = []
        """What the user has to know, and has not been told: no problem of the run itself."""
        self.is_gone = False
        """Whether the supervisor has ended, or is out of reach."""
        self.lost: str | None = None
        """Why it is out of reach, or was stopped."""
        self._problems: list[str] = []
        self._remote = launcher.remote
        self._arrivals = ArrivalsWriter(node.log)
        self._command: NodeCommand | None = None
        self._received = b""
        timeout_s = str(HEARTBEAT_TIMEOUT_S)
        program, sent = sent_program(launcher.python, source_of(supervisor), timeout_s, marker)
        self._client = launcher.command(node.host, program)
        with open_log(node.log) as log:
            self._process = start(self._client, launcher, subprocess.PIPE, log)
        self._orders = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        self._orders_lock = threading.Lock()
        self._heard_at = time.monotonic()
        self._send(sent)

    @property
    def exit_code(self) -> int | None:
        """The program's, or the negative number of the signal that ended it."""
        code: int | None = self.reports.get("ended")
        return code

    @property
    def is_done(self) -> bool:
        """Whether the program has ended."""
        return self.is_gone or self.exit_code is not None

    @property
    def failed(self) -> bool:
        """Whether the program has ended with an error, or in an unknown way."""
        return self.is_done and self.exit_code != 0

    @property
    def needs_sweep(self) -> bool:
        """Whether its supervisor ended without having cleaned up, so that another one has to."""
        return self.is_gone and NodeState.PREPARED <= self.state < NodeState.CLEANED_UP

    def is_past(self, state: NodeState) -> bool:
        """Whether it is known what became of a node in this state."""
        return self.is_gone or self.state > state

    # ------------------------------------------------------------------ orders

    def prepare(self, *, sweep: str, folder: str, files: Mapping[str, str]) -> None:
        """Have the devices locked and the run's folder made, with these files."""
        scope, devices = self.node.lock_scope, self.node.locked_devices
        run_id = self.marker.partition(".")[0]
        self.order(
            "prepare",
            sweep=sweep,
            node_folder=_as_text(folder),
            files=dict(files),
            run_lock=lock_name(scope, f"run-{run_id}") if devices else None,
            device_locks=[lock_name(scope, device) for device in devices],
        )

    def release(self) -> None:
        """Have taken back what was prepared, for another run to have it."""
        self.state = NodeState.READY
        self.order("release")

    def start(
        self,
        command: NodeCommand,
        *,
        inherits: Sequence[str],
        in_front: Mapping[str, tuple[str, str]],
    ) -> None:
        """Have the program started; it ``inherits`` what belongs to how it is started.

        ``in_front`` is what stands before the values that variables have there, or else before
        these defaults.
        """
        self._command = command
        folder = command.working_directory
        environment = {"PYTHONUNBUFFERED": "1", **command.environment}
        self.order(
            "start",
            arguments=[*map(_as_text, command.arguments)],
            container=command.container is not None,
            environment=_as_texts({**environment, processes.MARKER: self.marker}),
            without=foreign_names(inherits),
            in_front=dict(in_front),
            python_path=[*map(_as_text, command.python_path)],
            folder=_as_text(str(Path.cwd() / (folder or ""))),
            log_file=None if command.log_file is None else _as_text(command.log_file),
            log_file_whole=command.log_file_whole,
            needs_folder=folder is not None,
            grace_s=TERMINATION_GRACE_S,
            at_end=[*map(_as_text, command.at_end)],
        )

    def sweep_order(self, sweep: str, folder: str) -> dict[str, Any]:
        """Give the order to end what a lost supervisor has left: processes, and the run's folder.

        It is for a program of its own, that comes over another connection.
        """
        command = self._command
        return {
            "marker": self.marker,
            "sweep": sweep,
            "folder": _as_text(folder),
            "at_end": [*map(_as_text, command.at_end)] if command else [],
            "environment": _as_texts(command.environment) if command else {},
        }

    def order(self, word: str, **details: object) -> None:
        """Give an order; one that the supervisor does not know is a sign of life."""
        self._send(f"{word} {json.dumps(details)}\n".encode("ascii"))

    def _send(self, order: bytes) -> None:
        # Where the supervisor has ended, the end of its reports says so.
        with self._orders_lock, contextlib.suppress(BrokenPipeError):
            if not self._orders.closed:
                self._orders.write(order)
                self._orders.flush()

    def end_orders(self) -> None:
        """Close the supervisor's input, at which it kills all that is left."""
        with self._orders_lock, contextlib.suppress(BrokenPipeError):
            self._orders.close()

    # ------------------------------------------------------------------ reports

    def fileno(self) -> int:
        """Return the descriptor at which the reports of the supervisor come in."""
        return self._answers.fileno()

    def receive(self) -> bool:
        """Take what the supervisor reports, waiting for it if need be; say whether it is news."""
        received = os.read(self.fileno(), 65536)
        self._heard_at = time.monotonic()
        self.is_gone = self.is_gone or not received
        *lines, self._received = (self._received + received).split(b"\n")
        changed = [self._take(report) for line in lines if (report := read_report(line))]
        return self.is_gone or any(changed)

    def _take(self, report: dict[str, Any]) -> bool:
        """Take a report; say whether it is more than a sign of life, and output's time."""
        if self.state is NodeState.CONNECTING and "ready" not in report:
            return False  # it was printed by something on the way
        if "arrivals" in report:
            self._arrivals.add(report["arrivals"], report["anchor"])
            self.reports["lost"] = report["lost"] or self.reports.get("lost")
            return False
        for word in report.keys() & _STATES.keys():
            self.state = _STATES[word]
        self.reports.update(report)
        if "note" in report:
            self.notes.append(report["note"])
        if "at_end" in report:
            self._problems.append(f"at the end of the run, {report['at_end']}")
        if "deserted" in report:
            self.lost = (
                f"its supervisor heard nothing for {HEARTBEAT_TIMEOUT_S:g} s, as when the "
                "network is cut or the tests are stopped, and ended the run"
            )
        return "alive" not in report

    def give_up_if_silent(self, now: float) -> bool:
        """Give up a supervisor that shows no sign of life; say whether it was.

        Before its node is prepared and after it is cleaned up there are limits of their own: to
        remove files may take long.
        """
        is_silent = now - self._heard_at > HEARTBEAT_TIMEOUT_S and not self.is_gone
        if not (is_silent and NodeState.PREPARED <= self.state < NodeState.CLEANED_UP):
            return False
        poll = select.poll()
        poll.register(self, select.POLLIN)
        if poll.poll(0):
            return False  # reports are waiting: it is this process that was stopped
        why = "its supervisor was stopped"
        if self._remote:
            why = f"the connection is lost, or {why}"
        self.lost = f"no sign of life for {HEARTBEAT_TIMEOUT_S:g} s: {why}"
        self._cut()
        return True

    def check_past(self, state: NodeState, limit_s: float | None) -> None:
        """Check that it got over a state within the limit; with ``None``, that it still may.

        Raises:
            BrokenError: It did not, or came to where a run cannot go on.
        """
        problem = None
        if self.state is NodeState.UNUSABLE:
            problem = self.reports["cannot"]
        elif self.state <= state:
            if self.is_gone:
                how = describe_exit(self._client, self._exit_status())
                words = last_words(self._last_lines())
                problem = self.lost or (f"{how}: {words}" if words else how)
            elif limit_s is not None:
                problem = f"no answer for {limit_s:g} s"
        if problem is not None:
            raise BrokenError(f"host {self.node.host.name}: {problem}")

    # ------------------------------------------------------------------ the end

    def close(self) -> list[str]:
        """Be done with the supervisor, which has ended or should have; say what went wrong.

        One that has prepared nothing has nothing to clean up: the end of its input ends it.
        """
        if self._answers.closed:
            return []
        problems = []
        if self.state < NodeState.PREPARED:
            self._cut()
        elif not self.is_gone:
            # One that has cleaned up removes what the run has written: the next one does the rest.
            self._cut()
            if self.state is not NodeState.CLEANED_UP:
                problems.append("its supervisor did not end as it should")
        elif self.lost is not None:
            problems.append(self.lost)
        elif "started" in self.reports and self.exit_code is None:
            problems.append(self._sudden_end())
        if "signal" in self.reports:
            problems.append(f"its supervisor was ended by {self.reports['signal']}")
        self.end_orders()
        self._answers.close()
        self._exit_status()
        if lost := self.reports.get("lost"):
            log = self.node.log
            problems.append(f"some of the output is lost: cannot write the log {log}: {lost}")
        problems += self._problems
        left = self.reports.get("final", {}).get("left")
        return [*problems, describe_survivors(left)] if left else problems

    def _cut(self) -> None:
        """Close the connection; the supervisor, which hears nothing either, ends the run."""
        self.is_gone = True
        self.end_orders()
        if self._remote:
            self._process.kill()

    def _exit_status(self) -> int:
        try:
            self._process.wait(_EXIT_LIMIT_S)
        except subprocess.TimeoutExpired:
            # Its output has ended, but the command itself goes on.
            self._process.kill()
            self._process.wait()
        return self._process.returncode

    def _sudden_end(self) -> str:
        """Say why the connection ended too early."""
        how = describe_exit(self._client, self._exit_status())
        if self._remote:
            if lost := [line for line in self._last_lines() if _CONNECTION_LOST(line)]:
                return f"the connection is lost: {lost[0]}"
            if self._exit_status() < 0:
                return f"the connection is lost: {how}"
        return f"its supervisor was killed ({how})"

    def _last_lines(self) -> list[str]:
        """Return the last lines of the log, where ssh and the like write their errors too."""
        with contextlib.suppress(OSError), self.node.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
            return [line.strip() for line in lines if line.strip()]
        return []


def read_report(line: bytes) -> dict[str, Any]:
    """Read a report; it is empty where the line is another program's, such as a login shell's."""
    try:
        report = json.loads(line)
    except ValueError:
        return {}
    return report if isinstance(report, dict) else {}


def _as_text(text: str) -> str:
    """Write bytes that are no text so that they survive the way, whatever both encodings are."""
    return os.fsencode(text).decode("latin-1")


def _as_texts(variables: Mapping[str, str]) -> dict[str, str]:
    return {_as_text(name): _as_text(value) for name, value in variables.items()}
