"""``pytest-dlperf notify``: sends what a results file says, from a step that has the secrets."""

from __future__ import annotations

import argparse
import platform
import sys
from itertools import chain
from pathlib import Path
from typing import Final

from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.project import read_project
from pytest_dlperf.command.shell import PYTEST_ARGUMENTS, Style, add, file_argument, text_argument
from pytest_dlperf.config.notices import targets
from pytest_dlperf.config.values import NotifyOn, OptionText, history
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.notices.brief import notice_of
from pytest_dlperf.notices.builtin import builtin_notifiers
from pytest_dlperf.notices.due import is_due
from pytest_dlperf.notices.notice import (
    Block,
    Notice,
    Notifier,
    lines_of,
    send_all,
)
from pytest_dlperf.report.session import session_report
from pytest_dlperf.report.text import phrase
from pytest_dlperf.results.file import read_results

_TEST: Final = "This is a test: if you can read it, notices arrive here."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Send what a results file (--dlperf-json) says, as a session does at its end with "
        "--dlperf-notify: from a step of a CI that has the secrets, or once more."
    )
    parser.epilog = PYTEST_ARGUMENTS
    parser.add_argument("file", nargs="?", type=file_argument, metavar="RESULTS.json")
    parser.add_argument(
        "--to",
        action="append",
        type=text_argument,
        metavar="WHAT=WHERE",
        help="a receiver, as for --dlperf-notify: apprise=SLACK_WEBHOOK, json=WEBHOOK, github; "
        "may be given several times (default: the same as sessions in this folder)",
    )
    parser.add_argument(
        "--on",
        choices=[when.value for when in NotifyOn],
        help="after which sessions (default: as sessions in this folder; with --to: failure)",
    )
    default = "none with --to, else that of sessions in this folder"
    add(parser, "--history", help=f"the database for 'change' and the page (default: {default})")
    parser.add_argument(
        "--page", type=text_argument, metavar="ADDRESS", help="the address of the session's page"
    )
    parser.add_argument("--test", action="store_true", help="send a test, without a results file")


def run(options: argparse.Namespace) -> int:
    """Send what ``options.file`` says, or a test, and fail unless all receivers got it."""
    if options.test == (options.file is not None):
        raise UsageError("name a results file, or give --test")
    file = options.history and history(OptionText(options.history, "--history", Path()))
    when = NotifyOn(options.on or NotifyOn.FAILURE)
    if options.to:
        named = (targets(OptionText(text, "--to", Path())) for text in options.to)
        notifiers: list[Notifier] = [*builtin_notifiers(chain.from_iterable(named))]
    else:
        project = read_project(options)
        when = when if options.on else project.settings.notify_on
        file = file or project.settings.history_file
        notifiers = [*builtin_notifiers(project.settings.targets), *project.notifiers]
    if not notifiers:
        raise UsageError("there is no receiver; name one with --to, as in apprise=SLACK_WEBHOOK")
    style = Style(sys.stdout)
    notice = _TEST_NOTICE
    if not options.test:
        results = read_results(Path(options.file))
        notice = notice_of(
            session_report(results, file),
            faults=results.faults,
            is_due=is_due(results, when, file, is_bad=bool(results.faults)),
            page=options.page,
        )
        if not notice.is_due:
            style.show([f"no notice is due: {notice.subject}"])
    outcomes = send_all(notifiers, notice)
    style.show(lines_of(outcomes))
    for outcome in outcomes:
        if not outcome.is_told and outcome.fault is None:
            style.show([f"not sent, no receiver here: {outcome.notifier.name}"])
    return FAULTS if any(outcome.fault is not None for outcome in outcomes) else FINE


_TEST_NOTICE: Final = Notice(
    subject=f"dlperf: a test of the notices, from {platform.node()}",
    blocks=(Block((phrase(_TEST),)),),
    markdown=f"**dlperf: a test of the notices.**\n\n{_TEST}\n",
    cluster=None,
    is_red=False,
)
