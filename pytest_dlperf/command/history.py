"""``pytest-dlperf history``: fills, shows and exports the database of sessions."""

from __future__ import annotations

import math
import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from pytest_dlperf.command.export import add_export_arguments, export
from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    add_cases,
    check_known,
    chosen_cases,
    file_argument,
    path_argument,
    text_argument,
)
from pytest_dlperf.config.values import OptionText, history
from pytest_dlperf.history.case_history import history_of
from pytest_dlperf.history.queries import (
    all_series,
    has_whole_session,
    known_metrics,
    machines_of,
    origin_of,
)
from pytest_dlperf.history.series import CaseHistory, Point, Series
from pytest_dlperf.history.store import History, HistoryError
from pytest_dlperf.model import numbers
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better
from pytest_dlperf.model.numbers import counted
from pytest_dlperf.report import printing, trends
from pytest_dlperf.report.printing import wrapped
from pytest_dlperf.results.file import ResultsFileError, read_results

_MAX_BUSY_S: Final = 10.0
"""Seconds that an import waits for sessions that write."""
_SECONDS: Final = {"m": 60, "h": 3600, "d": 86400}
_DURATION: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([mhd])")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    parser.description = "Fill and show the database in which sessions keep their measurements."
    actions = parser.add_subparsers(dest="history_command", metavar="ACTION", required=True)
    importing = actions.add_parser(
        "import",
        help="add results files of other machines to the database",
        description="Add results files (--dlperf-json) to the database: those of other machines, "
        "or of a CI that keeps no disk. Sessions in the database stay as they are.",
        epilog=PYTEST_ARGUMENTS,
        allow_abbrev=False,
    )
    importing.add_argument(
        "files",
        nargs="+",
        type=path_argument,
        metavar="FILE",
        help="a results file; of a folder, all files *.json below it",
    )
    showing = actions.add_parser(
        "show",
        help="print the sessions of cases, their change points, drift and noise",
        description="Print the history of a metric of each case: its last median, when its level "
        "changed, what was accepted, whether it drifts, and how much its runs and its days "
        "differ (coefficients of variation).",
        epilog=PYTEST_ARGUMENTS,
        allow_abbrev=False,
    )
    add_cases(showing, "show")
    showing.add_argument(
        "--cluster",
        type=text_argument,
        metavar="NAME",
        help="show this cluster only (default: all)",
    )
    showing.add_argument(
        "--metric",
        type=text_argument,
        metavar="NAME",
        help="show this metric (default: throughput, and the main metric of a probe)",
    )
    showing.add_argument(
        "--within",
        type=_duration,
        metavar="TIME",
        help="fail (exit code 1) if no whole session of a shown cluster has ended within 26h, 90m "
        "or 2d",
    )
    exporting = actions.add_parser(
        "export",
        help="write the measurements of all sessions for other programs",
        description="Write a row for each case, metric and session: value, reference, loss, "
        "verdict, noise, hosts and commit.",
        epilog=PYTEST_ARGUMENTS,
        allow_abbrev=False,
    )
    add_export_arguments(exporting)
    for action in (importing, showing, exporting):
        action.add_argument(
            "--history",
            type=file_argument,
            metavar="FILE",
            help="the database (default: that of sessions in this folder: DLPERF_HISTORY, "
            "dlperf_history in the ini file, .dlperf/history.sqlite3)",
        )


def run(options: Namespace) -> int:
    """Run the action and return the exit code."""
    if options.history_command == "export":
        return export(options, _existing(options))
    return _import(options) if options.history_command == "import" else _show(options)


def _existing(options: Namespace) -> Path:
    file = _database(options)
    if not file.exists():
        raise UsageError(
            f"there is no history {file}; sessions keep one, and `pytest-dlperf history import` "
            "fills one from results files"
        )
    return file


def _database(options: Namespace) -> Path:
    in_environment = os.environ.get("DLPERF_HISTORY", "").strip()
    if options.history is not None:
        file = history(OptionText(options.history, "--history", Path()))
    elif in_environment:
        file = history(OptionText(in_environment, "DLPERF_HISTORY", Path()))
    else:
        # Only now, as it starts pytest: the ini file may name a place, and the project's folder
        # may be above this one.
        from pytest_dlperf.command.project import read_project

        file = read_project(options).settings.history_file
    if file is None:
        raise UsageError("no history is kept here (it is set to none); name one with --history")
    return file


# ---------------------------------------------------------------------------- import


def _import(options: Namespace) -> int:
    file = _database(options)
    style = Style(sys.stdout)
    new = known = bad = 0
    places = _results_files(options.files)
    with History.open(file, busy_s=_MAX_BUSY_S) as database:
        for place in places:
            try:
                is_new = database.add(read_results(place))
            except (ResultsFileError, HistoryError) as error:
                bad += 1
                problem = str(error) if str(error).startswith(str(place)) else f"{place}: {error}"
                # Names of files may hold anything, and so may the message.
                style.show([style("not imported: ", "red") + printing.printable(problem)])
                continue
            new += is_new
            known += not is_new
            if not is_new:
                style.show([f"there already: {printing.printable(str(place))}"])
    found = f"{counted(new, 'session')} imported into {file}"
    if known:
        found += f", {known} there already"
    if bad:
        found += ", " + style(f"{counted(bad, 'file')} not imported", "bold", "red")
    style.show([found])
    return FAULTS if bad else FINE


def _results_files(given: Iterable[str]) -> list[Path]:
    found = []
    for place in map(Path, given):
        if not place.exists():
            raise UsageError(f"there is no file {str(place)!r}")
        # Neither folders of such a name, nor pipes without a writer.
        below = sorted(file for file in place.rglob("*.json") if file.is_file())
        if place.is_dir() and not below:
            raise UsageError(f"there is no file *.json in {place}")
        found += below if place.is_dir() else [place]
    return found


# ------------------------------------------------------------------------------ show


def _show(options: Namespace) -> int:
    file = _existing(options)
    style = Style(sys.stdout)
    with History.read(file) as database:
        metrics = known_metrics(database)
        if not metrics:
            style.show([f"{file} holds no measurement yet"])
            return FINE if options.within is None else FAULTS
        check_known("--metric", "metric", options.metric, metrics)
        known_series = all_series(database, options.metric)
        chosen = _chosen(known_series, options.cases, options.cluster)
        machines = machines_of(database)
        group = None
        for series in chosen:
            known = history_of(database, series, until=math.inf, machines=machines)
            if group != (series.metric, series.cluster, series.estimator):
                if group is not None:
                    style.show([""])
                group = (series.metric, series.cluster, series.estimator)
                title = f"{series.metric}, cluster {series.cluster} ({series.estimator})"
                style.show([style(printing.printable(title), "bold")])
            style.show(_case_lines(known, style, commit_of=partial(_commit_of, database)))
        if options.within is None:
            return FINE
        since = datetime.now().astimezone() - timedelta(seconds=options.within)
        clusters = dict.fromkeys(series.cluster for series in chosen)
        late = [name for name in clusters if not has_whole_session(database, name, since)]
        style.show(_late_line(name, since, style) for name in late)
    return FAULTS if late else FINE


def _chosen(known: Sequence[Series], patterns: Sequence[str], cluster: str | None) -> list[Series]:
    if cluster is not None:
        check_known("--cluster", "cluster", cluster, (series.cluster for series in known))
        known = [series for series in known if series.cluster == cluster]
    ids = chosen_cases((series.case_id for series in known), patterns, "the history has no case")
    return [series for series in known if series.case_id in ids]


def _late_line(cluster: str, since: datetime, style: Style) -> str:
    text = printing.printable(f"{cluster}: no whole session since {since:%Y-%m-%d %H:%M}")
    return style(text, "bold", "red")


def _commit_of(database: History, night: Point) -> str | None:
    return origin_of(database, night.measurement_id)[0].commit


def _case_lines(
    known: CaseHistory, style: Style, *, commit_of: Callable[[Point], str | None]
) -> Iterator[str]:
    first, last = known.points[0], known.points[-1]
    sessions = counted(len(known.points), "session")
    dates = f"{first.started[:10]} to {last.started[:10]}"

    def percent(value: float) -> str:
        colour = "yellow"
        if known.better is not None:
            colour = "green" if value * known.better.sign >= 0 else "red"
        return style(numbers.signed_percent(value), colour)

    yield known.case_id
    lost = ", lost with its worker" if last.verdict_word == Verdict.LOST else ""
    level = printing.printable(numbers.quantity(last.median, known.unit))
    lower = ", lower is better" if known.better is Better.LOWER else ""
    yield f"  {level} last{lower}{lost}, {sessions} {dates}"
    for machine in known.other_machines:
        text = printing.printable(trends.other_machine(machine))
        yield from (f"  {line}" for line in wrapped(text, style.width - 2))
    for point in known.change_points:
        text = trends.change(point, known.unit, percent)
        yield f"  {point.at[:10]}  level changed by {text}"
        before, since = known.points[point.previous], known.points[point.index]
        commits = trends.commits(commit_of(before), commit_of(since))
        if commits is not None:
            yield f"              {printing.printable(commits)}"
    for change in known.accepted:
        what = trends.accepted(change, known.unit)
        text = printing.printable(f"{change.at[:10]}  accepted {what}")
        yield from (f"  {line}" for line in wrapped(text, style.width - 2))
    if known.drift is not None:
        yield f"  {trends.drift(known.drift, percent)}"
    noise = trends.noise(known)
    if noise is not None:
        yield f"  {noise}"


def _duration(text: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0
    if seconds <= 0:
        raise ArgumentTypeError(f"{text!r} is not a valid time such as 26h, 90m or 2d")
    return seconds
