"""Look behind the last step that counts, without reading the log to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.logs.reader import Region

if TYPE_CHECKING:
    from pytest_dlperf.logs.fact_check import FactCheck
    from pytest_dlperf.logs.reader import LogFile

TAIL: Final = 1024 * 1024
"""Bytes at a log's end that are looked at, however much stands in between."""


def check_behind(file: LogFile, facts: FactCheck) -> None:
    """Check what a log says at its end, once its steps have been read.

    Raises:
        BrokenContractError: It contradicts the case.
    """
    region = tail(file, facts.position)
    if region is not None:
        facts.look_behind(region)
        facts.settle()


def tail(file: LogFile, begin: int) -> Region | None:
    """Read the last lines of a log, of what stands behind the byte ``begin``; ``None`` without."""
    size = file.size
    start = max(begin, size - TAIL)
    if start >= size:
        return None
    buffer = bytearray(size - start)
    file.seek(start)
    filled = 0
    while count := file.readinto(memoryview(buffer)[filled:]):
        filled += count
    del buffer[filled:]
    if start > begin:
        # Where the reading begins in the middle of a line, it is none.
        cut = buffer.find(b"\n") + 1
        del buffer[:cut]
        start += cut
    return Region(buffer, len(buffer), start, terminated=buffer.endswith(b"\n"))
