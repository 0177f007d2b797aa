"""Find the records of steps in a region of a log, in the order in which they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from pytest_dlperf.logs.expressions import Expression
from pytest_dlperf.logs.lines import Lines

if TYPE_CHECKING:
    import re
    from collections.abc import Iterator

    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.logs.reader import Region

STAMP_REACH: Final = 200
"""Bytes in front of a record in which its stamp is looked for."""

Record: TypeAlias = tuple[int, int, bytes, bytes, bytes, bytes]
"""Start and end in the region, then step, epoch, rank and time as they are printed.

Where colours stand in the line, start and end are places of the same line and in the same order.

Epoch and rank repeat the step where the format has none.
"""


def records(region: Region, log_format: LogFormat) -> Iterator[Record]:
    """Find the records of steps in a region, in the order in which they stand."""
    pattern = log_format.record
    if isinstance(pattern, Expression):
        return _records_in_lines(region, log_format, pattern)
    if log_format.stamp_in_front is not None:
        return _records_behind_stamps(region, log_format, pattern, log_format.stamp_in_front)
    return _records(region, log_format, pattern)


def _groups(log_format: LogFormat) -> tuple[str, str, str, str]:
    index = log_format.record.groupindex
    return (
        "step",
        "epoch" if "epoch" in index else "step",
        "rank" if "rank" in index else "step",
        log_format.timing.value if log_format.timing.value in index else "step",
    )


def _records(region: Region, log_format: LogFormat, pattern: re.Pattern[bytes]) -> Iterator[Record]:
    step, epoch, rank, time = (pattern.groupindex[name] for name in _groups(log_format))
    for match in pattern.finditer(region.buffer, 0, region.end):
        yield (*match.span(), *match.group(step, epoch, rank, time))  # type: ignore[misc]


def _records_behind_stamps(
    region: Region,
    log_format: LogFormat,
    pattern: re.Pattern[bytes],
    stamp: re.Pattern[bytes],
) -> Iterator[Record]:
    """Find records whose stamp stands in front, at the beginning of the line."""
    buffer = region.buffer
    for start, end, step, epoch, rank, _ in _records(region, log_format, pattern):
        found = stamp.search(buffer, max(0, start - STAMP_REACH), start)
        if found is not None:
            yield start, end, step, epoch, rank, found["timestamp"]


def _records_in_lines(
    region: Region, log_format: LogFormat, pattern: Expression
) -> Iterator[Record]:
    """Find records of an expression that may be anything: each line is given to it alone."""
    names = _groups(log_format)
    lines = Lines(region)
    for begin, stop in lines.having(pattern, 0, lines.end):
        for match in pattern.finditer(lines.said(begin, stop)):
            step, epoch, rank, time = match.group(*names)
            if step is not None and time is not None:
                start, end = match.span()
                yield begin + start, begin + end, step, epoch or b"", rank or b"", time
