"""How long single steps took, where a log has a record of its own for each."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_dlperf.logs.clock import NANOSECONDS, WORTHLESS_ERROR, Clock, parse
from pytest_dlperf.logs.timing import Kind, samples_per_second, step_seconds
from pytest_dlperf.model import statistics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.model.case import Case


class NoStepTimesError(Exception):
    """A log that does not say how long its single steps took; the text says why."""


def step_times(
    log_format: LogFormat, case: Case, kept: Sequence[tuple[int, bytes]]
) -> dict[int, float]:
    """Compute the seconds of each step of one rank, from what is printed of their times.

    Raises:
        NoStepTimesError: Records stand for several steps, or the stamps are too coarse.
    """
    gap = max((after - before for (before, _), (after, _) in pairwise(kept)), default=1)
    if gap > 1:
        raise NoStepTimesError(
            f"the log prints every {gap} steps, and a mean over them is no step's time; print "
            "each step"
        )
    if log_format.timing.kind is Kind.MOMENT:
        return _between_stamps(kept)
    if log_format.timing.kind is Kind.RATE:
        timing, scope = log_format.timing, log_format.rate_scope
        return {
            step: case.global_batch / samples_per_second(timing, scope, text, 0, case)
            for step, text in kept
        }
    return {step: step_seconds(log_format.timing, text, 0) for step, text in kept}


def _between_stamps(kept: Sequence[tuple[int, bytes]]) -> dict[int, float]:
    clock = Clock()
    ends = []
    for step, text in kept:
        clock.read(text)
        ends.append((step, clock.nanoseconds))
    times = {step: (end - begin) / NANOSECONDS for (_, begin), (step, end) in pairwise(ends)}
    resolution = 10.0 ** -max((parse(text).decimals for _, text in kept), default=0)
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
