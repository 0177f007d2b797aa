"""How long single steps took, where a log has a record of its own for each."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pytest_dlperf.formats.printed import samples_per_second, step_seconds
from pytest_dlperf.logs.clock import NANOSECONDS, WORTHLESS_ERROR, Clock, lags, parse
from pytest_dlperf.model import statistics
from pytest_dlperf.model.work import Covers, TimeKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.model.case import Case


class NoStepTimesError(Exception):
    """A log that does not say how long its single steps took; the text says why."""


class KeptStep(NamedTuple):
    """A step of the window, with what is printed of its time."""

    step: int
    text: bytes
    turned: bool
    """Whether an epoch begins with it, whose pause does not belong to a step."""


def slowest_text(log_format: LogFormat, case: Case, texts: Sequence[tuple[bytes, int]]) -> bytes:
    """Choose what the slowest of several ranks has printed of a step."""
    if len(texts) == 1:
        return texts[0][0]
    if log_format.timing.kind is TimeKind.MOMENT:
        return texts[lags(texts).index(0)][0]
    return max((text for text, _ in texts), key=lambda text: _seconds(log_format, case, text))


def step_times(log_format: LogFormat, case: Case, kept: Sequence[KeptStep]) -> dict[int, float]:
    """Compute the seconds of each step of one rank, from what is printed of their times.

    Raises:
        NoStepTimesError: Records stand for several steps, or the stamps are too coarse.
    """
    gaps = [after.step - before.step for before, after in pairwise(kept) if not after.turned]
    gap = max(gaps, default=1)
    if gap > 1:
        raise NoStepTimesError(
            f"the log prints every {gap} steps, and a mean over them is not a step's time; print "
            "each step"
        )
    if log_format.covers is Covers.SINCE_START:
        raise NoStepTimesError("the log prints means since the start, which are no step's times")
    if log_format.timing.kind is TimeKind.MOMENT:
        return _between_stamps(kept)
    return {step: _seconds(log_format, case, text) for step, text, turned in kept if not turned}


def _seconds(log_format: LogFormat, case: Case, text: bytes) -> float:
    if log_format.timing.kind is TimeKind.RATE:
        return case.global_batch / samples_per_second(log_format, text, 0, case)
    return step_seconds(log_format.timing, text, 0)


def _between_stamps(kept: Sequence[KeptStep]) -> dict[int, float]:
    clock = Clock()
    times = {}
    before = 0
    for number, (step, text, turned) in enumerate(kept):
        clock.read(text)
        if number and not turned:
            times[step] = (clock.nanoseconds - before) / NANOSECONDS
        before = clock.nanoseconds
    resolution = 10.0 ** -max((parse(each.text).decimals for each in kept), default=0)
    if times and resolution > WORTHLESS_ERROR * statistics.median(list(times.values())):
        raise NoStepTimesError(
            f"the stamps' resolution of {resolution:g} s is too coarse for single steps"
        )
    return times


def slowest(ranks: Iterable[Mapping[int, float]]) -> list[float]:
    """Take the longest time of each step over all ranks, in the order of the steps."""
    longest: dict[int, float] = {}
    for times in ranks:
        for step, seconds in times.items():
            longest[step] = max(seconds, longest.get(step, 0.0))
    return [longest[step] for step in sorted(longest)]
