"""Logs whose times are whole, and mean something else than they seem to."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from fuzz_declared import DECLARED, declared
from fuzz_disturbances import STACK, Mutant, Unfit, content_of
from fuzz_training import Line, Step, printed
from msgspec.structs import replace

from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.work import Covers, TimeKind

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


def cumulated_mean(log: Log, choose: random.Random) -> Mutant:
    """What looks like the time of a step, or a speed, is a mean since the start."""
    form = log.trainer.log_format
    if form.timing.kind is TimeKind.MOMENT or form.covers is Covers.SINCE_START:
        raise Unfit
    if log.estimator is Estimator.PUBLISHED or form.time_form is not None:
        raise Unfit
    measured = sorted(log.training.seconds[slice(*log.span)])
    usual = measured[len(measured) // 2]
    if len(measured) // log.training.interval < _LEAST or measured[-2] > 2 * usual:
        raise Unfit

    def mean(step: Step) -> Step:
        since_start = step.elapsed / step.number
        return replace(step, seconds=since_start, mean=since_start)

    lines = printed(log.trainer, log.training, choose, mean)
    return Mutant(log=log, content=content_of(lines), right=(log.throughput,))


# What words around a number say

PARTS: Final = ("gpu", "device", "GPU", "chip", "card")
"""What a speed can be of, where there are several."""
SPEEDS: Final = {
    "samples_per_second": (
        "samples per second: {}",
        "throughput/samples_per_sec: {}",
        "samples_per_second={}",
        "train_samples_per_second={}",
        "{} samples/s",
        "{} images/sec",
        "sequences per second {}",
        "speed {} img/s",
    ),
    "steps_per_second": (
        "steps per second: {}",
        "{} it/s",
        "steps_per_sec={}",
        "iterations per second {}",
        "speed: {} steps/s",
    ),
    "seconds": ("seconds per step: {}", "{} s/it", "step_time {} s", "{} sec/batch", "sec/iter {}"),
    "milliseconds": ("{} ms/step", "ms per step: {}", "step time (ms): {}", "{} ms/batch"),
}
"""How trainers say what a number is, by the group that takes it."""


def _said(
    log: Log,
    choose: random.Random,
    group: str,
    words: str,
    value: Callable[[Step], float],
    **declares: Any,
) -> Mutant:
    """Print the same training with such words around a number, which is declared as a group."""
    before, behind = words.split("{}")
    record = rf"step (?P<step>\d+) \| {re.escape(before)}(?P<{group}>[\d.]+){re.escape(behind)}"
    trainer = declared(
        "words",
        choose.choice((record, f"^{record}")),
        lambda step, time: f"step {step.printed} | {before}{time}{behind} | loss 3.1",
        lambda step: f"{value(step):.4f}",
        declares=declares,
        epochs=False,
    )
    if log.trainer.name != "seconds" or log.training.interval > 1:
        raise Unfit
    own = replace(log, trainer=trainer)
    lines = printed(trainer, log.training, choose)
    return Mutant(log=own, content=content_of(lines), right=())


def _value(group: str, log: Log) -> Callable[[Step], float]:
    batch = log.case.global_batch
    return {
        "samples_per_second": lambda step: batch / step.seconds,
        "steps_per_second": lambda step: 1 / step.seconds,
        "seconds": lambda step: step.seconds,
        "milliseconds": lambda step: 1000 * step.seconds,
    }[group]


def words(log: Log, choose: random.Random) -> Mutant:
    """The words around a number say that it is of another group."""
    group = choose.choice([*SPEEDS])
    taken = choose.choice([each for each in SPEEDS if each != group])
    return _said(log, choose, taken, choose.choice(SPEEDS[group]), _value(group, log))


def right_words(log: Log, choose: random.Random) -> Mutant:
    """The words around a number say that it is what it is declared to be."""
    group = choose.choice([*SPEEDS])
    made = _said(log, choose, group, choose.choice(SPEEDS[group]), _value(group, log))
    return _read_rightly(made, log)


def per_device(log: Log, choose: random.Random) -> Mutant:
    """A speed is said to be of one device, and taken for that of all."""
    world = log.case.topology.world_size
    if world == 1:
        raise Unfit
    return _said(log, choose, *_of_a_device(log, choose, world))


def right_device(log: Log, choose: random.Random) -> Mutant:
    """A speed is said to be of one device, and is declared so."""
    given = _of_a_device(log, choose, log.case.topology.world_size)
    return _read_rightly(_said(log, choose, *given, rate_scope="device"), log)


def _of_a_device(
    log: Log, choose: random.Random, world: int
) -> tuple[str, str, Callable[[Step], float]]:
    part = choose.choice(PARTS)
    said = choose.choice(
        (
            f"{{}} samples/s/{part}",
            f"samples_per_second_per_{part}={{}}",
            f"samples/s/{part}: {{}}",
            f"throughput: {{}} images/sec per {part}",
            f"samples per second per {part}: {{}}",
        )
    )
    return "samples_per_second", said, lambda step: log.case.global_batch / step.seconds / world


def _read_rightly(made: Mutant, log: Log) -> Mutant:
    return Mutant(log=made.log, content=made.content, right=(log.throughput,), harmless=True)


MEANT: Final[Sequence[Callable[[Log, random.Random], Mutant]]] = (
    clock,
    pause,
    resumed_at_the_next,
    slow_stretch,
    cumulated_mean,
    words,
    right_words,
    per_device,
    right_device,
)
ONLY_OF: Final = dict.fromkeys(
    ("words", "right-words", "per-device", "right-device"), DECLARED[0].name
)
"""The trainer whose training is printed anew, by classes that print lines of their own."""
