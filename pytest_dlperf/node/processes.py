"""Processes of this machine: those below another one, those that a run has marked, and their end.

It is sent to a node as a part of the supervisor: so it imports the standard library only, and runs
on Python 3.6.
"""

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_dlperf.node.group import Grouped

MARKER = "DLPERF_RUN_ID"
"""Environment variable that is handed down to every process below a supervisor. Its value begins
with the run's number and the node's rank, each with a dot behind it."""
KEEPER = b"-keeper.py"
"""The name of the program that keeps what a head node has started on another one ends so."""
KILL_LIMIT_S = 8.0
"""Killed processes may take so long to be gone: one that held devices takes seconds."""
POLL_S = 0.01

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1
_PROC = "/proc"
_FREEZE_LIMIT_S = 1.0
_MOST_MADE = 256
"""So many new processes are looked at one by one; a look at all is as quick for more."""
_MOST_ROUNDS = 20
_EMPTY_LOOKS = 5
_DEAD = (b"Z", b"X")


class Below:
    """The processes below one, whatever their session, group or environment."""

    def __init__(self, process: int) -> None:
        """Look below this process."""
        self._process = process

    def look(self) -> "list[int]":
        """List them; none where the system does not say."""
        return descendants(self._process)

    def has(self, process: int) -> bool:
        """Say whether a process is one of them."""
        while process > 1:
            stat = _stat(process)
            if stat is None:
                return False
            process = int(stat[1])
            if process == self._process:
                return True
        return False


class Marked:
    """The processes of this machine whose marker begins so, but for this one."""

    def __init__(self, prefix: str) -> None:
        """Look for markers that begin with ``prefix``."""
        self._start = prefix.encode()

    def look(self) -> "list[int]":
        """List them, as far as this user may read their environment."""
        return [number for number, marker in marked() if marker.startswith(self._start)]

    def has(self, process: int) -> bool:
        """Say whether a process is one of them."""
        return process != os.getpid() and _marker(process).startswith(self._start)


class Listed:
    """Processes that are known by number and time of start, and those below them."""

    def __init__(self, known: "dict[int, int]") -> None:
        """Look for these numbers, with the times that ``started_at`` gave."""
        self._known = known

    def look(self) -> "list[int]":
        """List those that live."""
        alive = [number for number in self._known if self._is_alive(number)]
        return [*alive, *descendants(*alive)] if alive else []

    def has(self, process: int) -> bool:
        """Say whether a process is one of them."""
        while process > 1:
            if process in self._known and self._is_alive(process):
                return True
            stat = _stat(process)
            process = 0 if stat is None else int(stat[1])
        return False

    def _is_alive(self, process: int) -> bool:
        stat = _stat(process)
        return stat is not None and not _is_dead(stat) and int(stat[19]) == self._known[process]


def end_all(
    ours: "Below | Marked | Listed | Grouped",
    limit_s: float,
    pause: "Callable[[float], object]" = time.sleep,
) -> "list[int]":
    """Kill all processes of a kind, and say which ones are left after ``limit_s`` seconds.

    Two looks may miss what one process starts while it is looked at another: whatever was made
    meanwhile is looked at too, by its number. All are stopped before the first is killed, so that
    none takes the place of another. On a machine where processes are made all the time, several
    looks without a find are enough.
    """
    now = time.monotonic()
    deadline, freeze_until = now + limit_s, now + _FREEZE_LIMIT_S
    frozen = set()  # type: set[int]
    empty = 0
    while True:
        found, is_complete = _seize(ours, frozen)
        now = time.monotonic()
        if not found:
            empty += 1
            # What is about to become another program has no environment for a moment.
            if empty >= (_EMPTY_LOOKS if not is_complete else 2 if frozen else 1):
                return []
        elif now >= deadline:
            return sorted(found)
        else:
            empty = 0
            if found - frozen and now < freeze_until:
                frozen |= found
                continue
            frozen |= found
            for process in found:
                send(process, signal.SIGKILL)
        pause(POLL_S)


def send(process: int, number: int) -> None:
    """Send a signal to a process, if it is there and may be sent one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _seize(ours: "Below | Marked | Listed | Grouped", known: "set[int]") -> "tuple[set[int], bool]":
    """Stop all that are found, but for those that are known; say whether none can have escaped."""
    last = newest()
    found = set(ours.look())
    for process in found - known:
        send(process, signal.SIGSTOP)
    for _ in range(_MOST_ROUNDS):
        seen, last = last, newest()
        if seen == last:
            return found, True
        if not seen < last <= seen + _MOST_MADE:
            break
        for process in range(seen + 1, last + 1):
            if process not in found and ours.has(process):
                send(process, signal.SIGSTOP)
                found.add(process)
    return found, False


def end_keepers(prefix: str) -> None:
    """Have what keepers keep ended, whose marker begins so (``keeper``), and wait for it."""
    deadline = time.monotonic() + KILL_LIMIT_S
    while time.monotonic() < deadline:
        keepers = list(_keepers(prefix.encode()))
        if not keepers:
            return
        for process in keepers:
            send(process, signal.SIGTERM)
        time.sleep(POLL_S)


def _keepers(start: bytes) -> "Iterator[int]":
    for number, arguments in _read_all("cmdline"):
        before, at, _ = arguments.partition(b"\0" + start)
        if at and before.endswith(KEEPER):
            yield number


def made_below(process: int, last: int) -> "list[int]":
    """List the processes below one that were made since ``newest`` gave ``last``, or all."""
    now = newest()
    if now == last:
        return []
    if not last < now <= last + _MOST_MADE:
        return descendants(process)
    below = Below(process)
    return [number for number in range(last + 1, now + 1) if below.has(number)]


def started_at(process: int) -> int:
    """Give the time at which a process was started, in the system's own units; 0 where unknown."""
    stat = _stat(process)
    return 0 if stat is None else int(stat[19])


def descendants(*processes: int) -> "list[int]":
    """List all living processes below these; none where the system does not say."""
    children = {}  # type: dict[int, list[int]]
    dead = set()
    for number, content in _read_all("stat"):
        fields = _fields(content)
        children.setdefault(int(fields[1]), []).append(number)
        if _is_dead(fields):
            dead.add(number)
    found = []  # type: list[int]
    new = [below for process in processes for below in children.get(process, [])]
    while new:
        found += new
        new = [below for number in new for below in children.get(number, [])]
    return [number for number in found if number not in dead]


def marked() -> "Iterator[tuple[int, bytes]]":
    """Find the marked processes of this machine but this one, with their markers."""
    for number, environment in _read_all("environ"):
        if number != os.getpid():
            marker = _marker_in(environment)
            if marker:
                yield number, marker


def watchers(marker: str) -> "list[int]":
    """Find who watches over a node of a run: a supervisor, and the guardian that it has."""
    options, wanted = [b"-I", b"-S", b"-c"], marker.encode()
    found = []
    for number, command in _read_all("cmdline"):
        arguments = command.split(b"\0")[:-1]
        if arguments[1:4] == options and arguments[-1] == wanted and number != os.getpid():
            found.append(number)
    return found


def state(process: int) -> bytes:
    """Give the letter by which the system tells the state of a process, none where it is gone."""
    stat = _stat(process)
    return b"" if stat is None else stat[0]


def _marker(process: int) -> bytes:
    return _marker_in(_read(process, "environ"))


def _marker_in(environment: bytes) -> bytes:
    start = MARKER.encode() + b"="
    entries = [entry for entry in environment.split(b"\0") if entry.startswith(start)]
    return entries[0][len(start) :] if entries else b""


def newest() -> int:
    """Give the number of the process that was made last, 0 where the system does not say."""
    last = _content(f"{_PROC}/loadavg").split()[-1:]
    return int(last[0]) if last else 0


def _stat(process: int) -> "list[bytes] | None":
    content = _read(process, "stat")
    return _fields(content) if content else None


def _is_dead(stat: "list[bytes]") -> bool:
    """Say whether a process has ended; one whose first thread has looks so while it has others."""
    return stat[0] in _DEAD and int(stat[17]) <= 1


def _fields(stat: bytes) -> "list[bytes]":
    """Split what follows the program's name: it stands in parentheses, and may hold any."""
    return stat.rpartition(b")")[2].split()


def _read_all(name: str) -> "Iterator[tuple[int, bytes]]":
    """Read one file of each process of the machine, where that is allowed."""
    try:
        numbers = [name for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - as below
    except OSError:
        return
    for number in numbers:
        content = _read(int(number), name)
        if content:
            yield int(number), content


def _read(process: int, name: str) -> bytes:
    """Read a file of a process; nothing where it is gone by now, or another user's."""
    return _content(f"{_PROC}/{process}/{name}")


def _content(file: str) -> bytes:
    try:
        # To import pathlib takes as long as all of this.
        with open(file, "rb") as opened:  # noqa: PTH123 - as said
            return opened.read()
    except OSError:
        return b""


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
