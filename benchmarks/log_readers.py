"""The readers that ``read_logs.py`` compares, each run in a process of its own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

BATCH: Final = 128
WARMUP: Final = 20
MEASURED: Final = 100
SETTLING: Final = 5
USUAL_WINDOW: Final = 1000
"""Steps of a long window."""
METRICS: Final = ("loss", "total_ips", "mem", "data", "norm")


def read_ours(path: str, last: int) -> str:
    """Measure the log with the package; the throughput."""
    from pytest_dlperf.formats.shipped import BUILTIN_FORMATS
    from pytest_dlperf.logs.reading import LogReading
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Estimator, Window
    from pytest_dlperf.model.metric import THROUGHPUT

    run = LogReading(
        path,
        number=1,
        case=Case.from_id(f"ngc_pytorch-resnet50-fp32-b{BATCH}-1n1g"),
        log_format=BUILTIN_FORMATS["dllogger"],
        window=Window(warmup_steps=WARMUP, measured_steps=last - WARMUP - SETTLING),
        estimator=Estimator.STEADY,
    ).finish()
    if not run.metrics:
        raise SystemExit(run.reason)
    return f"{run.metrics[THROUGHPUT]:.3f}"


def read_declared(path: str, last: int, *, names: Sequence[str] = (), steps: int = 0) -> str:
    """Measure the log with expressions that a system declares: of a step, and of metrics.

    ``steps`` is how many are measured: all after the warm-up, unless it says less.
    """
    from pytest_dlperf.formats.declared import declared_metric
    from pytest_dlperf.formats.log_format import custom_format
    from pytest_dlperf.logs.reading import LogReading
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Estimator, Window
    from pytest_dlperf.model.metric import Better, Metric, Source, Statistic

    record = "DLL (?P<timestamp>[-0-9]+ [:.0-9]+) - Epoch: 0 Iteration: (?P<step>[0-9]+) "
    metrics = [
        Metric(
            name=name,
            unit="",
            better=Better.LOWER,
            source=Source.LOG,
            statistic=Statistic.MAX,
        )
        for name in names
    ]
    measured = min(steps or last, last - WARMUP - SETTLING)
    run = LogReading(
        path,
        number=1,
        case=Case.from_id(f"ngc_pytorch-resnet50-fp32-b{BATCH}-1n1g"),
        log_format=custom_format("declared", record=record),
        window=Window(warmup_steps=last - measured, measured_steps=measured),
        estimator=Estimator.STEADY,
        declared=[
            declared_metric(metric, record=f"train.{metric.name} : (?P<value>[0-9.]+)")
            for metric in metrics
        ],
    ).finish()
    if run.missing or not run.metrics:
        raise SystemExit(run.reason or str(run.missing))
    return "" if steps else f"{run.metrics['throughput']:.3f}"


def read_in_memory(path: str, last: int) -> str:
    """Measure the log as scripts commonly do: all lines into memory, then one by one."""
    import re
    from datetime import datetime

    iteration = re.compile(r"Iteration: (\d+)")
    stamp = re.compile(r"\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{1,6}")
    stamps = {}
    with open(path, encoding="utf-8") as log:  # noqa: PTH123 - imports nothing
        lines = log.readlines()
    for line in lines:
        if "Iteration: " in line:
            found, number = stamp.search(line), iteration.search(line)
            if found and number and int(number[1]) in (WARMUP + SETTLING, last):
                stamps[int(number[1])] = datetime.fromisoformat(found[0])
    elapsed = stamps[last] - stamps[WARMUP + SETTLING]
    steps = last - WARMUP - SETTLING
    return f"{BATCH * steps / elapsed.total_seconds():.3f}"


READERS: Final[Mapping[str, Callable[[str, int], str]]] = {
    "ours": read_ours,
    "memory": read_in_memory,
    "declared": read_declared,
    "declared-metrics": lambda path, last: read_declared(path, last, names=METRICS),
    "window": lambda path, last: read_declared(path, last, steps=USUAL_WINDOW),
    "window-metrics": lambda path, last: read_declared(
        path, last, names=METRICS, steps=USUAL_WINDOW
    ),
}


if __name__ == "__main__":
    NAME, LOG, LAST = sys.argv[1:]
    print(READERS[NAME](LOG, int(LAST)))
