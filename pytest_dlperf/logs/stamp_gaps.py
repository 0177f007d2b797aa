"""Suspects a gap between two time stamps that is many times as long as the others.

The clock may have been set (summer time begins, a node finds its time server), a run may have been
resumed at the next step, or have paused; or one of the stamps is damaged. An example, of which 100
steps are measured that take 0.25 s each::

    2026-03-29 01:59:59,841 step 57 tps: 4,096
    2026-03-29 03:00:00,091 step 58 tps: 4,094

The printed speed says that an hour has not passed: no number is taken of such a log. Where nothing
contradicts the stamps, the number has a note.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from itertools import pairwise
from operator import sub
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_dlperf.formats.contract import BrokenContractError, shown
from pytest_dlperf.formats.meanings import trainers_in, vocabulary
from pytest_dlperf.formats.printed import amount
from pytest_dlperf.logs.clock import NANOSECONDS, Clock, parse
from pytest_dlperf.model import statistics
from pytest_dlperf.model.work import Covers, TimeKind, Timing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.logs.evidence import Evidence
    from pytest_dlperf.logs.track_times import Series

_MIN_GAP_RATIO: Final = 5.0
"""How many times as long as others a gap is that stands out; of four steps and more, ``_TWICE``."""
_TWICE: Final = 2.0
_NOTEWORTHY: Final = 0.03
"""The part of the window that it takes more than others do, to be told."""
_MOST: Final = 0.5
"""The part of it from which on any speed on the line may contradict it, whoever prints that: one of
an unknown trainer may well leave out a checkpoint, but none makes up most of the window."""
_FEW: Final = 2
_ONE_IN: Final = 50
"""So many gaps stand out at most; more of about one length belong to how the training goes."""
_AGREED: Final = 2
"""How many times as long as printed it may take: a record can be of the step before."""
_COMPARABLE: Final = 3
"""So few gaps do not tell which is a usual one: those outside the window are asked as well."""
_ALONE: Final = (
    "only 2 stamps count, and none beside them: a pause or a clock that was set would not be seen"
)
_SUSPECTS: Final = 8
_NUMBER: Final = re.compile(rb"(?<![\w.:,-])[0-9](?:[0-9.,]*[0-9])?(?: ?[kKMG](?![A-Za-z/]))?")
_REACH: Final = 60
_NAME: Final = 24
"""Characters in front of a number that may say that it is none of a whole step."""
_COMPARED: Final = 16
"""Lines, all over the window, whose printed speeds tell the usual one."""


class _Gap(NamedTuple):
    """What passes from a record to the next."""

    at: int
    """The index of the record before."""
    steps: int
    nanoseconds: int

    def excess(self, pace: float) -> float:
        return self.nanoseconds - pace * self.steps

    def stands_out(self, pace: float, grain: float) -> bool:
        """Say whether it does, by what a step usually takes and how fine stamps are."""
        usual = pace * max(self.steps / (_MIN_GAP_RATIO - 1), 1)
        return (
            self.nanoseconds > _MIN_GAP_RATIO * grain
            and self.excess(pace) > (_MIN_GAP_RATIO - 1) * usual
        )


def check_stamps(evidence: Evidence) -> str | None:
    """Look at the gaps of each rank; return a note of one that stands out.

    Raises:
        BrokenContractError: Something else in the log contradicts it.
    """
    timing = evidence.log_format.timing
    if timing.kind is not TimeKind.MOMENT or timing is Timing.ARRIVAL:
        return None
    notes = (_check_rank(evidence, series) for series in evidence.series.values())
    return next(filter(None, [*notes]), None)


def _check_rank(evidence: Evidence, series: Series) -> str | None:
    steps, texts, _, moments = series.columns
    passed = sorted(map(sub, moments[1:], moments))
    times = _MIN_GAP_RATIO if steps[:2] == (steps[0], steps[0] + 1) else _TWICE
    is_even = bool(passed) and passed[-1] <= times * passed[len(passed) // 2]
    if len(passed) > _COMPARABLE and is_even:
        return None  # as in nearly all logs
    gaps = list(_gaps_of(series))
    beside = _gaps_outside(evidence, series) if len(gaps) <= _COMPARABLE else []
    if len(gaps) + len(beside) < 2:  # noqa: PLR2004 - nothing to compare it with
        return _ALONE if gaps else None
    whole = sum(each.nanoseconds for each in gaps)
    paces = sorted(each.nanoseconds / each.steps for each in (*gaps, *beside))
    pace = paces[(len(paces) - 1) // 2]
    stamps = (parse(texts[at]) for at in (0, -1))
    grain = NANOSECONDS / 10 ** max(each.decimals for each in stamps)
    if pace <= grain:
        usual = sorted((*gaps, *beside), key=lambda each: each.nanoseconds)[:-1]
        pace = sum(each.nanoseconds for each in usual) / sum(each.steps for each in usual)
        pace = max(pace, grain / len(steps))
    least = _NOTEWORTHY * whole / min(len(gaps), _SUSPECTS)
    wide = [each for each in gaps if each.excess(pace) > least and each.stands_out(pace, grain)]
    wide.sort(key=lambda each: -each.nanoseconds)
    excess = sum(each.excess(pace) for each in wide)
    if excess <= _NOTEWORTHY * whole:
        return None
    places = {each.at for each in wide}
    lines = _usual_lines(evidence, series, places)
    for each in wide:
        is_most = each.excess(pace) > _MOST * whole
        evidence.paused = evidence.paused or is_most
        _check_stamps(evidence, series, each, places, _MIN_GAP_RATIO * pace)
        _check_speed(evidence, series, each, lines, pace, by_units=is_most)
    few = max(_FEW, len(steps) // _ONE_IN)
    if len(wide) > few and wide[0].nanoseconds <= _TWICE * wide[few].nanoseconds:
        return None
    after = wide[0].at + 1
    more = f", and {len(wide) - 1} more like it" if len(wide) > 1 else ""
    without = evidence.throughput * whole / (whole - excess)
    return (
        f"{wide[0].nanoseconds / NANOSECONDS:.4g} s pass from the stamp of step "
        f"{steps[after - 1]} to that of step {steps[after]}{more}, where "
        f"{pace * wide[0].steps / NANOSECONDS:.3g} s are usual: the training paused or was "
        f"resumed, or the clock was set; else it would be {without:.6g} {evidence.unit}"
    )


def _gaps_of(series: Series) -> Iterator[_Gap]:
    """Measure from stamp to stamp within epochs."""
    steps, _, _, moments = series.columns
    turns = {*series.turns}
    for at, (one, other) in enumerate(pairwise(moments)):
        if at + 1 not in turns:
            yield _Gap(at, steps[at + 1] - steps[at], int(other - one))


def _gaps_outside(evidence: Evidence, series: Series) -> list[_Gap]:
    """Measure some gaps beside the window, of whatever they may tell."""
    steps, texts, _, _ = series.columns
    found = []
    for later in (False, True):
        step, text = (steps[-1], texts[-1]) if later else (steps[0], texts[0])
        for its_step, record in evidence.outside(series, later=later)[:_SUSPECTS]:
            order = (text, record.time) if later else (record.time, text)
            if its_step != step and (passed := _passed(*order)) >= 0:
                found.append(_Gap(-1, abs(its_step - step), passed))
            step, text = its_step, record.time
    return found


def _check_stamps(
    evidence: Evidence, series: Series, gap: _Gap, places: set[int], most: float
) -> None:
    """Refuse a stamp at one of the ends of a gap that is damaged.

    The stamps on both of its sides are near each other then; beyond an end of the window that is
    one outside. Where the gap on its other side is a usual one, so that it is none of ``places``, a
    stamp is sound. ``most`` nanoseconds may pass in a step.
    """
    steps, texts, _, _ = series.columns
    for at, inside in ((gap.at, gap.at + 1), (gap.at + 1, gap.at)):
        beyond = 2 * at - inside
        if 0 <= beyond < len(texts):
            found = (gap.steps, texts[beyond]) if min(at, beyond) in places else None
        else:
            near = evidence.outside(series, later=at > inside)
            found = (abs(near[0][0] - steps[at]), near[0][1].time) if near else None
        if found is None:
            if not 0 <= beyond < len(texts) and _decimals(texts[at]) != _decimals(texts[inside]):
                raise BrokenContractError(
                    f"the stamp {shown(texts[at])} is {gap.nanoseconds / NANOSECONDS:.4g} s from "
                    f"the one beside it, {shown(texts[inside])}, and unlike it: it is damaged",
                    offset=series.columns[2][at],
                )
            continue
        away, text = found
        order = [texts[inside], texts[at], text][:: 1 if at > inside else -1]
        is_near = 0 <= _passed(order[0], order[2]) <= most * (away + gap.steps)
        beside = order[1:] if at > inside else order[:2]
        if is_near and not 0 <= _passed(*beside) <= most * away:
            raise BrokenContractError(
                f"the stamp {shown(texts[at])} stands between {shown(order[0])} and "
                f"{shown(order[2])}, and {gap.nanoseconds / NANOSECONDS:.4g} s from one of them: "
                "it is damaged",
                offset=series.columns[2][at],
            )


def _usual_lines(evidence: Evidence, series: Series, places: set[int]) -> list[bytes]:
    """Read some lines, none of them behind a gap at one of ``places``; of few, others as well."""
    usual = [at for at in range(1, len(series)) if at - 1 not in places]
    offsets = series.columns[2]
    lines = [evidence.line(offsets[at]) for at in usual[:: -(-len(usual) // _COMPARED) or 1]]
    if len(lines) >= _COMPARABLE:
        return lines
    outside = [*evidence.outside(series, later=True), *evidence.outside(series, later=False)]
    return [*lines, *(evidence.line(each.offset) for _, each in outside[:_COMPARED])]


def _check_speed(  # noqa: PLR0913 - a gap and what it is compared with
    evidence: Evidence,
    series: Series,
    gap: _Gap,
    usual: Sequence[bytes],
    pace: float,
    *,
    by_units: bool,
) -> None:
    """Refuse a gap of which its line prints a time that is near the median of ``usual`` lines."""
    at = gap.at + 1
    steps, _, offsets, _ = series.columns
    line = evidence.line(offsets[at])
    is_long = gap.steps > 1
    ratios = [_printed_ratio(line, each, is_long=is_long) for each in usual]
    found = [each for each in ratios if each is not None]
    if not found and by_units:
        ratios = [_ratio_by_units(line, each, is_long=is_long) for each in usual]
        found = [each for each in ratios if each is not None]
    printed = statistics.median(found) if found else math.inf
    times = gap.nanoseconds / gap.steps / pace
    if _AGREED * printed < times:
        raise BrokenContractError(
            f"{gap.nanoseconds / NANOSECONDS:.4g} s pass from the stamp of step "
            f"{steps[at - 1]} to that of step {steps[at]}, {times:.3g} "
            f"times the usual, and by the time or speed on the same line {printed:.3g} times: the "
            "clock was set, or the training paused; measure it again",
            offset=offsets[at],
        )


def _printed_ratio(line: bytes, usual: bytes, *, is_long: bool) -> float | None:
    """Divide the time of a step by that of a usual one, by other numbers of their lines."""
    for trainer in trainers_in(line):
        others = {id(number): span for span, number in trainer.numbers_on(usual)}
        for span, number in trainer.numbers_on(line):
            kinds = {group.kind for group in number.groups}
            if number.covers is Covers.SINCE_START or id(number) not in others:
                continue
            texts = line[slice(*span)], usual[slice(*others[id(number)])]
            if (ratio := _ratio(*texts, kinds, is_long=is_long)) is not None:
                return ratio
    return None


def _ratio_by_units(line: bytes, usual: bytes, *, is_long: bool) -> float | None:
    """Do the same by the first number of which the unit tells that it is one of steps."""
    of_lines = [list(_with_units(each)) for each in (line, usual)]
    for (text, kinds), (other, its_kinds) in zip(*of_lines, strict=False):
        if kinds == its_kinds and (ratio := _ratio(text, other, kinds, is_long=is_long)):
            return ratio
    return None


def _with_units(line: bytes) -> Iterator[tuple[bytes, set[TimeKind]]]:
    """Find the speeds and times of steps on a line, by units that are of nothing else."""
    words = vocabulary()
    for found in _NUMBER.finditer(line):
        before = line[max(found.start() - _REACH, 0) : found.start()]
        unit = words.unit(before, line[found.end() : found.end() + _REACH])
        kinds = {group.kind for group in unit.unit.groups} if unit is not None else set()
        name = before[-_NAME:].decode(errors="replace")
        if len(kinds) == 1 and not (words.is_part(name) or words.is_mean(name)):
            yield found[0], kinds


def _ratio(one: bytes, other: bytes, kinds: set[TimeKind], *, is_long: bool) -> float | None:
    """Divide two printed times; behind several steps only a mean of all tells, as speeds are."""
    with suppress(BrokenContractError):
        value, usual = (amount(each, what="", offset=0) for each in (one, other))
        if kinds == {TimeKind.RATE}:
            return usual / value
        if kinds == {TimeKind.DURATION} and not is_long:
            return value / usual
    return None


def _decimals(text: bytes) -> int:
    return len(text.partition(b".")[2])


def _passed(before: bytes, after: bytes) -> int:
    """Compute the nanoseconds between two stamps; negative where there are none."""
    clock = Clock()
    try:
        clock.read(before)
        clock.read(after)
    except BrokenContractError:
        return -1
    return clock.nanoseconds
