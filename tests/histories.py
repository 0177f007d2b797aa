"""Sessions' results as values, for tests of the history that need many nights at once."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import median
from typing import Any

from results_makers import baseline_of, judged, metrics_of

from pytest_dlperf.history.case_history import drifts_of
from pytest_dlperf.history.series import Day
from pytest_dlperf.history.store import History
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Estimator, Fingerprint, Measurement, Run, RunStatus
from pytest_dlperf.model.metric import Metric, throughput
from pytest_dlperf.model.results import CaseResult, Results
from pytest_dlperf.report import trends

CASE = "tiny-mlp-fp32-b4-1n1g"
UNIT = "samples/s"
METRIC = throughput(UNIT)
FIRST = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=1)))
"""When the first night begins."""


def night(number: int) -> str:
    """When a night begins: 0 is the first of January 2026."""
    return (FIRST + timedelta(days=number)).isoformat(timespec="seconds")


def measurement(
    case_id: str,
    runs: Sequence[float | None],
    *,
    logs_digest: str | None = None,
    metric: Metric = METRIC,
) -> Measurement:
    """A measurement with so many runs; ``None`` is one that failed."""
    taken_on = Fingerprint(machine={"device": "H200"}, hosts=("a",))
    return Measurement(
        case_id=case_id,
        metrics=(metric,),
        estimator=Estimator.STEADY,
        runs=tuple(
            Run(run=number, status=RunStatus.FAILED, reason="exit code 7")
            if value is None
            else Run(run=number, status=RunStatus.OK, metrics={metric.name: value})
            for number, value in enumerate(runs, 1)
        ),
        fingerprint=taken_on if logs_digest is None else None,
        logs_digest=logs_digest,
    )


def case_result(  # noqa: PLR0913 - what differs between tests, by name
    case_id: str,
    runs: Sequence[float | None],
    *,
    logs_digest: str | None = None,
    baseline: float | None = None,
    verdict: Verdict = Verdict.PASS,
    metric: Metric = METRIC,
) -> CaseResult:
    """What a session came to of one case."""
    judgement = judged(verdict, metric=metric, accepted=baseline, difference_percent=0.1)
    return CaseResult(
        case=Case.from_id(case_id),
        measurement=measurement(case_id, runs, logs_digest=logs_digest, metric=metric),
        accepted={} if baseline is None else {metric.name: baseline_of(baseline, metric)},
        judgements={metric.name: judgement},
    )


def session(
    number: int, cases: Mapping[str, Sequence[float | None]] | Sequence[CaseResult], **more: Any
) -> Results:
    """The results of a night: cases as such, or as their runs by id."""
    results = (
        [case_result(case_id, runs) for case_id, runs in cases.items()]
        if isinstance(cases, Mapping)
        else cases
    )
    fields = {
        "session": f"night-{number}",
        "cluster": "local",
        "estimator": Estimator.STEADY,
        "started": night(number),
        "ended": night(number),
        "environment": {"host": "a"},
        "metrics": metrics_of(results),
        "cases": tuple(results),
    }
    return Results(**{**fields, **more})


def drawn(
    levels: Sequence[float], *, noise: float = 0.01, seed: str = "nights"
) -> list[list[float]]:
    """Five runs of a night at each level, which differ by ``noise`` as a part of it."""
    draw = random.Random(seed)  # noqa: S311 - the same nights every time
    return [[level * draw.gauss(1, noise) for _ in range(5)] for level in levels]


def days(nights: Sequence[Sequence[float]]) -> list[Day]:
    """One day for each night's runs."""
    return [
        Day(
            index=number,
            last=number,
            started=night(number),
            began=FIRST.timestamp() + 86400 * number,
            median=median(runs),
            runs=len(runs),
        )
        for number, runs in enumerate(nights)
    ]


def add(file: Path, *nights: Results) -> None:
    """Put sessions into a database, without a wait for the disk after each."""
    with History.open(file) as history:
        history.tuples("PRAGMA synchronous = OFF", tuple)
        for results in nights:
            history.add(results)


def fill(file: Path, nights: Sequence[Sequence[float | None]], case_id: str = CASE) -> Results:
    """Put one session for each night into a database, and give the last one."""
    sessions = [session(number, {case_id: runs}) for number, runs in enumerate(nights)]
    add(file, *sessions)
    return sessions[-1]


def drift_lines(file: Path, results: Results) -> list[str]:
    """The cases of these results that drift, in the words of reports."""
    found = drifts_of(file, results)
    return [f"{one.case_id} {trends.drift(drift)}" for one, drift in found]


def rows_of(file: Path, query: str) -> list[tuple[object, ...]]:
    """The rows that SQLite itself gives for a query."""
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(query).fetchall()
