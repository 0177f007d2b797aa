"""The notifiers that ``--dlperf-notify`` names; what they send with is imported when they send."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_dlperf.config.notices import COMMENTS, PINGS, Target
from pytest_dlperf.notices.notice import Notice, Notifier


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
        from pytest_dlperf.notices.services import MAKERS

        found = MAKERS[self._target.kind](self._target.where())
        self.name = found.name
        return found


def builtin_notifiers(targets: Iterable[Target]) -> Iterator[Notifier]:
    """Yield a notifier for each target.

    One whose address cannot be found says so when it is to send: no session ends for it.
    """
    yield from map(_Named, targets)
