"""What the records of a window amount to: times of steps, stamps, or means since the start.

One rule holds for all of them: the steps between the last record of an epoch and the first of the
next do not count, nor does the time that passes there. A trainer validates, saves and opens its
data anew in between, and some logs do not say how long an epoch was.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.printed import step_seconds
from pytest_dlperf.logs.clock import NANOSECONDS, WORTHLESS_ERROR, Clock, lags, parse, uncertain
from pytest_dlperf.logs.steps import Ends, Estimate, NoStepTimesError, Place, Series
from pytest_dlperf.model import statistics
from pytest_dlperf.model.work import Covers, TimeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
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
        self._begin = 0
        """The step before the first that counts."""
        self._printers = 1
        """How many have printed each step of the series, one behind the other."""
        self.series = Series()
        """What is printed of all records that count."""
        self._rows = self.series.rows

    def take(self, step: int, gap: int, texts: Sequence[Text], *, turned: bool) -> None:
        """Take a step of the window, ``gap`` behind the record before, as each rank printed it.

        ``turned`` says that it is the first record of a further epoch.
        """
        raise NotImplementedError

    def _note(
        self, step: int, gap: int, texts: Sequence[Text], amounts: Sequence[float], *, turned: bool
    ) -> None:
        """Note what is printed of a step, and what it amounts to."""
        rows = self._rows
        if not rows:
            self._begin, self._printers = step - gap, len(texts)
        if turned:
            self.series.turns.append(len(self.series))
        for (text, offset), amount in zip(texts, amounts, strict=True):
            rows.append((step, text, offset, amount))

    @property
    def _first(self) -> Place:
        """The first step that counts, and the last record of it."""
        return self._place(self._printers - 1)

    @property
    def _last(self) -> Place:
        return self._place(-1)

    def _place(self, at: int) -> Place:
        return Place(self._rows[at][0], self._rows[at][2]) if self._rows else Place(0, 0)

    def _gap(self, at: int) -> int:
        """Say how many steps the first record of a step is behind the one before."""
        return self._rows[at][0] - (self._rows[at - 1][0] if at else self._begin)

    @property
    def ends(self) -> Ends | None:
        """The first and the last record that count, if there are two."""
        if self._first.step == self._last.step:
            return None
        return Ends(self._first, self._last, has_turned=bool(self.series.turns))

    def estimate(self, checked: Checked) -> Estimate:
        """Compute samples per second over all devices, if the records make up the window."""
        raise NotImplementedError

    def step_times(self, interval: int) -> dict[int, float]:
        """Compute the seconds of each step, by the slowest of its ranks.

        ``interval`` is that of the log, where a single record does not tell.

        Raises:
            NoStepTimesError: Records stand for several steps, or the stamps are too coarse.
        """
        begins = self.series.turns
        gaps = [
            after - before
            for at, (before, after) in enumerate(pairwise(self.series.columns[0]), 1)
            if at not in begins
        ]
        if (gap := max(gaps, default=interval)) > 1:
            raise NoStepTimesError(
                f"the log prints every {gap} steps, and a mean over them is not a step's time; "
                "print each step"
            )
        return self._step_times()

    def _step_times(self) -> dict[int, float]:
        raise NotImplementedError

    def _made(self, steps: int, seconds: float, *notes: str | None) -> Estimate:
        if not steps:
            raise BrokenContractError(
                f"no step is left to be measured: all printed steps from {self._first.step} to "
                f"{self._last.step}, counted from 1, are the first of an epoch"
            )
        told = [note for note in (*notes, self._turned_note) if note]
        throughput = self._case.global_batch * steps / seconds
        return Estimate(throughput, steps, "; ".join(told) or None)

    @property
    def _left_out(self) -> int:
        """How many steps the first records of further epochs stand for."""
        return sum(map(self._gap, self.series.turns))

    @property
    def _turned_note(self) -> str | None:
        if not self.series.turns:
            return None
        return (
            f"{self._left_out} step(s) at the begin of {len(self.series.turns)} epoch(s) are left "
            "out, with the time between the epochs"
        )


class _Times(Values):
    """Durations and speeds, of single steps or of all since the record before."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        super().__init__(log_format, span, case)
        self._is_total = log_format.covers is Covers.TOTAL_SINCE_LAST
        self._of_all = self._is_total or log_format.covers is Covers.SINCE_LAST

    def take(self, step: int, gap: int, texts: Sequence[Text], *, turned: bool) -> None:
        seconds = [self._read(*text) for text in texts]
        if self._is_total:
            seconds = [each / gap for each in seconds]
        if not self._of_all or step - gap >= self._span.after:
            self._note(step, gap, texts, seconds, turned=turned)

    def _read(self, text: bytes, offset: int) -> float:
        seconds = step_seconds(self._format, text, offset, self._case)
        self._format.check_time(text, offset)
        return seconds

    def _mean(self, at: int) -> float:
        """Compute what a step took, by all who printed it."""
        if self._printers == 1:
            return self._rows[at][3]
        return math.fsum(row[3] for row in self._rows[at : at + self._printers]) / self._printers

    def _steps(self, begin: int, end: int) -> Iterator[tuple[int, int, float]]:
        """Give the steps of a part of the series: each one's place, gap and seconds."""
        for at in range(begin, end, self._printers):
            yield at, self._gap(at), self._mean(at)

    @property
    def ends(self) -> Ends | None:
        """The first and the last record of an epoch of which the most steps count."""
        rows = self._rows
        epochs = pairwise([0, *filter(None, self.series.turns), len(rows)])
        lengths = [(rows[end - 1][0] - rows[begin][0], begin, end) for begin, end in epochs if end]
        length, begin, end = max(lengths, default=(0, 0, 0))
        if not length:
            return None
        behind = begin + self._printers
        said_s, is_sampled = 0.0, False
        for _, gap, seconds in self._steps(behind, end):
            said_s += gap * seconds
            is_sampled = is_sampled or (gap > 1 and not self._of_all)
        return Ends(self._place(behind - 1), self._place(end - 1), said_s, is_sampled)

    def estimate(self, checked: Checked) -> Estimate:
        rows, count = self._rows, self._printers
        first = self._begin + 1 if rows and self._of_all else self._first.step
        records = checked(first, self._last.step)
        if self._is_total:
            records.gaps.check_totals()
        counted, passed, by_rank = 0, 0.0, [0.0] * count
        turns = {*self.series.turns}
        for at, gap, seconds in self._steps(0, len(rows)):
            if at not in turns:
                weight = gap if self._of_all else 1
                counted += weight
                passed += weight * seconds
                for rank in range(count):
                    by_rank[rank] += weight * rows[at + rank][3]
        few = None
        if not self._of_all:
            self._span.check_two(records)
            if counted < min(_FEW, self._span.measured):
                few = f"{counted} steps of the {self._span.measured} that are measured count"
        return self._made(counted, passed, few, agreement(by_rank if counted else ()))

    def _step_times(self) -> dict[int, float]:
        rows, turns = self._rows, {*self.series.turns}
        return {
            rows[at][0]: max(row[3] for row in rows[at : at + self._printers])
            for at in range(0, len(rows), self._printers)
            if at not in turns
        }


class _Means(Values):
    """Means over all steps since the start: what the last and the first of the window differ by."""

    def take(self, step: int, gap: int, texts: Sequence[Text], *, turned: bool) -> None:
        seconds = [self._since_start(1, *text)[0] for text in texts]
        self._note(step, gap, texts, seconds, turned=turned)

    def estimate(self, checked: Checked) -> Estimate:
        first, last = self._first.step, self._last
        records = checked(first, last.step)
        if first == last.step:
            raise self._span.only_one(records.first)
        if self.series.turns:
            raise BrokenContractError(
                "the log prints means since the start, and an epoch begins within the window; "
                "print what single steps take"
            )
        passed = [
            [self._since_start(*row[:3]) for row in each]
            for each in (self._rows[: self._printers], self._rows[-self._printers :])
        ]
        begin, end = (statistics.mean([seconds for seconds, _ in each]) for each in passed)
        if end <= begin:
            raise BrokenContractError(
                f"no time passes between step {first} and step {last.step}: the log says "
                f"{begin:g} s and {end:g} s since the start",
                offset=last.offset,
            )
        error = max(error for each in passed for _, error in each)
        note = uncertain("the means' resolution", error, end - begin, last.offset)
        return self._made(last.step - first, end - begin, note)

    def _since_start(self, step: int, text: bytes, offset: int) -> tuple[float, float]:
        """Compute the seconds since the start, and how far off they may be by rounding."""
        seconds = step * step_seconds(self._format, text, offset, self._case)
        digits = bytes(each for each in text if each in b"0123456789").lstrip(b"0")
        return seconds, seconds / int(digits or b"1")

    def _step_times(self) -> dict[int, float]:
        raise NoStepTimesError("the log prints means since the start, which are no step's times")


class Stamps(Values):
    """Times at which steps ended: only those at the window's ends and around epochs count."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        """Begin before the window."""
        super().__init__(log_format, span, case)
        self._clock = Clock()
        self._at = 0
        self._between = 0
        """Nanoseconds between epochs."""
        self._ahead = 0.0
        """By how many nanoseconds the ranks' mean of the time exceeds that of the last to print."""
        self._turned_steps = 0
        self._first_texts: Sequence[Text] = ()
        self._last_texts: Sequence[Text] = ()

    def take(self, step: int, gap: int, texts: Sequence[Text], *, turned: bool) -> None:
        """Take a step; it has ended when the last rank says so."""
        text, offset = texts[0] if len(texts) == 1 else texts[lags(texts).index(0)]
        begins = not self._first_texts
        turned = turned and not begins
        if begins or turned:
            # Whose stamp is whose is not known, and need not be for a mean.
            self._ahead += _mean_lag(texts) - _mean_lag(self._last_texts)
        self._clock.read(text, offset)
        self._format.check_time(text, offset)
        now = self._clock.nanoseconds
        if turned:
            self._between += now - self._at
            self._turned_steps += gap
        self._at = now
        self._first_texts = self._first_texts or texts
        self._last_texts = texts
        self._note(step, gap, ((text, offset),), (now,), turned=turned)

    def _place(self, at: int) -> Place:
        texts = self._first_texts if at == 0 else self._last_texts
        return Place(self._rows[at][0], texts[-1][1]) if texts else Place(0, 0)

    @property
    def _left_out(self) -> int:
        return self._turned_steps

    def estimate(self, checked: Checked) -> Estimate:
        """Compute samples per second over all devices, if the records make up the window."""
        first, last = self._first.step, self._last.step
        records = checked(first, last)
        if first == last:
            raise self._span.only_one(records.first)
        steps = last - first - self._left_out
        if not steps:
            return self._made(0, 1.0)
        passed = self._clock.nanoseconds - self._between
        mean = passed + self._ahead - _mean_lag(self._last_texts)
        note = self._clock.error_note(passed)
        # Which of them is whose is not known: the last to begin is taken for the last to end.
        begins, ends = sorted(lags(self._first_texts)), sorted(lags(self._last_texts))
        apart = agreement([passed + a - b for a, b in zip(begins, ends, strict=True)])
        return self._made(steps, mean / NANOSECONDS, note, apart)

    def _step_times(self) -> dict[int, float]:
        clock, before = Clock(), 0
        times = {}
        steps, texts, _, _ = self.series.columns
        for at, (step, text) in enumerate(zip(steps, texts, strict=True)):
            clock.read(text)
            if at and at not in self.series.turns:
                times[step] = (clock.nanoseconds - before) / NANOSECONDS
            before = clock.nanoseconds
        resolution = 10.0 ** -max((parse(text).decimals for text in texts), default=0)
        if times and resolution > WORTHLESS_ERROR * statistics.median(list(times.values())):
            raise NoStepTimesError(
                f"the stamps' resolution of {resolution:g} s is too coarse for single steps"
            )
        return times


def _mean_lag(texts: Sequence[Text]) -> float:
    """By how many nanoseconds stamps of one step are before the latest of them."""
    return statistics.mean(lags(texts)) if len(texts) > 1 else 0.0


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
