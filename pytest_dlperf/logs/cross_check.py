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

from pytest_dlperf.formats.keyed import Keyed
from pytest_dlperf.formats.log_format import LogFormat, Ranks, step_seconds
from pytest_dlperf.formats.meanings import is_known, trainers_in, vocabulary
from pytest_dlperf.formats.printed import BrokenContractError, amount
from pytest_dlperf.logs.arrivals import Arrivals
from pytest_dlperf.logs.clock import NANOSECONDS, parse
from pytest_dlperf.logs.lines import LogFile, blocks, line_number
from pytest_dlperf.logs.mean_since_start import step_behind_mean
from pytest_dlperf.logs.records import LONGEST_STEP, RecordFinder
from pytest_dlperf.model import statistics
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.work import Covers, RateScope, TimeKind, Timing

MAX_BYTES: Final = 16 * 1024 * 1024
MAX_ROWS: Final = 400
_MAX_PACES: Final = 64
_LOOKED_AT: Final = 5
"""Lines whose number is held against known trainers."""
_LONGEST_LINE: Final = 8192
_CHUNKS: Final = 8
"""Stretches that are compared one by one, so that a pause in one of them says nothing."""
_AGREES: Final = 0.10
_PRINTED_TOLERANCE: Final = 0.5
"""Printed numbers may leave out data or be smoothed; stamps and arrivals hold to ``_AGREES``."""
_ARRIVAL_GRAIN_S: Final = 0.05
_FINE: Final = 10
"""Stamps say something of a stretch of at least so many of their units."""
_REACH: Final = 60
"""Bytes around a number that say what it is."""
_STAMP: Final = re.compile(
    rb"(?<![0-9])(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}[ T_]+)?"
    rb"[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?![0-9<:])"
)
_STAMPED: Final = 120
_NUMBER: Final = re.compile(rb"(?<![\w.:,-])[0-9](?:[0-9.,]*[0-9])?(?: ?[kKMG](?![A-Za-z/]))?")
_OF_STEP: Final = re.compile(rb"(?:step|iter|batch)[^,;|]*$", re.IGNORECASE)
_PACE: Final = re.compile(
    rb"(?:\b|_)(?:it(?:er(?:ation)?)?s?|steps?|batch(?:es)?)(?:/|_per_| per )s|"
    rb"s(?:ec(?:ond)?s?)?(?:/|_per_| per )(?:it|step|batch)",
    re.IGNORECASE,
)
_GOES_BEFORE: Final = re.compile(rb"[0-9]+\.?$")
_GOES_ON: Final = re.compile(
    rb"[0-9]+|[.:][0-9]+|[eE][-+]?[0-9]+|,[0-9]{3}(?![0-9])| ?[kKMG](?![A-Za-z/])"
)


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


_Pairs: TypeAlias = "Sequence[tuple[_Row, _Row]]"
"""Records that follow each other."""
_Seconds: TypeAlias = "Sequence[float | None]"
"""What passed between the two records of each pair."""


class _Witness(NamedTuple):
    """What else says how long the steps took, in units of ``grain`` seconds."""

    name: str
    seconds: _Seconds
    tolerance: float
    grain: float = 0.0


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
            problems = *problems_of_group(log_format, rows[0].line), *_own(rows, log_format, case)
            contradictions += (f"{problem} (line {line})" for problem in problems)
        declared = [_declared(*pair, log_format, case) for pair in pairs]
        witnesses = [*_of_numbers(pairs, declared, case, knows_batch=knows_batch)]
        witnesses += _of_paces(pairs, paces, {witness.name for witness in witnesses})
        if log_format.timing.kind is not TimeKind.MOMENT:
            witnesses = [*_of_moments(path, pairs, log_format), *witnesses]
        for witness in witnesses:
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
                found = (line for *_, line in block.lines_with() if _PACE.search(line))
                paces = [*islice(found, _MAX_PACES)]
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
    pairs: _Pairs, declared: _Seconds, witness: _Witness
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


def _of_moments(path: Path | str, pairs: _Pairs, log_format: LogFormat) -> Iterator[_Witness]:
    """Give when the lines were stamped, and when they came."""
    is_sampled = log_format.covers is Covers.LAST_STEP and any(
        row.step > before.step + 1 for before, row in pairs
    )
    tolerance = _PRINTED_TOLERANCE if is_sampled else _AGREES
    stamps = {}
    for row in (row for pair in pairs for row in pair):
        found = _STAMP.search(row.line[:_STAMPED])
        stamps[row.offset] = None if found is None else found[0].replace(b"_", b" ")
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


def _of_numbers(
    pairs: _Pairs, declared: _Seconds, case: Case, *, knows_batch: bool
) -> Iterator[_Witness]:
    """Give the other times and rates on the lines of the steps."""
    found: dict[str, list[float | None]] = defaultdict(lambda: [None] * len(pairs))
    for at, (before, row) in enumerate(pairs):
        steps = row.step - before.step
        for name, group, value, scope in _numbers_on(row):
            if group is Timing.STEPS_PER_SECOND:
                each = [steps / value]
            elif group.kind is not TimeKind.RATE:
                each = [steps * (value / 1000 if group is Timing.MILLISECONDS else value)]
            else:
                work = case.global_batch * steps * knows_batch
                if group is Timing.TOKENS_PER_SECOND:
                    work *= case.sequence_length or 0
                scopes = RateScope if scope is None else (scope,)
                each = [work / (value * case.rates_per_run(one)) for one in scopes if work]
            if each and found[name][at] is None:
                # Where nothing says of how many devices a rate is, the scope that fits is meant.
                its = declared[at] or 0.0
                found[name][at] = min(each, key=lambda seconds: abs(seconds - its))
    for name, said in found.items():
        yield _Witness(name, said, _PRINTED_TOLERANCE)


def _of_paces(pairs: _Pairs, paces: Sequence[bytes], named: set[str]) -> Iterator[_Witness]:
    """Give the paces on other lines than those of the steps, but for the names that these have."""
    found: dict[str, list[float]] = defaultdict(list)
    for line in paces if pairs else ():
        for name, group, value, _ in _numbers_on(pairs[0][1]._replace(line=line)):
            if name not in named and _PACE.search(name.encode()):
                found[name].append(1 / value if group is Timing.STEPS_PER_SECOND else value)
    for name, values in found.items():
        said = [statistics.median(values) * (row.step - before.step) for before, row in pairs]
        yield _Witness(name, said, _PRINTED_TOLERANCE)


def _numbers_on(row: _Row) -> Iterator[tuple[str, Timing, float, RateScope | None]]:
    """Find other times and rates of whole steps on a line: name, group, value and scope."""
    words, own, line = vocabulary(), _digits(row.text), row.line
    known = {
        span[0]: number for each in trainers_in(line) for span, number in each.numbers_on(line)
    }
    for found in _NUMBER.finditer(line):
        before = line[max(found.start() - _REACH, 0) : found.start()]
        behind = line[found.end() : found.end() + _REACH]
        unit, name = words.unit(before, behind), words.last_name(before)
        groups = unit.unit.groups if unit is not None else name.groups if name else ()
        if (number := known.get(found.start())) is not None:
            groups = number.groups if number.covers is not Covers.SINCE_START else ()
        is_of_step = groups[:1] and (
            groups[0].kind is TimeKind.RATE
            or groups[0] is Timing.SECONDS_PER_STEP
            or (groups[0].kind is TimeKind.DURATION and _OF_STEP.search(before) is not None)
        )
        # What stands in front of it is its name.
        called = re.split(rb"[,;|{}\[\]()\t0-9]|  ", before)[-1]
        called = called.decode(errors="replace").strip(" :=\"'")
        is_another = words.is_part(called) or words.is_mean(called)
        if not is_of_step or is_another or _digits(found[0]) == own:
            continue
        text = unit.text if unit is not None and unit.where == "behind" else ""
        part = words.part(before, behind)
        with suppress(BrokenContractError):
            value = amount(found[0], what="a number", offset=0)
            name_of = f"{called} {text}".strip() or "a number"
            yield name_of, groups[0], value, part[1] if part else None


def _digits(text: bytes) -> bytes:
    return bytes(byte for byte in text if byte in b"0123456789").lstrip(b"0")


# ------------------------------------------------------------------- what the number itself shows


def _own(rows: Sequence[_Row], log_format: LogFormat, case: Case) -> Iterator[str]:
    """Find what is wrong with the number itself: another number is meant, or it is a mean."""
    group = log_format.timing.value
    taken = [
        {
            f"{group} is {number.meaning} of {trainer.name}; take {number.instead}"
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


def problems_of_group(log_format: LogFormat, line: bytes) -> Iterator[str]:
    """Say what is wrong with the time that the first record of a line has.

    That is its unit or scope, by what stands around it, or that the group takes a part of it only.
    """
    record, timing, words = log_format.record, log_format.timing, vocabulary()
    before = behind = text = b""
    begin = 0
    if isinstance(record, Keyed):
        before = record.keys[timing.value].encode() if timing.value in record.keys else b""
    elif match := next(iter(record.finditer(line)), None):
        begin, end = match.span(timing.value)
        text = line[begin:end]
        before, behind = line[max(begin - _REACH, 0) : begin], line[end : end + _REACH]
        front, rest = _GOES_BEFORE.search(before), _GOES_ON.match(behind)
        if rest is not None and rest[0][:1] == b"," and match.end() > end:
            rest = None  # the next column of a list
        if text[:1].isdigit() and (front or rest) and timing is not Timing.TIMESTAMP:
            whole = (front[0] if front else b"") + text + (rest[0] if rest else b"")
            yield (
                f"the group {timing.value} takes a part of "
                f"{whole.decode(errors='replace')[:40]!r} only; let it take all of it, as in "
                "[0-9.,:kM]+"
            )
            return
    if is_known(line, begin, log_format):
        return  # few print another unit than they mean
    found, part, case = words.unit(before, behind), words.part(before, behind), log_format.case
    if timing.kind is not TimeKind.MOMENT and (wait := words.wait(before)) is not None:
        yield f"the group {timing.value} takes {wait!r}, which is not the time of a whole step"
    elif found is not None and timing not in found.unit.groups:
        alike = [each for each in found.unit.groups if each.kind is timing.kind]
        named = [each.value for each in alike or found.unit.groups]
        remedy = f"name the group {' or '.join(named)}" if named else found.unit.instead
        yield f"the group {timing.value} has {found.text!r} {found.where} it; {remedy}"
    if timing.kind is TimeKind.RATE and part is not None and case is not None:
        name, printed = part
        if case.rates_per_run(log_format.rate_scope) != case.rates_per_run(printed):
            yield (
                f"the speed is printed per {name}, and the format takes it for that of scope "
                f"{log_format.rate_scope.value}; write 'rate_scope: {printed.value}'"
            )
