"""Logs whose times are whole, and mean something else than they seem to."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from fuzz_disturbances import STACK, Mutant, Unfit, content_of
from fuzz_training import Line, Step, printed
from msgspec.structs import replace

from pytest_dlperf.model.measurement import Estimator

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from fuzz_training import Log

HOUR_S: Final = 3600.0
_SLOWEST: Final = 5
"""Times that a slow step takes as long as the others."""
_LEAST: Final = 9
"""With fewer records, or with slow steps among them, a mean looks like steps that become faster."""


def _inside(log: Log, choose: random.Random) -> int:
    """Choose a step of the window, behind its first."""
    after, last = log.span
    return choose.randrange(after + 2, last + 1)


def _shifted(log: Log, choose: random.Random, begin: int, seconds: float) -> list[Line]:
    """Print the log again, by a clock that is set forward at the end of a step."""

    def late(step: Step) -> Step:
        passed = timedelta(seconds=seconds if step.number >= begin else 0)
        return replace(step, now=step.now + passed)

    lines = printed(log.trainer, log.training, choose, late)
    if log.estimator is Estimator.PUBLISHED or lines == printed(
        log.trainer, log.training, choose, lambda step: step
    ):
        raise Unfit
    return lines


def clock(log: Log, choose: random.Random) -> Mutant:
    """Summer time begins or ends, or the clock is set."""
    seconds = choose.choice((HOUR_S, -HOUR_S, choose.uniform(-60, 60), choose.uniform(60, 9e4)))
    return _set(log, choose, seconds)


def pause(log: Log, choose: random.Random) -> Mutant:
    """The machine stands still for a while, of which only the stamps know."""
    return _set(log, choose, choose.uniform(3, 600))


def _set(log: Log, choose: random.Random, seconds: float) -> Mutant:
    """Set the clock; by a little, nobody can tell it from a slow step."""
    lines = _shifted(log, choose, _inside(log, choose), seconds)
    measured = log.span[1] - log.span[0]
    took = log.case.global_batch * measured / log.throughput
    right = [log.throughput]
    if abs(seconds) <= _SLOWEST * took / measured * log.training.interval:
        right.append(log.case.global_batch * measured / (took + seconds))
    return Mutant(log=log, content=content_of(lines), right=tuple(right), noted=True)


def resumed_at_the_next(log: Log, choose: random.Random) -> Mutant:
    """The run died, and went on hours later with the next step."""
    begin = _inside(log, choose)
    lines = _shifted(log, choose, begin, choose.uniform(60, 3 * 24 * HOUR_S))
    before = [line for line in lines if line.step < begin]
    head = [line for line in before if not line.step][:20]
    after = [line for line in lines if line.step >= begin]
    content = content_of([*before, *map(Line, STACK), *head, *after])
    return Mutant(log=log, content=content, right=(log.throughput,), noted=True)


def slow_stretch(log: Log, choose: random.Random) -> Mutant:
    """The training is slow for a while, and all that is printed says so."""
    if log.estimator is Estimator.PUBLISHED or log.training.interval > 1:
        raise Unfit
    begin, factor = _inside(log, choose), choose.uniform(2, 20)
    stop = begin + choose.randrange(1, 6)
    seconds = [
        each * (factor if begin <= number < stop else 1)
        for number, each in enumerate(log.training.seconds, 1)
    ]
    training = replace(log.training, seconds=seconds)
    lines = printed(log.trainer, training, choose)
    right = training.throughput(*log.span)
    return Mutant(log=log, content=content_of(lines), right=(right,), harmless=not log.refusable)


MEANT: Final[Sequence[Callable[[Log, random.Random], Mutant]]] = (
    clock,
    pause,
    resumed_at_the_next,
    slow_stretch,
)
