"""The notifiers that come with the package, of what the user has named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_dlperf.config.notices import APPRISE, COMMENTS, PINGS, Target
from pytest_dlperf.notices.notice import Notice, Notifier


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
        if kind in PINGS:
            from pytest_dlperf.notices.pings import Healthchecks, Ping

            found: Notifier = Ping(where) if kind == "ping" else Healthchecks(where)
        elif kind in COMMENTS:
            from pytest_dlperf.notices.comments import GitHubComments, GitLabComments

            of_kind = GitHubComments if kind == "github" else GitLabComments
            found = of_kind(kind, where)
        else:
            from pytest_dlperf.notices.services import Apprise, Webhook

            with_page = kind == "apprise+page"
            found = Apprise(where, with_page=with_page) if kind in APPRISE else Webhook(where)
        self.name = found.name
        return found
