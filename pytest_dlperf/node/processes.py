"""Processes of this machine: those below another one, those that a run has marked, and their end.

A run marks what it starts twice. The environment holds the marker, which ``ssh`` and the like can
hand on to other hosts, and which a process may clear. The hard limit of file locks holds its
number: Linux has ignored that limit since 2.4, children inherit it, all users may read it, and only
root may raise it. So whatever leaves its parents and its session and clears its environment is
found, with no file that says which processes there are.
"""

import contextlib
import os
import re
import resource
import signal
import time

TYPE_CHECKING = False  # typing's own would cost its import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
_FREEZE_LIMIT_S = 1.0
_MAX_NEW_PROCESSES = 256
"""So many new processes are looked at one by one; a look at all is as quick for more."""
_MAX_ROUNDS = 20
_EMPTY_LOOKS = 5
_DEAD = (b"Z", b"X")
_IS_MARKER = re.compile(r"[0-9a-f]{32}\.[0-9]+\.").fullmatch


class Descendants:
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


class MarkedProcesses:
    """The processes of this machine whose marker begins so, but for this one."""

    def __init__(self, prefix: str) -> None:
        """Look for markers that begin with ``prefix``."""
        self._start = _shortened(prefix)

    def look(self) -> "list[int]":
        """List those that live."""
        return [number for number in _numbers() if self.has(number)]

    def has(self, process: int) -> bool:
        """Say whether a process is one of them."""
        if process == os.getpid():
            return False
        in_limits = _marker_in_limits(process)
        return (in_limits or _marker_in_environment(process)).startswith(self._start)


def end_all(
    ours: "Descendants | MarkedProcesses",
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


def _seize(ours: "Descendants | MarkedProcesses", known: "set[int]") -> "tuple[set[int], bool]":
    """Stop all that are found, but for those that are known; say whether none can have escaped."""
    last = newest()
    found = set(ours.look())
    for process in found - known:
        send(process, signal.SIGSTOP)
    for _ in range(_MAX_ROUNDS):
        seen, last = last, newest()
        if seen == last:
            return found, True
        if not seen < last <= seen + _MAX_NEW_PROCESSES:
            break
        for process in range(seen + 1, last + 1):
            if process not in found and ours.has(process):
                send(process, signal.SIGSTOP)
                found.add(process)
    return found, False


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


def watched_runs() -> "set[str]":
    """List the runs, by their first digits, of which this user's watchers are alive."""
    return {_shortened(marker).partition(".")[0] for _, marker in _all_watchers()}


def _marker_in_limits(process: int) -> str:
    limits = _read(process, "limits")
    hard = limits[max(0, limits.find(b"Max file locks")) :].split(None, 5)[4:5]
    number = int(hard[0]) if hard and hard[0].isdigit() else 0
    run = number >> _RANK_BITS
    if run >> 4 * _RUN_DIGITS != _SIGNATURE:
        return ""
    stat = _stat(process)
    if stat is None or _is_dead(stat):
        return ""
    return f"{run:x}"[-_RUN_DIGITS:] + f".{number - (run << _RANK_BITS)}."


def _marker_in_environment(process: int) -> str:
    start = MARKER.encode() + b"="
    entries = _read(process, "environ").split(b"\0")
    markers = [entry[len(start) :] for entry in entries if entry.startswith(start)]
    return _shortened(os.fsdecode(markers[0])) if markers else ""


def _shortened(marker: str) -> str:
    """Cut a marker's run to the digits that the number of a mark has place for."""
    run, dot, rest = marker.partition(".")
    return run[:_RUN_DIGITS] + dot + rest


def _is_own(process: int) -> bool:
    with contextlib.suppress(OSError):
        return os.stat(f"{_PROC}/{process}").st_uid == os.geteuid()  # noqa: PTH116 - no pathlib
    return False


def watchers(marker: str) -> "list[int]":
    """List the watchers of a node of a run: its supervisor, guardian and sentinel."""
    return [number for number, theirs in _all_watchers() if theirs == marker]


def _all_watchers() -> "Iterator[tuple[int, str]]":
    """Yield this user's watchers of all runs, each with the marker of its run and node."""
    for number, command in _read_all("cmdline"):
        arguments = command.split(b"\0")[:-1]
        marker = os.fsdecode(arguments[-1]) if arguments[1:4] == [b"-I", b"-S", b"-c"] else ""
        if _IS_MARKER(marker) and number != os.getpid() and _is_own(number):
            yield number, marker


def state(process: int) -> bytes:
    """Give the letter by which the system tells the state of a process, none where it is gone."""
    stat = _stat(process)
    return b"" if stat is None else stat[0]


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
    for number in _numbers():
        content = _read(number, name)
        if content:
            yield number, content


def _numbers() -> "list[int]":
    """List all processes of the machine; none where the system does not say."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - as below
    return []


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


def rename(name: str) -> None:
    """Give this process a name, of 15 characters at most, by which ``ps`` and ``killall`` go."""
    with contextlib.suppress(OSError), open(f"{_PROC}/self/comm", "w") as file:  # noqa: PTH123 - as above
        file.write(name)


def wake(marker: str) -> None:
    """Continue the watchers of a node of a run, which may be stopped."""
    for process in watchers(marker):
        send(process, signal.SIGCONT)


def become_reaper() -> None:
    """Have this process be the parent of all below it whose own parent ends."""
    _control(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Have the kernel kill this process with the one that has started it."""
    _control(_PR_SET_PDEATHSIG, signal.SIGKILL)


def import_for_forks() -> None:
    """Import once what each process that is forked from this one would need to control itself."""
    with contextlib.suppress(ImportError):
        import ctypes  # noqa: F401


def _control(operation: int, value: int) -> None:
    """Ask the system for something about this process, where it knows how."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(operation, value, 0, 0, 0)
