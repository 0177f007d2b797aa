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
from pytest_dlperf.logs.tracks import LOOK_AHEAD, NEVER, Mark, Span, StepProgress, Track
from pytest_dlperf.model import statistics
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import PUBLISHED_DECIMALS, Window


class _Line(NamedTuple):
    offset: int
    end: int
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
        furthest = self._track.numbers.furthest
        awaited = furthest if self._lines < self._needed else 0
        return StepProgress(
            found=self._lines,
            warmup=self._steps_of(self._skipped),
            window=self._steps_of(self._needed),
            slowest=furthest,
            last={"": furthest} if furthest else {},
            awaited={} if self.complete else {"": awaited},
        )

    @property
    def ends(self) -> list[tuple[int, int]]:
        """None: lines are counted, of whichever rank printed them."""
        return []

    @property
    def _least_steps(self) -> int:
        """How many steps at the begin do not count, and may be missing."""
        above = self._definition.only_steps_above
        return 0 if above is None else above - (self._track.numbers.first or 0) + 1

    def _steps_of(self, lines: int) -> int:
        """About how many steps a rank has shown with so many lines that count."""
        lines = -(-lines // self._ranks)
        interval = self._definition.print_interval or 1
        if self._ranks == 1 and self._track.gaps:
            interval = self._track.interval
        begin = self._least_steps + 1
        return begin + (lines - 1) * interval if lines > 0 else begin - 1

    @property
    def mark(self) -> Mark | None:
        """Where all lines are there and each rank has shown; of several, only its first step."""
        if self.enough is None:
            return None
        if self._ranks == 1 or self._first is None:
            return self._track.numbers.mark(self.enough)
        return Mark(self.enough, int(self._first.epoch or b"0"), int(self._first.step) + 1)

    def has_enough(self, position: int) -> bool:
        """Say whether lines that end at a byte of the log, or before, show enough."""
        self.end_line()
        return self.enough is not None and self.enough <= position

    def take(self, record: Record) -> tuple[int, int, bool]:
        """Take the next record; return its step, what makes its number that, and if it counts."""
        if self._line is not None and record.offset != self._line.offset:
            self.end_line()
        numbers = self._track.numbers
        if self.enough is not None and record.offset >= self.enough:
            return numbers.step, numbers.shift, False
        if self._track.take(record):
            self._first, self._last = self._first or record, record
            # Once all lines are there, ranks are awaited that have not shown.
            if self._lines == self._needed:
                self._settle(record.end)
            else:
                self._join(record)
        return numbers.step, numbers.shift, self._counts()

    def _join(self, record: Record) -> None:
        """Begin a line with a record, or take what the original does of several on one."""
        line, glued = self._line, self._definition.glued
        new = _Line(
            record.offset, record.end, int(record.epoch or b"0"), int(record.step), record.time
        )
        if line is None:
            self._line = new
        elif glued is JoinedRecords.LAST:
            self._line = new._replace(epoch=line.epoch)
        elif glued is JoinedRecords.LAST_STEP:
            self._line = line._replace(step=new.step)

    def _counts(self) -> bool:
        """Say whether the line under way is one of those that are measured."""
        line = self._line
        is_measured = self._skipped <= self._lines < self._needed
        return line is not None and is_measured and self._is_counted(line)

    def _is_counted(self, line: _Line) -> bool:
        definition = self._definition
        above = definition.only_steps_above
        if definition.only_first_epoch and line.epoch != 0:
            return False
        return above is None or line.step > above

    def _settle(self, position: int) -> None:
        """Decide how far to read, once all lines are there and each rank has shown."""
        if self._lines == self._needed and self.enough is None:
            if not self._shared:
                self.enough = position
            elif self._ranks == 1 or self._track.all_begun:
                self.enough = position + LOOK_AHEAD

    def end_line(self) -> None:
        """Count the line under way, which has ended."""
        line, self._line = self._line, None
        definition = self._definition
        if line is None or not self._is_counted(line):
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
        self._settle(line.end)

    def estimate(self) -> Estimate:
        """Compute as the original did."""
        self.end_line()
        self._check_lines()
        rule = self._definition.rule
        batch = self._case.global_batch
        # Each rule rounds as its own scripts did: those that went by stamps or durations rounded a
        # plain float with Python's round, those that took a mean did so with NumPy.
        if rule is Rule.ELAPSED:
            note = self._clock.error_note()
            speed = round(batch / (self._clock.seconds / self._measured), PUBLISHED_DECIMALS)
            return Estimate(speed, self._measured, note)
        if rule is Rule.MEAN_DURATION:
            count = len(self._values)
            return Estimate(round(batch / (sum(self._values) / count), PUBLISHED_DECIMALS), count)
        if rule is Rule.MEAN_SPEED:
            speeds = [round(batch / seconds, 4) for seconds in self._values]
        else:
            speeds = self._values
        return Estimate(
            statistics.rounded(statistics.mean(speeds), PUBLISHED_DECIMALS), len(speeds)
        )

    def step_times(self) -> list[float]:
        """Refuse: lines are counted, of whichever rank printed them."""
        raise NoStepTimesError(
            "the published definition counts lines, not steps; take the steady estimator"
        )

    def _check_lines(self) -> None:
        definition, track = self._definition, self._track
        wanted, interval = definition.print_interval, track.interval
        if wanted is not None and track.gaps and interval != wanted:
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
        track.check_no_hole()
        first = track.steps[0].number if track.steps else 1
        if first - self._least_steps >= 2 * interval:
            raise BrokenContractError(
                f"steps are missing from the log: step {first}, counted from 1, is its first"
            )
        least = 1 if definition.rule is Rule.ELAPSED else 0
        if self._skipped < least or self._needed <= self._skipped:
            raise BrokenContractError(
                f"the published definition has no number for lines {self._skipped} to "
                f"{self._needed}; give the window more steps"
            )
        track.check_all_begun()
