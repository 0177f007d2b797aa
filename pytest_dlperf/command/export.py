"""``pytest-dlperf history export``: the history as CSV."""

from __future__ import annotations

import csv
import io
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, Final

from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.shell import (
    add_cases,
    check_known,
    chosen_cases,
    file_argument,
    text_argument,
    write_report,
)
from pytest_dlperf.history.store import History
from pytest_dlperf.model.case import Case
from pytest_dlperf.report.printing import printable

COLUMNS: Final = {
    "started": "sessions.started",
    "ended": "ended",
    "session": "uid",
    "cluster": "cluster",
    "estimator": "estimator",
    "case": "cases.name",
    "metric": "metric",
    "unit": "unit",
    "better": "better",
    "value": "median",
    "lowest": "lowest",
    "highest": "highest",
    "runs": "counted",
    "broken_runs": "broken",
    "noise_percent": "100 * spread",
    "accepted": "accepted",
    "reference": "reference",
    # Not with a minus: that makes -0.0 of no difference.
    "loss_percent": "CASE better WHEN 'higher' THEN 0 - difference_percent "
    "WHEN 'lower' THEN difference_percent END",
    "verdict": "verdict",
    "hosts": "(SELECT group_concat(value, ' ') FROM facts, json_each(content) "
    "WHERE facts.id = fingerprints.hosts)",
    "commit": "json_extract(environment, '$.commit')",
}
"""Columns by what they are in the database; docs/results-file.md explains them."""
AXES: Final = ("framework", "model", "precision", "nodes", "devices_per_node")
"""Columns that the case's id has."""
_MEASUREMENTS: Final = f"""
    SELECT {", ".join(COLUMNS.values())}
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    JOIN cases ON cases.id = measurements.case_id
    LEFT JOIN fingerprints ON fingerprints.id = measurements.fingerprint
    ORDER BY sessions.began, sessions.id, measurements.id
"""  # noqa: S608 - names of our own


def add_export_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments, but for the database."""
    add_cases(parser, "export")
    for name in ("cluster", "metric"):
        parser.add_argument(
            f"--{name}",
            type=text_argument,
            metavar="NAME",
            help=f"export this {name} (default: all)",
        )
    parser.add_argument(
        "--output", type=file_argument, metavar="FILE", help="where to write (default: stdout)"
    )


def export(options: Namespace, file: Path) -> int:
    """Write the chosen measurements and return the exit code."""
    with History.read(file) as database:
        measurements = database.tuples(_MEASUREMENTS, tuple[Any, ...])
    rows = [dict(zip(COLUMNS, cells, strict=True)) for cells in measurements]
    cases = {row["case"]: Case.from_id(row["case"]).axes() for row in rows}
    wanted = {"metric": options.metric, "cluster": options.cluster}
    for name, value in wanted.items():
        check_known(f"--{name}", name, value, (row[name] for row in rows))
    rows = [
        row for row in rows if all(value in (None, row[name]) for name, value in wanted.items())
    ]
    ids = chosen_cases((row["case"] for row in rows), options.cases, "the history has no case")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, *AXES))
    for row in rows:
        if row["case"] in ids:
            # Without control characters each row stays a line, and is safe on a terminal.
            axes = cases[row["case"]]
            cells = (*row.values(), *(axes.get(name) for name in AXES))
            writer.writerow(printable(cell) if isinstance(cell, str) else cell for cell in cells)
    if options.output is None:
        sys.stdout.write(text.getvalue())
    else:
        write_report("--output", Path(options.output), text.getvalue())
    return FINE
