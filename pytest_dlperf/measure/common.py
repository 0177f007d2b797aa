"""What measuring from logs and measuring by launching have in common."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from pytest_dlperf.logs.reader import LogFile
from pytest_dlperf.measurement import Estimator

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_dlperf.systems import System

TAIL_BYTES: Final = 8192
LAST_LINES: Final = 20
LINE_SHOWN: Final = 200


class CannotMeasureError(Exception):
    """The case cannot be measured here; the message says what is missing and what helps."""


class UnfitError(Exception):
    """The case could be measured here if something were not broken; the message says what."""


def check_estimator(system: System, estimator: Estimator) -> None:
    """Refuse what cannot be estimated before anything is launched or read.

    Raises:
        CannotMeasureError: The system's logs have no published definition of throughput.
    """
    if estimator is Estimator.PUBLISHED and not system.log_format.has_published:
        raise CannotMeasureError(
            f"the log format {system.log_format.name} of {system.id} has no published "
            "definition of throughput; compare with a cluster whose cluster.yaml says "
            "'estimator: steady'"
        )


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
