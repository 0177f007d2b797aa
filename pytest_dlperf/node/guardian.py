"""The guardian: above a supervisor, and does nothing but wait, and end what one that died has left.

A supervisor may be killed or stopped like any process. What it has started becomes the guardian's
then, whatever its session, group or environment, so nothing escapes. The other way round, the
supervisor ends all as soon as its guardian is gone. Only who kills both leaves anything.

It is sent to a node as a part of the supervisor: so it imports the standard library only, and runs
on Python 3.6.
"""

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import TYPE_CHECKING

from pytest_dlperf.node.locks import acquire_socket_lock
from pytest_dlperf.node.processes import Below, become_reaper, send, state
from pytest_dlperf.node.remains import REPORT_LIMIT_S, Remains, report
from pytest_dlperf.node.roster import Roster

if TYPE_CHECKING:
    from types import FrameType

HEARTBEAT_INTERVAL_S = 1.0
"""Interval between signs of life of each side, where a network lies between them."""
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that mean the end of a run. Those that are ignored at the start stay so."""

_SIGNALLED = 128
_LOOK_S = 0.2
_LAST_LOOK_S = 0.1
_STOPPED_LIMIT_S = 2.0
"""Shorter than a supervisor is waited for that is silent: so it is told what became of it."""
_STUCK_LIMIT_S = 3.0
_STOPPED_AT_LAST_LIMIT_S = 0.3
_DYING_LIMIT_S = 1.0


def guarded(timeout_s: float, marker: str) -> "socket.socket":
    """Leave a guardian behind in this process, and go on as its child, with a link to it.

    Over the link the guardian is told what there is of the run. Where a network lies between,
    whoever gives the orders gives up after ``timeout_s`` seconds of silence (0: never). The run's
    ``marker`` names the roster of what is below the guardian.
    """
    become_reaper()
    # Who ignores the end of children does not learn how they ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    link, own = socket.socketpair()
    child = os.fork()
    if child:
        own.close()
        os._exit(_Guardian(child, link, timeout_s, Roster(marker)).watch())
    link.close()
    # A signal to the guardian's process group is not for both.
    os.setsid()
    become_reaper()
    return own


class _Guardian:
    """Waits for the end of a supervisor."""

    def __init__(self, child: int, link: "socket.socket", timeout_s: float, roster: Roster) -> None:
        self._child = child
        self._link = link
        self._timeout_s = timeout_s
        self._remains = Remains()
        self._roster = roster
        self._received = b""
        self._status = None  # type: int | None
        self._hung_up_at = None  # type: float | None
        self._runs_at = self._alive_at = time.monotonic()
        for number in FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._forward)

    def watch(self) -> int:
        """Wait for the end, see to it that nothing is left, and return an exit code."""
        fate = self._fate()
        status = self._status
        if status is not None and os.WIFEXITED(status) and self._remains.left is not None:
            self._roster.close(self._end_left_over())
            return os.WEXITSTATUS(status)
        # Nobody else may begin here before all is gone. Where somebody has, that is as it is.
        locks = [acquire_socket_lock(name) for name in self._remains.locks]
        report(supervisor_killed=fate)
        send(self._child, signal.SIGKILL)
        left = self._remains.end(Below(os.getpid()), pause=self._pause)
        for lock in locks:
            if lock is not None:
                lock.close()
        report(clean=not left, left=left)
        self._remains.remove_files()
        self._roster.close(left)
        return _SIGNALLED + signal.SIGKILL

    def _fate(self) -> str:
        """Wait until the supervisor has ended, or has to be; say what became of it."""
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        # Orders are for the supervisor. That no more will come shows without reading them; of a
        # socket only half may be closed.
        poll.register(0, getattr(select, "POLLRDHUP", 0))
        while True:
            look_s = _LOOK_S if self._hung_up_at is None else _LAST_LOOK_S
            for descriptor, _ in poll.poll(look_s * 1000):
                if descriptor == 0:
                    poll.unregister(0)
                    self._hung_up_at = time.monotonic()
                elif not self._hear():
                    return self._end_of_child()
            self._roster.look()
            overdue = self._overdue()
            if overdue is not None:
                return overdue

    def _hear(self) -> bool:
        """Take what the supervisor tells; false when it is gone."""
        received = b""
        with contextlib.suppress(OSError):
            received = self._link.recv(65536)
        lines = (self._received + received).split(b"\n")
        self._received = lines.pop()
        for line in lines:
            self._remains.note(**json.loads(line.decode("ascii")))
        if lines:
            self._roster.keep(self._remains)
        return bool(received)

    def _end_of_child(self) -> str:
        deadline = time.monotonic() + _DYING_LIMIT_S
        while time.monotonic() < deadline:
            child, status = os.waitpid(self._child, os.WNOHANG)
            if child:
                self._status = status
                if os.WIFSIGNALED(status):
                    return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
                return f"ended with exit status {os.WEXITSTATUS(status)}"
            time.sleep(0.001)
        return "was about to die for too long"

    def _overdue(self) -> "str | None":
        """Say what keeps the supervisor from ending, if it should have."""
        now = time.monotonic()
        stuck = {b"T": "stopped", b"t": "stopped", b"D": "stuck in the kernel"}
        current = state(self._child)
        if current not in stuck:
            self._runs_at = now
        limit_s = _STOPPED_LIMIT_S if self._hung_up_at is None else _STOPPED_AT_LAST_LIMIT_S
        if current == b"D":
            limit_s = self._timeout_s or float("inf")
            limit_s = limit_s if self._hung_up_at is None else _STUCK_LIMIT_S
        # Once no process is left, what it has written is removed, and a disk may be slow.
        is_clean = self._remains.left is not None
        if now - self._runs_at > limit_s and not (is_clean and current == b"D"):
            return f"was {stuck[current]}"
        if self._hung_up_at is None or is_clean:
            return None
        return "did not end" if now - self._hung_up_at > REPORT_LIMIT_S else None

    def _end_left_over(self) -> "list[int]":
        """End the processes that the supervisor left; return those that cannot be ended."""
        left = self._remains.left or []
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
            if not left:
                left = Remains().end(Below(os.getpid()))
                report(clean=not left, left=left)
        return left

    def _pause(self, seconds: float) -> None:
        now = time.monotonic()
        if self._timeout_s and now - self._alive_at >= HEARTBEAT_INTERVAL_S:
            self._alive_at = now
            report(alive=True)
        time.sleep(seconds)

    def _forward(self, number: int, _frame: "FrameType | None") -> None:
        if self._status is None:
            send(self._child, number)
