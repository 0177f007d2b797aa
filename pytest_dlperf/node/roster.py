"""The roster of a run on its node: who is below its guardian, kept where no kill reaches it.

Who kills a supervisor together with its guardian leaves processes that nothing leads to any more:
the roster knows their numbers. Whoever sweeps the run, or prepares the next one on that machine,
ends them, or else says which are left. What could not be ended stays on the roster until it is
gone, and until then nothing is trained beside it.

It lies in memory, in a file of its own, which is locked while the guardian lives. It is sent to a
node as a part of the supervisor, and as a program that sweeps: so it imports the standard library
only, and runs on Python 3.6.
"""

import contextlib
import fcntl
import json
import os
import re
import signal
import stat
import sys
import time
from typing import TYPE_CHECKING, Any

from pytest_dlperf.node.processes import (
    POLL_S,
    Below,
    Listed,
    Marked,
    end_all,
    made_below,
    newest,
    send,
    started_at,
    watchers,
)
from pytest_dlperf.node.remains import Remains, report

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = "/dev/shm"  # noqa: S108 - names are random, files new, and links are not followed
_PREFIX = "pytest-dlperf-"
_NAME = re.compile(_PREFIX + r"([0-9a-f]{32}\.[0-9]+\.)$")
_KEPT = ("sweep", "folder", "group", "keeper", "at_end")
_LONGEST_BYTES = 1 << 20
_WAKE_LIMIT_S = 1.0


class Roster:
    """The roster of one run, as its guardian keeps it."""

    def __init__(self, marker: str) -> None:
        """Begin with nobody; there is no file before there is something of the run."""
        self._marker = marker
        self._file = None  # type: int | None
        self._newest = newest()
        self._kept = {}  # type: dict[str, Any]

    def keep(self, remains: Remains) -> None:
        """Keep what is known of the run by now."""
        if self._file is None and remains.sweep is not None:
            self._file = _made(self._marker)
        self._kept = {name: vars(remains)[name] for name in _KEPT}
        self._write(self._kept)

    def look(self) -> None:
        """Add who was made below this process since the last look."""
        if self._file is not None:
            if os.fstat(self._file).st_size > _LONGEST_BYTES:
                # Most of them are long gone; who is not is found again.
                os.ftruncate(self._file, 0)
                self._newest = 0
                self._write(self._kept)
            last, self._newest = self._newest, newest()
            found = [[number, started_at(number)] for number in made_below(os.getpid(), last)]
            if found:
                self._write({"processes": found})

    def close(self, left: "list[int]") -> None:
        """Keep those who could not be ended, or nothing at all."""
        if left:
            self._write({"processes": [[number, started_at(number)] for number in left]})
        else:
            forget(self._marker)

    def _write(self, entry: "dict[str, Any]") -> None:
        # Memory may be full; a run is not to fail for that.
        with contextlib.suppress(OSError):
            if self._file is not None:
                os.write(self._file, json.dumps(entry).encode("ascii") + b"\n")


def forget(marker: str) -> None:
    """Remove a roster, of which nobody is left."""
    with contextlib.suppress(OSError):
        os.unlink(_path(marker))  # noqa: PTH108 - importing pathlib takes long


def end_earlier() -> "tuple[list[int], list[int]]":
    """End what earlier runs of this user have left on this machine, whose guardians are gone.

    Gives the processes that were found, and those that are left.
    """
    found = set()  # type: set[int]
    left = set()  # type: set[int]
    names = []  # type: list[str]
    with contextlib.suppress(OSError):
        names = os.listdir(FOLDER)  # noqa: PTH208 - as above
    for match in filter(None, map(_NAME.match, names)):
        marker = match.group(1)
        with contextlib.suppress(OSError):
            file = os.open(_path(marker), os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                status = os.fstat(file)
                if status.st_uid == os.geteuid() and stat.S_ISREG(status.st_mode):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remains, listed = _read(file)
                    found.update(listed.look())
                    found.update(Marked(marker).look())
                    left.update(_ended(marker, remains, listed))
            finally:
                os.close(file)
    return sorted(found), sorted(left)


def clean_up(order: "dict[str, Any]", tell: "Callable[..., object]" = report) -> None:
    """End all processes of a node whose connection is lost, and report like a supervisor."""
    marker = order.pop("watched_by")
    remains, listed = Remains(), Listed({})
    with contextlib.suppress(OSError):
        file = os.open(_path(marker), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if os.fstat(file).st_uid == os.geteuid():
                remains, listed = _read(file)
        finally:
            os.close(file)
    remains.note(**order)
    _ended(marker, remains, listed, lambda left: tell(clean=not left, left=left))


def _ended(
    marker: str,
    remains: Remains,
    listed: Listed,
    tell: "Callable[[list[int]], object]" = lambda _: None,
) -> "list[int]":
    """End what there is of a run, and say which processes are left."""
    # Who watches and was stopped ends it all by itself, and sees more of it, once it goes on.
    for process in watchers(marker):
        send(process, signal.SIGCONT)
    deadline = time.monotonic() + _WAKE_LIMIT_S
    while watchers(marker) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    left = set()  # type: set[int]
    for process in watchers(marker):
        left.update(end_all(Below(process), _WAKE_LIMIT_S))
        send(process, signal.SIGKILL)
    left.update(remains.end(listed))
    tell(sorted(left))
    remains.remove_files()
    if not left:
        forget(marker)
    return sorted(left)


def _made(marker: str) -> "int | None":
    """Make the file of a roster, locked while this process lives; ``None`` where that cannot be."""
    with contextlib.suppress(OSError):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
        # Under a name that nobody looks for: one that is found unlocked is taken for a dead run's.
        new = _path(marker) + "new"
        file = os.open(new, flags, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(new, _path(marker))  # noqa: PTH104 - as above
        return file
    return None


def _read(file: int) -> "tuple[Remains, Listed]":
    """Read a roster; the last line may be cut."""
    remains = Remains()
    processes = {}  # type: dict[int, int]
    with open(os.dup(file), "rb") as opened:  # noqa: PTH123 - a descriptor
        for line in opened:
            # Or another version has written it.
            with contextlib.suppress(ValueError, KeyError):
                entry = json.loads(line.decode("ascii"))
                processes.update(map(tuple, entry.pop("processes", [])))
                remains.note(**entry)
    return remains, Listed(processes)


def _path(marker: str) -> str:
    return f"{FOLDER}/{_PREFIX}{marker}"


if __name__ == "__main__":
    clean_up(json.loads(sys.stdin.readline()))
