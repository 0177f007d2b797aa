"""What the steps of a window took, by the times, stamps or means that are printed of them.

One rule holds for all of them: the steps between the last record of an epoch and the first of the
next do not count, nor does the time that passes there. A trainer validates, saves and opens its
data anew in between, and some logs do not say how long an epoch was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.printed import step_seconds
from pytest_dlperf.logs.clock import NANOSECONDS, WORTHLESS_ERROR, Clock, lags, uncertain
from pytest_dlperf.logs.tracks import Span, Step, Text, Track
from pytest_dlperf.model import statistics
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.work import Covers, TimeKind

_FEW: Final = 5
"""Printed steps below which a mean over them may say little of the others."""
# Ranks wait for each other in each step. In real logs two of them differ by 3 % over 100 steps,
# four that share two cores by 65 %, and by a factor of 2.9 over 20 steps. Up to the first bound
# their mean is right, beyond the other it is a mean of different things.
NOTEWORTHY_DISAGREEMENT: Final = 1.05
WORTHLESS_DISAGREEMENT: Final = 4.0
_MIN_GAP_RATIO: Final = 5.0
"""How many times as long as others a gap between stamps is that stands out."""
_FEW_GAPS: Final = 2
_GAP_EVERY: Final = 50
"""A few of a length, or one in so many steps, are told."""
_NOTEWORTHY_GAP: Final = 0.03
"""The part of the window that gaps take more than others do, to be told."""


class NoStepTimesError(Exception):
    """A log that does not say how long its single steps took; the text says why."""


class Estimate(Struct, frozen=True):
    """Samples per second over all devices, and what the number rests on."""

    throughput: float
    steps: int
    note: str | None = None
    paused: bool = False
    """Whether most of the window's time is gaps."""


class TrackTimes:
    """The times that are printed of the steps of a track, and what they amount to."""

    def __init__(self, track: Track, log_format: LogFormat, span: Span, case: Case) -> None:
        self._track = track
        self._format = log_format
        self._span = span
        self._case = case
        self._is_of_moments = log_format.timing.kind is TimeKind.MOMENT
        self._is_total = log_format.covers is Covers.TOTAL_SINCE_LAST
        self._of_all = self._is_total or (
            log_format.covers is Covers.SINCE_LAST and not self._is_of_moments
        )
        self.steps: Sequence[Step] = track.steps
        if self._of_all:
            # One that began before the window does is not of it alone.
            self.steps = [step for step in track.steps if step.number - step.gap >= span.after]

    # ---------------------------------------------------------------- what is printed

    @cached_property
    def _stamps(self) -> tuple[list[int], int]:
        """When each step had ended, in nanoseconds since the first; a stamp's decimals at most.

        Raises:
            BrokenContractError: A stamp is none, or time runs backwards.
        """
        clock, moments, decimals = Clock(), [], 0
        for step in self.steps:
            clock.read(*_last_of(step))
            moments.append(clock.nanoseconds)
            decimals = max(decimals, clock.decimals)
        return moments, decimals

    @cached_property
    def _by_rank(self) -> list[tuple[Step, list[float]]]:
        """Each step, and the seconds that each rank has printed of it.

        Raises:
            BrokenContractError: One is not a time.
        """
        return [
            (step, [self._seconds(text, step.gap) for text in step.texts]) for step in self.steps
        ]

    def _seconds(self, text: Text, gap: int) -> float:
        """Read what a step took, or the mean of all steps up to it."""
        seconds = step_seconds(self._format, *text, self._case)
        return seconds / gap if self._is_total else seconds

    @property
    def ends(self) -> tuple[int, int] | None:
        """Where the first and the last record that count stand, if there are any."""
        return (self.steps[0].offset, self.steps[-1].offset) if self.steps else None

    # ------------------------------------------------------------------- the estimate

    def estimate(self) -> Estimate:
        """Compute samples per second over all devices.

        Raises:
            BrokenContractError: The steps do not make up the window, or their times are none.
        """
        if self._is_of_moments:
            return self._by_stamps()
        if self._format.covers is Covers.SINCE_START:
            return self._by_means()
        return self._by_times()

    @property
    def _numbers(self) -> tuple[int, int]:
        """The first and the last step that count; 0 without any."""
        return (self.steps[0].number, self.steps[-1].number) if self.steps else (0, 0)

    @property
    def _turned(self) -> list[Step]:
        """The first steps of further epochs, but for the first of all that are stamped."""
        return [step for step in self.steps[self._is_of_moments :] if step.turned]

    def _made(self, steps: int, seconds: float, *notes: str | None) -> Estimate:
        first, last = self._numbers
        if not steps:
            raise BrokenContractError(
                f"no step is left to be measured: all printed steps from {first} to {last}, "
                "counted from 1, are the first of an epoch"
            )
        if self._turned:
            left_out = sum(step.gap for step in self._turned)
            told = (
                f"{left_out} step(s) at the begin of {len(self._turned)} epoch(s) are left out, "
                "with the time between the epochs"
            )
            notes = (*notes, told)
        throughput = self._case.global_batch * steps / seconds
        return Estimate(throughput, steps, "; ".join(filter(None, notes)) or None)

    def _by_times(self) -> Estimate:
        """Take durations and speeds, of single steps or of all since the record before."""
        first, last = self._numbers
        if self.steps and self._of_all:
            first += 1 - self.steps[0].gap
        self._track.check(first, last)
        if self._is_total:
            self._check_totals()
        if not self._of_all and len(self._track.steps) < min(
            2, self._span.last - self._span.begin + 1
        ):
            raise self._track.only_one(first)
        counted, by_rank = 0, [0.0] * self._track.printers
        for step, seconds in self._by_rank:
            if step.turned:
                continue
            weight = step.gap if self._of_all else 1
            counted += weight
            by_rank = [sum_s + weight * each for sum_s, each in zip(by_rank, seconds, strict=True)]
        few = None
        if not self._of_all and counted < min(_FEW, self._span.measured):
            few = f"{counted} steps of the {self._span.measured} that are measured count"
        apart = agreement(by_rank) if counted else None
        return self._made(counted, statistics.mean(by_rank), few, apart)

    def _check_totals(self) -> None:
        """Check that records are evenly apart: behind a missing one, a total is of fewer steps."""
        counts = self._track.gaps.counts
        least, most = self._track.gaps.least, max(counts, default=1)
        # As where steps 1, 10, 20 … are printed.
        is_first = most - least == 1 and counts[least] == 1
        if least < most and not is_first:
            raise BrokenContractError(
                f"records are {least} to {most} steps apart, and each prints a total: where one is "
                "missing, the next is not of all steps between"
            )

    def _by_means(self) -> Estimate:
        """Take means over all steps since the start: what the last and the first differ by."""
        first, last = self._numbers
        self._track.check(first, last)
        if first == last:
            raise self._track.only_one(first)
        if self._turned:
            raise BrokenContractError(
                "the log prints means since the start, and an epoch begins within the window; "
                "print what single steps take"
            )
        offset = self.steps[-1].offset
        (begin, its_error), (end, error) = map(self._since_start, (self.steps[0], self.steps[-1]))
        if end <= begin:
            raise BrokenContractError(
                f"no time passes between step {first} and step {last}: the log says "
                f"{begin:g} s and {end:g} s since the start",
                offset=offset,
            )
        note = uncertain("the means' resolution", max(error, its_error), end - begin, offset)
        return self._made(last - first, end - begin, note)

    def _since_start(self, step: Step) -> tuple[float, float]:
        """Compute the seconds since the start, and how far off they may be by rounding."""
        seconds = [step.number * self._seconds(text, step.gap) for text in step.texts]
        errors = []
        for (text, _), each in zip(step.texts, seconds, strict=True):
            digits = bytes(byte for byte in text if byte in b"0123456789").lstrip(b"0")
            errors.append(each / int(digits or b"1"))
        return statistics.mean(seconds), max(errors)

    def _by_stamps(self) -> Estimate:
        """Take times at which steps ended: those at the window's ends and around epochs count."""
        steps = self.steps
        moments, decimals = self._stamps  # time that runs backwards is told first
        first, last = self._numbers
        self._track.check(first, last)
        if first == last:
            raise self._track.only_one(first)
        counted = last - first - sum(step.gap for step in self._turned)
        if not counted:
            return self._made(0, 1.0)
        # A step has ended when the last rank says so. Whose stamp is whose is not known, and need
        # not be for a mean.
        ahead = _mean_lag(steps[0]) - _mean_lag(steps[-1])
        between = 0.0
        for at, (before, step) in enumerate(pairwise(steps)):
            if step.turned:
                between += moments[at + 1] - moments[at]
                ahead += _mean_lag(step) - _mean_lag(before)
        clock = Clock()
        for text, offset in (_last_of(steps[0]), _last_of(steps[-1])):
            clock.read(text, offset)
        passed = int(moments[-1] - between)
        note = clock.error_note(passed)
        # The last to begin is taken for the last to end.
        begins, ends = sorted(lags(steps[0].texts)), sorted(lags(steps[-1].texts))
        apart = agreement([passed + a - b for a, b in zip(begins, ends, strict=True)])
        gaps, paused = self._gaps(moments, decimals)
        estimate = self._made(counted, (passed + ahead) / NANOSECONDS, note, apart, gaps)
        return replace(estimate, paused=paused)

    def _gaps(self, moments: Sequence[int], decimals: int) -> tuple[str | None, bool]:
        """Note gaps between stamps that stand out, and say whether they are most of the window."""
        gaps = [
            (moments[at + 1] - moments[at], step.number - before.number, step.number)
            for at, (before, step) in enumerate(pairwise(self.steps))
            if not step.turned
        ]
        whole, others = sum(passed for passed, *_ in gaps), sorted(gaps)[:-1]
        grain = NANOSECONDS / 10**decimals
        pace = sorted(passed / count for passed, count, _ in gaps)[(len(gaps) - 1) // 2]
        if pace <= grain and others:
            pace = sum(each[0] for each in others) / sum(each[1] for each in others)
        least = _MIN_GAP_RATIO * max(pace, grain)
        wide = [each for each in gaps if each[0] > least + pace * (each[1] - 1)]
        excess = sum(passed - pace * count for passed, count, _ in wide)
        if excess <= _NOTEWORTHY_GAP * whole:
            return None, False
        wide.sort(reverse=True)
        few = max(_FEW_GAPS, len(self.steps) // _GAP_EVERY)
        if len(wide) > few and wide[0][0] <= 2 * wide[few][0]:
            return None, False  # they belong to how the training goes, as checkpoints do
        passed, count, step = wide[0]
        more = f", and {len(wide) - 1} more like it" if len(wide) > 1 else ""
        note = (
            f"{passed / NANOSECONDS:.4g} s pass from the stamp of step {step - count} to that of "
            f"step {step}{more}, where {pace * count / NANOSECONDS:.3g} s are usual: the training "
            "paused or was resumed, or the clock was set"
        )
        return note, excess > whole / 2

    # -------------------------------------------------------------------- single steps

    def step_times(self) -> dict[int, float]:
        """Compute the seconds of each step, by the slowest of its ranks.

        Raises:
            NoStepTimesError: Records stand for several steps, or the stamps are too coarse.
        """
        gaps = [
            step.number - before.number for before, step in pairwise(self.steps) if not step.turned
        ]
        if (gap := max(gaps, default=self._track.gaps.interval)) > 1:
            raise NoStepTimesError(
                f"the log prints every {gap} steps, and a mean over them is not a step's time; "
                "print each step"
            )
        if self._format.covers is Covers.SINCE_START and not self._is_of_moments:
            raise NoStepTimesError(
                "the log prints means since the start, which are no step's times"
            )
        if not self._is_of_moments:
            return {step.number: max(each) for step, each in self._by_rank if not step.turned}
        moments, decimals = self._stamps
        times = {
            step.number: (moment - before) / NANOSECONDS
            for step, (before, moment) in zip(self.steps[1:], pairwise(moments), strict=True)
            if not step.turned
        }
        resolution = 10.0**-decimals
        if times and resolution > WORTHLESS_ERROR * statistics.median(list(times.values())):
            raise NoStepTimesError(
                f"the stamps' resolution of {resolution:g} s is too coarse for single steps"
            )
        return times


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


def _last_of(step: Step) -> Text:
    """Return the latest of the stamps of a step: it has ended when the last rank says so."""
    return step.texts[0] if len(step.texts) == 1 else step.texts[lags(step.texts).index(0)]


def _mean_lag(step: Step) -> float:
    """By how many nanoseconds stamps of one step are before the latest of them."""
    return statistics.mean(lags(step.texts)) if len(step.texts) > 1 else 0.0
