"""How long the history takes to answer, with 100,000 measurements in it.

    python benchmarks/history.py [--measurements 100000] [--metrics 1] [--repeats 7]

The database holds so many sessions of 115 cases, five runs each, with so many metrics, of which the
throughput is judged and asked for. What is timed stands beside a
floor, in turn within one run: a bare query of SQLite for the same rows, or a JSON file that holds
the same rows and nothing else. Only one process runs; files are in the system's cache.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from datetime import datetime, timedelta, timezone
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from msgspec import to_builtins
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from histories import drift_lines

from pytest_dlperf.history.case_history import histories_of, history_of
from pytest_dlperf.history.explaining import Subject, Tonight, explain
from pytest_dlperf.history.nights import machines_of, nights_of
from pytest_dlperf.history.recorder import Recorder
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.series import Series
from pytest_dlperf.history.store import History
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Decision, Judgement, Verdict
from pytest_dlperf.model.measurement import (
    Estimator,
    Fingerprint,
    LaunchFacts,
    Measurement,
    Run,
    RunStatus,
)
from pytest_dlperf.model.metric import Metric, RuleName, throughput
from pytest_dlperf.model.results import CaseResult, Results, TestRecord

CASES = 115
RUNS = 5
METRIC = throughput("images/s")
FIRST = datetime(2024, 1, 1, tzinfo=timezone.utc)
BARE = """
    SELECT s.started, m.median, m.lowest, m.highest, m.counted, m.accepted, m.verdict
    FROM measurements m JOIN sessions s ON s.id = m.session_id
    WHERE m.case_id = (SELECT id FROM cases WHERE name = ?) AND m.metric = 'throughput'
    ORDER BY m.began DESC LIMIT ?
"""


def measured_metrics(count: int) -> tuple[Metric, ...]:
    """The throughput, then metrics that are recorded and not judged."""
    more = (replace(METRIC, name=f"metric_{number}", is_judged=False) for number in range(2, 99))
    return (METRIC, *islice(more, count - 1))


def one_night(cases: Sequence[Case], number: int, metrics: tuple[Metric, ...]) -> Results:
    """The results of one session, a night later each time."""
    draw = random.Random(number)  # noqa: S311 - the same nights every time
    started = (FIRST + timedelta(days=number)).isoformat()
    passed = Judgement(metric=METRIC, verdict=Verdict.PASS, measured=1.0)
    results = []
    for case in cases:
        runs = tuple(
            Run(
                run=k,
                status=RunStatus.OK,
                metrics={metric.name: 9000 * draw.gauss(1, 0.01) for metric in metrics},
                steps=100,
            )
            for k in range(1, RUNS + 1)
        )
        measured = Measurement(
            case_id=case.id,
            metrics=metrics,
            estimator=Estimator.STEADY,
            runs=runs,
            fingerprint=taken_on(case, number),
        )
        judgements = {METRIC.name: passed}
        results.append(CaseResult(case=case, measurement=measured, judgements=judgements))
    return Results(
        session=f"night-{number}",
        cluster="local",
        estimator=Estimator.STEADY,
        started=started,
        ended=started,
        metrics={cases[0].system: metrics},
        cases=tuple(results),
    )


def taken_on(case: Case, night: int) -> Fingerprint:
    """What a case is measured on: its launch is its own, its commit another one each night."""
    return Fingerprint(
        machine={"device": "H200"},
        software={f"package-{number}": "1.0" for number in range(40)},
        hosts=("a",),
        commits={"trainer": f"{night:012x}"},
        launch=LaunchFacts(
            launcher="ssh",
            arguments=("python", "train.py", "--name", case.id, *map(str, range(20))),
            environment={f"VARIABLE_{number}": "value" for number in range(20)},
        ),
    )


def interleaved(repeats: int, **actions: Callable[[], object]) -> dict[str, float]:
    """Median milliseconds of each action, taken in turn, after one round that does not count."""
    taken: dict[str, list[float]] = {name: [] for name in actions}
    for round_number in range(repeats + 1):
        for name, action in actions.items():
            began = time.perf_counter()
            action()
            if round_number:
                taken[name].append(1000 * (time.perf_counter() - began))
    return {name: median(times) for name, times in taken.items()}


def compare(what: str, times: dict[str, float]) -> None:
    """Print what was timed beside its floor."""
    ours, floor = times["ours"], times["floor"]
    print(f"{what}: {ours:.1f} ms, floor {floor:.1f} ms, ratio {ours / floor:.1f}")


def main() -> None:
    """Fill a database, and time it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--measurements", type=int, default=100_000)
    parser.add_argument("--metrics", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    cases = [Case.from_id(f"paddle-resnet50-fp32-b{batch}-4n8g") for batch in range(1, CASES + 1)]
    with tempfile.TemporaryDirectory() as name:
        nights = partial(one_night, metrics=measured_metrics(options.metrics))
        measure(Path(name), cases, nights, options.measurements // CASES + 1, options.repeats)


Nights = Callable[[Sequence[Case], int], Results]
"""Makes the results of a night of some cases."""


def measure(folder: Path, cases: Sequence[Case], night: Nights, nights: int, repeats: int) -> None:
    """Time questions, the page's question and a session's writing."""
    file = folder / "history.sqlite3"
    began = time.perf_counter()
    with History.open(file) as history:
        for number in range(nights):
            last = night(cases, number)
            history.add(last)
    each_ms = 1000 * (time.perf_counter() - began) / nights
    print(
        f"{nights * CASES} measurements of {nights} sessions, {RUNS} runs each: "
        f"{file.stat().st_size / 2**20:.0f} MiB, {each_ms:.1f} ms a session"
    )

    until = seconds_of(last.started)
    series = Series.of(cases[7], METRIC, cluster="local", estimator="steady")
    with closing(sqlite3.connect(file)) as bare, History.read(file) as history:

        def plain(case: Case) -> object:
            return bare.execute(BARE, (case.id, 366)).fetchall()

        history_of(history, series, until=until, machines=machines_of(history))  # imports NumPy
        compare(
            "the last 366 nights of a case; floor: a bare query",
            interleaved(
                repeats,
                ours=lambda: nights_of(history, series, until=until),
                floor=lambda: plain(cases[7]),
            ),
        )
        compare(
            "all that the history says of a case; floor: the same",
            interleaved(
                repeats,
                ours=lambda: history_of(
                    history, series, until=until, machines=machines_of(history)
                ),
                floor=lambda: plain(cases[7]),
            ),
        )
        rows = [plain(case) for case in cases]
        as_json = folder / "rows.json"
        as_json.write_text(json.dumps(rows), encoding="utf-8")
        page = interleaved(
            max(repeats // 2, 1),
            ours=lambda: [
                nights_of(history, replace(series, case_id=case.id), until=until) for case in cases
            ],
            floor=lambda: [plain(case) for case in cases],
            json=lambda: json.loads(as_json.read_text(encoding="utf-8")),
        )
        compare(f"366 nights of {CASES} cases; floor: bare queries", page)
        compare("… floor: a JSON file of these rows alone", {**page, "floor": page["json"]})
    whole = interleaved(
        1, page=lambda: histories_of(file, last), lines=lambda: drift_lines(file, last)
    )
    print(f"what the page asks, with change points, drift and noise: {whole['page']:.0f} ms")
    print(f"who drifts, as a session's end may ask: {whole['lines']:.0f} ms")
    took = interleaved(2, explained=lambda: explain_all(file, cases, last))["explained"]
    print(f"since when each of {CASES} losses is there, and what differs: {took:.0f} ms")
    writing(file, cases, night, range(nights, nights + 10 * repeats + 10), repeats)


def explain_all(file: Path, cases: Sequence[Case], night: Results) -> None:
    """What tests ask that all find a loss, each with an opening of the database."""
    number = int(night.session.removeprefix("night-")) + 1
    started = (FIRST + timedelta(days=number)).isoformat()
    tonight = Tonight(session="tonight", started=started, commit="abc")
    decision = Decision(
        rule=RuleName.TOLERANCE,
        verdict=Verdict.REGRESSED,
        reference=9000.0,
        difference_percent=-5.0,
        tolerance_percent=2.0,
    )
    loss = Judgement(
        metric=METRIC,
        verdict=Verdict.REGRESSED,
        measured=8550.0,
        accepted=9000.0,
        decision=decision,
    )
    for case, result in zip(cases, night.cases, strict=True):
        series = Series.of(case, METRIC, cluster="local", estimator="steady")
        subject = Subject(
            series=series, judgement=loss, measurement=result.measurement, baseline=None
        )
        with History.read(file) as history:
            if explain(history, subject, tonight) is None:
                raise AssertionError(f"nothing is told of {case.id}")


def writing(
    file: Path, cases: Sequence[Case], night: Nights, numbers: Iterable[int], repeats: int
) -> None:
    """Time what a session writes: all at its end, and each measurement at once."""
    more = iter(numbers)
    as_json = file.with_name("session.json")

    def add(results: Results) -> None:
        with History.open(file) as history:
            history.add(results)

    def write(results: Results) -> None:
        from pytest_dlperf.results.file import results_file

        as_json.write_text(json.dumps(to_builtins(results_file(results))), encoding="utf-8")

    for count in (CASES, 3):
        prepared = [night(cases[:count], next(more)) for _ in range(repeats + 1)]
        ours = partial(lambda them: add(next(them)), iter(prepared))
        floor = partial(lambda them: write(next(them)), iter(prepared))
        compare(
            f"adding a session of {count} cases; floor: writing its results file",
            interleaved(repeats, ours=ours, floor=floor),
        )
    tonight = night(cases[:3], next(more))
    recorder = Recorder(file, session="x", cluster="local", started=tonight.started)
    records = [
        TestRecord(
            case=result.case,
            metric=METRIC.name,
            measurements={result.case.id: result.measurement} if result.measurement else {},
        )
        for result in tonight.cases
    ]
    began = time.perf_counter()
    for record in records:
        recorder.note(record)
    print(f"noting 3 tests as they end: {1000 * (time.perf_counter() - began):.1f} ms in all")


if __name__ == "__main__":
    main()
