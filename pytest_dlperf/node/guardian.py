"""The watchers of a supervisor, which end what it leaves: a guardian and a sentinel.

A supervisor may be killed or stopped like any process. Its guardian is its parent: what the
supervisor has started becomes the guardian's then, whatever its session, group or environment.
The sentinel is below neither, so that ending both by their tree, as Slurm does, leaves it alive.
The other way round, the supervisor ends all as soon as one of the two is gone. None of them is
called by the name of Python, so that ``killall python3`` leaves them, nor the sentinel by that of
pytest, for ``pkill pytest``.
"""

import contextlib
import json
import os
import select
import signal
import socket
import time

from pytest_dlperf.node.locks import acquire_socket_lock
from pytest_dlperf.node.processes import (
    Descendants,
    become_reaper,
    import_for_forks,
    rename,
    send,
    state,
)
from pytest_dlperf.node.remains import REPORT_LIMIT_S, Remains, report

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from types import FrameType

HEARTBEAT_INTERVAL_S = 1.0
"""Interval between signs of life of each side, where a network lies between."""
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that mean the end of a run. Those that are ignored at the start stay so."""

_SIGNALLED = 128
_LOOK_S = 0.5
_LAST_LOOK_S = 0.1
_STOPPED_LIMIT_S = 2.0
"""Shorter than a supervisor is waited for that is silent: so it is told what became of it."""
_STOPPED_LOOKS = 5
"""Of the sentinel, more than the guardian takes for a supervisor, less than a silent one has."""
_STUCK_LIMIT_S = 3.0
_STOPPED_AT_LAST_LIMIT_S = 0.3
_DYING_LIMIT_S = 1.0
_STOPPED = {b"T", b"t"}
_NOT_RUNNING = {*_STOPPED, b"Z", b"X", b""}


def guarded(timeout_s: float) -> "tuple[socket.socket, ...]":
    """Leave a guardian behind in this process, start a sentinel, and go on as the guardian's child.

    Return a link to each, over which they are told what there is of the run. Where a network lies
    between, the sender of orders gives up after ``timeout_s`` seconds of silence (0: never).
    """
    rename("pytest-dlperf")
    guardian = os.getpid()
    # A process that ignores SIGCHLD does not learn how its children ended.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    import_for_forks()
    link, own = socket.socketpair()
    far_link, far_own = socket.socketpair()
    child = os.fork()
    if child:
        own.close()
        if _is_sentinel():
            link.close()
            far_own.close()
            os._exit(_Sentinel((guardian, child), far_link, timeout_s).watch())
        far_link.close()
        # From now on only: the sentinel is not to be below this process.
        become_reaper()
        os._exit(_Guardian(child, link, timeout_s, far_own).watch())
    link.close()
    far_link.close()
    # A signal to the guardian's process group is not for both.
    os.setsid()
    become_reaper()
    return own, far_own


def _is_sentinel() -> bool:
    """Start a process that is not below this one, in a session of its own; true in that one."""
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        return False
    if os.fork():
        os._exit(0)
    os.setsid()
    rename("dlperf-sentinel")
    # Reports may follow, but orders and output are others'.
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 2):
        os.dup2(nothing, stream)
    return True


class _Watcher:
    """Keeps track of what a run has on its node, and ends it if need be."""

    def __init__(self, link: "socket.socket", timeout_s: float) -> None:
        self._link = link
        self._timeout_s = timeout_s
        self._remains = Remains()
        self._received = b""
        self._alive_at = time.monotonic()

    def _hear(self) -> bool:
        """Take what the supervisor tells; false when it is gone."""
        received = b""
        with contextlib.suppress(OSError):
            received = self._link.recv(65536)
        lines = (self._received + received).split(b"\n")
        self._received = lines.pop()
        for line in lines:
            self._remains.note(**json.loads(line.decode("ascii")))
        return bool(received)

    def _end_run(self, fate: str, *watched: int) -> "list[int]":
        """Kill the watched processes and the run, and return the processes that are left."""
        # No other run may begin here before all is gone. One that already has keeps its locks.
        locks = [acquire_socket_lock(name) for name in self._remains.locks]
        report(supervisor_killed=fate)
        for process in watched:
            send(process, signal.SIGKILL)
        left = self._remains.end(Descendants(os.getpid()), pause=self._pause)
        for lock in locks:
            if lock is not None:
                lock.close()
        report(final={"left": left})
        self._remains.remove_files()
        return left

    def _pause(self, seconds: float) -> None:
        now = time.monotonic()
        if self._timeout_s and now - self._alive_at >= HEARTBEAT_INTERVAL_S:
            self._alive_at = now
            report(alive=True)
        time.sleep(seconds)


class _Guardian(_Watcher):
    """Waits for the end of a supervisor, which is its child."""

    def __init__(
        self, child: int, link: "socket.socket", timeout_s: float, sentinel: "socket.socket"
    ) -> None:
        super().__init__(link, timeout_s)
        self._child = child
        self._sentinel = sentinel
        self._status = None  # type: int | None
        self._hung_up_at = None  # type: float | None
        self._runs_at = time.monotonic()
        for number in FORWARDED:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._forward)

    def watch(self) -> int:
        """Wait for the end, see to it that nothing is left, and return an exit code."""
        fate = self._fate()
        status = self._status
        if status is not None and os.WIFEXITED(status) and self._remains.left is not None:
            self._end_left_over()
            return os.WEXITSTATUS(status)
        left = self._end_run(fate, self._child)
        with contextlib.suppress(OSError):
            self._sentinel.sendall(json.dumps({"left": left}).encode("ascii") + b"\n")
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
            overdue = self._overdue()
            if overdue is not None:
                return overdue

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

    def _end_left_over(self) -> None:
        """End what became this process's own of a supervisor that has left nothing else."""
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
            if not self._remains.left:
                left = Remains().end(Descendants(os.getpid()))
                report(final={"left": left})

    def _forward(self, number: int, _frame: "FrameType | None") -> None:
        if self._status is None:
            send(self._child, number)


class _Sentinel(_Watcher):
    """Waits until a supervisor and its guardian are both gone, or none of them runs."""

    def __init__(self, watched: "tuple[int, int]", link: "socket.socket", timeout_s: float) -> None:
        super().__init__(link, timeout_s)
        self._watched = watched
        for number in FORWARDED:
            signal.signal(number, signal.SIG_IGN)

    def watch(self) -> int:
        """Wait for the end of both, and see to it that nothing is left."""
        stopped = 0
        while True:
            if select.select([self._link], [], [], _LOOK_S)[0] and not self._hear():
                if self._remains.left is None:
                    self._end_run("and its guardian were killed")
                return 0
            # Looks are counted, not seconds: this process may have been stopped as well.
            states = {state(process) for process in self._watched}
            stopped = stopped + 1 if states & _STOPPED and states <= _NOT_RUNNING else 0
            if stopped > _STOPPED_LOOKS:
                self._end_run("and its guardian were stopped", *self._watched)
                return 0
