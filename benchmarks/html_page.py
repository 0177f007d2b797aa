"""What the page of 115 cases and a year of nights costs, beside writing the same as JSON.

    python benchmarks/html_page.py [--repeats 5] [--metrics 2]

Three sides, in turn within one run, each of which ends with a file on disk. One begins with a
database, as a session does: that is what a user waits for. The page alone and JSON begin with the
same results and histories in memory. Each case has throughput and speedup, and with ``--metrics``
so many in all. With two, the first page of a process, with the reading of the database and all
imports, has a budget of 5 s and 2 MB, and the page alone one of the time that JSON takes; the
script ends with 1 where one is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from msgspec import to_builtins
from msgspec.structs import replace
from timing import interleaved, seconds

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import results_makers as make  # noqa: E402
from published_session import (  # noqa: E402
    PEAK_MEMORY,
    PLENTY,
    published,
    with_all_else,
    year_of_nights,
)

from pytest_dlperf.history.case_history import histories_of  # noqa: E402
from pytest_dlperf.history.store import History  # noqa: E402
from pytest_dlperf.model.measurement import Run, RunStatus  # noqa: E402
from pytest_dlperf.model.metric import THROUGHPUT  # noqa: E402
from pytest_dlperf.model.results import CaseResult, with_measurements  # noqa: E402
from pytest_dlperf.report.html.page import html_page  # noqa: E402
from pytest_dlperf.results.file import results_file  # noqa: E402

if TYPE_CHECKING:
    from pytest_dlperf.history.case_history import Histories
    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.model.results import Results

MAX_SECONDS: Final = 5.0
MAX_BYTES: Final = 2_000_000
MAX_RATIO: Final = 1.0
RUNS: Final = 5
NOISE: Final = 0.005


def write_page(file: Path, results: Results, histories: Histories) -> None:
    """What is measured."""
    file.write_text(html_page(make.night(results, histories)), encoding="utf-8")


def write_json(file: Path, results: Results, histories: Histories) -> None:
    """The floor: the same values, without a picture of them."""
    values = to_builtins([results_file(results), histories])
    file.write_text(json.dumps(values), encoding="utf-8")


def with_metrics(results: Results, names: list[str]) -> Results:
    """Give each case the peak memory under more names: as many metrics more."""
    metrics = [replace(PEAK_MEMORY, name=name) for name in names]
    return replace(
        results,
        metrics={system: (*known, *metrics) for system, known in results.metrics.items()},
        cases=tuple(_with_metrics(one, metrics) for one in results.cases),
    )


def _with_metrics(result: CaseResult, metrics: list[Metric]) -> CaseResult:
    measurement, name = result.measurement, PEAK_MEMORY.name
    if measurement is None or not metrics:
        return result
    runs = [
        replace(run, metrics={**run.metrics, **{one.name: run.metrics[name] for one in metrics}})
        if run.metrics
        else run
        for run in measurement.runs
    ]
    return replace(
        result,
        measurement=replace(
            measurement, metrics=(*measurement.metrics, *metrics), runs=tuple(runs)
        ),
        judgements={
            **result.judgements,
            **{one.name: replace(result.judgements[name], metric=one) for one in metrics},
        },
        accepted={
            **result.accepted,
            **{one.name: result.accepted[name] for one in metrics if name in result.accepted},
        },
    )


def fill(file: Path, results: Results, histories: Histories) -> None:
    """Put the nights of the histories into a database, and tonight."""
    results_of = {result.case.id: result for result in results.cases}
    draw = random.Random(1)  # noqa: S311 - noise
    nights: dict[str, list[CaseResult]] = {}
    for case_id, known in histories.items():
        tonight = results_of[case_id]
        measured = tonight.measurement
        if measured is None:
            continue
        own = {metric.name: known[metric.name].nights for metric in measured.metrics}
        for number, point in enumerate(known[THROUGHPUT].nights[:-1]):
            runs = tuple(
                Run(
                    run=run,
                    metrics={
                        name: points[number].median * draw.gauss(1, NOISE)
                        for name, points in own.items()
                    },
                    status=RunStatus.OK,
                )
                for run in range(1, RUNS + 1)
            )
            nights.setdefault(point.started, []).append(
                CaseResult(
                    case=tonight.case,
                    measurement=replace(measured, runs=runs),
                    accepted=tonight.accepted,
                )
            )
    with History.open(file) as history:
        for started, cases in nights.items():
            by_case = {one.case.id: one.measurement for one in cases if one.measurement}
            whole = tuple(with_measurements(one, by_case) for one in cases)
            then = replace(results, session=started, started=started, cases=whole)
            history.add(replace(then, baseline_changes=()))
        history.add(results)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of each side")
    parser.add_argument("--metrics", type=int, default=2, help="metrics of each case")
    options = parser.parse_args()
    repeats, more = options.repeats, options.metrics - 2
    declared = (PEAK_MEMORY,) if more else ()
    names = [f"peak_memory_{number}" for number in range(1, more)]
    results = with_metrics(with_all_else(published(PLENTY, declared=declared)), names)
    histories = year_of_nights(results)
    with tempfile.TemporaryDirectory() as folder:
        file, as_json, database = (Path(folder) / name for name in ("page", "json", "database"))
        fill(database, results, histories)
        sides = {
            "all": lambda: write_page(file, results, histories_of(database, results)),
            "page": lambda: write_page(file, results, histories),
            "JSON": lambda: write_json(as_json, results, histories),
        }
        timed = {name: partial(seconds, side) for name, side in sides.items()}
        taken = interleaved(timed, repeats + 1)
        sizes = {"page": file.stat().st_size, "JSON": as_json.stat().st_size}
        points = sum(
            len(known.nights)
            for by_metric in histories_of(database, results).values()
            for known in by_metric.values()
        )
    first = taken["all"][0]
    everything, page, floor = (median(times[1:]) for times in taken.values())
    print(
        f"{len(results.cases)} cases, {points} nights of metrics, with change points: reading "
        f"the database and writing the page {everything:.2f} s (the first time in a process "
        f"{first:.2f} s); the page alone {page:.2f} s and {sizes['page'] / 1e6:.2f} MB; JSON "
        f"{floor:.2f} s and {sizes['JSON'] / 1e6:.2f} MB; ratio of page to JSON "
        f"{page / floor:.2f} (medians of {repeats})"
    )
    is_missed = first > MAX_SECONDS or sizes["page"] > MAX_BYTES or page > MAX_RATIO * floor
    return int(not more and is_missed)


if __name__ == "__main__":
    sys.exit(main())
