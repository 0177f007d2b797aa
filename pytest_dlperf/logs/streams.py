"""Streams of records, each in its own order: steps numbered from 1 on, and those of the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pytest_dlperf.formats.contract import BrokenContractError, whole_number
from pytest_dlperf.logs.numbering import StepNumbers, StepOrder
from pytest_dlperf.logs.steps import Gaps, RankCount, Records
from pytest_dlperf.logs.values import values_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.logs.steps import Estimate, Span
    from pytest_dlperf.logs.values import Text
    from pytest_dlperf.model.case import Case

_Printed: TypeAlias = "tuple[bytes, bytes, bytes, int]"
"""A record's number, epoch and time as they are printed, and its offset."""


class Stream:
    """The records of one process, or of several that do not name themselves, step by step.

    Where nothing says what the first step is called, records are held until two numbers tell.
    """

    def __init__(self, log_format: LogFormat, span: Span, case: Case, numbers: StepNumbers) -> None:
        """Begin before the first record."""
        self._format = log_format
        self._span = span
        self.numbers = numbers
        self.values = values_of(log_format, span, case)
        """What is printed of the window's steps."""
        self.step = 0
        """The last that all have shown, at most the one that completed the window."""
        self.complete = False
        self._within = 0
        self._offset: int | None = None
        self._gaps = Gaps()
        self._held: list[_Printed] | None = [] if log_format.first_step is None else None

    @property
    def reached(self) -> int:
        """The last step that all have shown, also where it is held."""
        return int(self._held[-1][0]) if self._held else self.step

    @property
    def furthest(self) -> int:
        """The last step that any of several has shown."""
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

    def _add(self, step: int, texts: Sequence[Text], *, turned: bool) -> None:
        """Go on to a step as each has printed it, or to one that ends the window."""
        span = self._span
        gap = step - self.step
        if self._offset is not None:
            inside = step >= span.begin
            self._gaps.note(gap, self.step, in_epoch=not turned, in_window=inside)
        if span.begin <= step <= span.last:
            self._within += 1
            self.values.take(step, gap, texts, turned=turned)
        self.step = step
        self._offset = texts[-1][1]
        self.complete = step >= span.last

    def estimate(self) -> Estimate:
        """Compute samples per second over all devices, once all has been taken."""
        return self.values.estimate(self._checked)

    def _checked(self, first: int, last: int) -> Records:
        records = Records(first, last, self._within, self.step, self._gaps)
        self._span.check(records, self._offset)
        # The epochs of shipped trainers begin with 0, those of others may with 1.
        if self.numbers.begins_within(int(self._format.whole_lines), self._gaps.interval):
            raise BrokenContractError(
                "the log's begin is missing: it begins within an epoch that is not the first, so "
                "it is not known which steps these are"
            )
        if self.numbers.guessed < self._span.last and self._gaps.interval > 1:
            raise BrokenContractError(
                f"an epoch ends before the window does, and with only every {self._gaps.interval} "
                "steps printed its length is not known; print every step, or make the epoch longer"
            )
        return records

    def step_times(self) -> dict[int, float]:
        """Compute the seconds of each step, by the slowest of its ranks."""
        return self.values.step_times(self._gaps.interval)


class Process(Stream):
    """The steps of one process, in the order in which it printed them."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        """Begin before the first record."""
        self._order = StepOrder(log_format)
        super().__init__(log_format, span, case, self._order.numbers)

    def _take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> int:
        """Take the next record; behind the window only the order counts."""
        order = self._order
        if order.follow(printed, epoch, text, offset) and not self.complete:
            self._add(order.step, ((text, offset),), turned=order.turned)
        return self.step


class Processes(Stream):
    """The steps of several processes, each of which prints all of them.

    In what order they print, whole blocks of one or turn by turn, does not matter: a step is over
    when all have printed it, and that happens in the steps' order. An epoch's length is known as
    soon as its successor shows: the process that printed that has printed all of the epoch.
    """

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        """Expect each step as often as there are processes that print into the log."""
        super().__init__(log_format, span, case, StepNumbers(log_format))
        self._printers = log_format.ranks.printers(case)
        self._restarts = "epoch" in log_format.record.groupindex
        self.count = RankCount(log_format, case, self._printers)
        self._pending: dict[int, list[Text]] = {}

    @property
    def furthest(self) -> int:
        """The last step that any of them has shown."""
        return max(self.reached, self.numbers.furthest)

    def take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> int:
        """Take the next record; behind the window only its rank counts."""
        self.count.note(epoch, printed, offset)
        if self.complete:
            return self.step
        return super().take(printed, epoch, text, offset)

    def _take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> int:
        number = whole_number(printed, what="step", offset=offset)
        step = self.numbers.place(number, epoch if self._restarts else b"", offset)
        if step <= self.step:
            if self._printers == 1 and step < self.step:
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
        if next(iter(self._pending)) != step:
            for before in sorted(each for each in self._pending if each < step):
                lacking = self._pending.pop(before)
                if before >= self._span.begin:
                    raise self.count.too_seldom(len(lacking), lacking[-1][1])
        turned = self.numbers.has_turned(self.step, step)
        self._add(step, self._pending.pop(step), turned=turned)

    def estimate(self) -> Estimate:
        """Compute it of the mean of all."""
        self.count.check_all_there()
        return super().estimate()
