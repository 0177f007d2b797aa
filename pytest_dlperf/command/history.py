"""``pytest-dlperf history``: fill the database of all sessions, and show what it holds."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from fnmatch import fnmatchcase
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.command.outcome import FAULTS, FINE, MisuseError
from pytest_dlperf.command.style import Style, counted, wrapped
from pytest_dlperf.history.change_points import HOW_TO_GET, is_available
from pytest_dlperf.history.nights import all_series
from pytest_dlperf.history.store import History, HistoryError
from pytest_dlperf.history.trends import history_of
from pytest_dlperf.option_source import NO_HISTORY
from pytest_dlperf.reports import numbers
from pytest_dlperf.results.reading import ResultsFileError, read_results
from pytest_dlperf.yamlfile import nearest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.history.nights import Series
    from pytest_dlperf.history.series import CaseHistory

_ALL_TIMES: Final = float("inf")


def history(options: argparse.Namespace) -> int:
    """Do what ``options.history_command`` says, and give the exit code.

    Raises:
        MisuseError: There is no such file or case, or the database cannot be used.
    """
    file = _database(options)
    try:
        if options.history_command == "import":
            return _import(file, options.files)
        return _show(file, options)
    except HistoryError as error:
        raise MisuseError(str(error)) from error


def _database(options: argparse.Namespace) -> Path:
    """The database that a session in this folder would use.

    Raises:
        MisuseError: The project says that there is none, or pytest cannot be configured.
    """
    given = options.history or os.environ.get("DLPERF_HISTORY")
    if given and given != NO_HISTORY:
        return Path(given).expanduser()
    file = None
    if not given:
        # Only now, as it takes a start of pytest: the ini file may name a place, and the folder
        # of the project may lie above this one.
        from pytest_dlperf.command.project import read_project

        asked = Namespace(systems=None, baselines=None, for_pytest=options.for_pytest)
        file = read_project(asked).settings.history_file
    if file is None:
        raise MisuseError("no history is kept here (it is set to none); name one with --history")
    return file


# ------------------------------------------------------------------ taking results in


def _import(file: Path, given: Sequence[str]) -> int:
    style = Style(sys.stdout)
    new = known = bad = 0
    places = list(_results_files(given))
    with History.open(file) as database:
        for place in places:
            try:
                is_new = database.add(read_results(place), imported=True)
            except (ResultsFileError, HistoryError) as error:
                bad += 1
                # What a file is called may be anything, what is wrong with it too.
                _print([style("not imported: ", "red") + _on_one_line(str(error))])
                continue
            new += is_new
            known += not is_new
            if not is_new:
                _print([f"there already: {_on_one_line(str(place))}"])
    found = f"{counted(new, 'session')} imported into {file}"
    if known:
        found += f", {known} there already"
    if bad:
        found += ", " + style(f"{counted(bad, 'file')} not imported", "bold", "red")
    _print([found])
    return FAULTS if bad else FINE


def _results_files(given: Sequence[str]) -> Iterator[Path]:
    """The files that are meant: of a folder all below it that are JSON.

    Raises:
        MisuseError: Nothing is there.
    """
    for name in given:
        path = Path(name).expanduser()
        if path.is_dir():
            found = sorted(path.rglob("*.json"))
            if not found:
                raise MisuseError(f"there is no file *.json in {name}")
            yield from found
        elif path.exists():
            yield path
        else:
            # A shell leaves a pattern as it is when it matches nothing, or when it is quoted.
            matching = sorted(map(Path, glob(str(path), recursive=True)))  # noqa: PTH207 - any path
            if not matching:
                raise MisuseError(f"there is no file {name!r}")
            yield from (match for match in matching if match.is_file())


# ------------------------------------------------------------------------------ showing


def _show(file: Path, options: argparse.Namespace) -> int:
    style = Style(sys.stdout)
    if not file.exists():
        raise MisuseError(
            f"there is no history {file}; sessions keep one, and `pytest-dlperf history import` "
            "fills one from results files"
        )
    with History.read(file) as database:
        chosen = _chosen(all_series(database), options.cases, options.cluster)
        if not chosen:
            _print([f"{file} holds no measurement yet"])
            return FINE
        group = None
        for series in chosen:
            if group != (series.cluster, series.estimator):
                if group is not None:
                    _print([""])
                group = (series.cluster, series.estimator)
                title = _on_one_line(f"cluster {series.cluster} ({series.estimator})")
                _print([style(title, "bold")])
            _print(_case_lines(history_of(database, series, until=_ALL_TIMES), style))
    if not is_available():
        _print(["", *wrapped(f"Change points were not looked for: {HOW_TO_GET}", style.width)])
    return FINE


def _chosen(known: Sequence[Series], patterns: Sequence[str], cluster: str | None) -> list[Series]:
    """The series that are asked for.

    Raises:
        MisuseError: The cluster, or one of the patterns, names none.
    """
    if cluster is not None:
        names = dict.fromkeys(series.cluster for series in known)
        if cluster not in names:
            there = ", ".join(names) or "none"
            raise MisuseError(f"the history has no cluster {cluster!r}; there are: {there}")
        known = [series for series in known if series.cluster == cluster]
    for pattern in patterns:
        if not any(fnmatchcase(series.case_id, pattern) for series in known):
            close = nearest(pattern, dict.fromkeys(series.case_id for series in known))
            hint = close or "; * stands for anything, as in *-1n8g"
            raise MisuseError(f"the history has no case {pattern!r}{hint}")
    if not patterns:
        return list(known)
    return [
        series for series in known if any(fnmatchcase(series.case_id, name) for name in patterns)
    ]


def _case_lines(known: CaseHistory, style: Style) -> Iterator[str]:
    first, last = known.points[0], known.points[-1]
    nights = f"{counted(len(known.points), 'night')} "
    dates = (
        f"{first.started[:10]} to {last.started[:10]}"
        if first.started[:10] != last.started[:10]
        else f"of {last.started[:10]}"
    )
    yield known.case_id
    yield f"  {last.median:.2f} {_on_one_line(known.unit)} last, {nights}{dates}"
    for point in known.change_points or ():
        percent = _percent(point.difference_percent, style)
        levels = f"{point.before:.2f} to {point.after:.2f}"
        yield f"  {point.at[:10]}  level changed by {percent}, from {levels}"
    for change in known.accepted:
        old = "first number" if change.old is None else f"instead of {change.old:.2f}"
        text = _on_one_line(f"{change.at[:10]}  accepted {change.new:.2f}, {old}: {change.why}")
        yield from (f"  {line}" for line in wrapped(text, style.width - 2))
    if known.creep is not None:
        week = _percent(known.creep.percent_per_week, style)
        whole = _percent(known.creep.percent, style)
        since = f"{known.creep.since[:10]} ({counted(known.creep.nights, 'night')})"
        yield f"  creeps {week} a week since {since}, {whole} in all"
    noise = {"runs": known.run_noise_percent, "nights": known.night_noise_percent}
    told = ", ".join(f"{name} {value:.1f} %" for name, value in noise.items() if value is not None)
    if told:
        yield f"  noise: {told}"


def _percent(value: float, style: Style) -> str:
    return style(numbers.signed_percent(value), "red" if value < 0 else "green")


def _on_one_line(text: str) -> str:
    """Text without what would move the cursor or begin another line."""
    return "".join(character if character.isprintable() else " " for character in text)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)  # noqa: T201 - a command prints
