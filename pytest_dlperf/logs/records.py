"""Find the records of steps in a log, in the order in which they stand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.keyed import AnyMatch, CsvRecord, Header
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.printed import stamp_of
from pytest_dlperf.logs.arrivals import ArrivalStamps
from pytest_dlperf.logs.lines import Block
from pytest_dlperf.model.work import TimeKind, Timing

LONGEST_STEP: Final = 15
"""Digits of a step; one with more is damaged."""


class Record(NamedTuple):
    """A record of a step, as it is printed; what its format lacks is empty.

    ``offset`` and ``end`` are its place in the log; where colours stand in the line, places of the
    same line.
    """

    offset: int
    end: int
    step: bytes
    epoch: bytes
    rank: bytes
    time: bytes
    epoch_length: int = 0
    """How many steps its epoch has, where the record says so."""


class RecordFinder:
    """Finds the records of a format in the blocks of a log, one behind the other."""

    def __init__(self, log_format: LogFormat, arrivals: ArrivalStamps | None = None) -> None:
        self._format = log_format
        self._arrivals = arrivals
        self._headers: list[tuple[int, Header]] = []
        self._count = 0
        index, timing = log_format.record.groupindex, log_format.timing
        groups = ("step", "epoch", "rank", "epoch_length", timing.value)
        self._step, self._epoch, self._rank, self._length, self._time = map(index.get, groups)
        self._is_moment = timing.kind is TimeKind.MOMENT and timing is not Timing.TIMESTAMP
        self._per_step, self._every = log_format.counted_per_step, log_format.step_every

    def find(self, block: Block) -> Iterator[Record]:
        """Find the records of the next block, each on a single line that has ended.

        Raises:
            BrokenContractError: A record has no proper step or time.
        """
        found = self._found(block)
        if self._format.timing is not Timing.ARRIVAL:
            return found
        return self._stamped(found) if self._arrivals is not None else found

    def elsewhere(self, block: Block) -> Iterator[Record]:
        """Find the records of any other part of the log, by the columns that were named before."""
        finder = RecordFinder(self._format, self._arrivals)
        finder._headers = [*self._headers]
        return finder.find(block)

    def _stamped(self, found: Iterator[Record]) -> Iterator[Record]:
        """Give records the time at which they came."""
        for record in found:
            stamp = self._arrivals.stamp(record.offset) if self._arrivals is not None else None
            if stamp is not None:
                yield record._replace(time=stamp)

    def _found(self, block: Block) -> Iterator[Record]:
        for place, match in self._matches(block):
            try:
                record = self._of(match, block.offset + place)
            except BrokenContractError as error:
                error.offset = block.offset + place + match.start()
                raise
            if record is not None:
                yield record

    def _matches(self, block: Block) -> Iterator[tuple[int, AnyMatch]]:
        """Find the matches on all lines, and where each line begins."""
        record = self._format.record
        if isinstance(record, CsvRecord):
            yield from self._rows(block, record)
            return
        for begin, end in block.lines_of(record, 0, block.end):
            for match in record.finditer(block.line(begin, end)):
                yield begin, match

    def _rows(self, block: Block, record: CsvRecord) -> Iterator[tuple[int, AnyMatch]]:
        """Find the rows below lines that name the columns; those may stand in an earlier block."""
        headers = self._headers
        for begin, end in block.lines():
            text = block.line(begin, end)
            offset = block.offset + begin
            if (found := record.header(text)) is not None:
                if not headers or headers[-1][0] < offset:
                    headers.append((offset, found))
                continue
            header = next((each for at, each in reversed(headers) if at < offset), None)
            if header is not None and (match := record.row(text, header)) is not None:
                yield begin, match

    def _of(self, match: AnyMatch, offset: int) -> Record | None:
        """Make the record of a match on a line that begins at ``offset``; ``None`` of a part."""
        step = b"" if self._step is None else match[self._step]
        time = b"" if self._time is None else match[self._time]
        if step is None or time is None:
            return None
        if self._every is not None:
            counted = self._count // self._format.records_per_count
            self._count += 1
            step = b"%d" % ((counted + 1) * self._every)
        elif self._per_step > 1 or len(step) > LONGEST_STEP or not step.isdigit():
            step = _whole_step(step, self._per_step)
        if self._is_moment and self._time is not None:
            time = stamp_of(self._format.timing, time, 0)
        epoch = b"" if self._epoch is None else _shortened(match[self._epoch] or b"")
        rank = b"" if self._rank is None else match[self._rank] or b""
        start, end = match.span()
        length = 0 if self._length is None else int(match[self._length])
        return Record(offset + start, offset + end, step, epoch, rank, time, length)


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
