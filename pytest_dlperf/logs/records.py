"""Find the records of steps in a log, in the order in which they stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pytest_dlperf.formats.keyed import AnyMatch, CsvKeys, Header
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.printed import BrokenContractError, stamp_of
from pytest_dlperf.logs.arrivals import ArrivalStamps
from pytest_dlperf.logs.lines import Block
from pytest_dlperf.model.work import TimeKind, Timing

LONGEST_STEP: Final = 15
"""Digits of a step; one with more is damaged."""


class Record(NamedTuple):
    """A record of a step, as it is printed; what its format lacks is empty.

    ``offset`` and ``end`` are those of its line in the log.
    """

    offset: int
    end: int
    step: bytes
    epoch: bytes
    rank: bytes
    time: bytes
    epoch_length: int = 0
    """How many steps its epoch has, where the record says so."""
    is_last: bool = True
    """Whether no further record stands on its line."""


class RecordFinder:
    """Finds the records of a format in the blocks of a log, one behind the other."""

    def __init__(self, log_format: LogFormat, arrivals: ArrivalStamps | None = None) -> None:
        """Begin before the first block; ``arrivals`` stamps records that have no time."""
        self._format = log_format
        self._arrivals = arrivals
        self._header: Header | None = None
        self._count = 0
        index, timing = log_format.record.groupindex, log_format.timing
        groups = ("step", "epoch", "rank", "epoch_length", timing.value)
        self._step, self._epoch, self._rank, self._length, self._time = map(index.get, groups)
        self._is_moment = timing.kind is TimeKind.MOMENT and timing is not Timing.TIMESTAMP

    def find(self, block: Block) -> Iterator[Record]:
        """Find the records of the next block, each on a single line that has ended.

        Raises:
            BrokenContractError: A record has no proper step or time.
        """
        for offset, end, line in block.lines_with(self._format.record.literal):
            last: Record | None = None
            for match in self._matches(line):
                record = self._of(match, offset, end)
                if last is not None and record is not None:
                    yield last._replace(is_last=False)
                last = record or last
            if last is not None:
                yield last

    def _matches(self, line: bytes) -> Iterable[AnyMatch]:
        """Find the matches on a line; rows of CSV stand below one that names the columns."""
        record = self._format.record
        if not isinstance(record, CsvKeys):
            return record.finditer(line)
        if (header := record.header(line)) is not None:
            self._header = header
            return ()
        row = None if self._header is None else record.row(line, self._header)
        return () if row is None else (row,)

    def _of(self, match: AnyMatch, offset: int, end: int) -> Record | None:
        """Make the record of a match; ``None`` of a part, or of one without a known time."""
        log_format = self._format
        step = b"" if self._step is None else match[self._step]
        time = b"" if self._time is None else match[self._time]
        if self._arrivals is not None:
            time = self._arrivals.stamp(offset + match.start())
        if step is None or time is None:
            return None
        if log_format.step_every is not None:
            counted = self._count // log_format.records_per_count
            self._count += 1
            step = b"%d" % ((counted + 1) * log_format.step_every)
        elif log_format.counted_per_step > 1 or len(step) > LONGEST_STEP or not step.isdigit():
            step = _whole_step(step, log_format.counted_per_step, offset)
        if self._is_moment and self._time is not None:
            time = stamp_of(log_format.timing, time, offset)
        epoch = b"" if self._epoch is None else _shortened(match[self._epoch] or b"")
        rank = b"" if self._rank is None else match[self._rank] or b""
        length = 0 if self._length is None else int(match[self._length])
        return Record(offset, end, step, epoch, rank, time, length)


def _shortened(number: bytes) -> bytes:
    """Keep as many digits as show that a number is too large: not every number can be converted."""
    return number.lstrip(b"0")[: LONGEST_STEP + 1] if len(number) > LONGEST_STEP else number


def _whole_step(text: bytes, per_step: int, offset: int) -> bytes:
    """Write a step's number as digits, and as one of steps where it counts parts of them."""
    text, _, _ = text.partition(b"/")  # ms-swift prints '5/500'
    whole, _, part = text.partition(b".")
    text = _shortened((text if part.strip(b"0") else whole).replace(b",", b""))
    if per_step == 1 or not text.isdigit():
        return text
    step, rest = divmod(int(text[:LONGEST_STEP]), per_step)
    if rest:
        raise BrokenContractError(
            f"step {text[:40].decode()} is said to count samples, and is no multiple of the "
            f"{per_step} of a step",
            offset=offset,
        )
    return b"%d" % step
