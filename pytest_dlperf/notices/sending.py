"""Send a notice to all who are to be told: at once, and for a bounded time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.model.errors import DlperfError
from pytest_dlperf.night.texts import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pytest_dlperf.notices.notice import Notice, Notifier

LIMIT_S: Final = 30.0
"""How long all of them have together."""
BEGIN_LIMIT_S: Final = 5.0
"""How long a session waits for those who are told that it begins."""


class Outcome(Struct):
    """What has become of one notifier."""

    notifier: Notifier
    is_told: bool = False
    fault: str | None = None

    @property
    def line(self) -> str | None:
        """The line that says why the notice was not sent."""
        fault = self.fault
        return fault and printable(f"no notice was sent by {self.notifier.name}: {fault}")


def send_all(notifiers: Iterable[Notifier], notice: Notice) -> list[Outcome]:
    """Send a notice by all who want it; none costs another, and none may raise."""
    chosen = [one for one in notifiers if notice.is_due or one.is_told_always]
    return _all_at_once(chosen, lambda one: one.send(notice) is not False, LIMIT_S)


def begin_all(notifiers: Iterable[Notifier]) -> list[Outcome]:
    """Tell all that a session has begun."""
    return _all_at_once(list(notifiers), _begun, BEGIN_LIMIT_S)


def lines_of(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Say who was told, and who could not be."""
    told = [outcome.notifier.name for outcome in outcomes if outcome.is_told]
    if told:
        yield printable(f"notice sent: {', '.join(told)}")
    yield from filter(None, (outcome.line for outcome in outcomes))


def _begun(notifier: Notifier) -> bool:
    notifier.begin()
    return False


def _all_at_once(
    notifiers: Sequence[Notifier], do: Callable[[Notifier], bool], limit_s: float
) -> list[Outcome]:
    """Have each in a thread of its own: looking up a host's name, nothing else can break off."""
    outcomes = [Outcome(one) for one in notifiers]
    threads = [threading.Thread(target=_run, args=(one, do), daemon=True) for one in outcomes]
    until = time.monotonic() + limit_s
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join(max(until - time.monotonic(), 0))
    except KeyboardInterrupt:
        limit_s = 0  # Ctrl-C skips pending notices
    for number, thread in enumerate(threads):
        if thread.is_alive():
            why = f"it was given up after {limit_s:.0f} s" if limit_s else "it was broken off"
            # Another one: the thread may still write into its own.
            outcomes[number] = Outcome(notifiers[number], fault=why)
    return outcomes


def _run(outcome: Outcome, do: Callable[[Notifier], bool]) -> None:
    try:
        outcome.is_told = do(outcome.notifier)
    except DlperfError as error:
        outcome.fault = str(error)
    except Exception as error:  # noqa: BLE001 - a notice must not cost a session
        # The text of others may hold the address, which is a secret.
        outcome.fault = f"{type(error).__name__}, whose text may hold secrets"
