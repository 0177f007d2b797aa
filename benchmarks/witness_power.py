"""How often the second witness catches a log whose times are wrong, and how often it cries wolf.

Runs are simulated: what a trainer prints and when, the buffers it goes through, and what a
supervisor would keep of its arrivals. The project's own reader judges each, in windows of 20 to
1000 steps that take half a second to ten minutes. The exit code is 1 if the witness cries wolf,
or if of logs that are four times off and come line by line more than 1 % pass.

    python benchmarks/witness_power.py [--trials 20] [--seed 1]

There are so many trials of each kind of run with each kind of time.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_dlperf.formats.log_format import custom_format
from pytest_dlperf.logs.arrivals import ArrivalsWriter
from pytest_dlperf.logs.throughput import LogReading
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, RunStatus, Window
from pytest_dlperf.model.work import Covers
from pytest_dlperf.node.relay import ANCHOR_BYTES, MERGED_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_dlperf.formats.log_format import LogFormat

    Printed = tuple[float, int, bytes]

BLOCK: Final = 8192
FLUSH_S: Final = 5.0
BATCH: Final = 4
FAR_OFF: Final = ("micro-batch", "4 x too slow")
NEEDED: Final = 0.99
MIN_WINDOW_S: Final = 2.0
# By what the true time of a step is multiplied before it is printed; None leaves out the loader.
TIMES: Final = {
    "sound": 1.0,
    "micro-batch": 0.25,
    "4 x too slow": 4.0,
    "1.3 x too fast": 1 / 1.3,
    "1.3 x too slow": 1.3,
    "ms as s": 1000.0,
    "without loader": None,
}
LOADER: Final = 0.5
EVEN: Final = 0.5
SELDOM: Final = 0.02
SOMETIMES: Final = 0.3
AT_ONCE: Final = "at once"
MANY: Final = 8
BUFFERS: Final = ("line", "each 5 s", "8 KiB")
WINDOWS_S: Final = (0.5, 2, 10, 60, 600)
SHAPES: Final = ("plain", "chatter", "pause", "epochs", "every 10", "every 10 mean")
RANKS: Final = ((1, ""), (8, ""), (8, "rank {rank}: "))


class Made(NamedTuple):
    """How a run prints: what it is, through which buffer, in a window of so many seconds."""

    shape: str
    buffer: str
    window_s: float
    ranks: int
    label: str
    is_rate: bool


def printed(
    made: Made, times: str, steps: int, dice: random.Random
) -> Iterator[tuple[float, int, str]]:
    """Give what is printed by and by: when, by which rank, and what."""
    step_s = made.window_s / steps
    every = 10 if made.shape.startswith("every 10") else 1
    epoch = dice.randint(max(steps // 3, 12), 2 * steps) if made.shape == "epochs" else 10**9
    pause_at = dice.randint(steps // 4, steps)
    now = 100.0
    for rank in range(made.ranks):
        yield now, rank, f"{made.label.format(rank=rank)}building the model\n"
    now += dice.uniform(0.5, 20)
    warmup = steps // 4
    taken: list[float] = []
    for step in range(1, warmup + steps + dice.choice((0, 0, 5, steps)) + 1):
        length = step_s * dice.lognormvariate(0, 0.03)
        now += length
        if made.shape == "pause" and step == pause_at:
            now += dice.uniform(1, 0.5 * made.window_s + 2)
        turn, number = divmod(step - 1, epoch)
        if turn and not number:
            now += dice.uniform(0, 30)
        factor = TIMES[times]
        taken.append(length * (1 - LOADER if factor is None else factor))
        if step % every:
            continue
        said = sum(taken) / len(taken) if made.shape == "every 10 mean" else taken[-1]
        taken.clear()
        text = f"at {BATCH * made.ranks / said:.5g}" if made.is_rate else f"took {said:.6f} s"
        front = f"epoch {turn} " if made.shape == "epochs" else ""
        for rank in range(made.ranks):
            line = f"{front}step {number + 1} {text}\n"
            yield (
                now + dice.uniform(0, min(0.002, step_s / 3)),
                rank,
                made.label.format(rank=rank) + line,
            )
            if made.shape == "chatter" and dice.random() < SOMETIMES:
                yield now + dice.uniform(0, step_s), rank, "NCCL INFO " + "x" * dice.randint(9, 200)
                yield now + step_s, rank, "\n"


def passed_on(made: Made, lines: Sequence[Printed], dice: random.Random) -> list[Printed]:
    """Give what leaves the processes, and when, in its order."""
    if made.buffer == "line":
        return sorted(lines, key=lambda each: each[0])
    out: list[Printed] = []
    held: dict[int, bytes] = defaultdict(bytes)
    ticks = [dice.uniform(0, FLUSH_S) for _ in range(made.ranks)]
    cuts = made.ranks == 1 and dice.random() < EVEN  # C cuts lines, Python does not
    for now, rank, text in sorted(lines, key=lambda each: each[0]):
        if made.buffer == "each 5 s":
            if now >= ticks[rank] and held[rank]:
                out.append((ticks[rank], rank, held.pop(rank)))
            if now >= ticks[rank]:
                ticks[rank] += (now - ticks[rank]) // FLUSH_S * FLUSH_S + FLUSH_S
        held[rank] += text
        if made.buffer == "8 KiB" and len(held[rank]) >= BLOCK:
            end = BLOCK if cuts else len(held[rank])
            out.append((now, rank, held[rank][:end]))
            held[rank] = held[rank][end:]
    ended = max(each[0] for each in lines) + dice.uniform(0, 2)
    for rank, text in held.items():
        if text:
            out.append(
                (min(ticks[rank], ended) if made.buffer == "each 5 s" else ended, rank, text)
            )
    return sorted(out, key=lambda each: each[0])


def write(log: Path, out: Sequence[Printed], dice: random.Random) -> None:
    """Write the log, and its arrivals as a supervisor that is late at times would."""
    log.write_bytes(b"".join(each[2] for each in out))
    arrivals: list[tuple[int, int, int]] = []
    end, seen = 0, 0.0
    for now, _, text in out:
        late = dice.uniform(0.01, 0.02) if dice.random() < SELDOM else 0.0003
        seen = max(seen, now + late)
        end += len(text)
        moment, span = int(seen * 1e6), 0
        if arrivals and moment - (begin := arrivals[-1][1] - arrivals[-1][2]) <= MERGED_S * 1e6:
            arrivals.pop()
            span = moment - begin
        arrivals.append((end, moment, span))
    writer = ArrivalsWriter(log)
    writer.add(arrivals, log.read_bytes()[:ANCHOR_BYTES].decode())
    writer.seal()


def format_of(made: Made) -> LogFormat:
    """Give the format that a user would declare."""
    time = "at (?P<samples_per_second>[0-9.e+]+)" if made.is_rate else "took (?P<seconds>[0-9.]+) s"
    front = "rank (?P<rank>[0-9]+): " if made.label else ""
    front += "epoch (?P<epoch>[0-9]+) " if made.shape == "epochs" else ""
    ranks = "local" if made.ranks > 1 else "one"
    covers = Covers.SINCE_LAST if made.shape == "every 10 mean" else Covers.LAST_STEP
    return custom_format(
        "simulated", record=f"{front}step (?P<step>[0-9]+) {time}", ranks=ranks, covers=covers
    )


def flushes(made: Made, out: Sequence[Printed], first: float, last: float) -> int:
    """Count how often the first rank's output came from the window's begin to its end."""
    if made.buffer == "line":
        return 99
    inside = {now for now, rank, _ in out if not rank and first <= now}
    return sum(now < last for now in inside) + 1


def judged(made: Made, times: str, dice: random.Random, log: Path) -> tuple[str, str]:
    """Make one run and read it: what comes of it, and how its window came."""
    steps = dice.choice((20, 50, 100, 300, 1000))
    steps = max(steps, 40) if made.shape.startswith("every 10") else steps
    lines = [(now, rank, text.encode()) for now, rank, text in printed(made, times, steps, dice)]
    out = passed_on(made, lines, dice)
    write(log, out, dice)
    records = [now for now, rank, text in lines if not rank and b"step" in text]
    every = 10 if made.shape.startswith("every 10") else 1
    begin, end = steps // 4 // every, (steps + steps // 4) // every - 1
    pieces = flushes(made, out, records[begin], records[end])
    came = {99: "lines", 1: AT_ONCE}.get(pieces, f"{min(pieces, MANY)} pieces")
    case = Case.from_id(f"plain-gpt-bf16-b{BATCH}-1n{made.ranks}g")
    window = Window(warmup_steps=steps // 4, measured_steps=steps)
    run = LogReading(
        log,
        number=1,
        case=case,
        log_format=format_of(made),
        window=window,
        estimator=Estimator.STEADY,
    ).finish()
    if run.status is RunStatus.OK:
        return "ok", came
    return ("caught" if "they differ by more than" in str(run.reason) else "else"), came


def main() -> int:
    """Simulate, print the tables, and say whether the targets are met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    cries = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, times, shape, buffer, window_s, (ranks, label) in itertools.product(
            range(options.trials), TIMES, SHAPES, BUFFERS, WINDOWS_S, RANKS
        ):
            key = (number, times, shape, buffer, window_s, ranks, label)
            dice = random.Random(f"{options.seed} {key}")  # noqa: S311 - no secret
            made = Made(shape, buffer, window_s, ranks, label, dice.random() < EVEN)
            said, came = judged(made, times, dice, Path(folder, f"run_{number}.log"))
            cries += times == "sound" and said == "caught"
            for table, row in (("came", came), ("window", f"{window_s} s"), ("shape", shape)):
                wanted = window_s >= MIN_WINDOW_S if table == "came" else came != AT_ONCE
                if wanted:
                    found[table, row, times][said] += 1
    show(found)
    prompt = [found["came", "lines", times] for times in FAR_OFF]
    missed = sum(counts["ok"] for counts in prompt)
    caught = sum(counts["caught"] for counts in prompt)
    return int(cries > 0 or caught < NEEDED * (caught + missed))


def show(found: Mapping[tuple[str, ...], Counter[str]]) -> None:
    """Print how many of how many logs were refused, in a table for each property."""
    for table in dict.fromkeys(key[0] for key in found):
        print(f"\n| {table} |", *(f"{times} |" for times in TIMES))
        print("|---|" + "---|" * len(TIMES))
        for row in sorted({key[1] for key in found if key[0] == table}):
            counts = [found[table, row, times] for times in TIMES]
            cells = (f"{each['caught']}/{each['caught'] + each['ok']} |" for each in counts)
            print(f"| {row} |", *cells)
    others = sum(counts["else"] for key, counts in found.items() if key[0] == "window")
    print(f"\nrefused for another reason: {others}")


if __name__ == "__main__":
    sys.exit(main())
