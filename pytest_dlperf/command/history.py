"""``pytest-dlperf history``: fills, shows and exports the database of sessions."""

from __future__ import annotations

import csv
import io
import math
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.project import read_project
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    add,
    chosen,
    file_argument,
    path_argument,
    write_report,
)
from pytest_dlperf.config.values import OptionText, history
from pytest_dlperf.history.case_history import history_of
from pytest_dlperf.history.queries import all_series, known_metrics, machines_of, origin_of
from pytest_dlperf.history.series import CaseHistory, Point
from pytest_dlperf.history.store import History, HistoryError
from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better
from pytest_dlperf.model.numbers import counted
from pytest_dlperf.report import trends
from pytest_dlperf.report.printing import printable, wrapped
from pytest_dlperf.results.file import ResultsFileError, read_results

_MAX_BUSY_S: Final = 10.0
"""Seconds that an import waits for sessions that write."""
_DESCRIPTIONS: Final = {
    "import": "Add results files (--dlperf-json) to the database: those of other machines, or of a "
    "CI that keeps no disk. Sessions in the database stay as they are.",
    "show": "Print the history of a metric of each case: its last median, when its level changed, "
    "what was accepted, whether it drifts, and how much its runs and its days differ (coefficients "
    "of variation).",
    "export": "Write a row for each case, metric and session as CSV: value, reference, loss, "
    "verdict, noise, hosts and commit.",
}
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
"""Columns of an export by what they are in the database; docs/results-file.md explains them."""
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


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    parser.description = "Fill and show the database in which sessions keep their measurements."
    actions = parser.add_subparsers(dest="history_command", metavar="ACTION", required=True)
    for name, text in _DESCRIPTIONS.items():
        action = actions.add_parser(
            name,
            help=text.partition(":")[0],
            description=text,
            epilog=PYTEST_ARGUMENTS,
            allow_abbrev=False,
        )
        if name == "import":
            meaning = "a results file; of a folder, all files *.json below it"
            action.add_argument(
                "files", nargs="+", type=path_argument, metavar="FILE", help=meaning
            )
        else:
            default = "all" if name == "export" else "throughput, and the main one of a probe"
            add(action, "cases", "--cluster")
            add(action, "--metric", help=f"this metric (default: {default})")
        if name == "export":
            meaning = "where to write (default: stdout)"
            action.add_argument("--output", type=file_argument, metavar="FILE", help=meaning)
        add(action, "--history")


def run(options: Namespace) -> int:
    """Run the action and return the exit code."""
    if options.history is not None:
        file = history(OptionText(options.history, "--history", Path()))
    else:
        file = read_project(options).settings.history_file
    if file is None:
        raise UsageError("no history is kept here (it is set to none); name one with --history")
    style = Style(sys.stdout)
    if options.history_command == "import":
        return _import(file, options.files, style)
    if not file.exists():
        raise UsageError(
            f"there is no history {file}; sessions keep one, and `pytest-dlperf history import` "
            "fills one from results files"
        )
    if options.history_command == "export":
        return _export(file, options)
    with History.read(file) as database:
        style.show(_shown(database, file, options, style))
    return FINE


def _import(file: Path, paths: Iterable[str], style: Style) -> int:
    new = bad = 0
    places = list(_results_files(map(Path, paths)))
    with History.open(file, busy_s=_MAX_BUSY_S) as database:
        for place in places:
            try:
                is_new = database.add(read_results(place))
            except (ResultsFileError, HistoryError) as error:
                bad += 1
                problem = str(error) if str(error).startswith(str(place)) else f"{place}: {error}"
                # Names of files may hold anything, and so may the message.
                style.show([style("not imported: ", "red") + printable(problem)])
                continue
            new += is_new
            if not is_new:
                style.show([f"there already: {printable(str(place))}"])
    style.show([f"{counted(new, 'session')} imported into {file}"])
    return FAULTS if bad else FINE


def _results_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no file {str(path)!r}")
        # Neither folders of such a name, nor pipes without a writer.
        below = sorted(file for file in path.rglob("*.json") if file.is_file())
        if path.is_dir() and not below:
            raise UsageError(f"there is no file *.json in {path}")
        yield from below if path.is_dir() else [path]


# ------------------------------------------------------------------------------ show


def _shown(database: History, file: Path, options: Namespace, style: Style) -> Iterator[str]:
    metrics = known_metrics(database)
    if not metrics:
        yield f"{file} holds no measurement yet"
        return
    named = chosen(metrics, [options.metric], "--metric: the history has no metric")
    main_metrics: list[str | None] = [None]
    every = [
        series
        for metric in (sorted(named) if options.metric else main_metrics)
        for series in all_series(database, metric)
    ]
    clusters = chosen(
        (series.cluster for series in every),
        [options.cluster],
        "--cluster: the history has no cluster",
    )
    every = [series for series in every if series.cluster in clusters]
    ids = chosen((series.case_id for series in every), options.cases, "the history has no case")
    machines, last = machines_of(database), ""
    for series in (series for series in every if series.case_id in ids):
        title = printable(f"{series.metric}, cluster {series.cluster} ({series.estimator})")
        if title != last:
            yield from [""] * bool(last)
            yield style(title, "bold")
            last = title
        known = history_of(database, series, until=math.inf, machines=machines)
        yield from _case_lines(known, style, commit_of=partial(_commit_of, database))


def _commit_of(database: History, point: Point) -> str | None:
    return origin_of(database, point.measurement_id)[0].commit


def _case_lines(
    known: CaseHistory, style: Style, *, commit_of: Callable[[Point], str | None]
) -> Iterator[str]:
    first, last = known.points[0], known.points[-1]

    def percent(value: float) -> str:
        is_better = known.better is not None and value * known.better.sign >= 0
        colour = "yellow" if known.better is None else "green" if is_better else "red"
        return style(numbers.signed_percent(value), colour)

    def dated(at: str, text: str) -> Iterator[str]:
        for line in wrapped(printable(f"{at[:10]}  {text}"), style.width - 2):
            yield f"  {line}"

    yield known.case_id
    level = printable(numbers.quantity(last.median, known.unit))
    lower = ", lower is better" if known.better is Better.LOWER else ""
    lost = ", lost with its worker" if last.verdict_word == Verdict.LOST else ""
    sessions = f"{counted(len(known.points), 'session')} {first.started[:10]} to"
    yield f"  {level} last{lower}{lost}, {sessions} {last.started[:10]}"
    for machine in known.other_machines:
        text = printable(trends.other_machine(machine))
        yield from (f"  {line}" for line in wrapped(text, style.width - 2))
    for point in known.change_points:
        text = trends.change(point, known.unit, percent)
        yield f"  {point.at[:10]}  level changed by {text}"
        before, since = known.points[point.previous], known.points[point.index]
        commits = trends.commits(commit_of(before), commit_of(since))
        if commits is not None:
            yield f"              {printable(commits)}"
    for change in known.accepted:
        yield from dated(change.at, f"accepted {trends.accepted(change, known.unit)}")
    if known.drift is not None:
        yield f"  {trends.drift(known.drift, percent)}"
    if (noise := trends.noise(known)) is not None:
        yield f"  {noise}"


# ---------------------------------------------------------------------------- export


def _export(file: Path, options: Namespace) -> int:
    with History.read(file) as database:
        measurements = database.tuples(_MEASUREMENTS, tuple[Any, ...])
    rows = [dict(zip(COLUMNS, cells, strict=True)) for cells in measurements]
    given = {"metric": [options.metric], "cluster": [options.cluster], "case": options.cases}
    wanted = {
        name: chosen((row[name] for row in rows), patterns, f"the history has no {name}")
        for name, patterns in given.items()
    }
    rows = [row for row in rows if all(row[name] in names for name, names in wanted.items())]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, *AXES))
    for row in rows:
        axes = Case.from_id(row["case"]).axes()
        cells = (*row.values(), *(axes.get(name) for name in AXES))
        # Without control characters each row stays a line, and is safe on a terminal.
        writer.writerow(printable(cell) if isinstance(cell, str) else cell for cell in cells)
    if options.output is None:
        sys.stdout.write(text.getvalue())
    else:
        write_report("--output", Path(options.output), text.getvalue())
    return FINE
