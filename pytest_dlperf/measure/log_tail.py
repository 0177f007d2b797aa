"""What a log ends with: it often says more than an exit code."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pytest_dlperf.logs.reader import LogFile
from pytest_dlperf.model.measurement import Run, RunStatus

if TYPE_CHECKING:
    from pathlib import Path

TAIL_BYTES: Final = 8192
LAST_LINES: Final = 20
LINE_SHOWN: Final = 200


def with_last_line(read: Run, log: Path) -> Run:
    """The run with what its log ends with, where no step was found: that says most."""
    reason = read.reason
    if read.status is RunStatus.INVALID and not read.steps:
        reason = f"{read.reason}{last_line(log)}"
    return replace(read, log=readable(str(log)), reason=reason)


def readable(path: str) -> str:
    """A path as text that any process and file takes: its bytes need not be Unicode."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def last_line(log: Path) -> str:
    """What the log ends with, to say more than an exit code does."""
    last = last_lines(log, 1)
    return f"; the log ends with {last[0]!r}" if last else ""


def last_lines(log: Path, count: int = LAST_LINES) -> list[str]:
    """The last lines of a log that are not empty, cut where they are long; none if it is none."""
    try:
        with LogFile(log) as file:
            file.seek(0, os.SEEK_END)
            start = max(0, file.tell() - TAIL_BYTES)
            file.seek(start)
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return []
    if start and len(lines) > 1:
        del lines[0]  # its beginning is not here
    told = [line.rstrip()[:LINE_SHOWN] for line in lines if line.strip()]
    return told[-count:]
