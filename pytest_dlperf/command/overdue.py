"""``pytest-dlperf history overdue``: a dead man's check, to be run by another machine."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.notify import add_targets, send, targets_of
from pytest_dlperf.command.shell import Style, integer_argument, path_argument, text_argument
from pytest_dlperf.history.last_sessions import (
    LastSessions,
    last_sessions,
    session_of_results,
    sessions_of_history,
)
from pytest_dlperf.history.store import History
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.notices.overdue import is_overdue, overdue_notice, session_line
from pytest_dlperf.results.decode import read_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_UNITS: Final = {"m": 60, "h": 3600, "d": 86400}
_TIME: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([mhd])")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the action takes."""
    parser.add_argument(
        "files",
        nargs="*",
        type=path_argument,
        metavar="FILE",
        help="look into these results files instead of the database; of a folder, all files "
        "*.json below it",
    )
    parser.add_argument(
        "--within",
        required=True,
        type=_time,
        metavar="TIME",
        help="how old the last whole session may be: 26h, 90m, 2d",
    )
    parser.add_argument(
        "--cluster",
        action="append",
        type=text_argument,
        metavar="NAME",
        help="look at this cluster (default: at each that is known); may be given several times",
    )
    parser.add_argument(
        "--cases",
        type=integer_argument(1),
        default=1,
        metavar="N",
        help="a session that has measured fewer cases is none (default: %(default)s)",
    )
    add_targets(parser)


def run(
    options: argparse.Namespace,
    database: Callable[[], Path],
    files_of: Callable[[Path], Iterable[Path]],
) -> int:
    """Look for the last whole sessions; ``database`` finds the history, ``files_of`` the files."""
    targets = targets_of(options)
    if options.files:
        places = [place for name in options.files for place in files_of(Path(name))]
        sessions = [session_of_results(read_results(place)) for place in places]
    else:
        file = database()
        if not file.exists():
            raise UsageError(f"there is no history {file}; name one with --history")
        with History.read(file) as history:
            sessions = list(sessions_of_history(history))
    now = datetime.now().astimezone()
    last_ones = last_sessions(sessions, least_cases=options.cases, now_s=now.timestamp())
    found = _chosen(last_ones, options.cluster)
    if not found:
        raise UsageError("no session is known here; name the cluster that is missed: --cluster")
    style = Style(sys.stdout)
    overdue = [last for last in found if is_overdue(last, now, options.within)]
    if not overdue:
        style.show(session_line(last.whole, now) for last in found if last.whole is not None)
        return FINE
    notice = overdue_notice(overdue, now, options.within)
    style.show([style(notice.subject, "bold", "red"), *notice.text.splitlines()])
    send(targets, notice, style)
    return FAULTS


def _chosen(known: Sequence[LastSessions], names: Sequence[str] | None) -> list[LastSessions]:
    """Choose the clusters that are asked for; of one that never had a session nothing is known."""
    if not names:
        return list(known)
    by_name = {last.cluster: last for last in known}
    nothing = {name: LastSessions(cluster=name, whole=None, later=None) for name in names}
    return [by_name.get(name, nothing[name]) for name in dict.fromkeys(names)]


def _time(text: str) -> float:
    found = _TIME.fullmatch(text.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 26h, 90m or 2d")
    return seconds
