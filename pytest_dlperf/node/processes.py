"""Processes of this machine: those below another one, those that a run has marked, and their end.

A run marks what it starts twice. The environment holds the marker, which ``ssh`` and the like can
hand on to other hosts, and which a process may clear. The hard limit of file locks holds its
number: Linux has ignored that limit since 2.4, children inherit it, all users may read it, and only
root may raise it. So whatever leaves its parents and its session and clears its environment is
found, with no file that says which processes there are. Others can copy a mark: those of other
users count for nothing.
"""

import contextlib
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable

MARKER = "DLPERF_RUN_ID"
"""Environment variable that is handed down to every process below a supervisor. Its value begins
with the run's number, in hexadecimal digits, and the node's rank, each with a dot behind it."""
KILL_LIMIT_S = 8.0
"""Killed processes may take so long to be gone: one that held devices takes seconds."""
POLL_S = 0.01

_RLIMIT_LOCKS = 10
_SIGNATURE = 0xD1F
"""Begins the limits that are marks: no administrator sets one of 10^18 locks."""
_RUN_DIGITS = 9
_RANK_BITS = 14
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_PROC = "/proc"
_DEAD = (b"Z", b"X")
_IS_MARKER = re.compile(r"[0-9a-f]{32}\.[0-9]+\.").fullmatch


def end_all(
    look: "Callable[[], list[int]]",
    limit_s: float,
    pause: "Callable[[float], object]" = time.sleep,
) -> "list[int]":
    """Kill all processes that looks find, and say which ones are left after ``limit_s`` seconds.

    All are stopped before the first is killed, so that none takes the place of another.
    """
    deadline = time.monotonic() + limit_s
    stopped = set()  # type: set[int]
    while True:
        found = set(look())
        if not found:
            return []
        if time.monotonic() >= deadline:
            return sorted(found)
        new = found - stopped
        for process in new or found:
            send(process, signal.SIGSTOP if new else signal.SIGKILL)
        stopped |= found
        pause(POLL_S)


def send(process: int, number: int) -> None:
    """Send a signal to a process, if it is there and may be sent one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def descendants(process: int) -> "list[int]":
    """List all living processes below one; none where the system does not say.

    What they do to leave their session, their group or their environment changes nothing.
    """
    children = {}  # type: dict[int, list[int]]
    stats = {number: _stat(number) for number in _numbers()}
    for number, stat in stats.items():
        if stat:
            children.setdefault(int(stat[1]), []).append(number)
    found = []  # type: list[int]
    new = children.get(process, [])
    while new:
        found += new
        new = [below for number in new for below in children.get(number, [])]
    return [number for number in found if not _is_dead(stats[number])]


def marked(prefix: str) -> "list[int]":
    """List this user's living processes whose marker begins with ``prefix``, but for this one."""
    start = _shortened(prefix)
    return [
        number
        for number in _numbers()
        if number != os.getpid()
        and (_marker_in_limits(number) or _marker_in_environment(number)).startswith(start)
        and _is_own(number)
    ]


def mark_of(marker: str) -> int:
    """Give the number of a marker, which is a limit of what belongs to its run."""
    run, rank = marker.split(".")[:2]
    return (_SIGNATURE << 4 * _RUN_DIGITS | int(run[:_RUN_DIGITS], 16)) << _RANK_BITS | int(rank)


def set_mark(marker: str) -> None:
    """Mark this process, and all that it starts, with the number of a marker.

    Where an administrator allows fewer file locks, only the environment marks them.
    """
    number = mark_of(marker)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(_RLIMIT_LOCKS, (number, number))


def marked_runs() -> "dict[str, list[int]]":
    """List this user's processes that bear a mark, by the first digits of their run."""
    found = {}  # type: dict[str, list[int]]
    for number in _numbers():
        run = _marker_in_limits(number).partition(".")[0]
        if run and _is_own(number):
            found.setdefault(run, []).append(number)
    return found


def _marker_in_limits(process: int) -> str:
    limits = _read(process, "limits")
    hard = limits[max(0, limits.find(b"Max file locks")) :].split(None, 5)[4:5]
    number = int(hard[0]) if hard and hard[0].isdigit() else 0
    run = number >> _RANK_BITS
    if run >> 4 * _RUN_DIGITS != _SIGNATURE:
        return ""
    if _is_dead(_stat(process)):
        return ""
    return f"{run:x}"[-_RUN_DIGITS:] + f".{number - (run << _RANK_BITS)}."


def _marker_in_environment(process: int) -> str:
    start = MARKER.encode() + b"="
    entries = _read(process, "environ").split(b"\0")
    markers = [entry[len(start) :] for entry in entries if entry.startswith(start)]
    return _shortened(os.fsdecode(markers[0])) if markers else ""


def run_of(marker: str) -> str:
    """Give the run of a marker, by the digits that ``marked_runs`` has of it."""
    return _shortened(marker).partition(".")[0]


def _shortened(marker: str) -> str:
    """Cut a marker's run to the digits that the number of a mark has place for."""
    run, dot, rest = marker.partition(".")
    return run[:_RUN_DIGITS] + dot + rest


def _is_own(process: int) -> bool:
    # Its folder may be root's although it is ours: where its memory is closed to others.
    user = _read(process, "status").partition(b"\nUid:")[2].split(None, 1)[:1]
    return user == [str(os.geteuid()).encode("ascii")]


def supervisors() -> "list[tuple[int, str]]":
    """List this user's supervisors of all runs, each with the marker of its run and node."""
    found = []
    for number in _numbers():
        arguments = _read(number, "cmdline").split(b"\0")[:-1]
        marker = os.fsdecode(arguments[-1]) if arguments[1:4] == [b"-I", b"-S", b"-c"] else ""
        if _IS_MARKER(marker) and number != os.getpid() and _is_own(number):
            found.append((number, marker))
    return found


def is_stopped(process: int) -> bool:
    """Say whether a process was stopped by a signal."""
    return _stat(process)[:1] == [b"T"]


def _stat(process: int) -> "list[bytes]":
    """Split what follows a program's name: it stands in parentheses, and may hold any."""
    return _read(process, "stat").rpartition(b")")[2].split()


def _is_dead(stat: "list[bytes]") -> bool:
    """Say whether a process has ended; one whose first thread has looks so while it has others."""
    return not stat or (stat[0] in _DEAD and int(stat[17]) <= 1)


def _numbers() -> "list[int]":
    """List all processes of the machine; none where the system does not say."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(_PROC) if name.isdigit()]
    return []


def _read(process: int, name: str) -> bytes:
    """Read a file of a process; nothing where it is gone by now, or another user's."""
    try:
        with open(f"{_PROC}/{process}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def end_with_input() -> None:
    """Kill this process's group once its input ends: nobody waits for it any more."""

    def watch() -> None:
        os.read(0, 1)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def become_reaper() -> None:
    """Have this process be the parent of all below it whose own parent ends."""
    _control(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process with the one that has started it."""
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _control(operation: int, value: int) -> None:
    """Ask the system for something about this process, where it knows how."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(operation, value, 0, 0, 0)
