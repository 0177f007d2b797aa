"""The connection to one supervisor: a launcher's command, its pipes, and their heartbeat."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, BinaryIO, Final, final
from weakref import WeakSet

from pytest_dlperf.files.writing import make_folder, open_at_end
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.launch.node_progress import Report, read_report
from pytest_dlperf.launch.remote_call import (
    describe_exit,
    dying_with_parent,
    last_words,
    sent_program,
    source_of,
)
from pytest_dlperf.model.errors import BrokenError
from pytest_dlperf.node import supervisor

HEARTBEAT_TIMEOUT_S: Final = 3.5
"""Seconds of silence after which each side gives the other up."""
EXIT_LIMIT_S: Final = 2.0
"""The launcher's command may take so long to end after what it has brought."""
LAST_WORDS_BYTES: Final = 2048
_CONNECTION_LOST: Final = re.compile(
    r"Connection (?:to|closed|reset|timed)\b|client_loop: |Timeout, server |Read from remote host "
    r"|packet_write_|srun: error: Node failure|slurmstepd: error: .* DUE TO NODE FAILURE"
    r"|error: .*(?:stream|connection|EOF)"
).match
"""What OpenSSH, Slurm and kubectl say where it is not the other end that has ended."""


@final
class Channel:
    """Carries orders to a supervisor and its reports back; the program's output goes to a log."""

    def __init__(
        self, launcher: Launcher, host: Host, log: Path, marker: str, *, again: bool
    ) -> None:
        """Start a supervisor on the host, which waits for orders; its errors go to ``log``.

        The ``marker`` among its arguments identifies it on the host.
        """
        self.remote = launcher.remote
        self.closed = False
        """Whether the supervisor has ended, or is out of reach."""
        self.lost: str | None = None
        """Why it is out of reach."""
        self._log = log
        self._received = b""
        timeout_s = str(HEARTBEAT_TIMEOUT_S)
        program, sent = sent_program(launcher.python, source_of(supervisor), timeout_s, marker)
        self._command = launcher.command(host, program)
        with open_log(log, again=again) as file:
            # A step that cannot be reached would keep srun for ever.
            outlives_us = launcher.queues
            command = dying_with_parent(self._command) if outlives_us else self._command
            self._process = _started(command, file)
        self._orders_lock = threading.Lock()
        self._heard_at = time.monotonic()
        leave_to_no_fork(self._process)
        self.send(sent)

    def fileno(self) -> int:
        """Return the descriptor at which reports come in."""
        return _pipe(self._process.stdout).fileno()

    def send(self, order: bytes) -> None:
        """Give the supervisor an order, unless it has ended."""
        orders = _pipe(self._process.stdin)
        # Where it has, the end of its reports says so.
        with self._orders_lock, contextlib.suppress(BrokenPipeError):
            if not orders.closed:
                orders.write(order)
                orders.flush()

    def receive(self) -> list[Report]:
        """Return the reports that have arrived; block until there are some."""
        received = os.read(self.fileno(), 65536)
        self._heard_at = time.monotonic()
        self.closed = self.closed or not received
        *lines, self._received = (self._received + received).split(b"\n")
        # A login shell may greet first.
        return [report for line in lines if (report := read_report(line)) is not None]

    def check_heartbeat(self, now: float) -> None:
        """Give up a supervisor that has been silent for too long."""
        is_silent = now - self._heard_at > HEARTBEAT_TIMEOUT_S
        if is_silent and not self.closed and not self._has_news():
            why = "its supervisor was stopped"
            if self.remote:
                why = f"the connection is lost, or {why}"
            self.cut(f"no sign of life for {HEARTBEAT_TIMEOUT_S:g} s: {why}")

    def _has_news(self) -> bool:
        """Say whether reports are waiting: this process itself may have been stopped."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        return bool(poll.poll(0))

    def cut(self, reason: str | None = None) -> None:
        """Close the connection; the supervisor, which hears nothing either, ends the run."""
        self.lost = reason
        self.closed = True
        self.end_orders()
        if self.remote:
            self._process.kill()

    @property
    def is_done(self) -> bool:
        """Whether ``close`` was called."""
        return _pipe(self._process.stdout).closed

    def close(self) -> None:
        """Wait for the launcher's command to end, and close its pipes."""
        self.end_orders()
        _pipe(self._process.stdout).close()
        self.closed = True
        self._exit_status()

    def end_orders(self) -> None:
        """Close the supervisor's input, at which it kills all that is left."""
        with self._orders_lock, contextlib.suppress(BrokenPipeError):
            _pipe(self._process.stdin).close()

    def last_words(self) -> str:
        """Say how the launcher's command ended, with the last line of the log."""
        text = describe_exit(self._command, self._exit_status())
        words = last_words(self._last_lines())
        return f"{text}: {words}" if words else text

    def sudden_end(self) -> str:
        """Say why the connection ended too early."""
        how = describe_exit(self._command, self._exit_status())
        if self.remote:
            for line in self._last_lines():
                if _CONNECTION_LOST(line):
                    return f"the connection is lost: {line}"
            if self._exit_status() < 0:
                return f"the connection is lost: {how}"
        return f"its supervisor was killed ({how})"

    def _last_lines(self) -> list[str]:
        """Return the last lines of the log, where ssh and the like write their errors too."""
        with contextlib.suppress(OSError), self._log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - LAST_WORDS_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
            return [line.strip() for line in lines if line.strip()]
        return []

    def _exit_status(self) -> int:
        try:
            self._process.wait(EXIT_LIMIT_S)
        except subprocess.TimeoutExpired:
            # Its output has ended, but the command itself goes on.
            self._process.kill()
            self._process.wait()
        return self._process.returncode


_WITH_INPUT: Final[WeakSet[subprocess.Popen[bytes]]] = WeakSet()


def leave_to_no_fork(process: subprocess.Popen[bytes]) -> None:
    """Close the process's input in forked children, which would keep it open otherwise."""
    _WITH_INPUT.add(process)


def _leave_inputs() -> None:
    for process in _WITH_INPUT:
        if process.stdin is not None and not process.stdin.closed:
            with open(os.devnull, "wb") as nothing:  # noqa: PTH123 - as plain as it gets in a fork
                os.dup2(nothing.fileno(), process.stdin.fileno())


os.register_at_fork(after_in_child=_leave_inputs)


def open_log(log: Path, *, again: bool = False) -> BinaryIO:
    """Open the log of a run, which has to be new unless the run begins ``again``.

    Raises:
        BrokenError: It cannot be written, or another run has written it.
    """
    try:
        make_folder(log.parent)
    except OSError as error:
        raise BrokenError(f"cannot make the log folder {log.parent}: {error.strerror}") from error
    try:
        opened = open_at_end(log)
        if again:
            opened.truncate(0)
    except OSError as error:
        raise BrokenError(f"cannot write the log {log}: {error.strerror}") from error
    if os.fstat(opened.fileno()).st_size:
        opened.close()
        raise BrokenError(f"the log {log} is not empty: another run has written it")
    return opened


def _started(command: list[str], log: BinaryIO) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - what the launcher says
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    except OSError as error:
        raise BrokenError(f"cannot start {command[0]!r}: {error.strerror}") from error


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise AssertionError("every supervisor has its pipes")
    return stream
