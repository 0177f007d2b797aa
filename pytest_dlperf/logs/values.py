"""What the records of a window amount to: times of steps, stamps, or means since the start.

One rule holds for all of them: the steps between the last record of an epoch and the first of the
next do not count, nor does the time that passes there. A trainer validates, saves and opens its
data anew in between, and some logs do not say how long an epoch was.
"""

from __future__ import annotations

import math
from itertools import repeat
from typing import TYPE_CHECKING, Final

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.printed import samples_per_second, step_seconds
from pytest_dlperf.logs.clock import NANOSECONDS, Clock, lags, uncertain
from pytest_dlperf.logs.steps import Ends, Estimate, Place, Series
from pytest_dlperf.model import statistics
from pytest_dlperf.model.work import Covers, TimeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.logs.steps import Records, Span
    from pytest_dlperf.model.case import Case

    Text: TypeAlias = tuple[bytes, int]
    """What is printed of a time, and its place in the log."""
    Checked: TypeAlias = Callable[[int, int], Records]
    """Checks that the records from one step to another make up the window."""

_FEW: Final = 5
"""Printed steps below which a mean over them may say little of the others."""
# Ranks wait for each other in each step. In real logs two of them differ by 3 % over 100 steps,
# four that share two cores by 65 %, and by a factor of 2.9 over 20 steps. Up to the first bound
# their mean is right, beyond the other it is a mean of different things.
NOTEWORTHY_DISAGREEMENT: Final = 1.05
WORTHLESS_DISAGREEMENT: Final = 4.0


class Values:
    """What was printed of the measured steps, by one rank or by several alike."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        """Begin before the window."""
        self._format = log_format
        self._span = span
        self._case = case
        self._first = self._last = 0
        self._first_offset = self._last_offset = 0
        self._turns = 0
        self._left_out = 0
        self.series = Series()
        """What is printed of all records that count."""
        self._rows = self.series.rows

    def take(self, step: int, gap: int, texts: Sequence[Text], *, turned: bool) -> None:
        """Take a step of the window, ``gap`` behind the record before, as each rank printed it.

        ``turned`` says that it is the first record of a further epoch.
        """
        if turned:
            self._turns += 1
            self._left_out += gap
            self.series.turns.append(len(self._rows))
        if not self._first:
            self._first, self._first_offset = step, texts[-1][1]
        self._last, self._last_offset = step, texts[-1][1]

    @property
    def ends(self) -> Ends | None:
        """The first and the last record that count, if there are two."""
        if self._first == self._last:
            return None
        first, last = (
            Place(self._first, self._first_offset),
            Place(self._last, self._last_offset),
        )
        return Ends(first, last, has_turned=self._turns > 0)

    def estimate(self, checked: Checked) -> Estimate:
        """Compute samples per second over all devices, if the records make up the window."""
        raise NotImplementedError

    def _made(self, steps: int, seconds: float, *notes: str | None) -> Estimate:
        if not steps:
            raise BrokenContractError(
                f"no step is left to be measured: all printed steps from {self._first} to "
                f"{self._last}, counted from 1, are the first of an epoch"
            )
        told = [note for note in (*notes, self._turned_note) if note]
        throughput = self._case.global_batch * steps / seconds
        return Estimate(throughput, steps, "; ".join(told) or None)

    @property
    def _turned_note(self) -> str | None:
        if not self._turns:
            return None
        return (
            f"{self._left_out} step(s) at the begin of {self._turns} epoch(s) are left out, with "
            "the time between the epochs"
        )


class _Times(Values):
    """Durations and speeds, of single steps or of all since the record before."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        super().__init__(log_format, span, case)
        self._is_rate = log_format.timing.kind is TimeKind.RATE
        self._is_total = log_format.covers is Covers.TOTAL_SINCE_LAST
        self._of_all = self._is_total or log_format.covers is Covers.SINCE_LAST
        self._begin = 0
        self._steps = 0
        self._time = 0.0
        self._part: Place | None = None
        self._longest: Ends | None = None
        self._said_s = 0.0
        self._is_sampled = False
        self._by_rank: list[float] = []

    def take(self, step: int, gap: int, texts: Sequence[Text], *, turned: bool) -> None:
        alone = len(texts) == 1
        each = (self._read(*texts[0]),) if alone else tuple(self._read(*text) for text in texts)
        if self._is_total:
            each = tuple(seconds / gap for seconds in each)
        weight = gap if self._of_all else 1
        if self._of_all and step - gap < self._span.after:
            return
        if turned:
            self._longest = self.ends
        super().take(step, gap, texts, turned=turned)
        self._note(step, texts, each)
        self._begin = self._begin or step - weight + 1
        if turned or self._part is None:
            self._part = Place(step, texts[-1][1])
            self._said_s, self._is_sampled = 0.0, False
        if turned:
            return
        if alone:
            mean = each[0]
        elif self._is_rate:
            mean = len(each) / math.fsum(1 / seconds for seconds in each)
        else:
            mean = math.fsum(each) / len(each)
        self._steps += weight
        self._time += weight * mean
        if step > self._part.step:
            self._said_s += gap * mean
            self._is_sampled = self._is_sampled or gap > weight
        if not alone:
            before = self._by_rank or [0.0] * len(each)
            self._by_rank = [total + weight * one for total, one in zip(before, each, strict=True)]

    def _note(self, step: int, texts: Sequence[Text], each: Sequence[float]) -> None:
        """Note what was printed of a step, and the seconds by it."""
        for (text, offset), seconds in zip(texts, each, strict=True):
            self._rows.append((step, text, offset, seconds))

    @property
    def ends(self) -> Ends | None:
        """The first and the last record of an epoch of which the most steps count."""
        longest, begin = self._longest, self._part
        if begin is None or begin.step == self._last:
            return longest
        end = Place(self._last, self._last_offset)
        if longest is not None and longest.last.step - longest.first.step > end.step - begin.step:
            return longest
        return Ends(begin, end, self._said_s, self._is_sampled)

    def _read(self, text: bytes, offset: int) -> float:
        form = self._format
        if self._is_rate:
            rate = samples_per_second(form, text, offset, self._case)
            seconds = self._case.global_batch / rate
        else:
            seconds = step_seconds(form.timing, text, offset)
        form.check_time(text, offset)
        return seconds

    def estimate(self, checked: Checked) -> Estimate:
        records = checked(self._begin, self._last)
        few = None
        if not self._of_all:
            self._span.check_two(records)
            if self._steps < min(_FEW, self._span.measured):
                few = f"{self._steps} steps of the {self._span.measured} that are measured count"
        return self._made(self._steps, self._time, few, agreement(self._by_rank))


class _Means(Values):
    """Means over all steps since the start: what the last and the first of the window differ by."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        super().__init__(log_format, span, case)
        self._ends: list[Sequence[Text]] = []

    def take(self, step: int, gap: int, texts: Sequence[Text], *, turned: bool) -> None:
        super().take(step, gap, texts, turned=turned)
        self._ends = [*self._ends[:1], texts]
        self._rows += ((step, *text, self._since_start(1, *text)[0]) for text in texts)

    def estimate(self, checked: Checked) -> Estimate:
        records = checked(self._first, self._last)
        if len(self._ends) == 1:
            raise self._span.only_one(records.first)
        if self._turns:
            raise BrokenContractError(
                "the log prints means since the start, and an epoch begins within the window; "
                "print what single steps take"
            )
        passed = [
            [self._since_start(step, text, offset) for text, offset in texts]
            for step, texts in zip((self._first, self._last), self._ends, strict=True)
        ]
        begin, end = (statistics.mean([seconds for seconds, _ in each]) for each in passed)
        if end <= begin:
            raise BrokenContractError(
                f"no time passes between step {self._first} and step {self._last}: the log says "
                f"{begin:g} s and {end:g} s since the start",
                offset=self._last_offset,
            )
        error = max(error for each in passed for _, error in each)
        note = uncertain("the means' resolution", error, end - begin, self._last_offset)
        return self._made(self._last - self._first, end - begin, note)

    def _since_start(self, step: int, text: bytes, offset: int) -> tuple[float, float]:
        """Compute the seconds since the start, and how far off they may be by rounding."""
        form = self._format
        if form.timing.kind is TimeKind.RATE:
            rate = samples_per_second(form, text, offset, self._case)
            seconds = step * self._case.global_batch / rate
        else:
            seconds = step * step_seconds(form.timing, text, offset)
        digits = bytes(each for each in text if each in b"0123456789").lstrip(b"0")
        return seconds, seconds / int(digits or b"1")


class Stamps(Values):
    """Times at which steps ended: only those at the window's ends and around epochs count."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        """Begin before the window."""
        super().__init__(log_format, span, case)
        self._sort = log_format.stamps_sort
        self._clock = Clock()
        self._text: Text = b"", 0
        self._at = 0
        self._between = 0
        """Nanoseconds between epochs."""
        self._first_texts: Sequence[Text] = ()
        self._last_texts: Sequence[Text] = ()

    def take(self, step: int, gap: int, texts: Sequence[Text], *, turned: bool) -> None:
        """Take a step; it has ended when the last rank says so."""
        text, offset = texts[0] if len(texts) == 1 else texts[lags(texts).index(0)]
        begins = not self._first
        turned = turned and not begins
        super().take(step, gap, texts, turned=turned)
        self._first_texts = self._first_texts or texts
        self._last_texts = texts
        # Sorted, no stamp between the ends matters: else midnight has passed, one of them is no
        # stamp, or time runs backwards.
        if begins or turned or not self._sort or text < self._text[0]:
            if self._sort and not begins:
                self._read(*self._text)
                self._at = self._clock.nanoseconds
            self._read(text, offset)
            now = self._clock.nanoseconds
            interval, self._at = now - self._at, now
            if turned:
                self._between += interval
        self._rows.append((step, text, offset, -1 if self._sort else self._at))
        self._text = text, offset

    def pass_to(self, step: int, texts: Sequence[bytes], offset: int) -> None:
        """Go on to a later step of the same epoch, whose stamp sorts behind all before."""
        steps = range(self._last + 1, step + 1)
        self._rows += zip(steps, texts, repeat(-1), repeat(-1), strict=False)
        self._last, self._last_offset = step, offset
        self._text = texts[-1], offset
        self._last_texts = (self._text,)

    def _read(self, text: bytes, offset: int) -> None:
        self._clock.read(text, offset)
        if self._format.time_form is not None:
            self._format.check_time(text, offset)

    def estimate(self, checked: Checked) -> Estimate:
        """Compute samples per second over all devices, if the records make up the window."""
        records = checked(self._first, self._last)
        if self._first == self._last:
            raise self._span.only_one(records.first)
        if self._sort:
            self._read(*self._text)
        steps = self._last - self._first - self._left_out
        if not steps:
            return self._made(0, 1.0)
        passed = self._clock.nanoseconds - self._between
        note = self._clock.error_note(passed)
        # Which of them is whose is not known: the last to begin is taken for the last to end.
        begins, ends = sorted(lags(self._first_texts)), sorted(lags(self._last_texts))
        apart = agreement([passed + a - b for a, b in zip(begins, ends, strict=True)])
        return self._made(steps, passed / NANOSECONDS, note, apart)


def values_of(log_format: LogFormat, span: Span, case: Case) -> Values:
    """Make what takes the records of a format."""
    if log_format.timing.kind is TimeKind.MOMENT:
        return Stamps(log_format, span, case)
    if log_format.covers is Covers.SINCE_START:
        return _Means(log_format, span, case)
    return _Times(log_format, span, case)


def agreement(seconds: Sequence[float], names: Sequence[str] = ()) -> str | None:
    """Compare how long the steps took by each rank; return a note where they differ a little.

    Raises:
        BrokenContractError: They differ by more than ranks of one training can.
    """
    slow, fast = max(seconds, default=1.0), min(seconds, default=1.0)
    ratio = slow / fast if fast > 0 else math.inf
    if ratio <= NOTEWORTHY_DISAGREEMENT:
        return None
    one, other = (
        (names[seconds.index(slow)], names[seconds.index(fast)])
        if names
        else ("one rank", "another")
    )
    said = f"by what {one} prints, steps take {ratio:.3g} times as long as by what {other} does"
    if ratio > WORTHLESS_DISAGREEMENT:
        raise BrokenContractError(
            f"the ranks disagree: {said}; ranks of one training wait for each other in each step"
        )
    return said
