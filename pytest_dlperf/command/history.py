"""``pytest-dlperf history``: fill the database of all sessions, and show what it holds."""

from __future__ import annotations

import math
import os
import sys
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.command import overdue
from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    add_cases,
    chosen_cases,
    file_argument,
    path_argument,
    text_argument,
)
from pytest_dlperf.history.case_history import history_of
from pytest_dlperf.history.nights import all_series, known_metrics, machines_of, origin_of
from pytest_dlperf.history.opening import HistoryError
from pytest_dlperf.history.store import History
from pytest_dlperf.history.trends import HOW_TO_GET, is_available
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.metric import THROUGHPUT, Better
from pytest_dlperf.reports import history_words, numbers
from pytest_dlperf.reports.numbers import counted
from pytest_dlperf.reports.tables import wrapped
from pytest_dlperf.results.decode import ResultsFileError, read_results

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from pytest_dlperf.history.series import CaseHistory, Night, Series

_BUSY_S: Final = 10.0
"""How long an import waits for sessions that write."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the subcommand takes."""
    parser.description = "Look after the database in which sessions keep all that they measure."
    actions = parser.add_subparsers(dest="history_command", metavar="ACTION", required=True)
    importing = actions.add_parser(
        "import",
        help="put results files of other machines into the database",
        description="Put results files (--dlperf-json) into the database: those of other machines, "
        "or of a CI that keeps no disk. What is there already stays as it is.",
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
        help="print the nights of cases, their change points, drift and noise",
        description="Print what the database says of a metric of each case: its last median, when "
        "its level has changed, what was accepted, whether it drifts, and how much its runs and "
        "its nights differ (coefficients of variation).",
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
        default=THROUGHPUT,
        metavar="NAME",
        help="the metric to show (default: %(default)s)",
    )
    checking = actions.add_parser(
        "overdue",
        help="say, and tell others, that the night did not come",
        description="Fail (exit code 1) where no whole session has ended for too long. Run it from "
        "another machine than the sessions: cron, or a scheduled job of a CI.",
        epilog=PYTEST_ARGUMENTS,
        allow_abbrev=False,
    )
    overdue.add_arguments(checking)
    for action in (importing, showing, checking):
        action.add_argument(
            "--history",
            type=file_argument,
            metavar="FILE",
            help="the database (default: that of sessions in this folder: DLPERF_HISTORY, "
            "dlperf_history in the ini file, .dlperf/history.sqlite3)",
        )


def run(options: argparse.Namespace) -> int:
    """Do what ``options.history_command`` says, and give the exit code."""
    if options.history_command == "overdue":
        return overdue.run(options, lambda: _database(options), _results_files)
    file = _database(options)
    if options.history_command == "import":
        return _import(file, options.files)
    return _show(file, options)


def _database(options: argparse.Namespace) -> Path:
    from pytest_dlperf.command.project import named_history, read_project

    in_environment = os.environ.get("DLPERF_HISTORY", "").strip()
    if options.history is not None:
        file = named_history(options.history, "--history")
    elif in_environment:
        file = named_history(in_environment, "DLPERF_HISTORY")
    else:
        # Only now, as it takes a start of pytest: the ini file may name a place, and the folder
        # of the project may lie above this one.
        asked = Namespace(systems=None, baselines=None, for_pytest=options.for_pytest)
        file = read_project(asked).settings.history_file
    if file is None:
        raise UsageError("no history is kept here (it is set to none); name one with --history")
    return file


# ------------------------------------------------------------------ taking results in


def _import(file: Path, given: Sequence[str]) -> int:
    style = Style(sys.stdout)
    new = known = bad = 0
    places = [place for name in given for place in _results_files(Path(name))]
    with History.open(file, busy_s=_BUSY_S) as database:
        for place in places:
            try:
                is_new = database.add(read_results(place), imported=True)
            except (ResultsFileError, HistoryError) as error:
                bad += 1
                problem = str(error) if str(error).startswith(str(place)) else f"{place}: {error}"
                # What a file is called may be anything, what is wrong with it too.
                style.show([style("not imported: ", "red") + numbers.printable(problem)])
                continue
            new += is_new
            known += not is_new
            if not is_new:
                style.show([f"there already: {numbers.printable(str(place))}"])
    found = f"{counted(new, 'session')} imported into {file}"
    if known:
        found += f", {known} there already"
    if bad:
        found += ", " + style(f"{counted(bad, 'file')} not imported", "bold", "red")
    style.show([found])
    return FAULTS if bad else FINE


def _results_files(given: Path) -> list[Path]:
    if not given.exists():
        raise UsageError(f"there is no file {str(given)!r}")
    if not given.is_dir():
        return [given]
    # Neither folders of such a name, nor pipes that nobody writes into.
    below = sorted(path for path in given.rglob("*.json") if path.is_file())
    if not below:
        raise UsageError(f"there is no file *.json in {given}")
    return below


# ------------------------------------------------------------------------------ showing


def _show(file: Path, options: argparse.Namespace) -> int:
    style = Style(sys.stdout)
    if not file.exists():
        raise UsageError(
            f"there is no history {file}; sessions keep one, and `pytest-dlperf history import` "
            "fills one from results files"
        )
    with History.read(file) as database:
        metrics = known_metrics(database)
        if not metrics:
            style.show([f"{file} holds no measurement yet"])
            return FINE
        if options.metric not in metrics:
            raise UsageError(
                f"--metric: the history has no metric {options.metric!r}; there are: "
                f"{', '.join(metrics)}"
            )
        known_series = all_series(database, options.metric)
        chosen = _chosen(known_series, options.cases, options.cluster)
        machines = machines_of(database)
        group = None
        for series in chosen:
            known = history_of(database, series, until=math.inf, machines=machines)
            if group != (series.cluster, series.estimator):
                if group is not None:
                    style.show([""])
                group = (series.cluster, series.estimator)
                title = f"{series.metric}, cluster {series.cluster} ({series.estimator})"
                style.show([style(numbers.printable(title), "bold")])
            style.show(_case_lines(known, style, commit_of=partial(_commit_of, database)))
    if not is_available():
        style.show(["", *wrapped(f"Change points were not looked for: {HOW_TO_GET}", style.width)])
    return FINE


def _chosen(known: Sequence[Series], patterns: Sequence[str], cluster: str | None) -> list[Series]:
    if cluster is not None:
        names = dict.fromkeys(series.cluster for series in known)
        if cluster not in names:
            there = ", ".join(names) or "none"
            raise UsageError(f"the history has no cluster {cluster!r}; there are: {there}")
        known = [series for series in known if series.cluster == cluster]
    ids = chosen_cases((series.case_id for series in known), patterns, "the history has no case")
    return [series for series in known if series.case_id in ids]


def _commit_of(database: History, night: Night) -> str | None:
    return origin_of(database, night.measurement_id)[0].commit


def _case_lines(
    known: CaseHistory, style: Style, *, commit_of: Callable[[Night], str | None]
) -> Iterator[str]:
    first, last = known.nights[0], known.nights[-1]
    nights = counted(len(known.nights), "session")
    dates = f"{first.started[:10]} to {last.started[:10]}"

    def percent(value: float) -> str:
        colour = "yellow"
        if known.better is not None:
            colour = "green" if value * known.better.sign >= 0 else "red"
        return style(numbers.signed_percent(value), colour)

    yield known.case_id
    lost = ", lost with its worker" if last.is_lost else ""
    level = numbers.printable(numbers.amount(last.median, known.unit))
    lower = ", lower is better" if known.better is Better.LOWER else ""
    yield f"  {level} last{lower}{lost}, {nights} {dates}"
    for machine in known.other_machines:
        text = numbers.printable(history_words.other_machine(machine))
        yield from (f"  {line}" for line in wrapped(text, style.width - 2))
    for point in known.change_points or ():
        text = history_words.change(point, known.unit, percent)
        yield f"  {point.at[:10]}  level changed by {text}"
        before, since = known.nights[point.index - 1 : point.index + 1]
        commits = history_words.commits(commit_of(before), commit_of(since))
        if commits is not None:
            yield f"              {numbers.printable(commits)}"
    for change in known.accepted:
        what = history_words.accepted(change, known.unit)
        text = numbers.printable(f"{change.at[:10]}  accepted {what}")
        yield from (f"  {line}" for line in wrapped(text, style.width - 2))
    if known.drift is not None:
        yield f"  {history_words.drift(known.drift, percent)}"
    noise = history_words.noise(known)
    if noise is not None:
        yield f"  {noise}"
