"""``pytest-dlperf history note``: notes a fault as known until a day, or takes that back."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Final

from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.shell import Style, chosen_cases, text_argument
from pytest_dlperf.files.environment import describe_actor
from pytest_dlperf.history.store import History
from pytest_dlperf.history.triage import Measured, all_measured, make_note, note_on
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.numbers import counted, named
from pytest_dlperf.report.printing import printable

_MAX_BUSY_S: Final = 10.0
"""Seconds to wait for sessions that write."""
_LONGEST_TEXT: Final = 200
_NAMED: Final = 5


def add_note_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "case",
        type=text_argument,
        metavar="CASE",
        help="id of a case, in which * stands for anything",
    )
    parser.add_argument(
        "text",
        nargs="?",
        type=_note_text,
        metavar="TEXT",
        help="what is known, such as the issue; one line",
    )
    parser.add_argument(
        "--until", type=_coming_day, metavar="DATE", help="the day on which it is told again"
    )
    parser.add_argument(
        "--metric",
        type=text_argument,
        metavar="NAME",
        help="of this metric only (default: all of the case)",
    )
    parser.add_argument(
        "--cluster",
        type=text_argument,
        metavar="NAME",
        help="of this cluster (default: that which has the case)",
    )
    parser.add_argument(
        "--remove", action="store_true", help="take the last note back: the fault is told again"
    )


def note(options: Namespace, file: Path) -> int:
    """Store a note, or that it is taken back, and return the exit code."""
    _check(options)
    with History.open(file, busy_s=_MAX_BUSY_S) as database:
        known = _meant(all_measured(database), options)
        if options.remove:
            known = [one for one in known if note_on(database, **one._asdict()) is not None]
            if not known:
                raise UsageError(f"there is no note on {options.case!r}")
        cluster, case_ids = known[0].cluster, list(dict.fromkeys(one.case_id for one in known))
        make_note(
            database,
            case_ids,
            cluster=cluster,
            metric=options.metric,
            said=options.text,
            until=options.until,
            by=describe_actor(Path()),
            at=datetime.now().astimezone().isoformat(timespec="seconds"),
        )
    metric = f"{options.metric} of " if options.metric else ""
    what = f"{metric}{counted(len(case_ids), 'case')} of cluster {cluster}"
    done = "no longer noted" if options.remove else f"noted until {options.until}"
    Style(sys.stdout).show([printable(f"{done}: {what}: {named(case_ids, _NAMED)}")])
    return FINE


def _check(options: Namespace) -> None:
    if options.remove and (options.text is not None or options.until is not None):
        raise UsageError("--remove takes neither a text nor --until")
    if not options.remove and options.text is None:
        raise UsageError("the text is missing: say what is known, such as 'known, #812'")
    if not options.remove and options.until is None:
        raise UsageError("--until is missing: name the day on which it is told again")


def _meant(known: Sequence[Measured], options: Namespace) -> Sequence[Measured]:
    """Choose the metrics of cases of one cluster."""
    clusters = list(dict.fromkeys(one.cluster for one in known))
    if options.cluster is not None:
        if options.cluster not in clusters:
            there = ", ".join(clusters) or "none"
            raise UsageError(f"the history has no cluster {options.cluster!r}; there are: {there}")
        known = [one for one in known if one.cluster == options.cluster]
    chosen = chosen_cases((one.case_id for one in known), [options.case], "the history has no case")
    known = [one for one in known if one.case_id in chosen]
    metrics = list(dict.fromkeys(one.metric for one in known))
    if options.metric is not None:
        known = [one for one in known if one.metric == options.metric]
        if not known:
            raise UsageError(
                f"--metric: the history has no {options.metric!r} of {options.case!r}; there are: "
                f"{', '.join(metrics)}"
            )
    clusters = list(dict.fromkeys(one.cluster for one in known))
    if len(clusters) > 1:
        there = ", ".join(clusters)
        raise UsageError(f"several clusters have {options.case!r}; name one by --cluster: {there}")
    return known


def _note_text(text: str) -> str:
    said = " ".join(text_argument(text).split())
    if len(said) > _LONGEST_TEXT:
        raise ArgumentTypeError(f"it has {len(said)} characters; at most {_LONGEST_TEXT} are shown")
    return said


def _coming_day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None or len(text) != len("2026-12-01"):
        raise ArgumentTypeError(f"{text!r} is not a day such as 2026-12-01")
    if day <= date.today():  # noqa: DTZ011 - the user's own day
        raise ArgumentTypeError(f"{text} is not a day to come")
    return day
