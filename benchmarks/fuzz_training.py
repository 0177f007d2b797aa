"""Trainings that never ran, whose every second is known, and what it takes to print their logs."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.formats.log_format import Rule
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, Window

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence

    from pytest_dlperf.formats.log_format import LogFormat

NEVER: Final = 1 << 40


class Step(Struct, frozen=True):
    """A step that a rank prints a record of."""

    number: int
    """From 1 on, through all epochs."""
    printed: int
    epoch: int
    epoch_length: int
    rank: int
    seconds: float
    """How long it took."""
    mean: float
    """The mean of the steps since the record before."""
    elapsed: float
    """Since the training began."""
    now: datetime
    training: Training


def comma_stamp(step: Step) -> str:
    """Write the time of a step as Python's logging does: a comma before the milliseconds."""
    return f"{step.now:%Y-%m-%d %H:%M:%S},{step.now.microsecond // 1000:03d}"


class Training(Struct, frozen=True, kw_only=True):
    """What happened."""

    case: Case
    seconds: Sequence[float]
    """How long each step took."""
    waits: float = 0.0
    """The part of each step in which it waited for data."""
    start: datetime
    epoch_length: int = NEVER
    interval: int = 1

    def steps(self, first: int, rank: int) -> Iterator[Step]:
        """Go through the steps that a rank prints, where the first of all has this number."""
        elapsed = since = 0.0
        steps = 0
        for number, seconds in enumerate(self.seconds, 1):
            epoch, index = divmod(number - 1, self.epoch_length)
            # Ranks end a step almost at once.
            elapsed += seconds
            since += seconds
            steps += 1
            if (index + first) % self.interval:
                continue
            late = elapsed + rank * 2e-4
            yield Step(
                number=number,
                printed=index + first,
                epoch=epoch,
                epoch_length=min(self.epoch_length, len(self.seconds)),
                rank=rank,
                seconds=seconds,
                mean=since / steps,
                elapsed=late,
                now=self.start + timedelta(seconds=late),
                training=self,
            )
            since, steps = 0.0, 0

    def throughput(self, after: int, last: int) -> float:
        """Compute samples per second of the steps above ``after`` up to ``last``.

        The first of an epoch does not count, with what lies before it.
        """
        counted = [self.seconds[k] for k in range(after, last) if k % self.epoch_length or not k]
        if not counted:
            return math.nan
        return self.case.global_batch * len(counted) / math.fsum(counted)


class Line(Struct):
    """A line of a log, without its end."""

    text: str
    rank: int = -1
    """Who printed it, where it belongs to the output of one rank."""
    step: int = 0
    """The step that it is the record of; 0 for none."""
    number: str = ""
    """What the record calls its step."""


class Trainer(Struct, frozen=True, kw_only=True):
    """How one trainer prints."""

    name: str
    log_format: LogFormat
    line: Callable[[Step], str]
    head: Callable[[Training, int], list[str]] = lambda _, __: []
    """What a rank prints before its first step."""
    foot: Callable[[Training, int], list[str]] = lambda _, __: []
    validation: tuple[str, ...] = ()
    """What it prints between epochs, or beside its steps."""
    tells: frozenset[str] = frozenset()
    """What of its case the log says: batch, world, precision."""
    topologies: tuple[str, ...] = ("1n1g", "1n2g", "2n2g", "1n4g")
    precisions: tuple[str, ...] = ("fp32",)
    intervals: tuple[int, ...] = (1, 1, 1, 2, 5, 10)
    epochs: bool = True
    clean: bool = False
    """Whether nothing else prints into its file."""
    numbered: bool = True
    """Whether a record says of which step it is: else nobody can tell a missing one."""
    waits: bool = False
    """Whether what it prints leaves out waiting for data."""
    first: int = 1
    """What it calls its first step."""
    sequence_length: int | None = None
    least_seconds: float = 0.05

    @property
    def ranks(self) -> Callable[[Case], int]:
        """How many print into one log."""
        local = self.log_format.ranks.value == "local"
        return lambda case: case.topology.devices_per_node if local else 1


class Log(Struct, frozen=True, kw_only=True):
    """A log, and the truth."""

    trainer: Trainer
    training: Training
    window: Window
    estimator: Estimator
    case: Case
    """What it is said to be of."""
    lines: list[Line]
    span: tuple[int, int]
    """The step before the window, and its last."""
    throughput: float
    refusable: bool = False
    """Whether the format may say that it cannot tell: it has no false alarm then."""

    def shifted(self, lost: set[int]) -> tuple[float, ...]:
        """Compute the throughput of windows that lie later by up to as many steps as are lost."""
        training, (after, last) = self.training, self.span
        found = [] if lost else [self.throughput]
        for shift in range(len(lost) + 1):
            end = min(last + shift, len(training.seconds))
            counted = [
                training.seconds[step - 1]
                for step in range(after + shift + 1, end + 1)
                if step not in lost and ((step - 1) % training.epoch_length or step == 1)
            ]
            if counted:
                found.append(training.case.global_batch * len(counted) / math.fsum(counted))
        return tuple(found)


def happens(choose: random.Random, part: float) -> bool:
    """Say whether something happens that does in this part of all cases."""
    return choose.random() < part


def make_log(trainer: Trainer, choose: random.Random) -> Log:
    """Train, and print the log."""
    case = make_case(trainer, choose)
    interval = choose.choice(trainer.intervals)
    published = trainer.log_format.published
    estimator = Estimator.STEADY
    if published is not None and case.topology.devices_per_node == 1 and happens(choose, 0.2):
        estimator = Estimator.PUBLISHED
        interval = published.print_interval or 1
    window = Window(
        warmup_steps=interval * choose.randrange(3, 12),
        measured_steps=interval * choose.randrange(6, 30),
    )
    if estimator is Estimator.PUBLISHED:
        window = replace(window, warmup_steps=20)
    after = window.warmup_steps + trainer.log_format.settling_steps
    last = after + window.measured_steps
    training = train(trainer, case, interval, (after, last), choose)
    throughput = training.throughput(after, last)
    if estimator is Estimator.PUBLISHED:
        # The original counts lines, and takes each epoch's for the run's first steps.
        training = replace(training, epoch_length=NEVER)
        throughput = _published(trainer, training, window)
    return Log(
        trainer=trainer,
        training=training,
        window=window,
        estimator=estimator,
        case=case,
        lines=printed(trainer, training, choose),
        span=(after, last),
        throughput=throughput,
        refusable=interval > 1 and training.epoch_length < last + interval,
    )


def _published(trainer: Trainer, training: Training, window: Window) -> float:
    """Compute the original's throughput, from what one rank prints in one epoch."""
    published = trainer.log_format.published
    if published is None:
        raise AssertionError("it has a definition")
    above = -1 if published.only_steps_above is None else published.only_steps_above
    lines = [step for step in training.steps(trainer.first, 0) if step.printed > above]
    interval = published.print_interval or 1
    batch = training.case.global_batch
    skipped = window.warmup_steps // interval
    last = (window.warmup_steps + window.measured_steps) // interval
    if published.rule is Rule.ELAPSED:
        elapsed = lines[last - 1].elapsed - lines[skipped - 1].elapsed
        return batch * window.measured_steps / elapsed
    counted = lines[skipped:last]
    if published.rule is Rule.MEAN_DURATION:
        return batch * len(counted) / math.fsum(step.seconds for step in counted)
    part = 1 - training.waits
    return math.fsum(batch / (step.mean * part) for step in counted) / len(counted)


def make_case(trainer: Trainer, choose: random.Random) -> Case:
    """Choose what to train."""
    batch = choose.choice((32, 64, 96, 128, 256))
    length = "" if trainer.sequence_length is None else f"-s{trainer.sequence_length}"
    precision, topology = choose.choice(trainer.precisions), choose.choice(trainer.topologies)
    return Case.from_id(f"framework-model-{precision}-b{batch}{length}-{topology}")


def train(
    trainer: Trainer, case: Case, interval: int, span: tuple[int, int], choose: random.Random
) -> Training:
    """Choose how long each step takes: slow ones first, another speed behind the window."""
    after, last = span
    base = trainer.least_seconds * choose.uniform(1, 8)
    slow, behind = choose.uniform(1.5, 5), choose.choice((0.55, 0.7, 1.5, 1.9))
    steps = last + choose.choice((0, 1, 7, 31)) * interval
    seconds = [
        base * choose.uniform(0.99, 1.01) * (slow if k <= after else behind if k > last else 1)
        for k in range(1, steps + 1)
    ]
    seconds[0] *= 4
    if interval == 1 and happens(choose, 0.3):
        for _ in range(choose.randrange(1, 5)):
            seconds[choose.randrange(after, last)] *= choose.uniform(2, 5)
    start = datetime(2020, 9, 15, 14, 29, 18, 553769)  # noqa: DTZ001 - logs tell no zone
    start += timedelta(seconds=choose.randrange(86400 * 365))
    if happens(choose, 0.2):
        # Midnight passes in the window, of some day or of the year's last.
        midnight = start.replace(hour=0, minute=0, second=0)
        if happens(choose, 0.3):
            midnight = midnight.replace(year=2021, month=1, day=1)
        start = midnight - timedelta(seconds=sum(seconds[: choose.randrange(after, last)]))
    epoch_length = NEVER
    if trainer.epochs and happens(choose, 0.5):
        epoch_length = choose.randrange(4, steps + 3)
        if interval > 1:
            epoch_length = max(epoch_length // interval, 1) * interval
    return Training(
        case=case,
        seconds=seconds,
        waits=choose.choice((0.0, 0.0, 0.3, 0.8)) if trainer.waits else 0.0,
        start=start,
        epoch_length=epoch_length,
        interval=interval,
    )


def printed(
    trainer: Trainer,
    training: Training,
    choose: random.Random,
    change: Callable[[Step], Step] = lambda step: step,
) -> list[Line]:
    """Print the log: ranks take turns by lines or by blocks.

    ``change`` makes of a step what the trainer takes for it.
    """
    outputs = []
    for rank in range(trainer.ranks(training.case)):
        lines = [Line(text, rank) for text in trainer.head(training, rank)]
        epoch = 0
        for step in training.steps(trainer.first, rank):
            if step.epoch != epoch:
                lines += [Line(text, rank) for text in trainer.validation]
                epoch = step.epoch
            text = trainer.line(change(step))
            lines.append(Line(text, rank, step.number, str(step.printed)))
        outputs.append(lines + [Line(text, rank) for text in trainer.foot(training, rank)])
    if len(outputs) == 1:
        return outputs[0]
    return list(taking_turns(outputs, choose.choice((1, 1, 5, 63))))


def taking_turns(outputs: Sequence[Sequence[Line]], block: int) -> Iterator[Line]:
    """Interleave the outputs of ranks."""
    for begin in range(0, max(map(len, outputs)), block):
        for output in outputs:
            yield from output[begin : begin + block]
