"""``steady``: samples per second by the times, stamps or means that are printed in the window.

One rule holds for all of them: the steps between the last record of an epoch and the first of the
next do not count, nor does the time that passes there. A trainer validates, saves and opens its
data anew in between, and some logs do not say how long an epoch was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from msgspec import Struct

from pytest_dlperf.formats.log_format import LogFormat, step_seconds
from pytest_dlperf.formats.printed import BrokenContractError
from pytest_dlperf.logs.clock import NANOSECONDS, WORTHLESS_ERROR, Clock, ordered, uncertain
from pytest_dlperf.logs.records import Record
from pytest_dlperf.logs.tracks import (
    LOOK_AHEAD,
    Mark,
    Span,
    Step,
    StepProgress,
    Text,
    Track,
    usual_gap,
)
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


class SteadySteps:
    """The window of each rank that names itself, or of all together that print without a name."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        """Expect each rank that prints."""
        self._format = log_format
        self._span = span
        self._case = case
        printers = log_format.ranks.printers(case)
        self._ranks, self._printers = (printers, 1) if log_format.has_one_order else (1, printers)
        self._tracks: dict[bytes, Track] = {}
        self.enough: int | None = None
        """Up to which byte of the log is read, once every window is complete."""
        self.mark: Mark | None = None
        """Where the last rank has completed its window."""

    @property
    def complete(self) -> bool:
        """Whether every rank's window is complete."""
        return self.mark is not None

    @property
    def seen(self) -> StepProgress:
        """How far the log has come; of ranks without names it is not known which is how far."""
        tracks = {_label(rank): track for rank, track in self._tracks.items()}
        last = {
            rank: each.step if self._printers == 1 else max(each.step, each.furthest)
            for rank, each in tracks.items()
        }
        all_there = len(last) == self._ranks
        waiting = {rank: each.step for rank, each in tracks.items() if not each.complete}
        return StepProgress(
            found=max(last.values(), default=0),
            warmup=self._span.after,
            window=self._span.last,
            slowest=min(each.step for each in tracks.values()) if all_there else 0,
            last=last,
            awaited=waiting if all_there else {**waiting, "": 0},
        )

    @property
    def ends(self) -> list[tuple[int, int]]:
        """Where the first and the last record of each rank's window stand."""
        steps = [counted for track in self._tracks.values() if (counted := _counted(track))]
        return [(each[0].offset, each[-1].offset) for each in steps]

    def take(self, record: Record) -> tuple[int, int, bool]:
        """Take the next record; return its step, what makes its number that, and if it counts."""
        track = self._track(record)
        was_complete = track.complete
        track.take(record)
        if self.mark is None and track.complete and not was_complete:
            complete = [each.complete for each in self._tracks.values()]
            if all(complete) and len(complete) == self._ranks:
                self.mark = track.mark(record.end)
                # Of ranks without a name, another may have been silent until then.
                self.enough = record.end + LOOK_AHEAD * (not self._format.has_one_order)
        inside = not was_complete and self._span.after < track.latest <= self._span.last
        return track.latest, track.shift, inside

    def _track(self, record: Record) -> Track:
        rank = record.rank if self._format.labels_ranks else b""
        track = self._tracks.get(rank)
        if track is None:
            if len(self._tracks) == self._ranks:
                raise BrokenContractError(
                    f"the log holds steps of more ranks than {self._ranks}: "
                    f"{_names([*self._tracks, rank])}",
                    offset=record.offset,
                )
            track = Track(self._format, self._span, self._case, self._printers)
            self._tracks[rank] = track
        return track

    def estimate(self) -> Estimate:
        """Take the mean time of the ranks."""
        if len(self._tracks) < self._ranks:
            raise BrokenContractError(
                f"the log holds steps of {len(self._tracks)} rank(s) ({_names([*self._tracks])}); "
                f"the case {self._case.id} has {self._ranks} that print into it"
            )
        estimates = []
        for rank, track in self._tracks.items():
            try:
                estimates.append(_estimate(track))
            except BrokenContractError as error:
                if self._format.labels_ranks:
                    error.reason = f"{_label(rank)}: {error.reason}"
                raise
        seconds = [1 / estimate.throughput for estimate in estimates]
        apart = agreement(seconds, [*map(_label, self._tracks)])
        notes = [next((each.note for each in estimates if each.note), None), apart]
        return Estimate(
            len(seconds) / math.fsum(seconds),
            min(estimate.steps for estimate in estimates),
            "; ".join(filter(None, notes)) or None,
            any(estimate.paused for estimate in estimates),
        )

    def step_times(self) -> list[float]:
        """Take the slowest rank of each step."""
        longest: dict[int, float] = {}
        for track in self._tracks.values():
            for step, seconds in _step_times(track).items():
                longest[step] = max(seconds, longest.get(step, 0.0))
        return [longest[step] for step in sorted(longest)]


def _label(rank: bytes) -> str:
    return f"rank {rank[:20].decode(errors='backslashreplace')}" if rank else ""


def _names(ranks: Sequence[bytes]) -> str:
    return ", ".join(sorted(rank[:20].decode(errors="replace") for rank in ranks))


def agreement(seconds: Sequence[float], names: Sequence[str] = ()) -> str | None:
    """Compare how long the steps took by each rank; return a note where they differ a little.

    Raises:
        BrokenContractError: They differ by more than ranks of one training can.
    """
    slow, fast = max(seconds, default=1.0), min(seconds, default=1.0)
    ratio = slow / fast if fast > 0 else math.inf
    if ratio <= NOTEWORTHY_DISAGREEMENT:
        return None
    one, other = "one rank", "another"
    if names:
        one, other = names[seconds.index(slow)], names[seconds.index(fast)]
    said = f"by what {one} prints, steps take {ratio:.3g} times as long as by what {other} does"
    if ratio > WORTHLESS_DISAGREEMENT:
        raise BrokenContractError(
            f"the ranks disagree: {said}; ranks of one training wait for each other in each step"
        )
    return said


# --------------------------------------------------------------------------- of one track


class _Measured(NamedTuple):
    """How many steps have taken so many seconds."""

    steps: int
    seconds: float
    notes: Sequence[str | None] = ()
    paused: bool = False


def _is_of_moments(track: Track) -> bool:
    return track.log_format.timing.kind is TimeKind.MOMENT


def _covers_all(track: Track) -> bool:
    """Whether a record says what all steps since the one before took."""
    covers = track.log_format.covers
    return covers is Covers.TOTAL_SINCE_LAST or (
        covers is Covers.SINCE_LAST and not _is_of_moments(track)
    )


def _counted(track: Track) -> list[Step]:
    """Leave out a record that began before the window does: it is not of the window alone."""
    begin = track.span.after if _covers_all(track) else -math.inf
    return [step for step in track.window() if step.number - step.gap >= begin]


def _estimate(track: Track) -> Estimate:
    """Compute samples per second over all devices.

    Raises:
        BrokenContractError: The steps do not make up the window, or their times are none.
    """
    steps = _counted(track)
    # Stamps that run backwards say more than holes do.
    moments = _moments(track, steps) if _is_of_moments(track) else None
    first, last = (steps[0].number, steps[-1].number) if steps else (0, 0)
    track.check(first + 1 - steps[0].gap if steps and _covers_all(track) else first, last)
    is_mean = track.log_format.covers is Covers.SINCE_START
    least = 0 if _covers_all(track) else 2 if moments or is_mean else min(2, _records(track.span))
    if len(steps) < least:
        raise BrokenContractError(
            f"step {first} is the only one printed of steps {track.span.begin} to "
            f"{track.span.last}, counted from 1; needed are two at least"
        )
    if moments is not None:
        measured = _by_stamps(steps, *moments)
    else:
        measured = _by_means(track, steps) if is_mean else _by_times(track, steps)
    if not measured.steps:
        raise BrokenContractError(
            f"no step is left to be measured: all printed steps from {first} to {last}, counted "
            "from 1, are the first of an epoch"
        )
    notes = [*measured.notes]
    if turned := [step for step in steps[_is_of_moments(track) :] if step.turned]:
        notes.append(
            f"{sum(step.gap for step in turned)} step(s) at the begin of {len(turned)} epoch(s) "
            "are left out, with the time between the epochs"
        )
    throughput = track.case.global_batch * measured.steps / measured.seconds
    note = "; ".join(filter(None, notes)) or None
    return Estimate(throughput, measured.steps, note, measured.paused)


def _records(span: Span) -> int:
    return span.last - span.begin + 1


def _seconds(track: Track, text: Text, gap: int) -> float:
    """Read what a step took, or the mean of all steps up to it."""
    seconds = step_seconds(track.log_format, *text, track.case)
    return seconds / gap if track.log_format.covers is Covers.TOTAL_SINCE_LAST else seconds


def _by_times(track: Track, steps: Sequence[Step]) -> _Measured:
    """Take durations and speeds, of single steps or of all since the record before."""
    of_all = _covers_all(track)
    if track.log_format.covers is Covers.TOTAL_SINCE_LAST:
        gaps = track.gaps()
        least, most = min(gaps, default=1), max(gaps, default=1)
        # Steps 1, 10, 20 … are evenly apart, too.
        if least < most and (most - least > 1 or gaps[least] > 1):
            raise BrokenContractError(
                f"records are {least} to {most} steps apart, and each prints a total: where one "
                "is missing, the next is not of all steps between"
            )
    counted, by_rank = 0, [0.0] * track.printers
    for step in steps:
        if not step.turned:
            weight = step.gap if of_all else 1
            counted += weight
            for rank, text in enumerate(step.texts):
                by_rank[rank] += weight * _seconds(track, text, step.gap)
    few = None
    if not of_all and counted < min(_FEW, track.span.measured):
        few = f"{counted} steps of the {track.span.measured} that are measured count"
    return _Measured(
        counted, statistics.mean(by_rank), (few, agreement(by_rank) if counted else None)
    )


def _by_means(track: Track, steps: Sequence[Step]) -> _Measured:
    """Take means over all steps since the start: what the last and the first differ by."""
    if any(step.turned for step in steps):
        raise BrokenContractError(
            "the log prints means since the start, and an epoch begins within the window; "
            "print what single steps take"
        )
    (first, *_, last), seconds, errors = steps, list[float](), list[float]()
    for step in (first, last):
        (text,) = step.texts
        seconds.append(step.number * _seconds(track, text, step.gap))
        digits = bytes(byte for byte in text[0] if byte in b"0123456789").lstrip(b"0")
        errors.append(seconds[-1] / int(digits or b"1"))
    begin, end = seconds
    if end <= begin:
        raise BrokenContractError(
            f"no time passes between step {first.number} and step {last.number}: the log says "
            f"{begin:g} s and {end:g} s since the start",
            offset=last.offset,
        )
    note = uncertain("the means' resolution", max(errors), end - begin, last.offset)
    return _Measured(last.number - first.number, end - begin, (note,))


def _by_stamps(steps: Sequence[Step], moments: Sequence[list[int]], clock: Clock) -> _Measured:
    """Take times at which steps ended: those at the window's ends and around epochs count."""
    gaps = [
        (step, [end - begin for begin, end in zip(*ends, strict=True)])
        for step, ends in zip(steps[1:], pairwise(moments), strict=True)
        if not step.turned
    ]
    if not gaps:
        return _Measured(0, 1.0)
    by_rank = [sum(each) for each in zip(*(passed for _, passed in gaps), strict=True)]
    passed = statistics.mean(by_rank)
    gap_note, paused = _pauses([(step, passed[-1]) for step, passed in gaps], clock.decimals)
    notes = clock.error_note(int(passed)), agreement(by_rank), gap_note
    return _Measured(sum(step.gap for step, _ in gaps), passed / NANOSECONDS, notes, paused)


def _moments(track: Track, steps: Sequence[Step]) -> tuple[list[list[int]], Clock]:
    """Give when each step had ended by each rank, the last to end at last; and that one's clock.

    Whose stamp is whose is not known, and need not be for a mean: the first of a step follows the
    first of the one before.

    Raises:
        BrokenContractError: A stamp is none, or time runs backwards.
    """
    clocks = [Clock() for _ in range(track.printers)]
    moments = []
    for step in steps:
        for clock, text in zip(clocks, ordered(step.texts), strict=True):
            clock.read(*text)
        moments.append([clock.nanoseconds for clock in clocks])
    return moments, clocks[-1]


def _pauses(gaps: Sequence[tuple[Step, int]], decimals: int) -> tuple[str | None, bool]:
    """Note gaps between stamps that stand out, and say whether they are most of the window."""
    grain = NANOSECONDS // 10**decimals
    pace = sorted(passed / step.gap for step, passed in gaps)[(len(gaps) - 1) // 2]
    others = sorted(gaps, key=lambda each: each[1])[:-1]
    if pace <= grain and others:
        pace = sum(passed for _, passed in others) / sum(step.gap for step, _ in others)
    least = _MIN_GAP_RATIO * max(pace, grain)
    wide = [(passed, step) for step, passed in gaps if passed > least + pace * (step.gap - 1)]
    excess = sum(passed - pace * step.gap for passed, step in wide)
    whole = sum(passed for _, passed in gaps)
    if excess <= _NOTEWORTHY_GAP * whole:
        return None, False
    wide.sort(reverse=True)
    few = max(_FEW_GAPS, (len(gaps) + 1) // _GAP_EVERY)
    if len(wide) > few and wide[0][0] <= 2 * wide[few][0]:
        return None, False  # they belong to how the training goes, as checkpoints do
    passed, step = wide[0]
    more = f", and {len(wide) - 1} more like it" if len(wide) > 1 else ""
    note = (
        f"{passed / NANOSECONDS:.4g} s pass from the stamp of step {step.number - step.gap} to "
        f"that of step {step.number}{more}, where {pace * step.gap / NANOSECONDS:.3g} s are "
        "usual: the training paused or was resumed, or the clock was set"
    )
    return note, excess > whole / 2


def _step_times(track: Track) -> dict[int, float]:
    """Compute the seconds of each step, by the slowest of its ranks.

    Raises:
        NoStepTimesError: Records stand for several steps, or the stamps are too coarse.
    """
    steps = _counted(track)
    gap = max((step.gap for step in steps[1:] if not step.turned), default=usual_gap(track.gaps()))
    if gap > 1:
        raise NoStepTimesError(
            f"the log prints every {gap} steps, and a mean over them is not a step's time; "
            "print each step"
        )
    if not _is_of_moments(track):
        if track.log_format.covers is Covers.SINCE_START:
            raise NoStepTimesError(
                "the log prints means since the start, which are no step's times"
            )
        return {
            step.number: max(_seconds(track, text, step.gap) for text in step.texts)
            for step in steps
            if not step.turned
        }
    moments, clock = _moments(track, steps)
    times = {
        step.number: (end[-1] - begin[-1]) / NANOSECONDS
        for step, (begin, end) in zip(steps[1:], pairwise(moments), strict=True)
        if not step.turned
    }
    resolution = 10.0**-clock.decimals
    if times and resolution > WORTHLESS_ERROR * statistics.median(list(times.values())):
        raise NoStepTimesError(
            f"the stamps' resolution of {resolution:g} s is too coarse for single steps"
        )
    return times
