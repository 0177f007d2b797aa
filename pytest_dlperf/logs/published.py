"""The ``published`` estimator: the original benchmark's own arithmetic, rounding included.

The original counted lines, not steps, in the order of the file; it left out some as warm-up and
divided by how many remained. The definitions stand with the formats. Where the original would
have stopped with an error, printed 0, or printed a number of something else than was asked, the
log counts as broken.
"""

from __future__ import annotations

from msgspec import Struct

from pytest_dlperf.formats.contract import BrokenContractError, positive
from pytest_dlperf.formats.log_format import JoinedRecords, LogFormat, Published, Ranks, Rule
from pytest_dlperf.logs.clock import Clock
from pytest_dlperf.logs.lines import Block
from pytest_dlperf.logs.numbering import Mark, StepOrder
from pytest_dlperf.logs.records import Record
from pytest_dlperf.logs.scan import MetricScan
from pytest_dlperf.logs.track_times import Estimate, NoStepTimesError
from pytest_dlperf.logs.tracks import LOOK_AHEAD, Gaps, RankCount, StepProgress
from pytest_dlperf.model import statistics
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import PUBLISHED_DECIMALS, Window


class _Line(Struct):
    epoch: int
    step: int
    text: bytes
    offset: int
    end: int


class PublishedLines:
    """The lines that a published definition counts, up to the last that it needs."""

    def __init__(
        self, log_format: LogFormat, definition: Published, window: Window, case: Case
    ) -> None:
        self._format = log_format
        self._definition = definition
        self._case = case
        self._measured = window.measured_steps
        skipped = max(window.warmup_steps, definition.min_warmup)
        needed = window.warmup_steps + window.measured_steps
        interval = definition.print_interval or 1
        times = case.topology.nodes if definition.lines_grow_with_nodes else 1
        self._skipped = skipped // interval * times
        self._needed = needed // interval * times
        self._lines = 0
        self._line: _Line | None = None
        self._values: list[float] = []
        self._total = 0.0
        self._clock = Clock()
        self._shared = log_format.ranks is Ranks.LOCAL
        self._alone = not self._shared or case.topology.devices_per_node == 1
        self._count = RankCount(log_format, case, case.topology.devices_per_node)
        self._order = StepOrder(log_format)
        self._numbers = self._order.numbers
        self._enough: int | None = None
        self._ranks = case.topology.devices_per_node if self._shared else 1
        self._before = (-1, -1)
        self._first = (0, 0)
        self._gaps = Gaps()
        self._offset: int | None = None

    @property
    def complete(self) -> bool:
        """Whether all lines are there that count, and each rank has shown."""
        return self._enough is not None

    @property
    def seen(self) -> StepProgress:
        """How far the log has come; warm-up and window are estimates, since lines are counted."""
        # Where all lines are there, only a first step of other ranks is awaited.
        awaited = self._numbers.furthest if self._lines < self._needed else 0
        return StepProgress(
            found=self._lines,
            warmup=self._steps_of(self._skipped),
            window=self._steps_of(self._needed),
            slowest=self._numbers.furthest,
            last={"": self._numbers.furthest} if self._numbers.furthest else {},
            awaited={} if self.complete else {"": awaited},
        )

    @property
    def ends(self) -> list[tuple[int, int]]:
        """None: lines are counted, of whichever rank printed them."""
        return []

    def _steps_of(self, lines: int) -> int:
        """About how many steps a rank has shown with so many lines that count."""
        lines = -(-lines // self._ranks)
        above = self._definition.only_steps_above
        begin = 1 if above is None else above - (self._numbers.first or 0) + 2
        interval = self._definition.print_interval or 1
        if self._alone and self._gaps.counts:
            interval = self._gaps.interval
        return begin + (lines - 1) * interval if lines > 0 else begin - 1

    @property
    def mark(self) -> Mark | None:
        """Where all lines are there and each rank has shown; of several, only its first step."""
        if self._enough is None:
            return None
        if self._alone:
            return Mark(self._enough, *self._before, self._numbers.last_of_epoch)
        epoch, number = self._first
        return Mark(self._enough, epoch, number + 1)

    def take(self, record: Record, block: Block, scan: MetricScan | None = None) -> bool:
        """Take the next record, of a block of lines; false where enough was shown before it."""
        if self._line is not None and block.has_line_end(self._line.end, record.offset):
            self._close()
        if self._enough is not None and record.offset >= self._enough:
            return False
        self._take(record)
        if scan is not None:
            shift, inside = self._numbers.shift, self._counts(self._line)
            scan.at_record(record, step=self._numbers.furthest, shift=shift, inside=inside)
        return True

    def enough_in(self, block: Block) -> int | None:
        """Return up to which byte of the log it has shown enough, if that is in the block."""
        if self._line is not None and block.has_line_end(self._line.end, block.end_offset):
            self._close()
        enough = self._enough
        return enough if enough is not None and enough <= block.end_offset else None

    def _counts(self, line: _Line | None) -> bool:
        """Say whether the line under way is one of those that are measured."""
        return (
            line is not None
            and self._is_counted(line)
            and self._skipped <= self._lines < self._needed
        )

    def _is_counted(self, line: _Line) -> bool:
        definition = self._definition
        above = definition.only_steps_above
        if definition.only_first_epoch and line.epoch != 0:
            return False
        return above is None or line.step > above

    def _settle(self, position: int) -> None:
        """Decide how far to read, once all lines are there and each rank has shown."""
        if self._lines == self._needed and self._enough is None:
            if not self._shared:
                self._enough = position
            elif self._count.all_there:
                self._enough = position + LOOK_AHEAD

    def _take(self, record: Record) -> None:
        if not self._follow(record):
            return
        line = self._line
        if self._lines == self._needed:
            # Only ranks are awaited that have not shown: no step of another's is a sign of them.
            self._settle(record.end)
            return
        if line is None:
            self._line = _Line(*self._before, record.time, record.offset, record.end)
        else:
            line.end = record.end
            if self._definition.glued is not JoinedRecords.FIRST:
                line.step = self._before[1]
            if self._definition.glued is JoinedRecords.LAST:
                line.text = record.time

    def _follow(self, record: Record) -> bool:
        """Go on to a record; false for an identical copy of the one before."""
        numbers, begins = self._numbers, self._offset is None
        if self._shared:
            self._count.note(record)
        if not self._alone:
            numbers.furthest = max(numbers.furthest, numbers.place(record))
        elif not self._order.follow(record):
            return False
        step, epoch = int(record.step), int(record.epoch or b"0")
        gap, in_epoch = step - self._before[1], epoch == self._before[0]
        if self._alone:
            gap, in_epoch = self._order.gap, not (begins or numbers.turned)
            if begins:
                # Steps that do not count may be missing at the begin.
                least = self._definition.only_steps_above or -1
                gap -= max(least - (numbers.first or 0) + 1, 0)
        elif begins:
            self._first = epoch, step
        if self._alone or not begins:
            inside, in_epoch = self._lines < self._needed, in_epoch and gap > 0
            self._gaps.note(gap, step, record.offset, in_epoch=in_epoch, in_window=inside)
        self._before, self._offset = (epoch, step), record.offset
        return True

    def _close(self) -> None:
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
            value = positive(line.text, what=what, offset=line.offset)
            self._values.append(value)
            self._total += value
        self._settle(line.end)

    def estimate(self) -> Estimate:
        """Compute as the original did."""
        self._close()
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
            return Estimate(round(batch / (self._total / count), PUBLISHED_DECIMALS), count)
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
        definition = self._definition
        wanted = definition.print_interval
        # Which rank printed a line is not known: the next one's may be another's, and further on.
        interval = self._gaps.interval if self._alone else self._gaps.least
        if wanted is not None and self._gaps.counts and interval != wanted:
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
                offset=self._offset,
                place="the last step is on line",
            )
        gap, step, offset = self._gaps.widest
        if self._alone and gap >= 2 * interval:
            raise BrokenContractError(
                f"steps are missing from the log: none of the {gap - 1} before step {step}, so its "
                "lines do not stand for the steps that the published definition takes them for",
                offset=offset,
            )
        least = 1 if definition.rule is Rule.ELAPSED else 0
        if self._skipped < least or self._needed <= self._skipped:
            raise BrokenContractError(
                f"the published definition has no number for lines {self._skipped} to "
                f"{self._needed}; give the window more steps"
            )
        if self._shared:
            self._count.check_all_there()
