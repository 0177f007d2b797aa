"""What it costs to read a large log: medians of CPU time and memory, beside ``grep -c``.

Writes logs of its own, NCCL's chatter for the most part with one record of a training step in
every 2,600 bytes, and reads each in a process of its own, start-up included: the usual window at
the log's head, and all steps, by an expression, JSON and CSV, and with five metrics of each step.
Run it alone on the machine:

    python benchmarks/read_logs.py --size-mb 1000 --repeats 3
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import sysconfig
import tempfile
from functools import partial
from pathlib import Path
from typing import Any, Final

from timing import Usage, interleaved, middle, run

WARMUP: Final = 20
MEASURED: Final = 100
BATCH: Final = 128
BYTES_PER_RECORD: Final = 2600
METRICS: Final = ("loss", "ips", "mem", "data", "norm")
NOISE: Final = (
    "Channel {0:02d} : {1}[{2}] -> {3}[{2}] via P2P/IPC",
    "Ring {0:02d} : {3} -> {1} [receive] via NET/Socket/0",
    "Trees [0] {1}/-1/-1->{3}->-1|-1->{3}->{1}/-1/-1 [1] {3}/-1/-1->{1}->-1|-1->{1}->{3}/-1/-1",
    "comm 0x7f{2:06x}2f10 rank {1} nranks 8 cudaDev {1} busId {2} - Init COMPLETE",
)
KINDS: Final[dict[str, dict[str, Any]]] = {
    "expression": {
        "record": "at (?P<elapsed_seconds>[0-9.]+) iteration (?P<step>[0-9]+) ",
    },
    "json": {"json": {"step": "step", "elapsed_seconds": "at"}},
    "csv": {"csv": {"step": "step", "elapsed_seconds": "at"}},
}


def record(kind: str, step: int, at: float) -> str:
    """Write the record of a step."""
    if kind == "json":
        return json.dumps({"step": step, "at": round(at, 4), "loss": 6.67351}) + "\n"
    if kind == "csv":
        return f"{step},{at:.4f},6.67351\n"
    numbers = "".join(f" {name} : {at % 7:.5f} " for name in METRICS)
    return f"at {at:.4f} iteration {step} {numbers}\n"


def write_log(path: Path, kind: str, size: int) -> int:
    """Write a log of about ``size`` bytes; the number of records in it."""
    choose = random.Random(0)  # noqa: S311 - noise
    chatter = []
    for _ in range(97):
        lines = ""
        while len(lines) < BYTES_PER_RECORD - 115:
            one, other, bus = choose.randrange(12), choose.randrange(8), choose.randrange(99000)
            text = choose.choice(NOISE).format(one, other, bus, (other + 1) % 8)
            lines += f"node1:{choose.randrange(100, 999)}:1 [{other}] NCCL INFO {text}\n"
        chatter.append(lines)
    records, written, at = 0, 0, 7.0
    with path.open("w", encoding="ascii") as log:
        if kind == "csv":
            log.write("step,at,loss\n")
        while written < size:
            records += 1
            at += 0.35 + choose.randrange(5000) / 1e6
            written += log.write(f"{chatter[records % 97]}{record(kind, records, at)}")
    return records


def read(kind: str, path: str, last: int, names: tuple[str, ...]) -> str:
    """Measure a log up to a step; the throughput."""
    from pytest_dlperf.formats.declared import declared_metric
    from pytest_dlperf.formats.log_format import custom_format
    from pytest_dlperf.logs.reading import LogReading
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Estimator, Window
    from pytest_dlperf.model.metric import Better, Metric, Source, Statistic

    metrics = [
        Metric(name=name, unit="", better=Better.LOWER, source=Source.LOG, statistic=Statistic.MAX)
        for name in names
    ]
    found = LogReading(
        path,
        number=1,
        case=Case.from_id(f"f-m-fp32-b{BATCH}-1n1g"),
        log_format=custom_format("declared", **KINDS[kind]),
        window=Window(warmup_steps=WARMUP, measured_steps=last - WARMUP),
        estimator=Estimator.STEADY,
        declared=[
            declared_metric(metric, record=f" {metric.name} : (?P<value>[0-9.]+)")
            for metric in metrics
        ],
    ).finish()
    if found.missing or not found.metrics:
        raise SystemExit(found.reason or str(found.missing))
    return f"{found.metrics['throughput']:.3f}"


def compare(folder: Path, size: int, repeats: int) -> None:
    """Read logs in all ways and print the table."""
    logs = {kind: folder / f"{kind}.log" for kind in KINDS}
    records = {kind: write_log(log, kind, size) for kind, log in logs.items()}
    grep = ["grep", "-c", "iteration ", str(logs["expression"])]
    commands = {"grep -c": (grep, {"LC_ALL": "C"})}
    # Without site, so that its files cost nothing; values and expressions are packages.
    packages = os.pathsep.join((str(Path(__file__).parents[1]), sysconfig.get_path("platlib")))
    environment = {"PYTHONPATH": packages, "PYTHONDONTWRITEBYTECODE": ""}

    def add(name: str, kind: str, last: int, *names: str) -> None:
        words = [kind, str(logs[kind]), str(last), *names]
        commands[name] = ([sys.executable, "-S", __file__, "--read", *words], environment)

    add("a window at the head", "expression", WARMUP + MEASURED)
    for kind, count in records.items():
        add(f"all steps, {kind}", kind, count)
    add("all steps, five metrics", "expression", records["expression"], *METRICS)
    # The first round, which does not count, caches byte code and the files.
    found = interleaved({name: partial(run, *each) for name, each in commands.items()}, repeats + 1)
    rows: dict[str, Usage] = {name: middle(costs[1:]) for name, costs in found.items()}
    print(f"{size / 1e6:,.0f} MB, medians of {repeats}, start-up included")
    print(f"{'':28}{'CPU s':>8}{'x grep':>8}{'peak MiB':>10}")
    floor = rows["grep -c"].cpu_s
    for name, each in rows.items():
        ratio = each.cpu_s / floor if floor else float("inf")
        print(f"{name:28}{each.cpu_s:8.3f}{ratio:8.2f}{each.peak_mib:10.1f}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size-mb", type=int, default=1000, help="size of each log, in 10^6 bytes")
    parser.add_argument("--repeats", type=int, default=3, help="runs per reader")
    parser.add_argument("--read", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        kind, path, last, *names = options.read
        print(read(kind, path, int(last), tuple(names)))
        return
    with tempfile.TemporaryDirectory(prefix="read_logs_") as folder:
        compare(Path(folder), options.size_mb * 1_000_000, options.repeats)


if __name__ == "__main__":
    main()
