"""What happens to a log that a reader has to see through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fuzz_training import Line, happens, make_log, taking_turns

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from fuzz_training import Log, Trainer

MARKS: Final = (
    "[1,0]<stdout>:",
    "Fri Dec 18 20:01:23 2020[1,0]<stdout>:",
    "[1,3]<stderr>:",
    "0: ",
    " 3: ",
    "12: ",
    "[rank0]:",
    "[rank3]: ",
    "[default0]:",
    "(train pid=4711) ",
    "(RayTrainWorker pid=4711, ip=10.0.0.3) ",
)
BAR: Final = "Iteration:   8%|▊         | 263/3443 [01:07<13:15,  4.00it/s]\r"
NOISE: Final = (
    "node1:101:2020 [0] NCCL INFO Channel 00/02 : 0 1 2 3",
    "W0910 12:00:00.123456 20011 device_context.cc:252] Please NOTE: device: 0, CUDA 70",
    "2026-11-20 08:32:15.768056: W tensorflow/stream_executor/dso_loader.cc:59] none",
    "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
    "!!! The CPU_NUM is not specified, you should set CPU_NUM",
    "Warning: Permanently added '[127.0.0.2]:2222' (ED25519) to the list of known hosts.",
    "",
    "x" * 700,
    "saving the checkpoint took 12.5 s",
)
STACK: Final = (
    "terminate called without an active exception",
    "Traceback (most recent call last):",
    '  File "train.py", line 12, in <module>',
    "AttributeError: 'NoneType' object has no attribute 'close'",
    "srun: error: node2: task 1: Exited with exit code 143",
)


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A log after something has happened to it."""

    log: Log
    content: bytes
    right: tuple[float, ...]
    """Right numbers, and what lies between them; empty where none is right."""
    harmless: bool = False
    """Whether a reader has to see through what happened."""
    noted: bool = False
    """Whether any number will do that comes with a note of what happened."""


class Unfit(Exception):  # noqa: N818 - no error: this cannot happen to that log
    """It cannot happen to this log."""


def content_of(lines: Sequence[Line], end: str = "\n") -> bytes:
    """Write the lines."""
    return "".join(line.text + end for line in lines).encode()


TRAINERS: list[Trainer] = []
"""All there are, for what needs another."""


def _harmless(log: Log, content: bytes) -> Mutant:
    return Mutant(log=log, content=content, right=(log.throughput,), harmless=not log.refusable)


def another(log: Log, choose: random.Random) -> Trainer:
    """Choose another trainer."""
    return choose.choice([each for each in TRAINERS if each.name != log.trainer.name])


def sound(log: Log, choose: random.Random) -> Mutant:
    """Nothing happens."""
    del choose
    return _harmless(log, content_of(log.lines))


def noise(log: Log, choose: random.Random) -> Mutant:
    """Libraries print."""
    lines: list[Line] = []
    share = choose.choice((0.05, 0.5, 0.9))
    for line in log.lines:
        while choose.random() < share:
            lines.append(Line(choose.choice(NOISE)))
        lines.append(line)
    return _harmless(log, content_of(lines))


def chatter(log: Log, choose: random.Random) -> Mutant:
    """Other trainers' steps stand between ours."""
    other = another(log, choose)
    mine = log.trainer.log_format
    strange = [
        line
        for line in make_log(other, choose).lines
        if line.step
        and mine.record.search(line.text.encode()) is None
        and not any(fact.expression.search(line.text.encode()) for fact in mine.facts)
    ]
    if not strange:
        raise Unfit
    lines: list[Line] = []
    for line in log.lines:
        if happens(choose, 0.3):
            lines.append(Line(choose.choice(strange).text))
        lines.append(line)
    return _harmless(log, content_of(lines))


def validation(log: Log, choose: random.Random) -> Mutant:
    """The trainer validates now and then."""
    if not log.trainer.validation:
        raise Unfit
    lines: list[Line] = []
    for line in log.lines:
        if happens(choose, 0.2):
            lines.append(Line(choose.choice(log.trainer.validation)))
        lines.append(line)
    return _harmless(log, content_of(lines))


def stack_behind(log: Log, choose: random.Random) -> Mutant:
    """The run ends with an error behind the window."""
    ends = [at for at, line in enumerate(log.lines) if line.step <= log.span[1] and line.step]
    keep = choose.randrange(max(ends) + 1, len(log.lines) + 1)
    if log.trainer.ranks(log.case) > 1:
        keep = len(log.lines)
    return _harmless(log, content_of([*log.lines[:keep], *map(Line, STACK)]))


def colours(log: Log, choose: random.Random) -> Mutant:
    """Lines are coloured."""
    colour = choose.choice(("\x1b[32m", "\x1b[1;34m", "\x1b[38;2;180;0;0m"))
    return _harmless(log, "".join(f"{colour}{line.text}\x1b[0m\n" for line in log.lines).encode())


def line_ends_of_windows(log: Log, choose: random.Random) -> Mutant:
    """Lines end with a carriage return as well."""
    del choose
    return _harmless(log, content_of(log.lines, "\r\n"))


def byte_order_mark(log: Log, choose: random.Random) -> Mutant:
    """An editor has put a mark in front of the file, or ``cat`` one between two parts of it."""
    lines = [line.text for line in log.lines]
    lines[0] = f"\ufeff{lines[0]}"
    if happens(choose, 0.3):
        at = choose.randrange(len(lines))
        lines[at] = f"\ufeff{lines[at]}"
    return _harmless(log, "".join(f"{line}\n" for line in lines).encode())


def prefix(log: Log, choose: random.Random) -> Mutant:
    """What starts the processes, or collects what they print, marks each line."""
    mark = choose.choice(MARKS)
    return _harmless(log, "".join(f"{mark}{line.text}\n" for line in log.lines).encode())


def holes(log: Log, choose: random.Random) -> Mutant:
    """The file was rotated while it was written: zeros stand between lines."""
    content = b"".join(
        line.text.encode() + b"\n" + bytes(choose.choice((0, 0, 0, 1, 512, 5000)))
        for line in log.lines
    )
    return _harmless(log, content)


def bars(log: Log, choose: random.Random) -> Mutant:
    """Progress bars stand on the lines."""
    del choose
    return _harmless(log, "".join(f"{BAR * 2}{line.text}\n" for line in log.lines).encode())


def other_characters(log: Log, choose: random.Random) -> Mutant:
    """Lines that are not Unicode stand between."""
    content = b"".join(
        (b"\xff\xfe\x80 n\xf6ise\n" if happens(choose, 0.3) else b"") + line.text.encode() + b"\n"
        for line in log.lines
    )
    return _harmless(log, content)


def open_end(log: Log, choose: random.Random) -> Mutant:
    """Another line has begun."""
    return _harmless(log, content_of(log.lines) + choose.choice(NOISE)[:20].encode())


def blocks(log: Log, choose: random.Random) -> Mutant:
    """Ranks print through buffers, which are full at different times."""
    ranks = log.trainer.ranks(log.case)
    if ranks == 1:
        raise Unfit
    outputs = [[line for line in log.lines if line.rank == rank] for rank in range(ranks)]
    choose.shuffle(outputs)
    return _harmless(log, content_of(list(taking_turns(outputs, choose.choice((7, 40, 1000))))))


HARMLESS: Final[Sequence[Callable[[Log, random.Random], Mutant]]] = (
    sound,
    noise,
    chatter,
    validation,
    stack_behind,
    colours,
    line_ends_of_windows,
    byte_order_mark,
    prefix,
    holes,
    bars,
    other_characters,
    open_end,
    blocks,
)
