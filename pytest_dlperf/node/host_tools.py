"""What the files and tools of a host show, however they fail; sent to hosts with ``probe``."""

import contextlib
import glob
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

TOOL_LIMIT_S = 8.0
NO_ANSWER = -signal.SIGKILL
_EXIT_LIMIT_S = 1.0
ROOT = ""
DEV, SYS, PROC = ROOT + "/dev", ROOT + "/sys", ROOT + "/proc"


class Found:
    """The devices of one kind that a host shows.

    ``ids`` are what the kind's variable calls them, and ``names`` other names of an id. ``facts``
    are those of all, ``each`` those of an id. ``users`` are processes behind the id that each uses.
    ``refused`` is why the devices cannot be used, and ``failed``
    why a tool finds none. A device that ``is_slice`` has no name of its own.
    """

    def __init__(self, ids: "Sequence[str]" = ()) -> None:
        self.ids = list(ids)
        self.names = {}  # type: dict[str, str]
        self.facts = {}  # type: dict[str, str]
        self.each = {}  # type: dict[str, dict[str, str]]
        self.users = []  # type: list[tuple[str, str]]
        self.refused = None  # type: str | None
        self.failed = None  # type: str | None
        self.is_slice = False


class Later(threading.Thread):
    """A look beside others: whatever hangs or fails costs its own findings only."""

    def __init__(self, look: "Callable[..., Any]", *arguments: object) -> None:
        """Begin to look."""
        super().__init__(daemon=True)
        self._look = look
        self._arguments = arguments
        self._found = None  # type: Any
        self.start()

    def run(self) -> None:
        """Look; a tool may fail in unforeseen ways."""
        with contextlib.suppress(Exception):
            self._found = self._look(*self._arguments)

    def result(self, until: float, default: "Any" = None) -> "Any":
        """Give what is found by then, or else the default."""
        self.join(max(0.0, until - time.monotonic()))
        return default if self._found is None else self._found


def output(*command: str) -> "list[str] | None":
    """Return the lines that a command prints; ``None`` where it is not there or fails."""
    code, lines = answered(*command)
    return lines if code == 0 else None


def answered(*command: str) -> "tuple[int | None, list[str]]":
    """Return a command's exit code and lines; ``None`` where it is not there.

    The code is ``NO_ANSWER`` where it does not end.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - tools of the system
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None, []
    try:
        printed, _ = process.communicate(timeout=TOOL_LIMIT_S)
    except subprocess.TimeoutExpired:
        # Many are scripts around the tool proper; and nothing ends what is stuck in a driver.
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate(timeout=_EXIT_LIMIT_S)
        return NO_ANSWER, []
    lines = printed.decode("utf-8", "replace").split("\n")
    return process.returncode, [line for line in lines if line.strip()]


def text_of(file: str) -> str:
    """Read a small file; empty where that cannot be."""
    try:
        with open(file, errors="replace") as opened:
            return opened.read()
    except (OSError, ValueError):
        return ""


def numbered(pattern: str) -> "list[str]":
    """List files by the number that their names end with, as in a pattern with one star."""
    expression = re.compile(re.escape(pattern).replace(r"\*", r"(\d+)") + "$")
    found = [expression.match(name) for name in glob.glob(pattern)]
    return sorted((match.group(1) for match in found if match), key=int)


def first_ids(count: int) -> "list[str]":
    """Number so many devices."""
    return [str(number) for number in range(count)]
