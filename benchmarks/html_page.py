"""What the page of 115 cases and a year of nights costs, beside writing the same as JSON.

    python benchmarks/html_page.py [--repeats 5]

Three sides, in turn within one run, each of which ends with a file on disk. One begins with a
database, as a session does: that is what a user waits for. The page alone and JSON begin with the
same results and histories in memory. The first page of a process, with the reading of the database
and all imports, has a budget of 5 s and 2 MB; the script ends with 1 where it is missed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from published_session import PLENTY, published, with_all_else, year_of_nights  # noqa: E402

from pytest_dlperf.history.case_history import histories_of  # noqa: E402
from pytest_dlperf.history.store import History  # noqa: E402
from pytest_dlperf.history.trends import is_available  # noqa: E402
from pytest_dlperf.model.measurement import Run, RunStatus  # noqa: E402
from pytest_dlperf.model.records import CaseResult  # noqa: E402
from pytest_dlperf.reports.html.page import html_page  # noqa: E402
from pytest_dlperf.results.encode import encode  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_dlperf.history.series import CaseHistory
    from pytest_dlperf.model.results import Results

MAX_SECONDS: Final = 5.0
MAX_BYTES: Final = 2_000_000
RUNS: Final = 5
NOISE: Final = 0.005


def write_page(file: Path, results: Results, histories: Mapping[str, CaseHistory]) -> None:
    """What is measured."""
    file.write_text(html_page(results, histories), encoding="utf-8")


def write_json(file: Path, results: Results, histories: Mapping[str, CaseHistory]) -> None:
    """The floor: the same values, without a picture of them."""
    nights = {name: asdict(history) for name, history in histories.items()}
    file.write_text(json.dumps([encode(results), nights]), encoding="utf-8")


def fill(file: Path, results: Results, histories: Mapping[str, CaseHistory]) -> None:
    """Put the nights of the histories into a database, and tonight."""
    results_of = {result.case.id: result for result in results.cases}
    draw = random.Random(1)  # noqa: S311 - noise
    nights: dict[str, list[CaseResult]] = {}
    for case_id, known in histories.items():
        tonight = results_of[case_id]
        measured = tonight.measurement
        if measured is None:
            continue
        for point in known.nights[:-1]:
            runs = tuple(
                Run(
                    run=number,
                    throughput=point.median * draw.gauss(1, NOISE),
                    status=RunStatus.OK,
                )
                for number in range(1, RUNS + 1)
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
            then = replace(results, session=started, started=started, cases=tuple(cases))
            history.add(replace(then, baseline_changes=()))
        history.add(results)


def measured(repeats: int, **sides: Callable[[], object]) -> dict[str, list[float]]:
    """Seconds of each side, in turn: the first of a process, and so many more."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats + 1):
        for name, side in sides.items():
            started = time.perf_counter()
            side()
            taken[name].append(time.perf_counter() - started)
    return taken


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5, help="counted runs of each side")
    repeats = parser.parse_args().repeats
    results = with_all_else(published(PLENTY))
    histories = year_of_nights(results)
    with tempfile.TemporaryDirectory() as folder:
        file, as_json, database = (Path(folder) / name for name in ("page", "json", "database"))
        fill(database, results, histories)
        taken = measured(
            repeats,
            all=lambda: write_page(file, results, histories_of(database, results)),
            page=lambda: write_page(file, results, histories),
            JSON=lambda: write_json(as_json, results, histories),
        )
        sizes = {"page": file.stat().st_size, "JSON": as_json.stat().st_size}
        points = sum(len(known.nights) for known in histories_of(database, results).values())
    first = taken["all"][0]
    everything, page, floor = (median(times[1:]) for times in taken.values())
    found = "with" if is_available() else "without"
    print(
        f"{len(results.cases)} cases, {points} nights of cases, {found} change points: reading the "
        f"database and writing the page {everything:.2f} s (the first time in a process "
        f"{first:.2f} s); the page alone {page:.2f} s and {sizes['page'] / 1e6:.2f} MB; JSON "
        f"{floor:.2f} s and {sizes['JSON'] / 1e6:.2f} MB; ratio of page to JSON "
        f"{page / floor:.2f} (medians of {repeats})"
    )
    return int(first > MAX_SECONDS or sizes["page"] > MAX_BYTES)


if __name__ == "__main__":
    sys.exit(main())
