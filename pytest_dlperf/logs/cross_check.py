"""Hold the time that a format takes of a log against all else that the same lines say of it.

This is for the moment at which a number is declared or recorded: a micro-batch's time, a wrong
unit or a mean since the start is a constant factor, which no later comparison shows. Judged runs
are not checked again.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, final

from msgspec import Struct

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.log_format import LogFormat, Ranks
from pytest_dlperf.formats.meanings import trainers_in, vocabulary
from pytest_dlperf.formats.printed import amount, step_seconds
from pytest_dlperf.logs.arrivals import Arrivals
from pytest_dlperf.logs.clock import NANOSECONDS, parse
from pytest_dlperf.logs.lines import Block, LogFile, blocks, line_number
from pytest_dlperf.logs.mean_since_start import step_behind_mean
from pytest_dlperf.logs.records import LONGEST_STEP, Record, RecordFinder
from pytest_dlperf.logs.time_group import problems_of_group
from pytest_dlperf.model import statistics
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.work import Covers, RateScope, TimeKind, Timing

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_ROWS: Final = 400
_READ_FOR_NUMBERS: Final = 64
"""Lines whose other numbers are looked at."""
_LOOKED_AT: Final = 5
"""Lines whose number is held against units and known trainers."""
_LONGEST_LINE: Final = 8192
_CHUNKS: Final = 8
"""Stretches that are compared one by one, so that a pause in one of them says nothing."""
_AGREES: Final = 0.10
_PRINTED_TOLERANCE: Final = 0.5
"""Printed numbers may leave out data or be smoothed; stamps and arrivals hold to ``_AGREES``."""
_ARRIVAL_GRAIN_S: Final = 0.05
_FINE: Final = 10
"""Stamps say something of a stretch of at least so many of their units."""
_NAME_REACH: Final = 40
_STAMP: Final = re.compile(
    rb"(?<![0-9])(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}[ T_]+)?"
    rb"[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?![0-9<:])"
)
_STAMPED: Final = 120
_NUMBER: Final = re.compile(rb"(?<![\w.:,-])[0-9](?:[0-9.,]*[0-9])?(?: ?[kKMG](?![A-Za-z/]))?")
_OF_STEP: Final = re.compile(rb"(?:step|iter|batch)[^,;|]*$", re.IGNORECASE)
_STEP_RATE: Final = re.compile(
    rb"(?:\b|_)(?:it(?:er(?:ation)?)?s?|steps?|batch(?:es)?)(?:/|_per_| per )s|"
    rb"s(?:ec(?:ond)?s?)?(?:/|_per_| per )(?:it|step|batch)",
    re.IGNORECASE,
)
_DIGITS: Final = re.compile(rb"[0-9]")


class CrossCheck(Struct, frozen=True):
    """What else the lines of a log say: each is a sentence for people."""

    agreements: tuple[str, ...] = ()
    """Such as ``agrees with the time stamps``."""
    contradictions: tuple[str, ...] = ()
    """Such as ``contradicts the time stamps: … (line 12)``; one is enough not to record it."""


class _Row(NamedTuple):
    """A record of one process, with its line."""

    step: int
    epoch: bytes
    text: bytes
    offset: int
    line: bytes


class _Pair(NamedTuple):
    """Two records that follow each other in an epoch."""

    before: _Row
    row: _Row

    @property
    def steps(self) -> int:
        return self.row.step - self.before.step


def cross_check(
    path: Path | str, log_format: LogFormat, case: Case, *, knows_batch: bool = True
) -> CrossCheck:
    """Compare the time that a format takes of a log with what else its lines say.

    That are time stamps, arrivals, printed rates and times, units, and what is known of the
    trainer; three records are enough. ``case`` says how much work a step is: where its batch is
    made up, rates of samples and tokens say nothing (``knows_batch``). Nor is anything said of a
    log without steps or times, or of one that cannot be read: a measurement of it says why.
    """
    log_format = log_format.of(case)
    if log_format.timing is Timing.ARRIVAL:
        return CrossCheck()
    try:
        with LogFile(path) as file:
            return _checked(path, file, log_format, case, knows_batch=knows_batch)
    except (OSError, BrokenContractError):
        return CrossCheck()


def _checked(
    path: Path | str, file: LogFile, log_format: LogFormat, case: Case, *, knows_batch: bool
) -> CrossCheck:
    rows, between = _rows_of(file, log_format)
    pairs = [
        _Pair(*each)
        for each in pairwise(rows)
        if each[0].step < each[1].step and each[0].epoch == each[1].epoch
    ]
    wrong = list(_own_problems(rows, log_format, case))
    agreements: list[str] = []
    contradictions = [f"{text} (line {line_number(file, at)})" for text, at in wrong]
    declared = [_declared(each, log_format, case) for each in pairs]
    lines = _Lines(path, pairs, between, log_format, case, knows_batch)
    for name, said, grain, tolerance in lines.witnesses():
        found = _compared(pairs, declared, said, grain, tolerance)
        if found is None:
            continue
        is_near, row, its, others = found
        if is_near:
            agreements.append(f"agrees with {name}")
        else:
            contradictions.append(
                f"contradicts {name}: {its:.4g} s a step by {log_format.timing.value}, "
                f"{others:.4g} s by {name} (line {line_number(file, row.offset)})"
            )
    return CrossCheck(tuple(dict.fromkeys(agreements)), tuple(dict.fromkeys(contradictions)))


def _rows_of(file: LogFile, log_format: LogFormat) -> tuple[list[_Row], list[bytes]]:
    """Take the records of one process, and the lines between them that print a pace of steps."""
    finder, rows, between = RecordFinder(log_format), list[_Row](), list[bytes]()
    seen: set[tuple[bytes, int]] = set()
    rank: bytes | None = None
    with suppress(BrokenContractError):
        for block in blocks(file):
            for record in finder.find(block):
                rank = record.rank if rank is None else rank
                if record.rank != rank or not record.step[:LONGEST_STEP].isdigit():
                    continue
                step = int(record.step[:LONGEST_STEP])
                if (record.epoch, step) not in seen:
                    seen.add((record.epoch, step))
                    rows.append(_row(record, step, block))
                if len(rows) == MAX_ROWS:
                    return rows, between
            if rows and not between:
                between = [
                    block.line(block.line_begin(at.start()), block.line_end(at.start()))
                    for at in _STEP_RATE.finditer(block.text)
                ][:_READ_FOR_NUMBERS]
            if block.offset > MAX_BYTES:
                break
    return rows, between


def _row(record: Record, step: int, block: Block) -> _Row:
    at = record.offset - block.offset
    line = block.line(block.line_begin(at), block.line_end(at))[:_LONGEST_LINE]
    return _Row(step, record.epoch, record.time, record.offset, line)


def _declared(pair: _Pair, log_format: LogFormat, case: Case) -> float | None:
    """Compute the seconds that passed from a record to the next by what the format takes."""
    before, row = pair
    with suppress(BrokenContractError):
        if log_format.timing.kind is TimeKind.MOMENT:
            return _passed(before.text, row.text)
        seconds = step_seconds(log_format, row.text, row.offset, case)
        if log_format.covers is Covers.SINCE_START:
            begun = step_seconds(log_format, before.text, before.offset, case)
            return row.step * seconds - before.step * begun
        return seconds if log_format.covers is Covers.TOTAL_SINCE_LAST else pair.steps * seconds
    return None


def _passed(before: bytes, after: bytes) -> float:
    return (parse(after).nanoseconds - parse(before).nanoseconds) / NANOSECONDS


def _compared(
    pairs: Sequence[_Pair],
    declared: Sequence[float | None],
    said: Sequence[float | None],
    grain: float,
    tolerance: float,
) -> tuple[bool, _Row, float, float] | None:
    """Compare stretch by stretch; ``None`` where they neither agree nor contradict clearly.

    Otherwise whether they agree, a line, and the seconds of a step by either.
    """
    both = [
        (pair, one, other)
        for pair, one, other in zip(pairs, declared, said, strict=True)
        if one is not None and other is not None and one > 0 and other >= 0
    ]
    size = -(-len(both) // _CHUNKS) or 1
    near, far = 0, []
    for begin in range(0, len(both), size):
        chunk = both[begin : begin + size]
        its, others = sum(each[1] for each in chunk), sum(each[2] for each in chunk)
        steps = sum(each[0].steps for each in chunk)
        if not others:
            continue
        if abs(its - others) <= _AGREES * others + grain:
            near += 1
        elif its > (1 + tolerance) * others + grain or others > (1 + tolerance) * its + grain:
            far.append((chunk[0][0].row, its / steps, others / steps))
    if near >= len(far) and near:
        if sum(other for *_, other in both) < _FINE * grain:
            return None
        return True, both[0][0].row, 0.0, 0.0
    if len(far) <= near or len(both) < 2:  # noqa: PLR2004 - three records
        return None
    return False, *far[len(far) // 2]


# -------------------------------------------------------------------- what else the lines say


@final
class _Lines(NamedTuple):
    """The lines of a log around some records, and what their numbers can be of."""

    path: Path | str
    pairs: Sequence[_Pair]
    between: Sequence[bytes]
    log_format: LogFormat
    case: Case
    knows_batch: bool

    def witnesses(self) -> Iterator[tuple[str, Sequence[float | None], float, float]]:
        """Give what says how long the steps took: its name, seconds, grain and tolerance."""
        pairs, log_format = self.pairs, self.log_format
        is_sampled = log_format.covers is Covers.LAST_STEP and any(p.steps > 1 for p in pairs)
        tolerance = _PRINTED_TOLERANCE if is_sampled else _AGREES
        if log_format.timing.kind is not TimeKind.MOMENT:
            stamps = {row.offset: _stamp_on(row.line) for pair in pairs for row in pair}
            texts = [(stamps[each.before.offset], stamps[each.row.offset]) for each in pairs]
            said = [_passed_between(*each) for each in texts]
            decimals = max((parse(each).decimals for each in stamps.values() if each), default=0)
            yield "the time stamps", said, 10.0**-decimals, tolerance
            yield "when the lines came", _arrived(self.path, pairs), _ARRIVAL_GRAIN_S, tolerance
        numbers: dict[str, dict[int, float]] = defaultdict(dict)
        for pair in pairs[:: -(-len(pairs) // _READ_FOR_NUMBERS) or 1]:
            for name, seconds in self._numbers_on(pair, pair.row.line):
                numbers[name].setdefault(pair.row.offset, seconds)
        for name, of_rows in numbers.items():
            yield name, [of_rows.get(each.row.offset) for each in pairs], 0.0, _PRINTED_TOLERANCE
        paces: dict[str, list[float]] = defaultdict(list)
        for line in self.between if pairs else ():
            one_step = _Pair(pairs[0].before._replace(step=0), pairs[0].row._replace(step=1))
            for name, seconds in self._numbers_on(one_step, line):
                if name not in numbers and _STEP_RATE.search(name.encode()):
                    paces[name].append(seconds)
        for name, values in paces.items():
            pace = statistics.median(values)
            yield name, [pace * each.steps for each in pairs], 0.0, _PRINTED_TOLERANCE

    def _numbers_on(self, pair: _Pair, line: bytes) -> Iterator[tuple[str, float]]:
        """Find other times and rates on a line, as seconds of the steps of a pair."""
        words, own = vocabulary(), _digits(pair.row.text)
        known = {
            span[0]: number for each in trainers_in(line) for span, number in each.numbers_on(line)
        }
        for found in _NUMBER.finditer(line):
            before = line[max(found.start() - _NAME_REACH, 0) : found.start()]
            behind = line[found.end() : found.end() + _NAME_REACH]
            unit, name = words.unit(before, behind), words.last_name(before)
            groups = unit.unit.groups if unit is not None else name.groups if name else ()
            if (number := known.get(found.start())) is not None:
                groups = number.groups if number.covers is not Covers.SINCE_START else ()
            called = _called(before)
            is_of_step = groups[:1] and (
                groups[0].kind is TimeKind.RATE
                or groups[0] is Timing.SECONDS_PER_STEP
                or _OF_STEP.search(before) is not None
            )
            is_another = words.is_part(called) or words.is_mean(called)
            if not is_of_step or is_another or _digits(found[0]) == own:
                continue
            text = unit.text if unit is not None and unit.where == "behind" else ""
            with suppress(BrokenContractError):
                value = amount(found[0], what="a number", offset=0)
                part = words.part(before, behind)
                seconds = self._seconds(value, groups[0], part[1] if part else None, pair)
                if seconds is not None:
                    yield f"{called} {text}".strip() or "a number", seconds

    def _seconds(
        self, value: float, group: Timing, scope: RateScope | None, pair: _Pair
    ) -> float | None:
        """Compute how long the steps of a pair took by a printed time or rate."""
        case = self.case
        if group is Timing.STEPS_PER_SECOND:
            return pair.steps / value
        if group in (Timing.SECONDS, Timing.SECONDS_PER_STEP, Timing.MILLISECONDS):
            return pair.steps * (value / 1000 if group is Timing.MILLISECONDS else value)
        work = case.global_batch * pair.steps
        if group is Timing.TOKENS_PER_SECOND:
            work *= case.sequence_length or 0
        if group.kind is not TimeKind.RATE or not (work and self.knows_batch):
            return None
        # Where nothing says of how many devices a rate is, the scope that fits best is meant.
        declared = _declared(pair, self.log_format, case) or 0.0
        scopes = RateScope if scope is None else (scope,)
        each = [work / (value * case.rates_per_run(scope)) for scope in scopes]
        return min(each, key=lambda seconds: abs(seconds - declared))


def _stamp_on(line: bytes) -> bytes | None:
    found = _STAMP.search(line[:_STAMPED])
    return None if found is None else found[0].replace(b"_", b" ")


def _passed_between(before: bytes | None, after: bytes | None) -> float | None:
    with suppress(BrokenContractError):
        if before is not None and after is not None:
            return _passed(before, after)
    return None


def _arrived(path: Path | str, pairs: Sequence[_Pair]) -> Sequence[float | None]:
    """Give what passed between lines by when they came; nothing of output in large blocks."""
    arrivals = Arrivals(path)
    arrivals.refresh()
    times = {row.offset: arrivals.at(row.offset) for pair in pairs for row in pair}
    if 2 * len({*times.values()}) < len(times):
        return [None] * len(pairs)
    moments = [(times[each.before.offset], times[each.row.offset]) for each in pairs]
    return [None if a is None or b is None else (b - a) / NANOSECONDS for a, b in moments]


def _called(before: bytes) -> str:
    """Return what stands in front of a number as its name."""
    text = re.split(rb"[,;|{}\[\]()\t0-9]|  ", before)[-1]
    return text.decode(errors="replace").strip(" :=\"'")


def _digits(text: bytes) -> bytes:
    return b"".join(_DIGITS.findall(text)).lstrip(b"0")


# ------------------------------------------------------------------- what the number itself shows


def _own_problems(
    rows: Sequence[_Row], log_format: LogFormat, case: Case
) -> Iterator[tuple[str, int]]:
    """Find what is wrong with the number itself: its unit, its text, or what it is a mean of."""
    for problem in problems_of_group(log_format, rows[0].line) if rows else ():
        yield problem, rows[0].offset
    group = log_format.timing.value
    taken: Counter[str] = Counter()
    for row in rows[:_LOOKED_AT]:
        of_known = [
            f"{group} is {number.meaning_in_words} of {trainer.name}; take {number.remedy}"
            for trainer in trainers_in(row.line)
            for span, number in trainer.numbers_on(row.line)
            if _digits(row.line[slice(*span)]) == _digits(row.text)
            and not number.is_read_rightly(log_format, case)
        ]
        taken.update({*of_known})
    for problem, count in taken.items():
        if count == len(rows[:_LOOKED_AT]):  # else the text of another number is the same
            yield problem, rows[0].offset
    is_mean = log_format.covers is Covers.SINCE_START
    if is_mean or log_format.timing.kind is TimeKind.MOMENT or log_format.ranks is not Ranks.ONE:
        return
    series: Mapping[int, tuple[float, bytes]] = {}
    with suppress(BrokenContractError):
        series = {
            row.step: (step_seconds(log_format, row.text, row.offset, case), row.text)
            for row in rows
            if row.epoch == rows[0].epoch
        }
    steps, printed = [*series], [*series.values()]
    usual = step_behind_mean(steps, [each[0] for each in printed], [each[1] for each in printed])
    if usual is not None:
        mean = statistics.mean([each[0] for each in printed])
        told = (
            f"{group} moves as a mean of all steps so far does: it says "
            f"{mean:.4g} s a step, and from line to line a step adds {usual:.4g} s; write "
            "'covers: since_start', or take a time stamp"
        )
        yield told, rows[0].offset
