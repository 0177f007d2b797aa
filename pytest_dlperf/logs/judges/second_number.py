"""Suspects that the case is not that of the log, by a speed that a known trainer prints as well.

The format takes a time stamp or the seconds of a step, and so the batch of the case. An example: a
log of 32 samples of 8,192 tokens a step, filed under a case of 64, on eight devices::

    2026-03-29 10:00:00,341 step: 57  loss: 3.2  tps: 131,072  tflops: 52
    2026-03-29 10:00:00,591 step: 58  loss: 3.2  tps: 131,072  tflops: 52

A quarter of a second for 64 samples is twice the speed that each line prints.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from pytest_dlperf.formats.contract import BrokenContractError, shown
from pytest_dlperf.formats.meanings import trainers_in
from pytest_dlperf.formats.printed import samples_per_second
from pytest_dlperf.logs.clock import NANOSECONDS
from pytest_dlperf.logs.judges import Judge
from pytest_dlperf.logs.judges.stamp_gaps import gaps_of
from pytest_dlperf.logs.judges.witness import SAMPLED_TOLERANCE
from pytest_dlperf.model import statistics
from pytest_dlperf.model.work import Covers, RateScope, TimeKind, Timing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_dlperf.formats.meanings import Number
    from pytest_dlperf.logs.judges import Evidence
    from pytest_dlperf.logs.steps import Series
    from pytest_dlperf.model.case import Case

_COMPARED: Final = 16
"""Lines, all over the window, whose speeds are taken."""
_LEAST: Final = 3
"""Of fewer one may be that of a pause."""
_TOLERANCE: Final = 0.25
"""A case is another by more: 24 samples are a third more than 18, and 32 than 24."""


class SecondNumber(Judge):
    """Refuses a throughput that a known trainer's own speed on the same lines contradicts."""

    def decide(self, evidence: Evidence) -> None:
        """Compare the two, and the speed without pauses, rank by rank."""
        case = self.case
        is_rate = self.log_format.timing.kind is TimeKind.RATE
        if case.work is None or evidence.case_is_assumed or is_rate:
            return
        measured = evidence.throughput / case.tokens_per_sample(evidence.unit)
        for series in evidence.series.values():
            steps = [row[0] for row in series.rows[:2]]
            is_sampled = not series.passed and steps != [steps[0], steps[0] + 1]
            most = SAMPLED_TOLERANCE if is_sampled else _TOLERANCE
            for number, texts in _printed(evidence, series).items():
                said = _in_samples(number, texts, case) if len(texts) >= _LEAST else []
                if not said or any(_is_among(measured, each, most) for each in said):
                    continue  # as in nearly all logs
                usual = self._without_pauses(series)
                if not any(_is_among(usual, each, most) for each in said):
                    scope = number.rate_scopes[0].value if number.rate_scopes else "global"
                    raise BrokenContractError(
                        f"the log prints {shown(texts[0])}, {number.groups[0].value} of scope "
                        f"{scope}, and by that {said[0][0]:.6g} samples/s; by its times and "
                        f"the case {case.id} it is {measured:.6g}: the log is of another batch, "
                        "length or number of devices, or the record takes another time than that "
                        "of a step"
                    )

    def _without_pauses(self, series: Series) -> float:
        """Compute the samples per second of a usual step."""
        if self.log_format.timing.kind is TimeKind.MOMENT:
            paces = [each.nanoseconds / each.steps / NANOSECONDS for each in gaps_of(series)]
        else:
            paces = [*series.columns[3]]
        return self.case.global_batch / max(statistics.median(paces), 1e-9)


def _is_among(speed: float, printed: Sequence[float], part: float) -> bool:
    """Whether a speed is one of the printed ones or between: another case changes them all."""
    return min(printed) <= speed * (1 + part) and speed <= max(printed) * (1 + part)


def _printed(evidence: Evidence, series: Series) -> Mapping[Number, list[bytes]]:
    """Find the speeds on some lines that say how many samples of the case were trained."""
    rows = [row for row in series.rows if row[2] >= 0]  # of many stamps, few have a place
    found: dict[Number, list[bytes]] = {}
    for row in rows[1 :: -(-len(rows) // _COMPARED) or 1]:
        line = evidence.line(row[2])
        for trainer in trainers_in(line):
            for (begin, end), number in trainer.numbers_on(line):
                if _is_witness(number, evidence.case):
                    found.setdefault(number, []).append(line[begin:end])
        if not found:
            break  # few trainers print such
    return found


def _is_witness(number: Number, case: Case) -> bool:
    group = number.groups[0] if number.groups else None
    if group is None or group.kind is not TimeKind.RATE or number.covers is Covers.SINCE_START:
        return False
    has_length = case.sequence_length is not None and not number.any_length
    return group is not Timing.TOKENS_PER_SECOND or has_length


def _in_samples(number: Number, texts: Sequence[bytes], case: Case) -> list[list[float]]:
    """Take speeds in samples per second, by each scope that they may have."""
    with suppress(BrokenContractError):
        return [
            [
                samples_per_second(
                    number.groups[0], text, 0, case, scope=scope, steps_in=number.steps_in
                )
                for text in texts
            ]
            for scope in number.rate_scopes or (RateScope.GLOBAL,)
        ]
    return []
