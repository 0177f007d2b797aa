"""``pytest-dlperf history export``: the history as CSV."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.shell import (
    add_cases,
    check_known,
    chosen_cases,
    file_argument,
    text_argument,
    write_report,
)
from pytest_dlperf.history.series import Finite, Time  # noqa: TC001 - msgspec reads the types
from pytest_dlperf.history.store import History
from pytest_dlperf.model.results import Origin
from pytest_dlperf.report.texts import printable

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator, Sequence


class ExportedMeasurement(NamedTuple):
    """One metric of one case in one session.

    Numbers are in the metric's ``unit``, or in percent where the name says so. They are ``None``
    where nothing was measured or compared.
    """

    started: Time
    """When the session began, ISO 8601 with its zone."""
    ended: Time
    """When it ended, likewise."""
    session: str
    """Its id."""
    cluster: str
    estimator: str
    case: str
    framework: str
    model: str
    precision: str | None
    nodes: int
    devices_per_node: int
    metric: str
    unit: str
    better: str | None
    """``higher`` or ``lower``; ``None`` for a metric that is held against no baseline."""
    value: Finite | None
    """The median of the runs; of a case with broken runs, that of the rest."""
    lowest: Finite | None
    highest: Finite | None
    runs: int
    """How many runs have a number."""
    broken_runs: int
    """How many runs failed, hung or were invalid."""
    noise_percent: Finite | None
    """Coefficient of variation between the runs."""
    accepted: Finite | None
    reference: Finite | None
    loss_percent: Finite | None
    """By how much the value is worse than the reference; negative: better."""
    verdict: str | None
    """A verdict, or ``lost``; ``None`` where nothing was judged."""
    hosts: str | None
    """Names of the hosts, with blanks between them; ``None`` for logs that were only read."""
    commit: str | None
    """The commit of the suite."""


_COLUMNS: Final = {
    "started": "sessions.started",
    "session": "uid",
    "case": "cases.name",
    "value": "median",
    "runs": "counted",
    "broken_runs": "broken",
    "noise_percent": "100 * spread",
    # Not with a minus: that makes -0.0 of no difference.
    "loss_percent": "CASE better WHEN 'higher' THEN 0 - difference_percent "
    "WHEN 'lower' THEN difference_percent END",
    "hosts": "(SELECT content FROM facts WHERE id = fingerprints.hosts)",
    "commit": "sessions.environment",
}
_MEASUREMENTS: Final = f"""
    SELECT {", ".join(_COLUMNS.get(name, name) for name in ExportedMeasurement._fields)}
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    JOIN cases ON cases.id = measurements.case_id
    LEFT JOIN fingerprints ON fingerprints.id = measurements.fingerprint
    ORDER BY sessions.began, sessions.id, measurements.id
"""  # noqa: S608 - names of our own


def add_export_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments, but for the database."""
    add_cases(parser, "export")
    parser.add_argument(
        "--cluster", type=text_argument, metavar="NAME", help="export this cluster (default: all)"
    )
    parser.add_argument(
        "--metric", type=text_argument, metavar="NAME", help="export this metric (default: all)"
    )
    parser.add_argument(
        "--output", type=file_argument, metavar="FILE", help="where to write (default: stdout)"
    )


def export(options: Namespace, file: Path) -> int:
    """Write the chosen measurements and return the exit code."""
    with History.read(file) as database:
        rows = list(_exported(database))
    check_known("--metric", "metric", options.metric, (row.metric for row in rows))
    check_known("--cluster", "cluster", options.cluster, (row.cluster for row in rows))
    rows = [
        row
        for row in rows
        if options.metric in (None, row.metric) and options.cluster in (None, row.cluster)
    ]
    ids = chosen_cases((row.case for row in rows), options.cases, "the history has no case")
    text = _csv([_printable(row) for row in rows if row.case in ids])
    if options.output is None:
        sys.stdout.write(text)
    else:
        write_report("--output", Path(options.output), text)
    return FINE


def _exported(history: History) -> Iterator[ExportedMeasurement]:
    """Yield all measurements, the oldest session first.

    Raises:
        HistoryError: The database cannot be read.
    """
    # Thousands of measurements are of a few sessions and hosts.
    hosts: dict[str | None, str | None] = {None: None}
    commits: dict[str | None, str | None] = {None: None}
    for row in history.tuples(_MEASUREMENTS, ExportedMeasurement):
        if row.hosts is not None and row.hosts not in hosts:
            hosts[row.hosts] = " ".join(history.decoded(row.hosts, list[str]))
        if row.commit is not None and row.commit not in commits:
            origin = Origin.of(history.decoded(row.commit, dict[str, Any]))
            commits[row.commit] = origin.commit
        yield row._replace(hosts=hosts[row.hosts], commit=commits[row.commit])


def _printable(row: ExportedMeasurement) -> ExportedMeasurement:
    """Escape control characters, so that each row stays a line and is safe on a terminal."""
    texts: dict[str, Any] = {
        name: printable(cell) for name, cell in row._asdict().items() if isinstance(cell, str)
    }
    return row._replace(**texts)


def _csv(rows: Sequence[ExportedMeasurement]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ExportedMeasurement._fields)
    writer.writerows(rows)
    return text.getvalue()
