"""Finds and kills the processes of a run; as a program, once whoever launched the run is gone.

A launcher that is killed by SIGKILL, as a crashing test process is, cannot clean up. The program
waits until its standard input, the other end of which only the launcher holds, comes to its end.
It is started by its path, so it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER: Final = "DLPERF_RUN_ID"
"""Environment variable that every process of a run carries; its value is the run's own."""
KILL_LIMIT_S: Final = 5.0
"""How long killed processes may take to be gone; one that is stuck in the kernel takes long."""

_PROC: Final = Path("/proc")
_POLL_S: Final = 0.01


def kill_run(marker: str) -> list[int]:
    """Kill all processes of this machine that carry the marker, and say which ones are left.

    Repeats, since a process may have been started by one that was killed after it was looked for.
    """
    deadline = time.monotonic() + KILL_LIMIT_S
    while marked := list(_marked(f"{MARKER}={marker}".encode())):
        if time.monotonic() > deadline:
            break
        for process in marked:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        time.sleep(_POLL_S)
    return marked


def _marked(entry: bytes) -> Iterator[int]:
    """Processes with the entry in their environment; none where the system does not tell."""
    if not _PROC.is_dir():
        return
    for folder in _PROC.iterdir():
        if folder.name.isdecimal():
            # The process may be gone by now, or be another user's.
            with contextlib.suppress(OSError):
                if entry in (folder / "environ").read_bytes().split(b"\0"):
                    yield int(folder.name)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    kill_run(sys.argv[1])
