"""Find the numbers of declared metrics while a log is read for its steps, on the same pass.

A number belongs to the step whose record stands on its line, else to the last one before it. Where
the step's own line has a metric's number, the lines up to the next record are not searched for it:
what else the trainer prints there, such as a validation, is not of the step. Numbers that name
their step belong to that one; those over the whole run, to none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pytest_dlperf.formats.declared import DeclaredMetric, Over
from pytest_dlperf.logs.lines import Block
from pytest_dlperf.logs.metric_numbers import MeasuredLines, Numbers
from pytest_dlperf.logs.records import LONGEST_STEP, Record


class _StepRecord(NamedTuple):
    """A step's record: its place in the log, and whether the step is measured."""

    start: int
    end: int
    step: int
    shift: int
    inside: bool


class MetricScan:
    """Takes the numbers of all metrics of one log, block by block.

    For each block ``at_record`` comes first, for the records of steps in it as far as one could
    begin or end the window, then ``search``.
    """

    def __init__(self, declared: Sequence[DeclaredMetric]) -> None:
        self.numbers = tuple(map(Numbers, declared))
        self._over_run = [n for n in self.numbers if n.declared.over is Over.RUN]
        self._windowed = [n for n in self.numbers if n.declared.over is Over.WINDOW]
        self._open = [n for n in self._windowed if n.declared.has_step]
        """What is looked for behind the last record: numbers that it does not have."""
        self._inside = False
        self._step = 0
        self._records: list[_StepRecord] = []
        self._shifts: list[tuple[int, int]] = []
        self._early: list[tuple[Numbers, bytes, int]] = []
        self._has_left = False

    @property
    def is_done(self) -> bool:
        """Whether nothing behind the last record of the window can matter any more."""
        return not (self._over_run or self._open)

    @property
    def lacking(self) -> list[DeclaredMetric]:
        """The metrics that have no number yet, which may still come."""
        every = (*self._over_run, *self._open)
        early = {numbers for numbers, *_ in self._early}
        return [
            each.declared
            for each in every
            if not (each.values or each.fault is not None or each in early)
        ]

    def at_record(self, record: Record, *, step: int, shift: int, inside: bool) -> None:
        """Note the record of a step, and whether the step is measured.

        ``shift`` is what makes a printed number the step's.
        """
        if not self._shifts or self._shifts[-1][1] != shift:
            self._shifts.append((record.offset, shift))
        if inside or self._inside:
            place = record.offset, record.end
            self._records.append(_StepRecord(*place, step, shift, inside))
            self._inside = inside

    def leave_window(self, offset: int) -> None:
        """Note that the record there is of no measured step, nor any behind it."""
        if not self._has_left:
            self._records.append(_StepRecord(offset, offset, 0, 0, inside=False))
            self._has_left = True

    def search(self, block: Block, window: tuple[int, int]) -> None:
        """Search a block.

        ``window`` is the last step before those that are measured, and the last of them.
        """
        if self._open or self._records:
            self._search_window(block, window)
            self._records.clear()
        for numbers in self._over_run:
            numbers.take_between(block, 0, block.end, 0)
        if self._shifts:
            self._take_early(window)

    def settle(self, first_step: int | None, window: tuple[int, int]) -> None:
        """Take the numbers that name their step from a log that shows no steps, at its end.

        Without ``first_step``, the log decides what it calls its first one.
        """
        if self._shifts or not self._early:
            return
        if first_step is None:
            named = (
                match["step"] or b""
                for numbers, line, _ in self._early
                for match in numbers.declared.record.finditer(line)
            )
            first_step = min(1, *(int(text[:LONGEST_STEP]) for text in named if text.isdigit()), 1)
        self._shifts.append((0, 1 - first_step))
        self._take_early(window)

    def _take_early(self, window: tuple[int, int]) -> None:
        early, self._early = self._early, []
        for numbers, line, at in early:
            # Numbering may have begun anew; what stands before all records goes with them.
            shift = next((s for offset, s in reversed(self._shifts) if offset <= at), None)
            shift = self._shifts[0][1] if shift is None else shift
            numbers.take_stepped(line, at, shift, window)

    def _search_window(self, block: Block, window: tuple[int, int]) -> None:
        """Search the lines of records, and behind them for what those lines do not have."""
        lines = self._lines(block)
        for numbers in self._open:
            self._search(numbers, block, lines.before, self._step)
        if not self._records:
            return
        is_inside = self._records[-1].inside
        self._open = []
        for numbers in self._windowed:
            stepped = numbers.declared.has_step
            lacking = numbers.take_lines(lines, window) if lines.texts else []
            for index in lacking:
                self._search(numbers, block, lines.behind[index], lines.steps[index])
            for place in lines.between if stepped else ():
                self._search(numbers, block, place, 0)
            lacks_last = bool(lacking) and lacking[-1] == len(lines.texts) - 1
            if not self._has_left and (lacks_last if is_inside else stepped):
                self._open.append(numbers)
        self._step = self._records[-1].step

    def _search(self, numbers: Numbers, block: Block, place: tuple[int, int], step: int) -> None:
        if not numbers.declared.has_step:
            numbers.take_between(block, *place, step)
            return
        self._early += (
            (numbers, block.line(begin, end), block.offset + begin)
            for begin, end in block.lines_of(numbers.declared.record, *place)
        )

    def _lines(self, block: Block) -> MeasuredLines:
        """Collect the lines of records that count, and what stands between them."""
        lines = MeasuredLines()
        position = 0
        lines.before = 0, block.end
        stretches: list[tuple[int, int]] | None = None
        for record in self._records:
            start = record.start - block.offset
            if start < position or start >= block.end:
                continue  # on the line of the one before, or on a line that has not ended
            begin = block.line_begin(start, position)
            if stretches is None:
                lines.before = 0, begin
            else:
                stretches.append((position, begin))
            stop = block.line_end(record.end - block.offset)
            position = stop + 1
            stretches = lines.behind if record.inside else lines.between
            if record.inside:
                lines.texts.append(block.line(begin, stop))
                lines.offsets.append(block.offset + begin)
                lines.steps.append(record.step)
                lines.shifts.append(record.shift)
        if stretches is not None:
            stretches.append((position, position if self._has_left else block.end))
        return lines
