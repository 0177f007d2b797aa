"""How far damaged logs can fool the readers: a million of them, of which the truth is known.

Trains nothing: makes up a training, prints its log as one of the shipped trainers or one that a
user would declare, damages the log, and reads it. A number above 3 % off that is called ok is
silently wrong; ``invalid`` is a false alarm where a reader has to see through what happened.

    python benchmarks/fuzz_logs.py --mutants 1000000 --jobs 8
    python benchmarks/fuzz_logs.py --class lost-lines --trainer dllogger --mutants 10000
    python benchmarks/fuzz_logs.py --one 0:lost-lines:dllogger:17 --keep damaged.log

A million can be read in pieces, by ``--first``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fuzz_damage import HARMFUL
from fuzz_declared import DECLARED
from fuzz_disturbances import HARMLESS, TRAINERS, Mutant, Unfit
from fuzz_meaning import MEANT
from fuzz_shipped import SHIPPED
from fuzz_training import make_log

from pytest_dlperf.logs.throughput import LogReading
from pytest_dlperf.model.measurement import RunStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fuzz_training import Trainer

    from pytest_dlperf.model.measurement import Run

TOLERANCE: Final = 0.03
"""Beyond this part a number is wrong."""
LONGEST_S: Final = 20
"""Seconds after which a reader hangs."""
TRAINERS += (*SHIPPED, *DECLARED)
DAMAGES: Final = {each.__name__.replace("_", "-"): each for each in (*HARMLESS, *HARMFUL, *MEANT)}
_BY_NAME: Final = {trainer.name: trainer for trainer in TRAINERS}
_PIECEWISE: Final = 0.15
_GAP: Final = re.compile(r"\b(?:gap|pause|clock|longer)\b")
"""What a note says of times between which too much has passed."""


class Verdict(Enum):
    """What became of a mutant."""

    RIGHT = "right"
    REFUSED = "refused"
    NOTED = "noted"
    """Another number, and a note of what happened."""
    WRONG = "wrong"
    """A number that is none of the log's."""
    FALSE_ALARM = "false alarm"
    CRASH = "crash"
    HANG = "hang"


UNSEEN: Final = frozenset(
    {
        "clock",
        "cumulated-mean",
        "flipped-bytes",
        "glued",
        "interleaved",
        "lost-bytes",
        "lost-digit-of-step",
        "lost-head",
        "pause",
        "resumed-at-the-next",
    }
)
"""What cannot always be seen: what is left may be what some trainer prints, or slow steps."""
MAX_UNSEEN: Final = 0.01
"""The part of its mutants that may be wrong."""
FAULTS: Final = (Verdict.WRONG, Verdict.FALSE_ALARM, Verdict.CRASH, Verdict.HANG)


@dataclass
class Tally:
    """What became of all."""

    counts: Counter[tuple[str, str, Verdict]] = field(default_factory=Counter)
    """By class of damage and trainer."""
    examples: dict[tuple[str, str, Verdict], tuple[str, str]] = field(default_factory=dict)
    """A mutant of each, and what was said of it."""

    def add(self, damage: str, trainer: str, verdict: Verdict, token: str, said: str) -> None:
        """Count a mutant."""
        key = damage, trainer, verdict
        self.counts[key] += 1
        if verdict in FAULTS:
            self.examples.setdefault(key, (token, said))

    def update(self, other: Tally) -> None:
        """Count those of another."""
        self.counts.update(other.counts)
        self.examples = {**other.examples, **self.examples}

    def of(self, damage: str | None, verdict: Verdict) -> int:
        """Count those of a class, or all."""
        return sum(
            count
            for (each, _, what), count in self.counts.items()
            if what is verdict and damage in (None, each)
        )

    @property
    def faults(self) -> list[tuple[str, str, Verdict]]:
        """The keys of all that should not be."""
        keys = (key for key in self.counts if key[2] in FAULTS)
        return sorted(keys, key=lambda key: (FAULTS.index(key[2]), key[0], key[1]))


def is_fooled(tally: Tally) -> bool:
    """Say whether there is a fault, or more wrong numbers than damage explains that is not seen."""
    for damage, _, verdict in tally.faults:
        if verdict is not Verdict.WRONG or damage not in UNSEEN:
            return True
    return any(
        tally.of(damage, Verdict.WRONG)
        > max(2, MAX_UNSEEN * sum(tally.of(damage, verdict) for verdict in Verdict))
        for damage in UNSEEN
    )


def mutant(token: str) -> Mutant:
    """Make the mutant of a token, which says all that it depends on.

    Raises:
        Unfit: The damage cannot happen to that log.
    """
    _, damage, trainer, _ = token.split(":")
    choose = random.Random(token)  # noqa: S311 - to be made again
    if not _fits(damage, _BY_NAME[trainer]):
        raise Unfit
    return DAMAGES[damage](make_log(_BY_NAME[trainer], choose), choose)


def _fits(damage: str, trainer: Trainer) -> bool:
    if DAMAGES[damage] in MEANT:
        return trainer.numbered
    is_harmless = DAMAGES[damage] in HARMLESS
    if trainer.clean and is_harmless:
        return damage in {"sound", "line-ends-of-windows", "stack-behind", "open-end"}
    return trainer.numbered or is_harmless or damage in {"cut", "other-trainer"}


def judge(token: str, path: Path) -> tuple[Verdict, str]:
    """Read a mutant; say what became of it, and what the reader said."""
    made = mutant(token)
    path.write_bytes(made.content)
    choose = random.Random(f"{token} is read")  # noqa: S311 - to be made again
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(LONGEST_S)
    try:
        run = read(made, path, choose)
    except TimeoutError:
        return Verdict.HANG, f"for more than {LONGEST_S} s"
    except Exception:  # noqa: BLE001 - whatever it is, it is a crash
        return Verdict.CRASH, traceback.format_exc(limit=-3)
    finally:
        signal.alarm(0)
    if run.status is not RunStatus.OK:
        if made.harmless:
            return Verdict.FALSE_ALARM, run.reason or ""
        return Verdict.REFUSED, run.reason or ""
    found = run.metrics["throughput"]
    if not made.right:
        return Verdict.WRONG, f"{found:.6g}, and no number is right"
    nearest = min(max(found, min(made.right)), max(made.right))
    said = f"{found:.6g} for {nearest:.6g}, {found / nearest - 1:+.1%}"
    verdict = Verdict.RIGHT
    if abs(found / nearest - 1) > TOLERANCE:
        is_told = made.noted and _GAP.search(run.reason or "") is not None
        verdict = Verdict.NOTED if is_told else Verdict.WRONG
    return verdict, said


def _give_up(*_: object) -> None:
    raise TimeoutError


def read(made: Mutant, path: Path, choose: random.Random) -> Run:
    """Measure a mutant; some of them while they grow, and in small pieces."""
    log = made.log
    reading = LogReading(
        path,
        number=1,
        case=log.case,
        log_format=log.trainer.log_format,
        window=log.window,
        estimator=log.estimator,
        buffer_size=choose.choice((64, 1000, 1 << 18)),
    )
    if choose.random() < _PIECEWISE:
        for limit in sorted(choose.randrange(len(made.content) + 1) for _ in range(5)):
            reading.advance(limit)
    return reading.finish()


def tokens(options: argparse.Namespace) -> Iterator[str]:
    """Number the mutants: all classes and trainers in turn."""
    damages = options.damages or [*DAMAGES]
    trainers = options.trainers or [*_BY_NAME]
    for number in range(options.first, options.first + options.mutants):
        damage = damages[number % len(damages)]
        trainer = trainers[number // len(damages) % len(trainers)]
        yield f"{options.seed}:{damage}:{trainer}:{number}"


def judge_in_parallel(every: Iterable[str], jobs: int) -> Iterator[Tally]:
    """Judge with so many processes; yield what became of each."""
    with (
        tempfile.TemporaryDirectory(prefix="fuzz_logs_", dir=_memory()) as folder,
        multiprocessing.Pool(jobs) as pool,
    ):
        yield from pool.imap_unordered(partial(_tally, Path(folder)), every, chunksize=100)


def _tally(folder: Path, token: str) -> Tally:
    tally = Tally()
    with suppress(Unfit):
        verdict, said = judge(token, folder / f"{os.getpid()}.log")
        _, damage, trainer, _ = token.split(":")
        tally.add(damage, trainer, verdict, token, said)
    return tally


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - a new folder there


def table(tally: Tally) -> str:
    """Show what became of all, by class; and the faults, with a mutant of each."""
    head = "".join(f"{verdict.value:>12}" for verdict in Verdict)
    lines = [f"{'':22}{'mutants':>10}{head}"]
    for damage in (*DAMAGES, None):
        counts = [tally.of(damage, verdict) for verdict in Verdict]
        if sum(counts):
            row = "".join(f"{count or '':12}" for count in counts)
            lines.append(f"{damage or 'all':22}{sum(counts):10,}{row}")
    for key in tally.faults:
        damage, trainer, verdict = key
        token, said = tally.examples[key]
        lines.append(f"{verdict.value}: {damage}, {trainer}: {tally.counts[key]}, as {token}")
        lines += [f"    {line}" for line in said.splitlines()]
    return "\n".join(lines)


def show(token: str, keep: Path | None) -> None:
    """Make one mutant and read it."""
    made = mutant(token)
    log = made.log
    print(
        f"{log.case} {log.window} {log.estimator.value}, steps {log.span[0] + 1} to {log.span[1]}"
    )
    training = log.training
    print(
        f"{len(training.seconds)} steps, one of {training.interval} printed, epochs of "
        f"{training.epoch_length}; right is {made.right}"
    )
    with tempfile.TemporaryDirectory() as folder:
        verdict, said = judge(token, keep or Path(folder, "mutant.log"))
    print(f"{verdict.value}: {said}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutants", type=int, default=1_000_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first: to go on")
    parser.add_argument("--seed", default="0", help="mutants of one seed are always the same")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--class", dest="damages", action="append", choices=[*DAMAGES])
    parser.add_argument("--trainer", dest="trainers", action="append", choices=[*_BY_NAME])
    parser.add_argument("--one", metavar="TOKEN", help="make and read one mutant only")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="where to write that one")
    options = parser.parse_args()
    if options.one:
        show(options.one, options.keep)
        return
    tally, began = Tally(), time.monotonic()
    for piece in judge_in_parallel(tokens(options), options.jobs):
        tally.update(piece)
        if sys.stderr.isatty():
            done = sum(tally.counts.values())
            print(f"\r{done:,} of {options.mutants:,}", end="", file=sys.stderr)
    print(table(tally))
    print(f"{time.monotonic() - began:.0f} s with {options.jobs} processes")
    sys.exit(is_fooled(tally))


if __name__ == "__main__":
    main()
