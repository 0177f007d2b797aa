"""What it costs to read a large log: ours beside ``grep -c`` and beside a reader of all lines.

Also what five declared metrics cost, which stand on the line of each step, in windows of usual
length and of all steps; and how the cost grows with the bytes before the first step.

Writes a log of its own, NCCL's chatter for the most part with one record of a training step in
every 2,600 bytes, and reads it with each reader in a process of its own, start-up included. Run
it alone on the machine:

    python benchmarks/read_logs.py --size-mb 1000 --repeats 3
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import sysconfig
import tempfile
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import log_readers
from log_readers import MEASURED, SETTLING, USUAL_WINDOW, WARMUP
from timing import Usage, interleaved, middle, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Command: TypeAlias = "tuple[Sequence[str], Mapping[str, str]]"
"""What to run, and what to add to its environment."""

BYTES_PER_RECORD: Final = 2600

_INFO: Final = "node{n}:{p}:{t} [{g}] NCCL INFO "
NOISE: Final = tuple(
    _INFO + message
    for message in (
        "Channel {c:02d} : {g}[{b}] -> {h}[{b2}] via P2P/IPC",
        "Channel {c:02d} : {g}[{b}] -> {h}[{b2}] [send] via NET/IB/0/GDRDMA",
        "Ring {c:02d} : {h} -> {g} [receive] via NET/Socket/0",
        "Trees [0] {h}/-1/-1->{g}->-1|-1->{g}->{h}/-1/-1 [1] {h}/-1/-1->{g}->-1|-1->{g}->{h}/-1/-1",
        "threadThresholds 8/8/64 | 256/8/64 | 8/8/64",
        "NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:10.11.0.{n}<0>",
        "comm 0x7f{t:06x}2f10 rank {g} nranks 8 cudaDev {g} busId {b} - Init COMPLETE",
        "Launch mode Parallel",
    )
)


def write_log(path: Path, size: int) -> int:
    """Write a log of about ``size`` bytes; the number of records in it."""
    choose = random.Random(0)  # noqa: S311 - noise
    chatter = []
    for _ in range(97):
        lines = ""
        while len(lines) < BYTES_PER_RECORD - 115:
            lines += (
                choose.choice(NOISE).format(
                    n=choose.randrange(1, 5),
                    p=choose.randrange(100, 999),
                    t=choose.randrange(1000, 9999),
                    g=choose.randrange(8),
                    h=choose.randrange(8),
                    c=choose.randrange(12),
                    b=choose.randrange(1000, 99000),
                    b2=choose.randrange(1000, 99000),
                )
                + "\n"
            )
        chatter.append(lines)
    now = datetime(2020, 9, 15, 14, 29, 18)  # noqa: DTZ001 - logs tell no zone
    records = written = 0
    with path.open("w", encoding="ascii") as log:
        while written < size:
            records += 1
            now += timedelta(microseconds=350_000 + choose.randrange(5000))
            written += log.write(
                f"{chatter[records % len(chatter)]}DLL {now} - Epoch: 0 Iteration: {records}  "
                "train.loss : 6.67351  train.total_ips : 365.41 img/s  train.mem : 30.52 GiB  "
                "train.data : 0.0102 s  train.norm : 1.3174\n"
            )
    return records


def cost(command: Sequence[str], environment: Mapping[str, str]) -> Usage:
    """Run a command with cached byte code, as it usually is."""
    return run(command, {"PYTHONDONTWRITEBYTECODE": "", **environment})


def median_costs(commands: Mapping[str, Command], repeats: int) -> dict[str, Usage]:
    """The medians of several runs in turn, each of which must always print the same."""
    # The first round, which does not count, caches byte code and the file.
    sides = {name: partial(cost, *command) for name, command in commands.items()}
    found = interleaved(sides, repeats + 1)
    for name, costs in found.items():
        if len({each.output for each in costs}) != 1:
            raise SystemExit(f"{name} does not always print the same")
    return {name: middle(costs[1:]) for name, costs in found.items()}


def reader_of(path: Path, name: str, last: int) -> Command:
    """Return what reads a log up to its ``last`` record in a process of its own."""
    script = Path(log_readers.__file__).resolve()
    here = str(script.parents[1])
    # Without site, so that its files cost neither reader; values and expressions are packages.
    packages = os.pathsep.join((here, sysconfig.get_path("platlib")))
    command = [sys.executable, "-S", str(script), name, str(path), str(last)]
    return command, {"PYTHONPATH": packages}


def compare_late(path: Path, size: int) -> None:
    """Print what twice the bytes before the first step cost: a hole of a sparse file."""
    records = write_log(path, 1_000_000)
    steps = path.read_bytes()
    taken = []
    for hole in (size // 2, size):
        with path.open("wb") as log:
            log.seek(hole)
            log.write(b"\n" + steps)
        taken.append(cost(*reader_of(path, "declared", records)).cpu_s)
    print(
        f"steps behind {size / 1e6:,.0f} MB take {taken[1]:.1f} s, {taken[1] / taken[0]:.2f} x "
        "those behind half as many bytes"
    )


def compare(path: Path, records: int, repeats: int) -> None:
    """Read a log in all ways and print the table."""
    head = WARMUP + SETTLING + MEASURED
    reader = partial(reader_of, path)
    grep = ["grep", "-c", "Iteration: ", str(path)]
    floors = {f"grep -c ({locale})": (grep, {"LC_ALL": locale}) for locale in ("C", "C.UTF-8")}
    rows = median_costs(
        {
            **floors,
            "ours, window to the last record": reader("ours", records),
            "all lines in memory": reader("memory", records),
            "ours, window at the head": reader("ours", head),
            "declared, all steps": reader("declared", records),
            "   with five metrics": reader("declared-metrics", records),
            f"declared, the last {USUAL_WINDOW:,} steps": reader("window", records),
            "   with five metrics ": reader("window-metrics", records),
        },
        repeats,
    )
    ours, memory, early, declared, all_metrics, window, metrics = [*rows.values()][len(floors) :]
    memory_head = cost(*reader("memory", head))
    outputs = {each.output for each in (ours, memory, declared, all_metrics)}
    if len(outputs) > 1 or early.output != memory_head.output:
        raise SystemExit("the readers disagree on the throughput")

    size = path.stat().st_size / 1e6
    print(f"{size:,.0f} MB, {records:,} records; medians of {repeats}, start-up included")
    print(f"{'':34}{'CPU s':>8}{'peak MiB':>10}")
    for name, each in rows.items():
        print(f"{name:34}{each.cpu_s:8.3f}{each.peak_mib:10.1f}")
    name = min(floors, key=lambda name: rows[name].cpu_s)
    floor = rows[name]
    print(f"reading all takes {ours.cpu_s / floor.cpu_s:.2f} x {name}, the faster one")
    print(f"reading all takes 1/{memory.cpu_s / ours.cpu_s:.1f} of all lines in memory")
    print(
        f"five metrics take {metrics.cpu_s / window.cpu_s:.2f} x the time of none in a window of "
        f"{USUAL_WINDOW:,} steps, {all_metrics.cpu_s / declared.cpu_s:.2f} x in one of all"
    )
    print(f"stopping early takes 1/{memory.cpu_s / early.cpu_s:.0f} of all lines in memory")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size-mb", type=int, default=1000, help="size of the log, in 10^6 bytes")
    parser.add_argument("--repeats", type=int, default=3, help="runs per reader")
    parser.add_argument(
        "--late-mb", type=int, default=4000, help="bytes before the first step, in 10^6"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="read_logs_") as folder:
        log = Path(folder, "run.log")
        compare(log, write_log(log, options.size_mb * 1_000_000), options.repeats)
        compare_late(log, options.late_mb * 1_000_000)


if __name__ == "__main__":
    main()
