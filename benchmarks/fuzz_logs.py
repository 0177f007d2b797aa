"""Measure damaged logs of which the truth is known, and count what readers make of them.

A mutant is made of its token, ``seed:class:trainer:number``; ``--one`` makes it again. What is
right is the throughput of the steps that were drawn. A log that has lost or gained something may be
refused, or give that number. A log that is whole has to give it. Exits with 1 if one is wrong,
refused though it is whole, crashes or hangs.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import log_makers as make

from pytest_dlperf.formats.log_format import LogFormat, custom_format
from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.model.metric import THROUGHPUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.model.case import Case

STEPS: Final = 150
BATCH: Final = 128
TOLERANCE: Final = 0.012
"""Less than a window that begins or ends three steps off makes, since steps become slower."""
LIMIT_S: Final = 20


class Trainer(NamedTuple):
    """A trainer: how its log is read, and how it prints steps that took some seconds, by rank."""

    log_format: LogFormat
    lines: Callable[[Sequence[Sequence[float]], int | None], Iterable[str]]
    ranks: int = 1
    has_epochs: bool = False


def _of_each_step(text: Callable[[int, float, float], str]) -> Callable[..., Iterable[str]]:
    """Print each step by its number, its seconds and the time at its end."""

    def lines(ranks: Sequence[Sequence[float]], _: int | None) -> Iterator[str]:
        ends = accumulate(ranks[0])
        for step, (took, end) in enumerate(zip(ranks[0], ends, strict=True), 1):
            yield text(step, took, end)

    return lines


def _clock(seconds: float) -> str:
    minutes, rest = divmod(seconds + 35_000, 60)
    return f"{minutes // 60:02.0f}:{minutes % 60:02.0f}:{rest:06.3f}"


def _table(ranks: Sequence[Sequence[float]], _: int | None) -> Iterator[str]:
    yield "step,loss,step_time"
    yield from _of_each_step(lambda k, s, _: f"{k},2.31,{s:.4f}")(ranks, None)


def _split(text: str) -> list[str]:
    return text.splitlines()


TRAINERS: Final[Mapping[str, Trainer]] = {
    "paddle_resnet": Trainer(
        BUILTIN_FORMATS["paddle_resnet"],
        lambda ranks, epoch: _split(make.paddle_resnet(ranks[0], epoch_length=epoch)),
        has_epochs=True,
    ),
    "dllogger": Trainer(
        BUILTIN_FORMATS["dllogger"],
        lambda ranks, epoch: _split(make.dllogger(ranks[0], epoch_length=epoch)),
        has_epochs=True,
    ),
    "pytorch_imagenet": Trainer(
        BUILTIN_FORMATS["pytorch_imagenet"],
        lambda ranks, epoch: _split(make.pytorch_imagenet(ranks, epoch_length=epoch, heads=False)),
        ranks=2,
        has_epochs=True,
    ),
    "tf_models_bert": Trainer(
        BUILTIN_FORMATS["tf_models_bert"], lambda ranks, _: _split(make.tf_models_bert(ranks[0]))
    ),
    "dlperf": Trainer(
        BUILTIN_FORMATS["dlperf"], lambda ranks, _: _split(make.dlperf(ranks)), ranks=2
    ),
    "seconds": Trainer(
        custom_format("seconds", record=r"iter (?P<step>[0-9]+): .* time (?P<seconds>[0-9.]+) s"),
        _of_each_step(lambda k, s, _: f"iter {k}: loss 2.31, time {s:.4f} s"),
    ),
    "stamps": Trainer(
        custom_format("stamps", record=r"^\[(?P<timestamp>[0-9:.]+)\] step (?P<step>[0-9]+) done"),
        _of_each_step(lambda k, _, end: f"[{_clock(end)}] step {k} done, lr 0.1"),
    ),
    "rate": Trainer(
        custom_format(
            "rate", record=r"step=(?P<step>\d+) .* (?P<samples_per_second>[0-9.]+) img/s"
        ),
        _of_each_step(lambda k, s, _: f"step={k} loss=2.31 {BATCH / s:.3f} img/s"),
    ),
    "json": Trainer(
        custom_format("json", json={"step": "step", "elapsed_seconds": "at"}),
        _of_each_step(lambda k, _, end: json.dumps({"step": k, "at": round(end, 4), "loss": 2.3})),
    ),
    "csv": Trainer(custom_format("csv", csv={"step": "step", "seconds": "step_time"}), _table),
}


class Log(NamedTuple):
    """A sound log, and the throughput of its window."""

    lines: list[str]
    case: Case
    trainer: Trainer
    right: float


def drawn(name: str, choose: random.Random, *, quicker: float = 1.0) -> Log:
    """Draw a training whose steps become slower bit by bit, and have a trainer print it."""
    trainer = TRAINERS[name]
    case = make.case(f"1n{trainer.ranks}g", batch=BATCH // trainer.ranks)
    base = choose.uniform(0.1, 0.4) / quicker
    times = [7.0 * base, *(base * 1.006**k * choose.uniform(0.99, 1.01) for k in range(STEPS - 1))]
    ranks = [[round(each, 3) for each in times] for _ in range(trainer.ranks)]
    epoch = choose.choice([None, 45, 70]) if trainer.has_epochs else None
    after = make.WINDOW.warmup_steps + trainer.log_format.settling_steps
    counted = [
        ranks[0][k]
        for k in range(after, after + make.WINDOW.measured_steps)
        if not (epoch and k and k % epoch == 0)
    ]
    right = case.global_batch * len(counted) / sum(counted)
    return Log(list(trainer.lines(ranks, epoch)), case, trainer, right)


# ------------------------------------------------------------------------------- disturbances

NOISE: Final = (
    "node1:101:2020 [0] NCCL INFO Channel 00/02 : 0 1 2 3",
    "W0910 12:00:00.123456 20011 device_context.cc:252] device: 0, CUDA Capability: 70",
    "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
    "Traceback (most recent call last):",
    "val_loss 2.31, accuracy 0.51 after 10 s",
)


def _with_noise(log: Log, choose: random.Random) -> str:
    lines = list(log.lines)
    for _ in range(30):
        lines.insert(choose.randrange(1, len(lines)), choose.choice(NOISE))
    return _text(lines)


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _lost(log: Log, choose: random.Random, count: int) -> str:
    at = choose.randrange(len(log.lines))
    return _text(log.lines[:at] + log.lines[at + count :])


def _lost_bytes(log: Log, choose: random.Random) -> str:
    text = _text(log.lines)
    at = choose.randrange(len(text))
    return text[:at] + text[at + choose.randrange(100, 3000) :]


def _swapped(log: Log, choose: random.Random) -> str:
    lines = list(log.lines)
    one, other = sorted(choose.sample(range(len(lines)), 2))
    lines[one], lines[other] = lines[other], lines[one]
    return _text(lines)


def _doubled(log: Log, choose: random.Random) -> str:
    at, count = choose.randrange(len(log.lines)), choose.randrange(1, 20)
    return _text(log.lines[: at + count] + log.lines[at:])


def _glued(log: Log, choose: random.Random) -> str:
    text = _text(log.lines)
    ends = [at for at, each in enumerate(text[:-1]) if each == "\n"]
    gone = set(choose.sample(ends, min(10, len(ends))))
    return "".join(each for at, each in enumerate(text) if at not in gone)


def _interleaved(log: Log, choose: random.Random) -> str:
    lines = list(log.lines)
    for _ in range(5):
        at = choose.randrange(len(lines) - 1)
        cut = choose.randrange(1, max(len(lines[at]), 2))
        lines[at : at + 2] = [lines[at][:cut] + lines[at + 1], lines[at][cut:]]
    return _text(lines)


def _binary(log: Log, choose: random.Random) -> str:
    lines = list(log.lines)
    for _ in range(5):
        junk = "".join(chr(choose.randrange(256)) for _ in range(200))
        lines.insert(choose.randrange(len(lines)), junk.replace("\n", " "))
    return _text(lines)


def _cut(log: Log, choose: random.Random) -> str:
    text = _text(log.lines)
    return text[: choose.randrange(len(text))]


def _another(log: Log, choose: random.Random) -> Log:
    name = next(name for name, each in TRAINERS.items() if each is log.trainer)
    return drawn(name, choose, quicker=2.0)


def _resumed(log: Log, choose: random.Random) -> str:
    """Stop in the window, and begin again some steps before."""
    at = choose.randrange(60, len(log.lines) - 10)
    return _text(log.lines[:at] + _another(log, choose).lines[at - choose.randrange(3, 50) :])


def _wrong_ranks(log: Log, choose: random.Random) -> str:
    other = _another(log, choose).lines
    pairs = zip(log.lines, other, strict=False)
    return _text(line for both in pairs for line in both)


def _other_trainer(log: Log, choose: random.Random) -> str:
    names = [name for name, each in TRAINERS.items() if each is not log.trainer]
    return _text(drawn(choose.choice(names), choose).lines)


def _coloured(log: Log, _: random.Random) -> str:
    return _text(f"\x1b[32m{each}\x1b[0m" if " " in each else each for each in log.lines)


HARMLESS: Final[Mapping[str, Callable[[Log, random.Random], str]]] = {
    "sound": lambda log, _: _text(log.lines),
    "noise": _with_noise,
    "coloured": _coloured,
    "ends-of-windows": lambda log, _: _text(log.lines).replace("\n", "\r\n"),
    "byte-order-mark": lambda log, _: "\ufeff" + _text(log.lines),
    "bars": lambda log, _: "".join(f"{each}\n 3%|#  | 3/99\r" for each in log.lines),
}
DAMAGE: Final[Mapping[str, Callable[[Log, random.Random], str]]] = {
    "binary": _binary,
    "cut": _cut,
    "lost-bytes": _lost_bytes,
    "lost-lines": lambda log, choose: _lost(log, choose, choose.randrange(2, 40)),
    "lost-steps": lambda log, choose: _lost(log, choose, 1),
    "lost-head": lambda log, choose: _text(log.lines[choose.randrange(5, 40) :]),
    "swapped": _swapped,
    "doubled": _doubled,
    "glued": _glued,
    "interleaved": _interleaved,
    "appended": lambda log, choose: _text(log.lines + _another(log, choose).lines),
    "resumed": _resumed,
    "two-printers": _wrong_ranks,
    "other-trainer": _other_trainer,
}
CLASSES: Final = {**HARMLESS, **DAMAGE}


# --------------------------------------------------------------------------------------- outcomes


def _hangs(_number: int, _frame: object) -> None:
    raise TimeoutError


def outcome(token: str, keep: Path | None = None) -> tuple[str, str]:
    """Make a mutant, measure it, and say what came of it, and why."""
    _, kind, name, _ = token.split(":")
    choose = random.Random(token)  # noqa: S311 - no secret
    log = drawn(name, choose)
    content = CLASSES[kind](log, choose).encode("utf-8", "surrogateescape")
    if keep is not None:
        keep.write_bytes(content)
    signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(LIMIT_S)
    with tempfile.TemporaryDirectory() as folder:
        try:
            run = make.measured(Path(folder), content, log.trainer.log_format, of=log.case)
        except TimeoutError:
            return "hang", ""
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
            return "crash", repr(error)
        finally:
            signal.alarm(0)
    if run.status is not RunStatus.OK:
        return "false alarm" if kind in HARMLESS else "refused", run.reason or ""
    value = run.metrics[THROUGHPUT]
    is_right = abs(value / log.right - 1) < TOLERANCE
    return "right" if is_right else "wrong", f"{value:.6g}, right is {log.right:.6g}"


def main() -> int:
    """Measure the mutants and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=1_000_000)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--class", dest="kind", choices=CLASSES)
    parser.add_argument("--one", metavar="TOKEN", help="make and measure one mutant")
    parser.add_argument("--keep", type=Path, help="where to write the mutant of --one")
    options = parser.parse_args()
    if options.one:
        print(*outcome(options.one, options.keep))
        return 0
    kinds = [options.kind] if options.kind else [*CLASSES]
    pairs = [(kind, name) for kind in kinds for name in TRAINERS]
    tokens = [
        f"{options.seed}:{kind}:{name}:{at // len(pairs)}"
        for at in range(options.mutants)
        for kind, name in [pairs[at % len(pairs)]]
    ]
    begun, found, shown = time.monotonic(), dict[str, Counter[str]](), list[str]()
    with ProcessPoolExecutor(options.jobs) as pool:
        results = pool.map(outcome, tokens, chunksize=64)
        for token, (what, why) in zip(tokens, results, strict=True):
            found.setdefault(token.split(":")[1], Counter())[what] += 1
            if what not in ("right", "refused"):
                shown.append(f"{what}: {token.split(':')[1]}: --one {token}: {why}")
    columns = ("right", "refused", "wrong", "false alarm", "crash", "hang")
    print(f"{'':20}" + "".join(f"{each:>12}" for each in columns))
    for kind, counts in [*found.items(), ("all", sum(found.values(), Counter()))]:
        print(f"{kind:20}" + "".join(f"{counts[each] or '':>12}" for each in columns))
    print(f"{time.monotonic() - begun:.0f} s with {options.jobs} processes", *shown[:40], sep="\n")
    return bool(shown)


if __name__ == "__main__":
    sys.exit(main())
