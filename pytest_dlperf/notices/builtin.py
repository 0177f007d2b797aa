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
    from collections.abc import Iterable, Iterator

    from pytest_dlperf.config.notices import Target
    from pytest_dlperf.notices.notice import Notice


def builtin_notifiers(targets: Iterable[Target]) -> Iterator[Notifier]:
    """Yield a notifier for each target.

    One whose address cannot be found says so when it is to send: no session ends for it.
    """
    for target in targets:
        yield _Named(target)


class _Named(Notifier):
    """A notifier that looks up its address, which may be in a variable, when it is needed."""

    def __init__(self, target: Target) -> None:
        self.name = target.kind
        self.is_told_always = target.kind in (*PINGS, *COMMENTS)
        self._target = target

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
            with_page = kind == "mail+page"
            found: Notifier = Mail(receivers(where), server, with_page=with_page)
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


def _at_address(kind: str, where: str) -> Notifier:
    if kind in PINGS:
        from pytest_dlperf.notices.pings import Healthchecks, Ping

        return Ping(where) if kind == "ping" else Healthchecks(where)
    from pytest_dlperf.notices.chat import WEBHOOKS, Webhook

    return Webhook(kind, where, WEBHOOKS[kind])
