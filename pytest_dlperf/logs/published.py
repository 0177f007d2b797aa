"""The ``published`` estimator: the original benchmark's own arithmetic, rounding included.

The original counted lines, not steps, in the order of the file; it left out some as warm-up and
divided by how many remained. The definitions stand with the formats. Where the original would
have stopped with an error, printed 0, or printed a number of something else than was asked, the
log counts as broken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_dlperf.formats.contract import BrokenContractError, positive, whole_number
from pytest_dlperf.formats.log_format import JoinedRecords, Ranks, Rule
from pytest_dlperf.logs.clock import Clock
from pytest_dlperf.logs.numbering import Mark, StepOrder
from pytest_dlperf.logs.records import records
from pytest_dlperf.logs.steps import (
    LOOK_AHEAD,
    Estimate,
    Gaps,
    NoStepTimesError,
    RankCount,
    Series,
    StepProgress,
)
from pytest_dlperf.model import statistics
from pytest_dlperf.model.measurement import PUBLISHED_DECIMALS

if TYPE_CHECKING:
    from pytest_dlperf.formats.log_format import LogFormat, Published
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.logs.scan import MetricScan
    from pytest_dlperf.logs.steps import Ends
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Window


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
        """Expect lines of ``log_format`` from a run of ``case``."""
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
        self._has_epochs = "epoch" in log_format.record.groupindex
        self._lines = 0
        self._line: _Line | None = None
        self._values: list[float] = []
        self._total = 0.0
        self._clock = Clock()
        self._series = Series()
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
    def ends(self) -> dict[str, Ends]:
        """None: lines are counted, of whichever rank printed them."""
        return {}

    @property
    def series(self) -> dict[str, Series]:
        """The stamps of the lines that count, where they do."""
        return {"": self._series} if self._series.rows else {}

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

    def feed(self, region: Region, scan: MetricScan | None = None) -> int | None:
        """Take the region's lines; return where the last one needed ends."""
        buffer = region.buffer
        end = 0
        for start, stop, step, epoch, _, text in records(region, self._format):
            if self._line is not None and _has_line_end(buffer, end, start):
                self._close()
            if self._enough is not None and region.offset + start >= self._enough:
                break
            end = stop
            epoch_text = epoch if self._has_epochs else b"0"
            self._numbers.note_length(epoch, buffer, start)
            self._take(step, epoch_text, text, region.offset + start, region.offset + stop)
            if scan is not None:
                shift, inside = self._numbers.shift, self._counts(self._line)
                scan.at_record(start, stop, step=self._numbers.furthest, shift=shift, inside=inside)
        else:
            if self._line is not None and _has_line_end(buffer, end, region.end):
                self._close()
        if self._enough is None or region.offset + region.end < self._enough:
            return None
        return max(self._enough - region.offset, 0)

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

    def _take(
        self, step_text: bytes, epoch_text: bytes, text: bytes, offset: int, end: int
    ) -> None:
        step = whole_number(step_text, what="step", offset=offset)
        epoch = whole_number(epoch_text, what="epoch", offset=offset)
        if self._shared:
            self._count.note(epoch_text, step_text, offset)
        if self._alone:
            begins = self._offset is None
            if not self._order.follow(step_text, epoch_text, text, offset):
                return
            gap, in_epoch = self._order.gap, not self._order.turned
        else:
            begins = not self._follow(epoch, step, offset)
            gap = step - self._before[1]
            in_epoch = gap > 0 and epoch == self._before[0]
        if begins and self._alone:
            # Steps that do not count may be missing at the begin.
            gap -= max(
                (self._definition.only_steps_above or -1) - (self._numbers.first or 0) + 1, 0
            )
            in_epoch = False
        if self._alone or not begins:
            inside = self._lines < self._needed
            self._gaps.note(gap, step, offset, in_epoch=in_epoch, in_window=inside)
        else:
            self._first = epoch, step
        self._before, self._offset = (epoch, step), offset
        line = self._line
        if self._lines == self._needed:
            # Only ranks are awaited that have not shown: no step of another's is a sign of them.
            self._settle(end)
            return
        if line is None:
            self._line = _Line(epoch, step, text, offset, end)
        else:
            line.end = end
            if self._definition.glued is not JoinedRecords.FIRST:
                line.step = step
            if self._definition.glued is JoinedRecords.LAST:
                line.text = text

    def _follow(self, epoch: int, step: int, offset: int) -> bool:
        """Go on to a step of any rank, for the progress; false for the first of all."""
        numbers = self._numbers
        begins = self._offset is None
        if begins:
            numbers.begin(step)
        if self._has_epochs and epoch >= numbers.epoch:
            numbers.enter(epoch, offset)
        if epoch >= numbers.epoch:
            numbers.furthest = max(numbers.furthest, step + numbers.shift)
        return not begins

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
                self._format.check_time(line.text, line.offset)
                step = self._steps_of(self._lines)
                self._series.rows.append((step, line.text, line.offset, self._clock.nanoseconds))
        elif self._lines > self._skipped:
            rates = definition.rule is Rule.MEAN_RATE
            what = "the printed speed" if rates else "the step's time"
            value = positive(line.text, what=what, offset=line.offset)
            self._format.check_time(line.text, line.offset)
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


def _has_line_end(buffer: bytearray, begin: int, end: int) -> bool:
    # The original took carriage returns for line ends.
    return buffer.find(b"\n", begin, end) >= 0 or buffer.find(b"\r", begin, end) >= 0
