"""Find the records of steps in a region of a log, in the order in which they stand."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.keyed import CsvRecord
from pytest_dlperf.formats.printed import stamp_of
from pytest_dlperf.logs.lines import Lines
from pytest_dlperf.logs.units import UnitCheck
from pytest_dlperf.model.work import TimeKind, Timing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.formats.expressions import Expression
    from pytest_dlperf.formats.keyed import AnyMatch, JsonRecord
    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.logs.arrivals import ArrivalStamps
    from pytest_dlperf.logs.reader import Region

STAMP_REACH: Final = 200
"""Bytes in front of a record in which its stamp is looked for."""

LONGEST_STEP: Final = 15
"""Digits of a step; one with more is damaged."""

Record: TypeAlias = tuple[int, int, bytes, bytes, bytes, bytes]
"""Start and end in the region, then step, epoch, rank and time as they are printed.

Where colours stand in the line, start and end are places of the same line and in the same order.

Epoch and rank repeat the step where the format has none.
"""


def records(region: Region, log_format: LogFormat) -> Iterator[Record]:
    """Find the records of steps in a region, in the order in which they stand."""
    found = _found(region, log_format)
    arrivals = region.memory.arrivals
    if arrivals is None or log_format.timing is not Timing.ARRIVAL:
        return found
    return _stamped(found, region.offset, arrivals)


def _stamped(found: Iterator[Record], begin: int, arrivals: ArrivalStamps) -> Iterator[Record]:
    """Give records the time at which they came."""
    for start, end, step, epoch, rank, _ in found:
        stamp = arrivals.stamp(begin + start)
        if stamp is not None:
            yield start, end, step, epoch, rank, stamp


def _found(region: Region, log_format: LogFormat) -> Iterator[Record]:
    pattern = log_format.record
    if not isinstance(pattern, re.Pattern):
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
    region: Region, log_format: LogFormat, record: Expression | JsonRecord | CsvRecord
) -> Iterator[Record]:
    """Find records that may be anything: each line is looked at alone."""
    timing, every = log_format.timing, log_format.step_every
    index = record.groupindex
    step_group, time_group = index.get("step", 0), index.get(timing.value)
    epoch_group, rank_group = index.get("epoch"), index.get("rank")
    per_step = log_format.counted_per_step
    is_moment = timing.kind is TimeKind.MOMENT and timing is not Timing.TIMESTAMP
    counted = region.memory.counted
    count = counted.get(region.offset, 0)
    if every is not None and region.offset not in counted:
        count = max(counted.values(), default=0)
    ranks = log_format.records_per_count
    check = UnitCheck(log_format, record)
    for begin, match in _matches(region, record):
        step = match[step_group]
        time = step if time_group is None else match[time_group]
        if step is None or time is None:
            continue
        start, end = match.span()
        try:
            if every is not None:
                count += 1
                step = b"%d" % ((count - 1) // ranks * every + every)
            elif per_step > 1 or len(step) > LONGEST_STEP or not step.isdigit():
                step = _whole_step(step, per_step)
            if time_group is not None:
                check(match)
                if is_moment:
                    time = stamp_of(timing, time, 0)
        except BrokenContractError as error:
            error.offset = region.offset + begin + start
            raise
        epoch = b"" if epoch_group is None else _shortened(match[epoch_group] or b"")
        rank = b"" if rank_group is None else match[rank_group] or b""
        yield begin + start, begin + end, step, epoch, rank, time
    if every is not None:
        counted[region.offset + region.end] = count


def _matches(
    region: Region, record: Expression | JsonRecord | CsvRecord
) -> Iterator[tuple[int, AnyMatch]]:
    """Find the matches on all lines, and where each line begins."""
    lines = Lines(region)
    if isinstance(record, CsvRecord):
        yield from _rows(region, lines, record)
        return
    for begin, end in lines.having(record, 0, lines.end):
        for match in record.finditer(lines.text(begin, end)):
            yield begin, match


def _rows(region: Region, lines: Lines, record: CsvRecord) -> Iterator[tuple[int, AnyMatch]]:
    """Find the rows below lines that name the columns; those may stand in an earlier region."""
    headers = region.memory.headers
    for begin, stop in lines.every():
        text = lines.text(begin, stop)
        offset = region.offset + begin
        if (found := record.header(text)) is not None:
            if not headers or headers[-1][0] < offset:
                headers.append((offset, found))
            continue
        header = next((each for at, each in reversed(headers) if at < offset), None)
        if header is not None and (match := record.row(text, header)) is not None:
            yield begin, match


def _shortened(number: bytes) -> bytes:
    """Keep as many digits as show that a number is too large: not every number can be converted."""
    return number.lstrip(b"0")[: LONGEST_STEP + 1] if len(number) > LONGEST_STEP else number


def _whole_step(text: bytes, per_step: int) -> bytes:
    """Write a step's number as digits, and as one of steps where it counts parts of them."""
    text, _, _ = text.partition(b"/")  # ms-swift prints '5/500'
    whole, _, part = text.partition(b".")
    if not part.strip(b"0"):
        text = whole
    text = _shortened(text.replace(b",", b""))
    if per_step == 1 or not text.isdigit():
        return text
    step, rest = divmod(int(text[:LONGEST_STEP]), per_step)
    if rest:
        raise BrokenContractError(
            f"step {text[:40].decode()} is said to count samples, and is no multiple of the "
            f"{per_step} of a step"
        )
    return b"%d" % step
