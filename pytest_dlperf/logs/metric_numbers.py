"""Find the numbers of declared metrics while a log is read for its steps, on the same pass.

A number belongs to the step whose record stands on its line, else to the last one before it. Where
the step's own line has a metric's number, the lines up to the next record are not searched for it:
what else the trainer prints there, such as a validation, is not of the step. Numbers that name
their step belong to that one; those over the whole run, to none.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from pytest_dlperf.formats.declared import DeclaredMetric, Over
from pytest_dlperf.formats.keyed import AnyMatch, FoundRecord
from pytest_dlperf.formats.printed import printed_number, shown
from pytest_dlperf.logs.lines import Block
from pytest_dlperf.logs.records import LONGEST_STEP


class Numbers:
    """The numbers of one metric in one log, in the order in which they stand there."""

    def __init__(self, declared: DeclaredMetric) -> None:
        index = declared.record.groupindex
        self.declared = declared
        self._groups = [(index[group], more) for group, more in declared.values.items()]
        self._unit = index.get("unit")
        self._rank = index.get("rank")
        self.values = array("d")
        self.steps = array("q")
        self.offsets = array("q")
        self.ranks: list[bytes] = []
        """Who printed them, where the expression says so."""
        self.names: list[str] = []
        """Of a family, the members that they are of."""
        self.fault: tuple[str, int] | None = None
        """The first text that is no proper number, and why; and its place."""
        self.answered = -1
        """Where the last line of a step stands that has a number."""

    def take(self, line: bytes, offset: int, step: int) -> bool:
        """Take all numbers of a line that begins at ``offset``; say whether there was one."""
        found = False
        for match in self.declared.record.finditer(line):
            for group, more in self._groups:
                if match[group] is not None:
                    found = True
                    self._add(match, group, more, offset, step)
        return found

    def take_found(self, found: Iterable[FoundRecord]) -> None:
        """Take the numbers of records that were found by key."""
        for one in found:
            if one.problem is not None:
                self.refuse(one.problem, one.offset)
                continue
            for group, more in self._groups:
                self._add(one.match, group, more, one.offset - one.match.start(), 0)

    def take_stepped(self, line: bytes, offset: int, shift: int, window: tuple[int, int]) -> bool:
        """Take the numbers of a line whose own step is measured; say whether there was any.

        ``shift`` is what makes a printed number the step's, ``window`` the last step before those
        that are measured, and the last of them.
        """
        found = False
        for match in self.declared.record.finditer(line):
            found = True
            text = match["step"] or b""
            step = int(text[:LONGEST_STEP]) + shift if text.isdigit() else None
            if step is None or all(match[group] is None for group, _ in self._groups):
                self.refuse(f"{shown(text)} is not a step", offset + match.start())
            elif window[0] < step <= window[1]:
                for group, more in self._groups:
                    self._add(match, group, more, offset, step)
        return found

    def _add(self, match: AnyMatch, group: int, more: str, offset: int, step: int) -> None:
        text = match[group] or b""
        try:
            name = self.declared.member_name(match, more)
        except ValueError as error:
            self.refuse(str(error), offset + match.start())
            return
        try:
            value, prefix = printed_number(text)
        except ValueError:
            of = f" ({name})" if name else ""
            self.refuse(f"{shown(text)} is not a number{of}", offset + match.start())
            return
        if math.isinf(value) and text.strip(b"+-")[:1].isdigit():
            self.refuse(f"{shown(text)} is too large for a number", offset + match.start())
            return
        try:
            unit = None if self._unit is None else match[self._unit]
            value *= self.declared.unit_factor(unit, prefix)
        except ValueError as error:
            self.refuse(str(error), offset + match.start())
            return
        self.values.append(value)
        self.steps.append(step)
        self.offsets.append(offset + match.start())
        if self._rank is not None:
            self.ranks.append(match[self._rank] or b"")
        if self.declared.metric.is_family:
            self.names.append(name)

    def members(self) -> dict[str, Numbers]:
        """Return the numbers of each member of a family, by its name.

        A member that counts over the whole run and has no statistic to make one number of several
        is there once for each rank; else its numbers have a fault.
        """
        found: dict[str, Numbers] = {}
        is_once = self.declared.over is Over.RUN and self.declared.metric.statistic is None
        for at, name in enumerate(self.names):
            mine = found.setdefault(name, Numbers(self.declared))
            rank = self.ranks[at] if self.ranks else b""
            if is_once and mine.values and (not self.ranks or rank in mine.ranks):
                reason = f"{name} is there twice; give the family a 'statistic' if that is right"
                mine.refuse(reason, self.offsets[at])
            mine.values.append(self.values[at])
            mine.steps.append(self.steps[at])
            mine.offsets.append(self.offsets[at])
            if self.ranks:
                mine.ranks.append(rank)
        return found

    def refuse(self, reason: str, offset: int) -> None:
        """Note a fault at a place of the log, unless there is one before."""
        self.fault = self.fault or (reason, offset)


class _StepLine(NamedTuple):
    """The line of a step's record."""

    offset: int
    step: int
    shift: int
    """What makes a printed number the step's."""
    inside: bool
    """Whether the step is measured."""


class MetricScan:
    """Takes the numbers of all metrics of one log, block by block.

    For each block ``at_record`` comes first, for the records of steps in it as far as one could
    begin or end the window, then ``search``.
    """

    def __init__(self, declared: Sequence[DeclaredMetric]) -> None:
        """Look for these."""
        self.numbers = tuple(map(Numbers, declared))
        self._over_run = [n for n in self.numbers if n.declared.over is Over.RUN]
        self._windowed = [n for n in self.numbers if n.declared.over is Over.WINDOW]
        self._lines = [_StepLine(-1, 0, 0, inside=False)]
        self._first_shift: int | None = None
        self._early: list[tuple[Numbers, int, bytes]] = []
        """Lines that name a step, before it is known what the first is called."""
        self._has_left = False

    @property
    def _open(self) -> list[Numbers]:
        """What is looked for behind the last record: numbers that it does not have."""
        last = self._lines[-1]
        if self._has_left:
            return []
        if last.inside:
            return [each for each in self._windowed if each.answered != last.offset]
        return [each for each in self._windowed if each.declared.has_step]

    @property
    def is_done(self) -> bool:
        """Whether nothing behind the last record of the window can matter any more."""
        return not (self._over_run or self._open)

    @property
    def lacking(self) -> list[DeclaredMetric]:
        """The metrics that have no number yet, which may still come."""
        early = {numbers for numbers, *_ in self._early}
        return [
            each.declared
            for each in (*self._over_run, *self._open)
            if not (each.values or each.fault is not None or each in early)
        ]

    def at_record(self, offset: int, step: int, shift: int, *, inside: bool) -> None:
        """Note the record of a step on the line there; of several, the first counts."""
        if self._first_shift is None:
            self._first_shift = shift
        if offset != self._lines[-1].offset:
            self._lines.append(_StepLine(offset, step, shift, inside))

    def leave_window(self, offset: int) -> None:
        """Note that the record there is of no measured step, nor any behind it."""
        if not self._has_left:
            self._has_left = True
            self._lines.append(_StepLine(offset, 0, self._lines[-1].shift, inside=False))

    def search(self, block: Block, window: tuple[int, int]) -> None:
        """Search a block.

        ``window`` is the last step before those that are measured, and the last of them.
        """
        offsets = [each.offset for each in self._lines]
        is_measured = any(each.inside for each in self._lines)
        for numbers in self._windowed:
            if is_measured or numbers.declared.has_step:
                for offset, _, line in block.lines_with(numbers.declared.record.literal):
                    step_line = self._lines[bisect_right(offsets, offset) - 1]
                    self._take(numbers, step_line, offset, line, window)
        for numbers in self._over_run:
            for offset, _, line in block.lines_with(numbers.declared.record.literal):
                numbers.take(line, offset, 0)
        del self._lines[:-1]
        self._take_early(window)

    def _take(
        self,
        numbers: Numbers,
        step_line: _StepLine,
        offset: int,
        line: bytes,
        window: tuple[int, int],
    ) -> None:
        """Take the numbers of a line, on which a step's record stands or some way before it."""
        is_own = offset == step_line.offset
        if not is_own and step_line.inside and numbers.answered == step_line.offset:
            return
        found = False
        if not numbers.declared.has_step:
            found = step_line.inside and numbers.take(line, offset, step_line.step)
        elif self._first_shift is None or step_line.offset < 0:
            self._early.append((numbers, offset, line))
        elif not self._has_left or offset < self._lines[-1].offset:
            found = numbers.take_stepped(line, offset, step_line.shift, window)
        if found and is_own:
            numbers.answered = offset

    def settle(self, first_step: int | None, window: tuple[int, int]) -> None:
        """Take the numbers that name their step from a log that shows no steps, at its end.

        Without ``first_step``, the log decides what it calls its first one.
        """
        if self._first_shift is None and self._early:
            if first_step is None:
                named = (
                    match["step"] or b""
                    for numbers, _, line in self._early
                    for match in numbers.declared.record.finditer(line)
                )
                first_step = min([1, *(int(t[:LONGEST_STEP]) for t in named if t.isdigit())])
            self._first_shift = 1 - first_step
            self._take_early(window)

    def _take_early(self, window: tuple[int, int]) -> None:
        if self._first_shift is not None:
            for numbers, offset, line in self._early:
                numbers.take_stepped(line, offset, self._first_shift, window)
            self._early.clear()
