"""Hold the time that a format takes of a log against all else that the same lines say of it.

This is for the moment at which a number is declared or recorded: a micro-batch's time, a wrong
unit or a mean since the start is a constant factor, which no later comparison shows. Judged runs
are not checked again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from pytest_dlperf.formats.log_format import LogFormat, Ranks, step_seconds
from pytest_dlperf.formats.meanings import trainers_in, vocabulary
from pytest_dlperf.formats.printed import BrokenContractError, amount
from pytest_dlperf.logs.arrivals import Arrivals
from pytest_dlperf.logs.clock import NANOSECONDS, parse
from pytest_dlperf.logs.lines import LogFile, blocks, line_number
from pytest_dlperf.logs.mean_since_start import step_behind_mean
from pytest_dlperf.logs.records import LONGEST_STEP, RecordFinder
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

_Seconds: TypeAlias = "Sequence[float | None]"
"""What passed between each two records."""


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


class _Witness(NamedTuple):
    """What else says how long the steps took, in units of ``grain`` seconds."""

    name: str
    seconds: _Seconds
    tolerance: float
    grain: float = 0.0


class _Lines(NamedTuple):
    """Lines of a log that follow each other, and what a step of it is."""

    pairs: Sequence[tuple[_Row, _Row]]
    paces: Sequence[bytes]
    """Lines that print a pace of steps, wherever they stand."""
    log_format: LogFormat
    case: Case
    knows_batch: bool


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
    agreements, contradictions = list[str](), list[str]()
    if log_format.timing is Timing.ARRIVAL:
        return CrossCheck()
    with suppress(OSError, BrokenContractError), LogFile(path) as file:
        rows, paces = _rows_of(file, log_format)
        pairs = [
            (one, other)
            for one, other in pairwise(rows)
            if one.step < other.step and one.epoch == other.epoch
        ]
        if rows:
            line = line_number(file, rows[0].offset)
            problems = _own_problems(rows, log_format, case)
            contradictions += (f"{problem} (line {line})" for problem in problems)
        lines = _Lines(pairs, paces, log_format, case, knows_batch)
        declared = [_declared(*pair, log_format, case) for pair in pairs]
        for witness in (*_of_moments(path, lines), *_of_numbers(lines, declared)):
            found = _compared(pairs, declared, witness)
            if found is True:
                agreements.append(f"agrees with {witness.name}")
            elif found:
                row, its, others = found
                contradictions.append(
                    f"contradicts {witness.name}: {its:.4g} s a step by "
                    f"{log_format.timing.value}, {others:.4g} s by {witness.name} "
                    f"(line {line_number(file, row.offset)})"
                )
    return CrossCheck(tuple(dict.fromkeys(agreements)), tuple(dict.fromkeys(contradictions)))


def _rows_of(file: LogFile, log_format: LogFormat) -> tuple[list[_Row], list[bytes]]:
    """Take the records of one process, and the lines that print a pace of steps."""
    finder, rows, paces = RecordFinder(log_format), dict[tuple[bytes, int], _Row](), list[bytes]()
    rank: bytes | None = None
    with suppress(BrokenContractError):
        for block in blocks(file):
            for record in finder.find(block):
                rank = record.rank if rank is None else rank
                if record.rank == rank and record.step[:LONGEST_STEP].isdigit():
                    step = int(record.step[:LONGEST_STEP])
                    *_, line = next(block.lines_with(begin=record.offset))
                    row = _Row(step, record.epoch, record.time, record.offset, line[:_LONGEST_LINE])
                    rows.setdefault((record.epoch, step), row)
                if len(rows) == MAX_ROWS:
                    break
            if rows and not paces:
                found = (line for *_, line in block.lines_with() if _STEP_RATE.search(line))
                paces = [*islice(found, _READ_FOR_NUMBERS)]
            if len(rows) == MAX_ROWS or block.offset > MAX_BYTES:
                break
    return [*rows.values()], paces


def _declared(before: _Row, row: _Row, log_format: LogFormat, case: Case) -> float | None:
    """Compute the seconds that passed from a record to the next by what the format takes."""
    with suppress(BrokenContractError):
        if log_format.timing.kind is TimeKind.MOMENT:
            return _passed(before.text, row.text)
        seconds = step_seconds(log_format, row.text, row.offset, case)
        if log_format.covers is Covers.SINCE_START:
            begun = step_seconds(log_format, before.text, before.offset, case)
            return row.step * seconds - before.step * begun
        steps = 1 if log_format.covers is Covers.TOTAL_SINCE_LAST else row.step - before.step
        return steps * seconds
    return None


def _passed(before: bytes | None, after: bytes | None) -> float | None:
    with suppress(BrokenContractError):
        if before is not None and after is not None:
            return (parse(after).nanoseconds - parse(before).nanoseconds) / NANOSECONDS
    return None


def _compared(
    pairs: Sequence[tuple[_Row, _Row]], declared: _Seconds, witness: _Witness
) -> bool | tuple[_Row, float, float]:
    """Compare stretch by stretch: say whether they agree, or clearly contradict each other.

    If they do, return a line, and the seconds of a step by either.
    """
    grain, tolerance = witness.grain, witness.tolerance
    both = [
        (row, row.step - before.step, one, other)
        for (before, row), one, other in zip(pairs, declared, witness.seconds, strict=True)
        if one is not None and other is not None and one > 0 and other >= 0
    ]
    size = -(-len(both) // _CHUNKS) or 1
    near, far = 0, []
    for begin in range(0, len(both), size):
        rows, counts, *sums = zip(*both[begin : begin + size], strict=True)
        steps, its, others = map(sum, (counts, *sums))
        if others and abs(its - others) <= _AGREES * others + grain:
            near += 1
        elif others and max(its, others) > (1 + tolerance) * min(its, others) + grain:
            far.append((rows[0], its / steps, others / steps))
    if near and near >= len(far):
        return sum(other for *_, other in both) >= _FINE * grain
    return far[len(far) // 2] if len(both) > 1 and len(far) > near else False


# -------------------------------------------------------------------- what else the lines say


def _of_moments(path: Path | str, lines: _Lines) -> Iterator[_Witness]:
    """Give when the lines were stamped, and when they came."""
    pairs, log_format = lines.pairs, lines.log_format
    if log_format.timing.kind is TimeKind.MOMENT:
        return
    is_sampled = log_format.covers is Covers.LAST_STEP and any(
        row.step > before.step + 1 for before, row in pairs
    )
    tolerance = _PRINTED_TOLERANCE if is_sampled else _AGREES
    stamps = {row.offset: _stamp_on(row.line) for pair in pairs for row in pair}
    said = [_passed(stamps[before.offset], stamps[row.offset]) for before, row in pairs]
    decimals = max((parse(each).decimals for each in stamps.values() if each), default=0)
    yield _Witness("the time stamps", said, tolerance, 10.0**-decimals)
    arrivals = Arrivals(path)
    arrivals.refresh()
    came = {offset: arrivals.at(offset) for offset in stamps}
    if 2 * len({*came.values()}) >= len(came):  # else the output came in large blocks
        moments = [(came[before.offset], came[row.offset]) for before, row in pairs]
        said = [None if a is None or b is None else (b - a) / NANOSECONDS for a, b in moments]
        yield _Witness("when the lines came", said, tolerance, _ARRIVAL_GRAIN_S)


def _stamp_on(line: bytes) -> bytes | None:
    found = _STAMP.search(line[:_STAMPED])
    return None if found is None else found[0].replace(b"_", b" ")


def _of_numbers(lines: _Lines, declared: _Seconds) -> Iterator[_Witness]:
    """Give the other times and rates on the lines of the steps, and the paces between them."""
    pairs = lines.pairs
    on_rows: dict[str, dict[int, float]] = defaultdict(dict)
    stride = -(-len(pairs) // _READ_FOR_NUMBERS) or 1
    for at, (before, row) in [*enumerate(pairs)][::stride]:
        steps = row.step - before.step
        for name, seconds in _numbers_on(row.line, row, steps, declared[at] or 0.0, lines):
            on_rows[name].setdefault(at, seconds)
    for name, of_rows in on_rows.items():
        yield _Witness(name, [of_rows.get(at) for at in range(len(pairs))], _PRINTED_TOLERANCE)
    paces: dict[str, list[float]] = defaultdict(list)
    for line in lines.paces if pairs else ():
        for name, seconds in _numbers_on(line, pairs[0][1], 1, 0.0, lines):
            if name not in on_rows and _STEP_RATE.search(name.encode()):
                paces[name].append(seconds)
    for name, values in paces.items():
        said = [statistics.median(values) * (row.step - before.step) for before, row in pairs]
        yield _Witness(name, said, _PRINTED_TOLERANCE)


def _numbers_on(
    line: bytes, row: _Row, steps: int, declared_s: float, lines: _Lines
) -> Iterator[tuple[str, float]]:
    """Find other times and rates on a line, as seconds of so many steps."""
    words, own = vocabulary(), _digits(row.text)
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
        is_of_step = groups[:1] and (
            groups[0].kind is TimeKind.RATE
            or groups[0] is Timing.SECONDS_PER_STEP
            or _OF_STEP.search(before) is not None
        )
        called = _called(before)
        is_another = words.is_part(called) or words.is_mean(called)
        if not is_of_step or is_another or _digits(found[0]) == own:
            continue
        text = unit.text if unit is not None and unit.where == "behind" else ""
        with suppress(BrokenContractError):
            value = amount(found[0], what="a number", offset=0)
            part = words.part(before, behind)
            each = _seconds_by(value, groups[0], part[1] if part else None, steps, lines)
            if each:
                # Where nothing says of how many devices a rate is, the scope that fits is meant.
                nearest = min(each, key=lambda seconds: abs(seconds - declared_s))
                yield f"{called} {text}".strip() or "a number", nearest


def _seconds_by(
    value: float, group: Timing, scope: RateScope | None, steps: int, lines: _Lines
) -> Sequence[float]:
    """Compute how long steps took by a printed time or rate; of several scopes, by each."""
    case = lines.case
    if group is Timing.STEPS_PER_SECOND:
        return [steps / value]
    if group in (Timing.SECONDS, Timing.SECONDS_PER_STEP, Timing.MILLISECONDS):
        return [steps * (value / 1000 if group is Timing.MILLISECONDS else value)]
    work = case.global_batch * steps
    if group is Timing.TOKENS_PER_SECOND:
        work *= case.sequence_length or 0
    if group.kind is not TimeKind.RATE or not (work and lines.knows_batch):
        return []
    scopes = RateScope if scope is None else (scope,)
    return [work / (value * case.rates_per_run(scope)) for scope in scopes]


def _called(before: bytes) -> str:
    """Return what stands in front of a number as its name."""
    text = re.split(rb"[,;|{}\[\]()\t0-9]|  ", before)[-1]
    return text.decode(errors="replace").strip(" :=\"'")


def _digits(text: bytes) -> bytes:
    return b"".join(_DIGITS.findall(text)).lstrip(b"0")


# ------------------------------------------------------------------- what the number itself shows


def _own_problems(rows: Sequence[_Row], log_format: LogFormat, case: Case) -> Iterator[str]:
    """Find what is wrong with the number itself: its unit, its text, or what it is a mean of."""
    yield from problems_of_group(log_format, rows[0].line)
    group = log_format.timing.value
    taken = [
        {
            f"{group} is {number.meaning or number.declared} of {trainer.name}; take "
            f"{number.instead or number.declared}"
            for trainer in trainers_in(row.line)
            for span, number in trainer.numbers_on(row.line)
            if _digits(row.line[slice(*span)]) == _digits(row.text)
            and not number.is_read_rightly(log_format, case)
        }
        for row in rows[:_LOOKED_AT]
    ]
    yield from set.intersection(*taken)  # on some lines the text of another number is the same
    is_mean = log_format.covers is Covers.SINCE_START
    if is_mean or log_format.timing.kind is TimeKind.MOMENT or log_format.ranks is not Ranks.ONE:
        return
    with suppress(BrokenContractError):
        first = [row for row in rows if row.epoch == rows[0].epoch]
        means = [step_seconds(log_format, row.text, row.offset, case) for row in first]
        usual = step_behind_mean([row.step for row in first], means, [row.text for row in first])
        if usual is not None:
            yield (
                f"{group} moves as a mean of all steps so far does: it says "
                f"{statistics.mean(means):.4g} s a step, and from line to line a step adds "
                f"{usual:.4g} s; write 'covers: since_start', or take a time stamp"
            )
