"""The ``published`` estimator: the original benchmark's own arithmetic, rounding included.

The original counted lines, not steps, in the order of the file; it left out some as warm-up and
divided by how many remained. The definitions stand with the formats. Where the original would
have stopped with an error, printed 0, or printed a number of something else than was asked, the
log counts as broken.
"""

from __future__ import annotations

from typing import NamedTuple

from pytest_dlperf.formats.log_format import JoinedRecords, LogFormat, Published, Ranks, Rule
from pytest_dlperf.formats.printed import BrokenContractError, amount
from pytest_dlperf.logs.clock import Clock
from pytest_dlperf.logs.records import Record
from pytest_dlperf.logs.steady import Estimate, NoStepTimesError
from pytest_dlperf.logs.tracks import (
    LOOK_AHEAD,
    NEVER,
    Mark,
    Span,
    StepProgress,
    Track,
    usual_gap,
)
from pytest_dlperf.model import statistics
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import PUBLISHED_DECIMALS, Window


class _Line(NamedTuple):
    offset: int
    epoch: int
    step: int
    text: bytes


class PublishedLines:
    """The lines that a published definition counts, up to the last that it needs."""

    def __init__(
        self, log_format: LogFormat, definition: Published, window: Window, case: Case
    ) -> None:
        """Expect lines of ``log_format`` from a run of ``case``."""
        self._definition = definition
        self._case = case
        self._measured = window.measured_steps
        skipped = max(window.warmup_steps, definition.min_warmup)
        needed = window.warmup_steps + window.measured_steps
        interval = definition.print_interval or 1
        times = case.topology.nodes if definition.lines_grow_with_nodes else 1
        self._skipped = skipped // interval * times
        self._needed = needed // interval * times
        self._shared = log_format.ranks is Ranks.LOCAL
        self._ranks = case.topology.devices_per_node if self._shared else 1
        self._track = Track(log_format, Span(0, NEVER, 1), case, self._ranks)
        self._lines = 0
        self._line: _Line | None = None
        self._first: Record | None = None
        self._last: Record | None = None
        self._values: list[float] = []
        self._clock = Clock()
        self.enough: int | None = None
        """Up to which byte of the log is read, once all lines are there and each rank has shown."""

    @property
    def complete(self) -> bool:
        """Whether all lines are there that count, and each rank has shown."""
        return self.enough is not None

    @property
    def seen(self) -> StepProgress:
        """How far the log has come; warm-up and window are estimates, since lines are counted."""
        # Where all lines are there, only a first step of other ranks is awaited.
        furthest = self._track.furthest
        awaited = furthest if self._lines < self._needed else 0
        interval = self._definition.print_interval or 1
        if self._ranks == 1 and (gaps := self._track.gaps()):
            interval = usual_gap(gaps)

        def steps_of(lines: int) -> int:
            of_rank = -(-lines // self._ranks)
            return self._uncounted + (1 + (of_rank - 1) * interval if of_rank > 0 else 0)

        return StepProgress(
            found=self._lines,
            warmup=steps_of(self._skipped),
            window=steps_of(self._needed),
            slowest=furthest,
            last={"": furthest} if furthest else {},
            awaited={} if self.complete else {"": awaited},
        )

    @property
    def ends(self) -> list[tuple[int, int]]:
        """None: lines are counted, of whichever rank printed them."""
        return []

    @property
    def _uncounted(self) -> int:
        """How many steps at the begin do not count, and may be missing."""
        above = self._definition.only_steps_above
        return 0 if above is None else above - (self._track.first or 0) + 1

    @property
    def mark(self) -> Mark | None:
        """Where all lines are there and each rank has shown; of several, only its first step."""
        if self.enough is None:
            return None
        if self._ranks == 1 or self._first is None:
            return self._track.mark(self.enough)
        return Mark(self.enough, int(self._first.epoch or b"0"), int(self._first.step) + 1)

    def take(self, record: Record) -> tuple[int, int, bool]:
        """Take the next record; return its step, what makes its number that, and if it counts."""
        track = self._track
        if track.take(record):
            self._first, self._last = self._first or record, record
            if self._lines < self._needed:
                self._join(record)
        is_measured = self._skipped <= self._lines < self._needed and self._is_counted()
        if record.is_last:
            self._end_line()
            # Once all lines are there, ranks are awaited that have not shown.
            if self._lines == self._needed and self.enough is None:
                if not self._shared:
                    self.enough = record.end
                elif track.all_begun:
                    self.enough = record.end + LOOK_AHEAD
        return track.latest, track.shift, is_measured

    def _join(self, record: Record) -> None:
        """Begin a line with a record, or take what the original does of several on one."""
        line, glued = self._line, self._definition.glued
        new = _Line(record.offset, int(record.epoch or b"0"), int(record.step), record.time)
        if line is None:
            self._line = new
        elif glued is JoinedRecords.LAST:
            self._line = new._replace(epoch=line.epoch)
        elif glued is JoinedRecords.LAST_STEP:
            self._line = line._replace(step=new.step)

    def _is_counted(self) -> bool:
        line, definition = self._line, self._definition
        if line is None or (definition.only_first_epoch and line.epoch != 0):
            return False
        above = definition.only_steps_above
        return above is None or line.step > above

    def _end_line(self) -> None:
        line, definition, is_counted = self._line, self._definition, self._is_counted()
        self._line = None
        if line is None or not is_counted:
            return
        self._lines += 1
        if definition.rule is Rule.ELAPSED:
            if self._lines >= self._skipped:
                text = line.text
                text = text.rpartition(b" ")[2] if definition.time_of_day else text
                self._clock.read(text, line.offset)
        elif self._lines > self._skipped:
            rates = definition.rule is Rule.MEAN_RATE
            what = "the printed speed" if rates else "the step's time"
            self._values.append(amount(line.text, what=what, offset=line.offset))
        # What follows does not have to be whole.
        self._track.complete = self._lines == self._needed

    def estimate(self) -> Estimate:
        """Compute as the original did."""
        self._check_lines()
        rule, batch, values = self._definition.rule, self._case.global_batch, self._values
        # Each rule rounds as its own scripts did: those that went by stamps or durations rounded a
        # plain float with Python's round, those that took a mean did so with NumPy.
        if rule is Rule.ELAPSED:
            note = self._clock.error_note()
            speed = round(batch / (self._clock.seconds / self._measured), PUBLISHED_DECIMALS)
            return Estimate(speed, self._measured, note)
        if rule is Rule.MEAN_DURATION:
            mean = batch / (sum(values) / len(values))
            return Estimate(round(mean, PUBLISHED_DECIMALS), len(values))
        if rule is Rule.MEAN_SPEED:
            values = [round(batch / seconds, 4) for seconds in values]
        mean = statistics.rounded(statistics.mean(values), PUBLISHED_DECIMALS)
        return Estimate(mean, len(values))

    def step_times(self) -> list[float]:
        """Refuse: lines are counted, of whichever rank printed them."""
        raise NoStepTimesError(
            "the published definition counts lines, not steps; take the steady estimator"
        )

    def _check_lines(self) -> None:
        definition, track, gaps = self._definition, self._track, self._track.gaps()
        wanted, interval = definition.print_interval, usual_gap(gaps)
        if wanted is not None and gaps and interval != wanted:
            raise BrokenContractError(
                f"the published definition counts lines of every {wanted} step(s), and this log "
                f"prints every {interval}: found are {self._lines} lines, needed "
                f"{self._needed}; take the steady estimator"
            )
        if self._lines < self._needed:
            sparse = interval > (wanted or 1)
            every = f", and prints every {interval} steps" if sparse else ""
            raise BrokenContractError(
                f"too few steps: the log has {self._lines} lines that count{every}; the published "
                f"definition needs {self._needed}",
                offset=None if self._last is None else self._last.offset,
                place="the last step is on line",
            )
        track.check_whole()
        track.check_no_hole(interval)
        first = track.window()[0].number if track.step else 1
        if first - self._uncounted >= 2 * interval:
            raise BrokenContractError(
                f"steps are missing from the log: step {first}, counted from 1, is its first"
            )
        least = 1 if definition.rule is Rule.ELAPSED else 0
        if self._skipped < least or self._needed <= self._skipped:
            raise BrokenContractError(
                f"the published definition has no number for lines {self._skipped} to "
                f"{self._needed}; give the window more steps"
            )
