"""Declared metrics: their numbers, found on the same pass as the steps, and the one made of them.

A number belongs to the step whose record stands on its line, else to the last one before it. Where
the step's own line has a metric's number, the lines up to the next record are not searched for it:
what else the trainer prints there, such as a validation, is not of the step. Numbers that name
their step belong to that one; those over the whole run, to none.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.formats.declared import DeclaredMetric, Over
from pytest_dlperf.formats.keyed import AnyMatch, FoundRecord
from pytest_dlperf.formats.log_format import WhichNode
from pytest_dlperf.formats.printed import printed_number, shown
from pytest_dlperf.logs.lines import Block, LogFile, line_number, readable
from pytest_dlperf.logs.records import LONGEST_STEP
from pytest_dlperf.model import statistics
from pytest_dlperf.model.measurement import Run, RunStatus
from pytest_dlperf.model.metric import Better, Metric, Sanity, Statistic

_LEAST: Final = 1e-100
_GREATEST: Final = 1e100
"""Beyond these, quotients and squares of numbers would leave the range of a float."""
_JUDGEABLE: Final = f"a finite number above zero ({_LEAST:g} at least), to be judged"


class Number(NamedTuple):
    """A number that a log prints, who printed it, and of a family, the member that it is of."""

    value: float
    step: int
    offset: int
    rank: bytes = b""
    name: str = ""


class Numbers:
    """The numbers of one metric in one log, in the order in which they stand there."""

    def __init__(self, declared: DeclaredMetric) -> None:
        self.declared = declared
        self._values = declared.values
        self.found: list[Number] = []
        self.fault: tuple[str, int] | None = None
        """The first text that is no proper number, and why; and its place."""
        self.answered = -1
        """Where the last line of a step stands that has a number."""

    def take(self, line: bytes, offset: int, step: int) -> bool:
        """Take all numbers of a line that begins at ``offset``; say whether there was one."""
        found = False
        for match in self.declared.record.finditer(line):
            for group, more in self._values.items():
                if match[group] is not None:
                    found = True
                    self._add(match, group, more, offset + match.start(), step)
        return found

    def take_found(self, found: Iterable[FoundRecord]) -> None:
        """Take the numbers of records that were found by key."""
        for one in found:
            if one.problem is not None:
                self.refuse(one.problem, one.offset)
                continue
            for group, more in self._values.items():
                self._add(one.match, group, more, one.offset, 0)

    def take_stepped(self, line: bytes, offset: int, shift: int, window: tuple[int, int]) -> bool:
        """Take the numbers of a line whose own step is measured; say whether there was any.

        ``shift`` is what makes a printed number the step's, ``window`` the last step before those
        that are measured, and the last of them.
        """
        found, groups = False, self._values
        for match in self.declared.record.finditer(line):
            found, place = True, offset + match.start()
            text = match["step"] or b""
            step = int(text[:LONGEST_STEP]) + shift if text.isdigit() else None
            if step is None or all(match[group] is None for group in groups):
                self.refuse(f"{shown(text)} is not a step", place)
            elif window[0] < step <= window[1]:
                for group, more in groups.items():
                    self._add(match, group, more, place, step)
        return found

    def _add(self, match: AnyMatch, group: str, more: str, place: int, step: int) -> None:
        declared, index = self.declared, self.declared.record.groupindex
        text, unit = match[group] or b"", match["unit"] if "unit" in index else None
        try:
            name = declared.member_name(match, more)
            value, prefix = _parsed(text, name)
            value *= declared.unit_factor(unit, prefix)
        except ValueError as error:
            self.refuse(str(error), place)
            return
        rank = match["rank"] or b"" if "rank" in index else b""
        self.found.append(Number(value, step, place, rank, name))

    def members(self) -> dict[str, Numbers]:
        """Return the numbers of each member of a family, by its name.

        A member that counts over the whole run and has no statistic to make one number of several
        is there once for each rank; else its numbers have a fault.
        """
        found: dict[str, Numbers] = {}
        is_once = self.declared.over is Over.RUN and self.declared.metric.statistic is None
        for number in self.found if self.declared.metric.is_family else ():
            mine = found.setdefault(number.name, Numbers(self.declared))
            if is_once and any(each.rank == number.rank for each in mine.found):
                twice = f"{number.name} is there twice"
                mine.refuse(
                    f"{twice}; give the family a 'statistic' if that is right", number.offset
                )
            mine.found.append(number)
        return found

    def refuse(self, reason: str, offset: int) -> None:
        """Note a fault at a place of the log, unless there is one before."""
        self.fault = self.fault or (reason, offset)


def _parsed(text: bytes, name: str) -> tuple[float, str]:
    try:
        value, prefix = printed_number(text)
    except ValueError:
        of = f" ({name})" if name else ""
        raise ValueError(f"{shown(text)} is not a number{of}") from None
    if math.isinf(value) and text.strip(b"+-")[:1].isdigit():
        raise ValueError(f"{shown(text)} is too large for a number")
    return value, prefix


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
            if not (each.found or each.fault is not None or each in early)
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


# ------------------------------------------------------------------- one number of all


class _MissingError(Exception):
    """A metric without a number that could be judged; the text says why."""


class _UnsoundError(Exception):
    """A run that no metric may be taken of; the text says why."""


class NodeLog(Struct, frozen=True):
    """The log of one node, as far as it was read.

    ``problem`` is what was wrong with its steps: of interest where a number is missing.
    """

    path: str
    numbers: Mapping[str, Numbers]
    problem: str | None = None
    has_steps: bool = True


class _InLog(NamedTuple):
    """The numbers of a metric in the log of a node."""

    log: NodeLog
    numbers: Numbers

    def place(self, main: str | None, offset: int) -> str:
        """Name a line, and its log unless that is the ``main`` one."""
        path = self.log.path
        name = "" if path == main else f"{readable(path)}, "
        try:
            with LogFile(path) as file:
                return f"{name}line {line_number(file, offset)}"
        except OSError:
            return f"{name}byte {offset}"


def with_declared(
    run: Run, declared: Iterable[DeclaredMetric], logs: Sequence[NodeLog], window: tuple[int, int]
) -> Run:
    """Add the metrics that the logs of a sound run print, node 0's first.

    The run is invalid where one is not as it has to be. ``window`` is the last step before the
    measured ones, and the last of them.
    """
    metrics, missing = dict(run.metrics), dict(run.missing)
    for each, found in _single(declared, logs):
        metric = each.metric
        try:
            number = _number(each, found, window, run.log)
        except _MissingError as error:
            if metric.sanity is not None and metric.better is None and metric.is_judged:
                return invalid(run, str(error))
            missing[metric.name] = str(error)
        except _UnsoundError as error:
            return invalid(run, str(error))
        else:
            if math.isfinite(number):
                metrics[metric.name] = number
            else:
                missing[metric.name] = _complaint(metric, number, "a finite number, to be recorded")
    return replace(run, metrics=metrics, missing=missing)


def _single(
    declared: Iterable[DeclaredMetric], logs: Sequence[NodeLog]
) -> Iterator[tuple[DeclaredMetric, list[_InLog]]]:
    """Give each metric and its numbers by log; for a family that has any, its members."""
    for each in declared:
        name = each.metric.name
        found = [_InLog(log, log.numbers.get(name) or Numbers(each)) for log in logs]
        read = [one for node, one in enumerate(found) if each.is_on(node, len(logs))]
        members = [one.numbers.members() for one in read]
        names = dict.fromkeys(chain.from_iterable(members))
        for member in names:
            of_member = [
                _InLog(one.log, own.get(member) or Numbers(each))
                for one, own in zip(read, members, strict=True)
            ]
            yield replace(each, metric=each.metric.member(member)), of_member
        if not names or any(one.numbers.fault for one in found):
            yield each, read


def reduced(statistic: Statistic, values: Sequence[float]) -> float:
    """Make one number of all; of ``last``, the last."""
    return _STATISTICS[statistic](values)


def invalid(run: Run, reason: str) -> Run:
    """Take back what was measured of a run."""
    return replace(run, status=RunStatus.INVALID, metrics={}, missing={}, reason=reason)


def _number(
    declared: DeclaredMetric, read: Sequence[_InLog], window: tuple[int, int], main: str | None
) -> float:
    metric = declared.metric
    for one in read:
        if one.numbers.fault is not None:
            reason, offset = one.numbers.fault
            raise _MissingError(f"{metric.name}: {reason} ({one.place(main, offset)})")
    lacking = [one.log for one in read if not one.numbers.found]
    if lacking and (len(lacking) == len(read) or declared.node is not WhichNode.ANY):
        raise _MissingError(_looked_for(declared, lacking, window))
    found = [(one, number) for one in read for number in one.numbers.found]
    for one, number in found:
        _check(metric, number, one, main)
    if metric.sanity is not None and metric.sanity.falls:
        _check_falling(metric, [number for _, number in found])
    statistic, values = metric.statistic, [number.value for _, number in found]
    if statistic in {None, Statistic.LAST}:
        values = [value for one in read for value in _last_of_ranks(one.numbers.found)]
        statistic = Statistic.MIN if metric.better is Better.HIGHER else Statistic.MAX
    # Without a sum, or where one is not a number, there is none.
    value = math.nan if math.isnan(sum(values)) else reduced(statistic or Statistic.MAX, values)
    if metric.better is not None and not value >= _LEAST:
        raise _MissingError(_complaint(metric, value, _JUDGEABLE))
    return value


def _looked_for(
    declared: DeclaredMetric, lacking: Sequence[NodeLog], window: tuple[int, int]
) -> str:
    pattern, log = declared.record.pattern, lacking[0]
    where = readable(log.path)
    if len(lacking) > 1:
        where += f" and {len(lacking) - 1} more logs"
    because = f" ({log.problem})" if log.problem else ""
    if declared.over is Over.RUN:
        return f"looked for '{pattern}' in {where}: no match{because}"
    if not (log.has_steps or declared.has_step):
        return (
            f"{where} shows no steps{because}, so that no number in it is of the window; if "
            f"it has numbers, give '{pattern}' the group 'step', or write 'over: run'"
        )
    return (
        f"looked for '{pattern}' in {where}: no match in the window, steps {window[0] + 1} to "
        f"{window[1]}{because}; what is printed only once needs 'over: run'"
    )


def _check(metric: Metric, number: Number, one: _InLog, main: str | None) -> None:
    """Check one number by itself."""
    value, needed = number.value, None
    if metric.sanity is not None and (needed := _broken(metric.sanity, value)):
        said = _complaint(metric, value, needed)
        raise _UnsoundError(f"{said} ({one.place(main, number.offset)})")
    if metric.better is not None and not 0 <= value < math.inf:
        needed = _JUDGEABLE
    elif math.isfinite(value) and abs(value) >= _GREATEST:
        needed = f"one below {_GREATEST:g}"
    if needed:
        said = _complaint(metric, value, needed)
        raise _MissingError(f"{said} ({one.place(main, number.offset)})")


def _complaint(metric: Metric, value: float, needed: str) -> str:
    return f"{metric.name} is {value:.6g} {metric.unit}".rstrip() + f"; needed is {needed}"


def _broken(sanity: Sanity, value: float) -> str | None:
    """Say what a number has to be and is not; ``None`` where all is well."""
    if sanity.finite and not math.isfinite(value):
        return "a finite number"
    if sanity.below is not None and not value < sanity.below:
        return f"one below {sanity.below:g}"
    if sanity.above is not None and not value > sanity.above:
        return f"one above {sanity.above:g}"
    return None


def _check_falling(metric: Metric, numbers: Sequence[Number]) -> None:
    """Compare the halves of the window; ranks and nodes may print in any order."""
    by_step: dict[int, list[float]] = {}
    for number in numbers:
        by_step.setdefault(number.step, []).append(number.value)
    values = [statistics.mean(by_step[step]) for step in sorted(by_step)]
    half = len(values) // 2
    if not half:
        raise _UnsoundError(
            f"{metric.name} has to fall, and the window holds one number of it only"
        )
    falls = statistics.fall(values) if all(map(math.isfinite, values)) else -math.inf
    if falls > statistics.CLEAR_FALL:
        return
    first, second = (statistics.mean(part) for part in (values[:half], values[half:]))
    said = f"its mean is {first:.6g} in the first half of the window and {second:.6g} in the second"
    if falls < -statistics.CLEAR_FALL:
        raise _UnsoundError(f"{metric.name} does not fall: {said}")
    raise _UnsoundError(
        f"{metric.name} does not fall beyond its scatter: {said}. Random (synthetic) data looks "
        f"so: there, write '{metric.name}: {{sanity: finite}}' under 'metrics'"
    )


def _last_of_ranks(numbers: Sequence[Number]) -> list[float]:
    """Give the last number of each rank, where ranks name themselves; else of all."""
    last: dict[bytes, Number] = {}
    for number in numbers:
        if number.rank not in last or number.step >= last[number.rank].step:
            last[number.rank] = number
    return [number.value for number in last.values()]


_STATISTICS: Mapping[Statistic, Callable[[Sequence[float]], float]] = {
    Statistic.MEDIAN: statistics.median,
    Statistic.MEAN: statistics.mean,
    Statistic.MAX: max,
    Statistic.MIN: min,
    Statistic.LAST: lambda values: values[-1],
    Statistic.P95: lambda values: statistics.percentile(values, 95),
    Statistic.P99: lambda values: statistics.percentile(values, 99),
}
