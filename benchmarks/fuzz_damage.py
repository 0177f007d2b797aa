"""What happens to a log that may take its number away, or change what is right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from fuzz_disturbances import NOISE, STACK, Mutant, Unfit, another, content_of
from fuzz_training import NEVER, Line, happens, make_log, printed, taking_turns
from msgspec.structs import replace

from pytest_dlperf.model.case import Case, Topology
from pytest_dlperf.model.measurement import Estimator

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from fuzz_training import Log


def _harmful(log: Log, lines: Sequence[Line] | bytes, *right: float) -> Mutant:
    content = lines if isinstance(lines, bytes) else content_of(lines)
    return Mutant(log=log, content=content, right=right or (log.throughput,))


def _wrong(log: Log, lines: Sequence[Line]) -> Mutant:
    return Mutant(log=log, content=content_of(lines), right=())


def _records(log: Log) -> list[int]:
    return [at for at, line in enumerate(log.lines) if line.step]


def _near(log: Log, choose: random.Random) -> int:
    """Choose a record, and often one that matters."""
    after, last = log.span
    interval = log.training.interval
    places = _records(log)
    if happens(choose, 0.6):
        inside = [at for at in places if after <= log.lines[at].step <= last]
        places = inside or places
    elif happens(choose, 0.5):
        ends = [
            at
            for at in places
            if min(abs(log.lines[at].step - end) for end in (after, last)) <= interval
        ]
        places = ends or places
    return choose.choice(places)


# What may leave the number as it was, or take it away


def cut(log: Log, choose: random.Random) -> Mutant:
    """The log ends early."""
    content = content_of(log.lines)
    return _harmful(log, content[: choose.randrange(len(content))])


def _shorter(log: Log, lines: Sequence[Line]) -> Mutant:
    """Take records away; where they were the last of an epoch, it looks shorter."""
    left = {line.step for line in lines}
    lost = {line.step for line in log.lines} - left
    is_whole = log.training.epoch_length == NEVER or log.estimator is Estimator.PUBLISHED
    return _harmful(log, lines, *(() if is_whole else log.shifted(lost)))


def lost_bytes(log: Log, choose: random.Random) -> Mutant:
    """A part of the log is not there."""
    content = content_of(log.lines)
    begin = choose.randrange(len(content))
    return _harmful(log, content[:begin] + content[begin + choose.choice((3, 40, 200, 2000)) :])


def lost_lines(log: Log, choose: random.Random) -> Mutant:
    """Some lines are not there."""
    lost = {_near(log, choose) for _ in range(choose.choice((1, 1, 2, 5)))}
    return _shorter(log, [line for at, line in enumerate(log.lines) if at not in lost])


def lost_steps(log: Log, choose: random.Random) -> Mutant:
    """No rank's records of some steps are there."""
    first = log.lines[_near(log, choose)].step
    stop = first + choose.choice((1, 2, 5, 20)) * log.training.interval
    return _shorter(log, [line for line in log.lines if not first <= line.step < stop])


def lost_epoch_ends(log: Log, choose: random.Random) -> Mutant:
    """The last records of one epoch, or of all, are not there: epochs look shorter."""
    length = log.training.epoch_length
    if length == NEVER or length >= len(log.training.seconds):
        raise Unfit
    kept = length - choose.randrange(1, max(length // 2, 2))
    epoch = choose.choice((None, choose.randrange(len(log.training.seconds) // length + 1)))
    steps = range(1, len(log.training.seconds) + 1)
    lost = {
        step
        for step in steps
        if (step - 1) % length >= kept and epoch in (None, (step - 1) // length)
    }
    lines = [line for line in log.lines if line.step not in lost]
    return _harmful(log, lines, *log.shifted(lost))


def lost_head(log: Log, choose: random.Random) -> Mutant:
    """The log's begin is not there, as if it began later."""
    head = choose.randrange(1, len(log.lines))
    begin = max(line.step for line in log.lines[:head])
    return _harmful(log, log.lines[head:], *log.shifted({*range(1, begin + 1)}))


def doubled_lines(log: Log, choose: random.Random) -> Mutant:
    """Some lines stand there twice, or all."""
    share = choose.choice((0.02, 0.2, 1.0))
    lines = [each for line in log.lines for each in [line] * (1 + (choose.random() < share))]
    return _harmful(log, lines)


def swapped(log: Log, choose: random.Random) -> Mutant:
    """Two lines have changed places."""
    lines = list(log.lines)
    one = _near(log, choose)
    other = min(max(one + choose.choice((-1, 1, 2, 7)), 0), len(lines) - 1)
    lines[one], lines[other] = lines[other], lines[one]
    return _harmful(log, lines)


def glued(log: Log, choose: random.Random) -> Mutant:
    """Lines have no end."""
    share = choose.choice((0.02, 0.3, 1.0))
    head = _records(log)[0]
    content = "".join(
        line.text + ("" if at >= head and choose.random() < share else "\n")
        for at, line in enumerate(log.lines)
    )
    return _harmful(log, content.encode())


def interleaved(log: Log, choose: random.Random) -> Mutant:
    """Another process prints within a record."""
    lines = list(log.lines)
    for _ in range(choose.choice((1, 1, 5))):
        at = _near(log, choose)
        text = lines[at].text
        place = choose.randrange(len(text))
        strange = choose.choice((*NOISE, choose.choice(log.lines).text))
        strange = choose.choice(("", "\n")) + strange + choose.choice(("", "\n"))
        lines[at] = replace(lines[at], text=text[:place] + strange + text[place:])
    return _harmful(log, lines)


def lost_digit_of_step(log: Log, choose: random.Random) -> Mutant:
    """A step's number has lost a digit."""
    at = _near(log, choose)
    line = log.lines[at]
    found = re.search(rf"(?<![0-9.]){line.number}(?![0-9.])", line.text)
    if found is None:
        raise Unfit
    place = choose.randrange(found.start(), found.end())
    lines = list(log.lines)
    lines[at] = replace(line, text=line.text[:place] + line.text[place + 1 :])
    return _harmful(log, lines)


def flipped_bytes(log: Log, choose: random.Random) -> Mutant:
    """Bytes have become others, which are no digits."""
    content = bytearray(content_of(log.lines))
    for _ in range(choose.choice((1, 3, 20))):
        content[choose.randrange(len(content))] = choose.choice(b"\0\r\n xX-:.,[]\xff")
    return _harmful(log, bytes(content))


# What there is no right number for, or another one


def appended(log: Log, choose: random.Random) -> Mutant:
    """A second run, of another speed, was appended to the first."""
    second = _again(log, choose, choose.choice((0.5, 0.7, 1.6, 3.0)))
    keep = len(log.lines)
    if happens(choose, 0.5):
        keep = choose.randrange(1, keep)
    return _harmful(log, log.lines[:keep] + second.lines, second.throughput)


def resumed(log: Log, choose: random.Random) -> Mutant:
    """The run died and went on from a checkpoint, some steps back."""
    interval = log.training.interval
    died = log.lines[_near(log, choose)].step
    back = died - interval * choose.randrange(1, 8)
    if back < 1:
        raise Unfit
    before = [line for line in log.lines if line.step <= died]
    head = log.lines[: _records(log)[0]]
    after = [line for line in log.lines if line.step >= back]
    return _harmful(log, [*before, *map(Line, STACK), *head, *after])


def two_printers(log: Log, choose: random.Random) -> Mutant:
    """Both nodes print into one file."""
    second = _again(log, choose, 1.0001)
    return _harmful(log, list(taking_turns([log.lines, second.lines], choose.choice((1, 5, 63)))))


def slow_rank(log: Log, choose: random.Random) -> Mutant:
    """One rank says that it takes ten times as long as the others."""
    ranks = log.trainer.ranks(log.case)
    if ranks == 1:
        raise Unfit
    slow = choose.randrange(ranks)
    second = _again(log, choose, 10.0)
    outputs = [
        [line for line in (second if rank == slow else log).lines if line.rank == rank]
        for rank in range(ranks)
    ]
    lines = list(taking_turns(outputs, choose.choice((1, 5, 63))))
    return _harmful(log, lines, second.throughput)


def lost_rank(log: Log, choose: random.Random) -> Mutant:
    """One rank prints nothing, or stops at some step."""
    ranks = log.trainer.ranks(log.case)
    if ranks == 1:
        raise Unfit
    lost, step = choose.randrange(ranks), choose.choice((0, log.lines[_near(log, choose)].step))
    return _harmful(log, [line for line in log.lines if line.rank != lost or line.step < step])


def wrong_batch(log: Log, choose: random.Random) -> Mutant:
    """The log is filed under a case of another batch."""
    batch = choose.choice([b for b in (32, 64, 96, 128, 256) if b != log.case.batch_per_replica])
    name = log.case.id.replace(f"-b{log.case.batch_per_replica}-", f"-b{batch}-")
    return _misfiled(log, "batch", name)


def wrong_precision(log: Log, choose: random.Random) -> Mutant:
    """The log is filed under a case of another precision."""
    others = [each for each in log.trainer.precisions if each != log.case.precision]
    if not others:
        raise Unfit
    name = log.case.id.replace(f"-{log.case.precision}-", f"-{choose.choice(others)}-")
    return _misfiled(log, "precision", name)


def wrong_topology(log: Log, choose: random.Random) -> Mutant:
    """The log is filed under a case of another topology."""
    mine = log.case.topology
    what = "world"
    if log.trainer.ranks(log.case) > 1:
        what = choose.choice(("world", "devices"))
    others = [
        text
        for text in ("1n1g", "1n2g", "2n2g", "1n4g", "1n8g", "4n8g")
        if (other := Topology.parse(text)).world_size != mine.world_size
        and (what == "world" or other.devices_per_node != mine.devices_per_node)
    ]
    name = log.case.id.replace(f"-{mine}", f"-{choose.choice(others)}")
    return _misfiled(log, what, name)


def _misfiled(log: Log, what: str, name: str) -> Mutant:
    tells = log.trainer.tells
    if log.trainer.ranks(log.case) > 1:
        tells |= {"devices"}
    if what not in tells or name == log.case.id:
        raise Unfit
    return _wrong(replace(log, case=Case.from_id(name)), log.lines)


def other_trainer(log: Log, choose: random.Random) -> Mutant:
    """The log is another trainer's."""
    other = make_log(another(log, choose), choose)
    if any(log.trainer.log_format.record.search(line.text.encode()) for line in other.lines):
        raise Unfit
    return _wrong(log, other.lines)


def _again(log: Log, choose: random.Random, factor: float) -> Log:
    """Train once more, at another speed."""
    old = log.training
    training = replace(
        old, seconds=[each * factor * choose.uniform(0.995, 1.005) for each in old.seconds]
    )
    return replace(
        log,
        training=training,
        lines=printed(log.trainer, training, choose),
        throughput=log.throughput / factor,
    )


HARMFUL: Final[Sequence[Callable[[Log, random.Random], Mutant]]] = (
    cut,
    lost_bytes,
    lost_lines,
    lost_steps,
    lost_epoch_ends,
    lost_head,
    doubled_lines,
    swapped,
    glued,
    interleaved,
    lost_digit_of_step,
    flipped_bytes,
    appended,
    resumed,
    two_printers,
    slow_rank,
    lost_rank,
    wrong_batch,
    wrong_precision,
    wrong_topology,
    other_trainer,
)
