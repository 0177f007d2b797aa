"""``steady`` for logs of one rank, or of ranks that name themselves: each in its own order."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from pytest_dlperf.logs.clock import Clock
from pytest_dlperf.logs.contract import BrokenContractError, Estimate, whole_number
from pytest_dlperf.logs.records import records
from pytest_dlperf.logs.step_times import slowest, step_times
from pytest_dlperf.logs.steps import (
    NEVER,
    Ends,
    Gaps,
    Place,
    Records,
    StepNumbers,
    StepsSeen,
    check_epochs,
    epoch_hint,
)
from pytest_dlperf.logs.timing import Kind, samples_per_second, step_seconds

if TYPE_CHECKING:
    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.logs.scan import MetricScan
    from pytest_dlperf.logs.steps import Span
    from pytest_dlperf.model.case import Case


class _Values:
    """What one rank's records inside the window amount to."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        self._format = log_format
        self._span = span
        self._case = case
        self._first = self._last = 0
        self._first_offset = self._last_offset = 0
        self._steps = 0
        self._time = 0.0

    @property
    def ends(self) -> Ends | None:
        """The first and the last record that count, if there are two."""
        if self._first == self._last:
            return None
        return Ends(Place(self._first, self._first_offset), Place(self._last, self._last_offset))

    def _count(self, step: int, offset: int) -> None:
        if not self._first:
            self._first, self._first_offset = step, offset
        self._last, self._last_offset = step, offset


class _Durations(_Values):
    """Durations of single steps: all that are printed count alike."""

    def take(self, step: int, gap: int, text: bytes, offset: int) -> None:
        del gap
        self._time += step_seconds(self._format.timing, text, offset)
        self._steps += 1
        self._count(step, offset)

    def estimate(self, rank: RankSteps) -> Estimate:
        records = rank.checked(self._first, self._last)
        self._span.check_two(records)
        return Estimate(self._case.global_batch * self._steps / self._time, self._steps)


class _Rates(_Values):
    """Speeds, each averaged over the steps since the record before: samples over time."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        super().__init__(log_format, span, case)
        self._begin = 0

    def take(self, step: int, gap: int, text: bytes, offset: int) -> None:
        timing, scope = self._format.timing, self._format.rate_scope
        rate = samples_per_second(timing, scope, text, offset, self._case)
        if step - gap < self._span.after:
            return
        self._begin = self._begin or step - gap + 1
        self._steps += gap
        self._time += gap / rate
        self._count(step, offset)

    def estimate(self, rank: RankSteps) -> Estimate:
        rank.checked(self._begin, self._last)
        check_epochs(rank.turned_inside, rank.gaps.interval)
        return Estimate(self._steps / self._time, self._steps)


class _Stamps(_Values):
    """Times at which steps ended: only the first and the last count."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        super().__init__(log_format, span, case)
        self._sort = log_format.stamps_sort
        self._clock = Clock()
        self._last_text = b""

    def take(self, step: int, gap: int, text: bytes, offset: int) -> None:
        del gap
        if not self._first or not self._sort:
            self._clock.read(text, offset)
        elif text < self._last_text:
            # Midnight has passed, one of them is no stamp, or time runs backwards.
            self._clock.read(self._last_text, self._last_offset)
            self._clock.read(text, offset)
        self._count(step, offset)
        self._last_text = text

    def pass_to(self, step: int, text: bytes, offset: int) -> None:
        """Go on to a later step, whose stamp sorts behind all before."""
        self._count(step, offset)
        self._last_text = text

    def estimate(self, rank: RankSteps) -> Estimate:
        records = rank.checked(self._first, self._last)
        steps = self._last - self._first
        if not steps:
            raise self._span.only_one(records.first)
        check_epochs(rank.turned_inside, rank.gaps.interval)
        if self._sort:
            self._clock.read(self._last_text, self._last_offset)
        note = self._clock.error_note
        return Estimate(self._case.global_batch * steps / self._clock.seconds, steps, note)


def _values(log_format: LogFormat, span: Span, case: Case) -> _Durations | _Rates | _Stamps:
    if log_format.timing.kind is Kind.MOMENT:
        return _Stamps(log_format, span, case)
    if log_format.timing.kind is Kind.RATE:
        return _Rates(log_format, span, case)
    return _Durations(log_format, span, case)


class RankSteps:
    """The steps of one rank, in the order in which it printed them."""

    def __init__(
        self, log_format: LogFormat, span: Span, case: Case, *, keeps_steps: bool = False
    ) -> None:
        """Begin before the first step; ``keeps_steps`` for the times of single ones."""
        self._span = span
        self.kept: list[tuple[int, bytes]] | None = [] if keeps_steps else None
        """The measured steps with what is printed of their time."""
        self._values = _values(log_format, span, case)
        index = log_format.record.groupindex
        self._record = log_format.record
        self._restarts = "epoch" in index
        self._in_columns = (
            log_format.stamps_sort and self._restarts and log_format.stamp_in_front is None
        )
        self._step_column = index["step"] - 1
        self._epoch_column = index.get("epoch", 1) - 1
        self._time_column = index.get("timestamp", 1) - 1
        self._numbers = StepNumbers(log_format.first_step)
        self._epoch = b""
        self._epoch_end = NEVER
        self._even_epochs = log_format.even_epochs
        self._hint = epoch_hint(log_format)
        self._within = 0
        self._offset: int | None = None
        self._text = b""
        self.gaps = Gaps()
        self.step = 0
        self.complete = False
        self.turned_inside = False

    def take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> None:
        """Take the rank's next record, unless the window is complete already."""
        if self.complete:
            return
        number = whole_number(printed, what="step", offset=offset)
        begins = self._offset is None
        turns = False
        if begins:
            self._numbers.begin(number)
        if self._restarts and epoch != self._epoch:
            turns = self._turn(epoch, offset) and not begins
        step = number + self._numbers.shift
        gap = step - self.step
        if gap == 0 and text == self._text and not begins:
            return
        if gap <= 0 or number > self._epoch_end:
            self._refuse(number, gap, offset)
        if not begins:
            inside = step >= self._span.begin
            self.gaps.note(gap, self.step, in_epoch=not turns, in_window=inside)
        span = self._span
        if span.begin <= step <= span.last:
            self._take_measured(step, gap, text, offset)
        if turns and span.begin < step <= span.last:
            self.turned_inside = True
        self.step = step
        self._text = text
        self._offset = offset
        if step >= span.last:
            self.complete = True

    def _take_measured(self, step: int, gap: int, text: bytes, offset: int) -> None:
        self._within += 1
        self._values.take(step, gap, text, offset)
        if self.kept is not None:
            self.kept.append((step, text))

    @property
    def ends(self) -> Ends | None:
        """The ends of the window, once it is complete."""
        return self._values.ends if self.complete else None

    @property
    def has_begun(self) -> bool:
        """Whether the window has."""
        return self.step >= self._span.begin

    @property
    def shift(self) -> int:
        """What makes a printed number the step's, in the current epoch."""
        return self._numbers.shift

    def pass_over(self, region: Region) -> bool:
        """Take all records of a region at once, where none of them needs a closer look.

        This is so for stamps of which only the first and the last count, as long as each step
        follows the one before and none ends the window. It takes a third of the time.
        """
        values = self._values
        span = self._span
        begun = self.has_begun
        record = self._record
        if (
            not isinstance(record, re.Pattern)
            or not isinstance(values, _Stamps)
            or self.complete
            or not self._in_columns
        ):
            return False
        rows = record.findall(region.buffer, 0, region.end)
        if not rows:
            return True
        columns = tuple(zip(*rows, strict=True))
        epochs = columns[self._epoch_column]
        try:
            numbers = list(map(int, columns[self._step_column]))
        except ValueError:
            return False
        shift = self._numbers.shift
        step = numbers[-1] + shift
        if (
            epochs.count(self._epoch) != len(epochs)
            or numbers[0] + shift != self.step + 1
            or numbers != list(range(numbers[0], numbers[-1] + 1))
            or step >= (span.last if begun else span.begin)
            or numbers[-1] > self._epoch_end
        ):
            return False
        texts = columns[self._time_column]
        if texts[0] < self._text or list(texts) != sorted(texts):
            return False
        self.gaps.counts[1] += len(numbers)
        self.step = step
        self._text = texts[-1]
        self._offset = region.offset + region.buffer.rfind(self._text, 0, region.end)
        if begun:
            self._within += len(numbers)
            values.pass_to(step, self._text, self._offset)
        return True

    def _turn(self, epoch: bytes, offset: int) -> bool:
        """Go on counting in the next epoch; false when only its spelling is another."""
        number = whole_number(epoch, what="epoch", offset=offset)
        self._epoch = epoch
        if number == self._numbers.epoch:
            return False
        if self._even_epochs and self._offset is not None:
            self._epoch_end = min(self._epoch_end, self.step - self._numbers.shift)
        self._numbers.turn(number, self.step, offset)
        return True

    def _refuse(self, number: int, gap: int, offset: int) -> None:
        if gap > 0:
            reason = (
                f"steps are missing from the log: an epoch ended with step {self._epoch_end}, "
                f"and a later one goes on to step {number}"
            )
        elif self._offset is None:
            reason = f"the log begins with step {number}, below its first, {self._numbers.first}"
        elif gap == 0:
            reason = (
                f"step {number} stands twice with different times; more than one process prints "
                "into the log, or a second run was appended"
            )
        else:
            last = self.step - self._numbers.shift
            reason = f"steps are out of order: step {number} follows step {last}"
            if number == self._numbers.first:
                reason += self._hint
        raise BrokenContractError(reason, offset=offset)

    def checked(self, first: int, last: int) -> Records:
        """Give the records from ``first`` to ``last`` if they make up the window."""
        records = Records(first, last, self._within, self.step, self.gaps)
        self._span.check(records, self._offset)
        return records

    def estimate(self) -> Estimate:
        """Compute samples per second over all devices, by this rank's steps."""
        return self._values.estimate(self)


class RankedSteps:
    """A log of one rank, or of several that name themselves on each record."""

    def __init__(
        self, log_format: LogFormat, span: Span, case: Case, *, ranks: int, keeps_steps: bool
    ) -> None:
        """Expect ``ranks`` ranks in the log; ``keeps_steps`` for the times of single ones."""
        self._keeps_steps = keeps_steps
        self._format = log_format
        self._span = span
        self._case = case
        self._ranks = ranks
        self._labelled = log_format.labels_ranks
        self._streams: dict[bytes, RankSteps] = {}
        self._complete = 0
        self._last_offset: int | None = None

    @property
    def complete(self) -> bool:
        """Whether every rank's window is complete."""
        return self._complete == self._ranks

    @property
    def seen(self) -> StepsSeen:
        """How far the log has come."""
        last = {_label(rank): stream.step for rank, stream in self._streams.items()}
        all_there = len(last) == self._ranks
        waiting = {_label(rank): s.step for rank, s in self._streams.items() if not s.complete}
        return StepsSeen(
            found=max(last.values(), default=0),
            warmup=self._span.after,
            window=self._span.last,
            slowest=min(last.values()) if all_there else 0,
            last=last,
            awaited=waiting if all_there else {**waiting, "": 0},
        )

    @property
    def ends(self) -> dict[str, Ends]:
        """The ends of each rank's window."""
        ends = {_label(rank): stream.ends for rank, stream in self._streams.items()}
        return {rank: each for rank, each in ends.items() if each is not None}

    def feed(self, region: Region, scan: MetricScan | None = None) -> int | None:
        """Take the region's records; return where the last rank completed its window."""
        span = self._span
        careful = scan is not None or self._keeps_steps
        labelled = self._labelled
        base = region.offset
        stream = self._streams.get(b"")
        if (
            stream is not None
            and not (labelled or (careful and stream.has_begun))
            and stream.pass_over(region)
        ):
            return None
        for start, end, step, epoch, rank, text in records(region, self._format):
            if labelled or stream is None:
                stream = self._stream(rank if labelled else b"", base + start)
            was_complete = stream.complete
            stream.take(step, epoch, text, base + start)
            if scan is not None:
                inside = not was_complete and span.after < stream.step <= span.last
                scan.at_record(start, end, step=stream.step, shift=stream.shift, inside=inside)
            if stream.complete and not was_complete:
                self._complete += 1
                if self._complete == self._ranks:
                    return end
        return None

    def _stream(self, rank: bytes, offset: int) -> RankSteps:
        stream = self._streams.get(rank)
        if stream is None:
            if len(self._streams) == self._ranks:
                named = ", ".join(sorted(map(_shown, (*self._streams, rank))))
                raise BrokenContractError(
                    f"the log holds steps of more ranks than {self._ranks}: {named}", offset=offset
                )
            stream = self._streams[rank] = RankSteps(
                self._format, self._span, self._case, keeps_steps=self._keeps_steps
            )
        return stream

    def estimate(self) -> Estimate:
        """Take the mean over the ranks."""
        if len(self._streams) < self._ranks:
            named = ", ".join(sorted(map(_shown, self._streams)))
            raise BrokenContractError(
                f"the log holds steps of {len(self._streams)} rank(s) ({named}); the case "
                f"{self._case.id} has {self._ranks} per node"
            )
        estimates = [self._estimate(rank, stream) for rank, stream in self._streams.items()]
        return Estimate(
            math.fsum(estimate.throughput for estimate in estimates) / len(estimates),
            min(estimate.steps for estimate in estimates),
            next((estimate.note for estimate in estimates if estimate.note), None),
        )

    def step_times(self) -> list[float]:
        """Take the slowest rank of each step."""
        return slowest(
            step_times(self._format, self._case, stream.kept or ())
            for stream in self._streams.values()
        )

    def _estimate(self, rank: bytes, stream: RankSteps) -> Estimate:
        try:
            return stream.estimate()
        except BrokenContractError as error:
            if self._labelled:
                error.reason = f"rank {_shown(rank)}: {error.reason}"
            raise


def _label(rank: bytes) -> str:
    return f"rank {rank.decode(errors='backslashreplace')}" if rank else ""


def _shown(rank: bytes) -> str:
    return rank[:20].decode(errors="replace")
