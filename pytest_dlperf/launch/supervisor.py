"""Runs one program, and in the end leaves none of its descendants behind; itself a program.

A launcher of distributed training starts its workers in sessions of their own, and they outlive it.
On Linux the supervisor is therefore the reaper of all processes below it: whose parent ends becomes
its child. So everything the program has started stays below the supervisor, whatever its session,
group or environment, unless a service of the machine has been asked to start it. As a second net,
processes with the run's marker in their environment are looked for in the whole machine.

Orders come as lines on standard input: ``start`` with a JSON object, ``end``, ``kill``. The end of
the input is the end of whoever gives the orders, and means ``kill``: the next run may begin at
once. SIGTERM, SIGINT and SIGHUP mean ``end``, and ``kill`` when one comes after that. Reports are
JSON objects, one on each line of standard output. What the program prints goes to the supervisor's
standard error.

It is started by its path and imports the standard library only. It has to run on Python 3.6, so
that the Python of a cluster's node is enough.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MARKER = "DLPERF_RUN_ID"
"""Environment variable that is handed down to every process below a supervisor; its value belongs
to one supervisor of one run."""
KILL_LIMIT_S = 5.0
"""How long killed processes may take to be gone; one that is stuck in the kernel takes long."""

_PROC = "/proc"
_POLL_S = 0.01
_LONGEST_SLEEP_S = 1.0
_PR_SET_CHILD_SUBREAPER = 36
_NOT_STARTED = 127  # as shells have it
_SIGNALLED = 128


def start_order(
    arguments: "list[str]", environment: "dict[str, str]", *, folder: "str | None", grace_s: float
) -> bytes:
    """The order to start a program; it is asked to end ``grace_s`` seconds before it is killed.

    Bytes that are no text survive the way, whatever the encodings at both ends are.
    """
    order = {
        "arguments": [_as_text(argument) for argument in arguments],
        "environment": {_as_text(key): _as_text(value) for key, value in environment.items()},
        "folder": None if folder is None else _as_text(folder),
        "grace_s": grace_s,
    }
    return b"start " + json.dumps(order).encode("ascii") + b"\n"


def kill_marked(marker: str) -> "list[int]":
    """Kill all processes of this machine that carry the marker, and say which ones are left.

    Repeats, since a process may have been started by one that was killed after it was looked for.
    """
    deadline = time.monotonic() + KILL_LIMIT_S
    entry = f"{MARKER}={marker}".encode()
    while True:
        marked = list(_marked(entry))
        if not marked or time.monotonic() > deadline:
            return marked
        for process in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_POLL_S)


class Supervisor:
    """Starts the program when it is told to, and ends all that came of it when it is told to."""

    def __init__(self) -> None:
        """Take signals from now on."""
        self._input = b""
        self._listening = True
        self._ending = False
        self._hurry = False
        self._has_children = False
        self._program = None  # type: subprocess.Popen[bytes] | None
        self._exit_code = None  # type: int | None
        self._order = {}  # type: dict[str, object]
        self._wake_up, wake_up = os.pipe()
        os.set_blocking(wake_up, False)
        signal.set_wakeup_fd(wake_up)
        signal.signal(signal.SIGCHLD, _nothing)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    def run(self, marker: str) -> int:
        """Follow the orders to the end, and return the exit code that tells the program's."""
        self._wait(lambda: self._ending)
        if self._program is not None:
            self._end(float(str(self._order["grace_s"])))
            left = set(_descendants(os.getpid())) if self._has_children else set()
            left.update(kill_marked(marker))
            if left:
                _report(left=sorted(left))
            self._program.returncode = self._exit_code  # it has been waited for here
        if self._exit_code is None:
            return _NOT_STARTED
        return self._exit_code if self._exit_code >= 0 else _SIGNALLED - self._exit_code

    def _end(self, grace_s: float) -> None:
        """Ask at first, then kill.

        The program itself is asked before the others, because it may know how to end them.
        """
        deadline = time.monotonic() + grace_s
        self._signal_program(signal.SIGTERM)
        self._wait(lambda: self._hurry or self._exit_code is not None, deadline)
        if not self._hurry and time.monotonic() < deadline:
            self._signal_descendants(signal.SIGTERM)
            self._wait(lambda: self._hurry or not self._has_children, deadline)
        deadline = time.monotonic() + KILL_LIMIT_S
        # Without a child there is no descendant either: those of a child that ended are children.
        while self._has_children and time.monotonic() < deadline:
            self._signal_program(signal.SIGKILL)
            self._signal_descendants(signal.SIGKILL)
            self._wait(lambda: not self._has_children, time.monotonic() + _POLL_S)

    def _wait(self, done: "Callable[[], bool]", deadline: float = float("inf")) -> None:
        """Take orders, and the exit codes of children, until it is done or too late."""
        while not done():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            sources = [self._wake_up, 0] if self._listening else [self._wake_up]
            ready = select.select(sources, [], [], min(left_s, _LONGEST_SLEEP_S))[0]
            if self._wake_up in ready:
                os.read(self._wake_up, 4096)
            if 0 in ready:
                self._take_orders()
            self._reap()

    def _take_orders(self) -> None:
        received = os.read(0, 65536)
        if not received:
            self._listening = False
            self._ending = self._hurry = True
            return
        lines = (self._input + received).split(b"\n")
        self._input = lines.pop()
        for line in lines:
            word, _, rest = line.partition(b" ")
            if word == b"start":
                self._start(json.loads(rest.decode("ascii")))
            self._ending = self._ending or word in (b"end", b"kill")
            self._hurry = self._hurry or word == b"kill"

    def _start(self, order: "dict[str, object]") -> None:
        arguments, environment, folder = order["arguments"], order["environment"], order["folder"]
        assert isinstance(arguments, list)  # noqa: S101 - what start_order() has put there
        assert isinstance(environment, dict)  # noqa: S101 - as above
        self._order = order
        try:
            self._program = subprocess.Popen(  # noqa: S603 - to start it is the purpose
                [_as_bytes(argument) for argument in arguments],
                cwd=None if folder is None else _as_bytes(str(folder)),
                env={_as_bytes(key): _as_bytes(value) for key, value in environment.items()},
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,
            )
        except OSError as error:
            _report(cannot_start=error.errno)
        else:
            self._has_children = True
            _report(started=self._program.pid)

    def _reap(self) -> None:
        while self._has_children:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self._has_children = False
                return
            if not child:
                return
            if self._program is not None and child == self._program.pid:
                exited = os.WIFEXITED(status)
                self._exit_code = os.WEXITSTATUS(status) if exited else -os.WTERMSIG(status)
                _report(ended=self._exit_code)

    def _signal_program(self, number: int) -> None:
        """Signal the program's process group, whose number is its own until it is reaped."""
        if self._program is not None and self._exit_code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._program.pid, number)

    def _signal_descendants(self, number: int) -> None:
        for process in _descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._hurry = self._ending
        self._ending = True


def _nothing(_number: int, _frame: object) -> None:
    """A signal without a handler would not wake up a waiting process."""


def _become_reaper() -> None:
    """Adopt the orphans among the descendants, where the system knows how."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _report(**message: object) -> None:
    # Whoever was to read it may be gone.
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode("ascii") + b"\n")


def _descendants(process: int) -> "list[int]":
    """All processes below this one; none where the system does not tell."""
    children = {}  # type: dict[int, list[int]]
    for number, stat in _read_all("stat"):
        # The program's name, in parentheses, may hold anything, parentheses too.
        parent = int(stat.rpartition(b")")[2].split()[1])
        children.setdefault(parent, []).append(number)
    found = []  # type: list[int]
    new = children.get(process, [])
    while new:
        found += new
        new = [below for number in new for below in children.get(number, [])]
    return found


def _marked(entry: bytes) -> "Iterator[int]":
    """Processes with the entry in their environment; none where the system does not tell."""
    for number, environment in _read_all("environ"):
        if entry in environment.split(b"\0"):
            yield number


def _read_all(name: str) -> "Iterator[tuple[int, bytes]]":
    """One file of each process of the machine, without those that may not be read."""
    try:
        numbers = [name for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - as below
    except OSError:
        return
    for number in numbers:
        # The process may be gone by now, or be another user's.
        with contextlib.suppress(OSError):
            # To import pathlib takes as long as all of this.
            with open(f"{_PROC}/{number}/{name}", "rb") as file:  # noqa: PTH123 - as said
                content = file.read()
            if content:
                yield int(number), content


def _as_text(text: str) -> str:
    return os.fsencode(text).decode("latin-1")


def _as_bytes(text: str) -> bytes:
    return text.encode("latin-1")


if __name__ == "__main__":
    _become_reaper()
    sys.exit(Supervisor().run(sys.argv[1]))
