"""Processes of this machine: those below another one, and those that a run has marked.

It is sent to a node as a part of the supervisor: so it imports the standard library only, and runs
on Python 3.6.
"""

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER = "DLPERF_RUN_ID"
"""Environment variable that is handed down to every process below a supervisor. Its value begins
with the run's number and the node's rank, each with a dot behind it."""
KEEPER = b"-keeper.py"
"""The name of the program that keeps what a head node has started on another one ends so."""
KILL_LIMIT_S = 5.0
"""Killed processes may take so long to be gone; one that is stuck in the kernel takes long."""
POLL_S = 0.01

_PROC = "/proc"


def kill_marked(prefix: str) -> "list[int]":
    """Kill all processes of this machine whose marker begins so, and say which ones are left.

    Repeats, since a process may have been started by one that was killed after it was looked for.
    """
    end_keepers(prefix)
    deadline = time.monotonic() + KILL_LIMIT_S
    entry = f"{MARKER}={prefix}".encode()
    while True:
        found = list(_marked(entry))
        if not found or time.monotonic() > deadline:
            return found
        for process in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(POLL_S)


def end_keepers(prefix: str) -> None:
    """Have what keepers keep ended, whose marker begins so (``keeper``), and wait for it."""
    deadline = time.monotonic() + KILL_LIMIT_S
    while time.monotonic() < deadline:
        keepers = list(_keepers(prefix.encode()))
        if not keepers:
            return
        for process in keepers:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGTERM)
        time.sleep(POLL_S)


def _keepers(start: bytes) -> "Iterator[int]":
    for number, arguments in _read_all("cmdline"):
        before, at, _ = arguments.partition(b"\0" + start)
        if at and before.endswith(KEEPER):
            yield number


def descendants(process: int) -> "list[int]":
    """List all processes below this one; none where the system does not say."""
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


def _marked(start: bytes) -> "Iterator[int]":
    """Find processes with an entry in their environment that begins so."""
    for number, environment in _read_all("environ"):
        if number != os.getpid() and any(
            entry.startswith(start) for entry in environment.split(b"\0")
        ):
            yield number


def _read_all(name: str) -> "Iterator[tuple[int, bytes]]":
    """Read one file of each process of the machine, where that is allowed."""
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
