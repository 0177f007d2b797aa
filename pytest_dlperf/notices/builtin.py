"""The notifiers that come with the package, of what the user has named."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_dlperf.config.notices import (
    ADDRESSES,
    APPRISE,
    COMMENTS,
    MAILS,
    PINGS,
    SMTP_VARIABLE,
    receivers,
)
from pytest_dlperf.notices.notice import Notifier

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pytest_dlperf.config.notices import Target
    from pytest_dlperf.model.results import Results
    from pytest_dlperf.notices.notice import Notice


def builtin_notifiers(targets: Iterable[Target], history_file: Path | None) -> Iterator[Notifier]:
    """Yield a notifier for each target; the page that a mail may bring along shows the history.

    One whose address cannot be found says so when it is to send: no session ends for it.
    """
    for target in targets:
        yield _Named(target, lambda results: _page(results, history_file))


class _Named(Notifier):
    """A notifier that looks up its address, which may be in a variable, when it is needed."""

    def __init__(self, target: Target, page: Callable[[Results], str]) -> None:
        self.name = target.kind
        self.is_told_always = target.kind in (*PINGS, *COMMENTS)
        self._target = target
        self._page = page

    def begin(self) -> None:
        if self._target.kind == "healthchecks":
            self._found().begin()

    def send(self, notice: Notice) -> bool | None:
        return self._found().send(notice)

    def _found(self) -> Notifier:
        kind, where = self._target.kind, self._target.where()
        if kind in MAILS:
            from pytest_dlperf.notices.mail import Mail, Server

            server = Server.of(os.environ.get(SMTP_VARIABLE, "").strip() or "smtp://localhost")
            found: Notifier = Mail(
                receivers(where), server, self._page if kind == "mail+page" else None
            )
        elif kind in ADDRESSES:
            found = _at_address(kind, where)
        elif kind == APPRISE:
            from pytest_dlperf.notices.chat import Apprise

            found = Apprise(where)
        else:
            from pytest_dlperf.notices.comments import GitHubComments, GitLabComments

            of_kind = GitHubComments if kind == "github" else GitLabComments
            found = of_kind(kind, where)
        self.name = found.name
        return found


def _page(results: Results, history_file: Path | None) -> str:
    """Make the page; it lacks the history where that cannot be read."""
    from pytest_dlperf.history.case_history import histories_of
    from pytest_dlperf.history.store import HistoryError
    from pytest_dlperf.reports.html.page import html_page

    try:
        return html_page(results, histories_of(history_file, results))
    except HistoryError:
        return html_page(results, {})


def _at_address(kind: str, where: str) -> Notifier:
    if kind in PINGS:
        from pytest_dlperf.notices.pings import Healthchecks, Ping

        return Ping(where) if kind == "ping" else Healthchecks(where)
    from pytest_dlperf.notices.chat import WEBHOOKS, Webhook

    return Webhook(kind, where, WEBHOOKS[kind])
