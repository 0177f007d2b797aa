"""``steady``: the window of each rank, or of all that print into a log without a name."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeAlias

from pytest_dlperf.formats.contract import BrokenContractError, whole_number
from pytest_dlperf.logs.lines import Sieve
from pytest_dlperf.logs.numbering import Mark, StepNumbers, StepOrder
from pytest_dlperf.logs.records import records
from pytest_dlperf.logs.step_times import KeptStep, slowest, slowest_text, step_times
from pytest_dlperf.logs.steps import LOOK_AHEAD, Ends, Estimate, Gaps, RankCount, Records, StepsSeen
from pytest_dlperf.logs.values import Stamps, agreement, values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.logs.scan import MetricScan
    from pytest_dlperf.logs.steps import Series, Span
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

    def pass_to(self, step: int, texts: Sequence[bytes], offset: int) -> None:
        """Go on to a later step of the same epoch, where all between follow each other."""
        count = step - self.step
        self._gaps.counts[1] += count
        if self.has_begun and isinstance(self.values, Stamps):
            self._within += count
            self.values.pass_to(step, texts, offset)
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


_Printed: TypeAlias = "tuple[bytes, bytes, bytes, int]"
"""A record's number, epoch and time as they are printed, and its offset."""


class _Stream:
    """The records of one process, or of several that do not name themselves.

    Where nothing says what the first step is called, records are held until two numbers tell.
    """

    def __init__(self, log_format: LogFormat, numbers: StepNumbers, steps: WindowSteps) -> None:
        self.numbers = numbers
        self.steps = steps
        self._held: list[_Printed] | None = [] if log_format.first_step is None else None

    @property
    def reached(self) -> int:
        """The last step that all of its processes have shown."""
        return int(self._held[-1][0]) if self._held else self.steps.step

    @property
    def furthest(self) -> int:
        """The last step that any of them has shown."""
        return self.reached

    def take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> int:
        """Take the next record; return its step."""
        if self._held is None:
            return self._take(printed, epoch, text, offset)
        if self._held:
            first, its_epoch, *_ = self._held[0]
            if (printed, epoch) != (first, its_epoch):
                if epoch == its_epoch and printed.isdigit():
                    self.numbers.tell_first(int(first), int(printed))
                self.settle()
                return self._take(printed, epoch, text, offset)
        elif not printed.isdigit() or int(printed) <= 1:
            self._held = None
            return self._take(printed, epoch, text, offset)
        self._held.append((printed, epoch, text, offset))
        return int(printed)

    def settle(self) -> None:
        """Take what has been held."""
        held, self._held = self._held, None
        for record in held or ():
            self._take(*record)

    def _take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> int:
        raise NotImplementedError

    def estimate(self) -> Estimate:
        """Compute samples per second over all devices, once all has been taken."""
        return self.steps.estimate()


class _Process(_Stream):
    """The steps of one process, in the order in which it printed them."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case, *, keeps_steps: bool) -> None:
        self._span = span
        self._record = log_format.glance or log_format.record
        self._order = order = StepOrder(log_format)
        steps = WindowSteps(log_format, span, case, order.numbers, keeps_steps=keeps_steps)
        super().__init__(log_format, order.numbers, steps)
        index = log_format.record.groupindex
        self._in_columns = (
            log_format.stamps_sort and "epoch" in index and log_format.stamp_in_front is None
        )
        self._step_column = index.get("step", 1) - 1
        self._sieve = Sieve(log_format.texts if self._in_columns else ())
        self._epoch_column = index.get("epoch", 1) - 1
        self._time_column = index.get("timestamp", 1) - 1

    def _take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> int:
        """Take the next record; behind the window only the order counts."""
        order, steps = self._order, self.steps
        if order.follow(printed, epoch, text, offset) and not steps.complete:
            steps.take(order.step, ((text, offset),), turned=order.turned)
        return steps.step

    def pass_over(self, region: Region) -> bool:
        """Take all records of a region at once, where none of them needs a closer look.

        This is so for stamps of which only the first and the last count, as long as each step
        follows the one before and none ends the window. It takes a third of the time.
        """
        span, steps, order = self._span, self.steps, self._order
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
        steps.pass_to(step, texts, offset)
        return True


class _Processes(_Stream):
    """The steps of several processes, each of which prints all of them.

    In what order they print, whole blocks of one or turn by turn, does not matter: a step is over
    when all have printed it, and that happens in the steps' order. An epoch's length is known as
    soon as its successor shows, since whoever printed that has printed all of the epoch.
    """

    def __init__(self, log_format: LogFormat, span: Span, case: Case, *, keeps_steps: bool) -> None:
        numbers = StepNumbers(log_format)
        steps = WindowSteps(log_format, span, case, numbers, keeps_steps=keeps_steps)
        super().__init__(log_format, numbers, steps)
        self._span = span
        self._printers = log_format.ranks.printers(case)
        self._restarts = "epoch" in log_format.record.groupindex
        self.count = RankCount(log_format, case, self._printers)
        self._pending: dict[int, list[Text]] = {}

    @property
    def furthest(self) -> int:
        return max(self.reached, self.numbers.furthest)

    def take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> int:
        """Take the next record; behind the window only its rank counts."""
        self.count.note(epoch, printed, offset)
        if self.steps.complete:
            return self.steps.step
        return super().take(printed, epoch, text, offset)

    def _take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> int:
        number = whole_number(printed, what="step", offset=offset)
        step = self.numbers.place(number, epoch if self._restarts else b"", offset)
        if step <= self.steps.step:
            if self._printers == 1 and step < self.steps.step:
                raise BrokenContractError(
                    f"steps are out of order: step {number} stands behind a later one",
                    offset=offset,
                )
            if step >= self._span.begin:
                self.count.check_step(printed, self._printers + 1, offset)
            return step
        texts = self._pending.setdefault(step, [])
        texts.append((text, offset))
        if len(texts) == self._printers:
            self._end_step(step)
        return step

    def _end_step(self, step: int) -> None:
        """Go on to a step that all have printed."""
        steps = self.steps
        if next(iter(self._pending)) != step:
            for before in sorted(each for each in self._pending if each < step):
                lacking = self._pending.pop(before)
                if before >= self._span.begin:
                    raise self.count.too_seldom(len(lacking), lacking[-1][1])
        turned = self.numbers.has_turned(steps.step, step)
        steps.take(step, self._pending.pop(step), turned=turned)

    def estimate(self) -> Estimate:
        """Compute it of the mean of all; by stamps, a step has ended when the last says so."""
        self.count.check_all_there()
        return super().estimate()


class RankedSteps:
    """The window of each rank that names itself, or of all together that print without a name."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case, *, keeps_steps: bool) -> None:
        """Expect each rank that prints; ``keeps_steps`` for the times of single steps."""
        self._keeps_steps = keeps_steps
        self._format = log_format
        self._span = span
        self._case = case
        self._kind = _Process if log_format.has_one_order else _Processes
        self._ranks = log_format.ranks.printers(case) if log_format.has_one_order else 1
        self._labelled = log_format.labels_ranks
        self._streams: dict[bytes, _Process | _Processes] = {}
        self._complete = 0
        self._enough: int | None = None
        self.mark: Mark | None = None
        """Where the last rank has completed its window."""

    @property
    def complete(self) -> bool:
        """Whether every rank's window is complete."""
        return self._complete == self._ranks

    @property
    def seen(self) -> StepsSeen:
        """How far the log has come; of ranks without names it is not known which is how far."""
        streams = {_label(rank): stream for rank, stream in self._streams.items()}
        last = {rank: each.furthest for rank, each in streams.items()}
        all_there = len(last) == self._ranks
        waiting = {rank: each.reached for rank, each in streams.items() if not each.steps.complete}
        return StepsSeen(
            found=max(last.values(), default=0),
            warmup=self._span.after,
            window=self._span.last,
            slowest=min(each.reached for each in streams.values()) if all_there else 0,
            last=last,
            awaited=waiting if all_there else {**waiting, "": 0},
        )

    @property
    def ends(self) -> dict[str, Ends]:
        """The ends of each rank's window."""
        ends = {_label(rank): stream.steps.ends for rank, stream in self._streams.items()}
        return {rank: each for rank, each in ends.items() if each is not None}

    @property
    def series(self) -> dict[str, Series]:
        """What each rank has printed."""
        return {_label(rank): stream.steps.values.series for rank, stream in self._streams.items()}

    def feed(self, region: Region, scan: MetricScan | None = None) -> int | None:
        """Take the region's records; return where the log has shown enough."""
        base = region.offset
        stream = self._streams.get(b"")
        if stream is None or not self._passes_over(stream, region, careful=scan is not None):
            for start, end, printed, epoch, rank, text in records(region, self._format):
                if self._enough is not None and base + start >= self._enough:
                    break
                if self._labelled or stream is None:
                    stream = self._stream(rank if self._labelled else b"", base + start)
                if self._format.epoch_length is not None:
                    stream.numbers.note_length(epoch, region.buffer, start)
                was_complete = stream.steps.complete
                step = stream.take(printed, epoch, text, base + start)
                if scan is not None:
                    self._tell(scan, (start, end), stream, step, is_over=was_complete)
                if stream.steps.complete and not was_complete:
                    self._complete_one(stream, step, base + end)
        if self._enough is None or base + region.end < self._enough:
            return None
        return max(self._enough - base, 0)

    def _passes_over(self, stream: _Stream, region: Region, *, careful: bool) -> bool:
        """Take a region at once, where no single step of it is wanted."""
        careful = careful or self._keeps_steps
        return (
            isinstance(stream, _Process)
            and not (self._labelled or (careful and stream.steps.has_begun))
            and stream.pass_over(region)
        )

    def _tell(
        self,
        scan: MetricScan,
        place: tuple[int, int],
        stream: _Stream,
        step: int,
        *,
        is_over: bool,
    ) -> None:
        """Tell of a record; ``is_over`` where the window of its rank was complete before."""
        if self._enough is not None:
            scan.leave_window(place[0])
            return
        inside = not is_over and self._span.after < step <= self._span.last
        scan.at_record(*place, step=step, shift=stream.numbers.shift, inside=inside)

    def _complete_one(self, stream: _Stream, step: int, end: int) -> None:
        self._complete += 1
        if self.complete:
            self.mark = stream.numbers.mark(step, end)
            # Of ranks without a name, another may have been silent until then.
            self._enough = end if self._format.has_one_order else end + LOOK_AHEAD

    def _stream(self, rank: bytes, offset: int) -> _Process | _Processes:
        stream = self._streams.get(rank)
        if stream is None:
            if len(self._streams) == self._ranks:
                named = ", ".join(sorted(map(_shown, (*self._streams, rank))))
                raise BrokenContractError(
                    f"the log holds steps of more ranks than {self._ranks}: {named}", offset=offset
                )
            stream = self._streams[rank] = self._kind(
                self._format, self._span, self._case, keeps_steps=self._keeps_steps
            )
        return stream

    def estimate(self) -> Estimate:
        """Take the mean over the ranks."""
        for stream in self._streams.values():
            stream.settle()
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

    def _estimate(self, rank: bytes, stream: _Stream) -> Estimate:
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
