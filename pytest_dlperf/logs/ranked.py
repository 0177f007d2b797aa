"""``steady`` for logs of one rank, or of ranks that name themselves: each in its own order."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.logs.lines import Sieve
from pytest_dlperf.logs.numbering import Mark, StepOrder
from pytest_dlperf.logs.records import records
from pytest_dlperf.logs.step_times import KeptStep, slowest, slowest_text, step_times
from pytest_dlperf.logs.steps import Ends, Estimate, Gaps, Records, StepsSeen
from pytest_dlperf.logs.values import Stamps, agreement, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.logs.numbering import StepNumbers
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.logs.scan import MetricScan
    from pytest_dlperf.logs.steps import Span
    from pytest_dlperf.logs.values import Text
    from pytest_dlperf.model.case import Case


class WindowSteps:
    """The steps of one rank, or of several that print each, as far as the window goes."""

    def __init__(
        self,
        log_format: LogFormat,
        span: Span,
        case: Case,
        numbers: StepNumbers,
        *,
        keeps_steps: bool = False,
    ) -> None:
        """Begin before the first step; ``keeps_steps`` for the times of single ones."""
        self._format = log_format
        self._numbers = numbers
        self._span = span
        self._case = case
        self._kept: list[KeptStep] | None = [] if keeps_steps else None
        self._within = 0
        self._offset: int | None = None
        self._gaps = Gaps()
        self.values = values_of(log_format, span, case)
        self.step = 0
        self.complete = False

    def take(self, step: int, texts: Sequence[Text], *, turned: bool) -> None:
        """Take the next step as each rank has printed it, or one that ends the window."""
        span = self._span
        gap = step - self.step
        if self._offset is not None:
            inside = step >= span.begin
            self._gaps.note(gap, self.step, in_epoch=not turned, in_window=inside)
        if span.begin <= step <= span.last:
            self._within += 1
            self.values.take(step, gap, texts, turned=turned)
            if self._kept is not None:
                text = slowest_text(self._format, self._case, texts)
                self._kept.append(KeptStep(step, text, turned))
        self.step = step
        self._offset = texts[-1][1]
        self.complete = step >= span.last

    def pass_to(self, step: int, text: bytes, offset: int) -> None:
        """Go on to a later step of the same epoch, where all between follow each other."""
        count = step - self.step
        self._gaps.counts[1] += count
        if self.has_begun and isinstance(self.values, Stamps):
            self._within += count
            self.values.pass_to(step, text, offset)
        self.step = step
        self._offset = offset

    @property
    def has_begun(self) -> bool:
        """Whether the window has."""
        return self.step >= self._span.begin

    @property
    def ends(self) -> Ends | None:
        """The ends of the window, as far as it goes: the log may end before the next record."""
        return self.values.ends

    def estimate(self) -> Estimate:
        """Compute samples per second over all devices."""
        return self.values.estimate(self._checked)

    def _checked(self, first: int, last: int) -> Records:
        records = Records(first, last, self._within, self.step, self._gaps)
        self._span.check(records, self._offset)
        # The epochs of shipped trainers begin with 0, those of others may with 1.
        if self._numbers.begins_within(int(self._format.whole_lines), self._gaps.interval):
            raise BrokenContractError(
                "the log's begin is missing: it begins within an epoch that is not the first, so "
                "it is not known which steps these are"
            )
        if self._numbers.guessed < self._span.last and self._gaps.interval > 1:
            raise BrokenContractError(
                f"an epoch ends before the window does, and with only every {self._gaps.interval} "
                "steps printed its length is not known; print every step, or make the epoch longer"
            )
        return records

    def step_times(self) -> dict[int, float]:
        """Compute the seconds of each step, by the slowest of its ranks."""
        return step_times(self._format, self._case, self._kept or ())


class _Rank:
    """The steps of one rank, in the order in which it printed them."""

    def __init__(
        self, log_format: LogFormat, span: Span, case: Case, *, keeps_steps: bool = False
    ) -> None:
        self._span = span
        self._record = log_format.glance or log_format.record
        self.order = StepOrder(log_format)
        self.steps = WindowSteps(
            log_format, span, case, self.order.numbers, keeps_steps=keeps_steps
        )
        index = log_format.record.groupindex
        self._in_columns = (
            log_format.stamps_sort and "epoch" in index and log_format.stamp_in_front is None
        )
        self._step_column = index.get("step", 1) - 1
        self._sieve = Sieve(log_format.texts if self._in_columns else ())
        self._epoch_column = index.get("epoch", 1) - 1
        self._time_column = index.get("timestamp", 1) - 1

    def take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> None:
        """Take the rank's next record; behind its window only the order counts."""
        order, steps = self.order, self.steps
        if order.follow(printed, epoch, text, offset) and not steps.complete:
            steps.take(order.step, ((text, offset),), turned=order.turned)

    def pass_over(self, region: Region) -> bool:
        """Take all records of a region at once, where none of them needs a closer look.

        This is so for stamps of which only the first and the last count, as long as each step
        follows the one before and none ends the window. It takes a third of the time.
        """
        span, steps, order = self._span, self.steps, self.order
        record = self._record
        if not isinstance(record, re.Pattern) or not self._in_columns or steps.complete:
            return False
        lines = self._sieve.lines(region)
        if lines is None:
            rows = record.findall(region.buffer, 0, region.end)
        else:
            rows = record.findall(lines)
        if not rows:
            return True
        columns = tuple(zip(*rows, strict=True))
        epochs = columns[self._epoch_column]
        texts = columns[self._time_column]
        try:
            numbers = list(map(int, columns[self._step_column]))
        except ValueError:
            return False
        step = numbers[-1] + order.numbers.shift
        if (
            epochs.count(epochs[0]) != len(epochs)
            or not order.is_next(numbers[0], epochs[0], texts[0])
            or numbers != list(range(numbers[0], numbers[-1] + 1))
            or step >= (span.last if steps.has_begun else span.begin)
            or not order.numbers.is_in_epoch(numbers[-1])
            or list(texts) != sorted(texts)
        ):
            return False
        text = texts[-1]
        offset = region.offset + region.buffer.rfind(text, 0, region.end)
        order.pass_to(step, text, offset)
        steps.pass_to(step, text, offset)
        return True


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
        self._streams: dict[bytes, _Rank] = {}
        self._complete = 0
        self._mark: Mark | None = None

    @property
    def complete(self) -> bool:
        """Whether every rank's window is complete."""
        return self._complete == self._ranks

    @property
    def seen(self) -> StepsSeen:
        """How far the log has come."""
        last = {_label(rank): stream.steps.step for rank, stream in self._streams.items()}
        all_there = len(last) == self._ranks
        open_ones = (
            (rank, stream.steps)
            for rank, stream in self._streams.items()
            if not stream.steps.complete
        )
        waiting = {_label(rank): steps.step for rank, steps in open_ones}
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
        ends = {_label(rank): stream.steps.ends for rank, stream in self._streams.items()}
        return {rank: each for rank, each in ends.items() if each is not None}

    @property
    def mark(self) -> Mark | None:
        """Where the last rank has completed its window."""
        return self._mark

    def feed(self, region: Region, scan: MetricScan | None = None) -> int | None:
        """Take the region's records; return where the last rank completed its window."""
        span = self._span
        careful = scan is not None or self._keeps_steps
        labelled = self._labelled
        base = region.offset
        stream = self._streams.get(b"")
        if (
            stream is not None
            and not (labelled or (careful and stream.steps.has_begun))
            and stream.pass_over(region)
        ):
            return None
        for start, end, step, epoch, rank, text in records(region, self._format):
            if labelled or stream is None:
                stream = self._stream(rank if labelled else b"", base + start)
            steps = stream.steps
            was_complete = steps.complete
            stream.take(step, epoch, text, base + start)
            if scan is not None:
                inside = not was_complete and span.after < steps.step <= span.last
                shift = stream.order.numbers.shift
                scan.at_record(start, end, step=steps.step, shift=shift, inside=inside)
            if steps.complete and not was_complete:
                self._complete += 1
                if self._complete == self._ranks:
                    self._mark = stream.order.numbers.mark(steps.step, base + end)
                    return end
        return None

    def _stream(self, rank: bytes, offset: int) -> _Rank:
        stream = self._streams.get(rank)
        if stream is None:
            if len(self._streams) == self._ranks:
                named = ", ".join(sorted(map(_shown, (*self._streams, rank))))
                raise BrokenContractError(
                    f"the log holds steps of more ranks than {self._ranks}: {named}", offset=offset
                )
            stream = self._streams[rank] = _Rank(
                self._format, self._span, self._case, keeps_steps=self._keeps_steps
            )
        return stream

    def estimate(self) -> Estimate:
        """Take the mean over the ranks."""
        if len(self._streams) < self._ranks:
            named = ", ".join(sorted(map(_shown, self._streams)))
            raise BrokenContractError(
                f"the log holds steps of {len(self._streams)} rank(s) ({named}); the case "
                f"{self._case.id} has {self._ranks} that print into it"
            )
        estimates = [self._estimate(rank, stream) for rank, stream in self._streams.items()]
        seconds = [1 / estimate.throughput for estimate in estimates]
        apart = agreement(seconds, [f"rank {_shown(rank)}" for rank in self._streams])
        notes = [next((each.note for each in estimates if each.note), None), apart]
        return Estimate(
            math.fsum(estimate.throughput for estimate in estimates) / len(estimates),
            min(estimate.steps for estimate in estimates),
            "; ".join(note for note in notes if note) or None,
        )

    def step_times(self) -> list[float]:
        """Take the slowest rank of each step."""
        return slowest(stream.steps.step_times() for stream in self._streams.values())

    def _estimate(self, rank: bytes, stream: _Rank) -> Estimate:
        try:
            return stream.steps.estimate()
        except BrokenContractError as error:
            if self._labelled:
                error.reason = f"rank {_shown(rank)}: {error.reason}"
            raise


def _label(rank: bytes) -> str:
    return f"rank {rank.decode(errors='backslashreplace')}" if rank else ""


def _shown(rank: bytes) -> str:
    return rank[:20].decode(errors="replace")
