"""Find the numbers of declared metrics while a log is read for its steps, on the same pass.

A number belongs to the step whose record stands on its line, else to the last one before it. Where
the step's own line has a metric's number, the lines up to the next record are not searched for it:
what else the trainer prints there, such as a validation, is not of the step. Numbers that name
their step belong to that one; those over the whole run, to none.
"""

from __future__ import annotations

import math
import re
from array import array
from functools import cached_property
from operator import contains, sub
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_dlperf.formats.contract import shown
from pytest_dlperf.formats.declared import Over
from pytest_dlperf.formats.printed import printed_number
from pytest_dlperf.logs.lines import Lines
from pytest_dlperf.logs.records import LONGEST_STEP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_dlperf.formats.declared import DeclaredMetric
    from pytest_dlperf.formats.documents import Found
    from pytest_dlperf.formats.expressions import AnyMatch
    from pytest_dlperf.logs.reader import Region

_THOUSANDS: Final = re.compile(rb",[0-9]{3}(?![0-9])")
_EXPONENT: Final = re.compile(rb"[eE][-+]?[0-9]+(?![0-9A-Za-z])")
_PREFIX: Final = re.compile(rb" ?([kKMG])(?![\w/:=])")
# There are fewer such letters than digits, which therefore are looked at second.
_PREFIXED: Final = re.compile(rb"[kKMG](?![\w/:=])(?:(?<=[0-9][kKMG])|(?<=[0-9] [kKMG]))")
_EXPONENTS: Final = (b"e+", b"e-", b"E+", b"E-")
"""How they are printed."""


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
        """Begin without a number."""
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

    def take_found(self, found: Iterable[Found]) -> None:
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

    def take_lines(self, lines: _Measured, window: tuple[int, int]) -> list[int]:
        """Take all numbers of the lines of measured steps; return which have none."""
        values = self._one_each(lines)
        if values is not None:
            self.values.extend(values)
            self.steps.extend(lines.array_of_steps)
            self.offsets.extend(lines.array_of_offsets)
            return []
        places = enumerate(zip(lines.texts, lines.offsets, strict=True))
        if self.declared.has_step:
            shifts = lines.shifts
            return [at for at, line in places if not self.take_stepped(*line, shifts[at], window)]
        return [at for at, line in places if not self.take(*line, lines.steps[at])]

    def _one_each(self, lines: _Measured) -> array[float] | None:
        """Give the numbers of the lines where each has a proper one; else they need a closer look.

        It takes a fifth of the time of one line after the other.
        """
        record = self.declared.record
        stepped = self.declared.has_step
        if record.groups > 1 + stepped or lines.may_be_cut:
            return None
        ((group, _),) = self._groups
        found = record.findall(lines.joined, len(lines.texts))
        if len(found) != len(lines.texts):
            return None
        texts = [row[group - 1] for row in found]
        try:
            if stepped and lines.printed != [int(row[2 - group]) for row in found]:
                return None
            values = array("d", map(float, texts))
        except ValueError:
            return None
        is_cut = any(
            any(map(contains, lines.texts, [text + mark for text in texts]))
            for mark in lines.exponents
        )
        # So many numbers as lines may still be two on one of them.
        if is_cut or not (math.isfinite(sum(values)) and all(map(contains, lines.texts, texts))):
            return None
        factor = self.declared.unit_factor(None)
        return values if factor == 1 else array("d", [factor * value for value in values])

    def _add(self, match: AnyMatch, group: int, more: str, offset: int, step: int) -> None:
        text = match[group] or b""
        at = match.end(group)
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
        if cut := self._cut(match, at):
            self.refuse(
                f"{shown(text + cut)} goes on behind the group 'value'; let it take all of the "
                "number, as in [-+.,0-9eEkMG]+",
                offset + match.start(),
            )
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

    def _cut(self, match: AnyMatch, at: int) -> bytes:
        """Return what belongs to the number behind the group's end; nothing, if all is well."""
        line = match.string
        if thousands := _THOUSANDS.match(line, at):
            return thousands[0]
        if exponent := _EXPONENT.match(line, at):
            return exponent[0]
        prefix = _PREFIX.match(line, at)
        if prefix is None or self._unit is not None or match.end() > at:
            return b""
        # It says nothing new where the number is of that unit anyway.
        declared = self.declared
        factor = declared.unit_factor(None)
        return b"" if declared.unit_factor(None, prefix[1].decode()) == factor else prefix[0]

    def refuse(self, reason: str, offset: int) -> None:
        """Note a fault at a place of the log, unless there is one before."""
        self.fault = self.fault or (reason, offset)

    def take_between(self, lines: Lines, begin: int, end: int, step: int) -> None:
        """Take all numbers between two places of a region, which lie at lines' ends."""
        for start, stop in lines.having(self.declared.record, begin, end):
            self.take(lines.text(start, stop), lines.offset + start, step)


class _Measured:
    """The lines of measured steps in one region."""

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.offsets: list[int] = []
        self.steps: list[int] = []
        self.shifts: list[int] = []
        self.behind: list[tuple[int, int]] = []
        """What follows each, up to the next record's line, in the region."""
        self.before: tuple[int, int] = (0, 0)
        """What stands before the first record's line."""
        self.between: list[tuple[int, int]] = []
        """What stands between the lines of measured steps, as far as other steps do."""

    @cached_property
    def joined(self) -> bytes:
        return b"\n".join(self.texts)

    @cached_property
    def array_of_steps(self) -> array[int]:
        return array("q", self.steps)

    @cached_property
    def array_of_offsets(self) -> array[int]:
        return array("q", self.offsets)

    @cached_property
    def printed(self) -> list[int]:
        """The steps as the log calls them."""
        return list(map(sub, self.steps, self.shifts))

    @cached_property
    def may_be_cut(self) -> bool:
        """Whether a number may hold a comma or a prefix, before which an expression could end."""
        joined = self.joined
        if b"," in joined and _THOUSANDS.search(joined) is not None:
            return True
        return _PREFIXED.search(joined) is not None

    @cached_property
    def exponents(self) -> list[bytes]:
        """The begins of exponents that stand anywhere, before which an expression could end."""
        return [mark for mark in _EXPONENTS if mark in self.joined]


class _Record(NamedTuple):
    """A step's record: its place in the region, and whether the step is measured."""

    start: int
    end: int
    step: int
    shift: int
    inside: bool


class MetricScan:
    """Takes the numbers of all metrics of one log, region by region.

    For each region ``begin`` comes first, then ``at_record`` for the records of steps in it, as far
    as one could begin or end the window, then ``end``.
    """

    def __init__(self, declared: Sequence[DeclaredMetric]) -> None:
        """Look for these."""
        self.numbers = tuple(map(Numbers, declared))
        self._over_run = [n for n in self.numbers if n.declared.over is Over.RUN]
        self._windowed = [n for n in self.numbers if n.declared.over is Over.WINDOW]
        self._open = [n for n in self._windowed if n.declared.has_step]
        """What is looked for behind the last record: numbers that it does not have."""
        self._inside = False
        self._step = 0
        self._records: list[_Record] = []
        self._shifts: list[tuple[int, int]] = []
        self._early: list[tuple[Numbers, bytes, int]] = []
        self._view: Lines | None = None
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

    def begin(self, region: Region) -> None:
        """Go on in the next region."""
        self._view = Lines(region)

    def at_record(self, start: int, end: int, *, step: int, shift: int, inside: bool) -> None:
        """Note the record of a step, its place in the region, and whether the step is measured.

        ``shift`` is what makes a printed number the step's.
        """
        if not self._shifts or self._shifts[-1][1] != shift:
            self._shifts.append((self._seen.offset + start, shift))
        if inside or self._inside:
            self._records.append(_Record(start, end, step, shift, inside))
            self._inside = inside

    def leave_window(self, start: int) -> None:
        """Note that the record there is of no measured step, nor any behind it."""
        if not self._has_left:
            self._records.append(_Record(start, start, 0, 0, inside=False))
            self._has_left = True

    def end(self, window: tuple[int, int]) -> None:
        """Search the region.

        ``window`` is the last step before those that are measured, and the last of them.
        """
        view = self._seen
        if self._open or self._records:
            self._search_window(view, window)
            self._records.clear()
        for numbers in self._over_run:
            numbers.take_between(view, 0, view.end, 0)
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

    @property
    def _seen(self) -> Lines:
        if self._view is None:
            raise AssertionError("a region comes first")
        return self._view

    def _search_window(self, view: Lines, window: tuple[int, int]) -> None:
        """Search the lines of records, and behind them for what those lines do not have."""
        lines = self._lines(view)
        for numbers in self._open:
            self._search(numbers, lines.before, self._step)
        if not self._records:
            return
        is_inside = self._records[-1].inside
        self._open = []
        for numbers in self._windowed:
            stepped = numbers.declared.has_step
            lacking = numbers.take_lines(lines, window) if lines.texts else []
            for index in lacking:
                self._search(numbers, lines.behind[index], lines.steps[index])
            for place in lines.between if stepped else ():
                self._search(numbers, place, 0)
            lacks_last = bool(lacking) and lacking[-1] == len(lines.texts) - 1
            if not self._has_left and (lacks_last if is_inside else stepped):
                self._open.append(numbers)
        self._step = self._records[-1].step

    def _search(self, numbers: Numbers, place: tuple[int, int], step: int) -> None:
        view = self._seen
        if not numbers.declared.has_step:
            numbers.take_between(view, *place, step)
            return
        self._early += (
            (numbers, view.text(begin, end), view.offset + begin)
            for begin, end in view.having(numbers.declared.record, *place)
        )

    def _lines(self, view: Lines) -> _Measured:
        """Collect the lines of records that count, and what stands between them."""
        lines = _Measured()
        position = 0
        lines.before = 0, view.end
        stretches: list[tuple[int, int]] | None = None
        for record in self._records:
            if record.start < position or record.start >= view.end:
                continue  # on the line of the one before, or on a line that has not ended
            begin = view.line_begin(position, record.start)
            if stretches is None:
                lines.before = 0, begin
            else:
                stretches.append((position, begin))
            stop = view.line_end(record.end)
            position = stop + 1
            stretches = lines.behind if record.inside else lines.between
            if record.inside:
                lines.texts.append(view.text(begin, stop))
                lines.offsets.append(view.offset + begin)
                lines.steps.append(record.step)
                lines.shifts.append(record.shift)
        if stretches is not None:
            stretches.append((position, position if self._has_left else view.end))
        return lines
