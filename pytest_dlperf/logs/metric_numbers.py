"""The numbers of a declared metric in a log, and the lines of measured steps that they stand on."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable

from pytest_dlperf.formats.contract import shown
from pytest_dlperf.formats.declared import DeclaredMetric, Over
from pytest_dlperf.formats.documents import FoundRecord
from pytest_dlperf.formats.keyed import AnyMatch
from pytest_dlperf.formats.printed import printed_number
from pytest_dlperf.logs.lines import Block
from pytest_dlperf.logs.records import LONGEST_STEP


class Numbers:
    """The numbers of one metric in one log, in the order in which they stand there."""

    __slots__ = (
        "_groups",
        "_rank",
        "_unit",
        "declared",
        "fault",
        "names",
        "offsets",
        "ranks",
        "steps",
        "values",
    )

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

    def take_lines(self, lines: MeasuredLines, window: tuple[int, int]) -> list[int]:
        """Take all numbers of the lines of measured steps; return which have none."""
        places = enumerate(zip(lines.texts, lines.offsets, strict=True))
        if self.declared.has_step:
            shifts = lines.shifts
            return [at for at, line in places if not self.take_stepped(*line, shifts[at], window)]
        return [at for at, line in places if not self.take(*line, lines.steps[at])]

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

    def take_between(self, block: Block, begin: int, end: int, step: int) -> None:
        """Take all numbers between two places of a block, which lie at lines' ends."""
        for start, stop in block.lines_of(self.declared.record, begin, end):
            self.take(block.line(start, stop), block.offset + start, step)


class MeasuredLines:
    """The lines of measured steps in one block."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.offsets: list[int] = []
        self.steps: list[int] = []
        self.shifts: list[int] = []
        self.behind: list[tuple[int, int]] = []
        """What follows each, up to the next record's line, in the block."""
        self.before: tuple[int, int] = (0, 0)
        """What stands before the first record's line."""
        self.between: list[tuple[int, int]] = []
        """What stands between the lines of measured steps, as far as other steps do."""
