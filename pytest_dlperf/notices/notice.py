"""What is told of a session, the protocol of all that tell it, and how they do so at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from pytest_dlperf.model.errors import BrokenError, DlperfError
from pytest_dlperf.report.printing import printable
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.text import Text

LIMIT_S: Final = 30.0
"""How long all of them have together."""
BEGIN_LIMIT_S: Final = 5.0
"""How long a session waits for those who are told that it begins."""


class NoticeError(BrokenError):
    """A notice cannot be sent. The message holds no secret: of an address only its host."""


class Block(Struct, frozen=True):
    """A paragraph of a notice."""

    lines: tuple[Text, ...]
    below: tuple[Text, ...] = ()
    """What belongs to it: a list."""

    def __str__(self) -> str:
        indent = "  " * bool(self.lines)
        return "\n".join([*map(str, self.lines), *(f"{indent}{line}" for line in self.below)])


def plain_text(blocks: Iterable[Block]) -> str:
    """Write blocks with a blank line between them."""
    return "\n\n".join(map(str, blocks))


class Notice(Struct, frozen=True, kw_only=True):
    """What people are told: what is read in ten seconds, and what it is made from."""

    subject: str
    """One line."""
    blocks: tuple[Block, ...]
    """Its paragraphs, without the subject."""
    markdown: str
    """The same for GitHub and GitLab: quotes of logs and files are escaped."""
    cluster: str | None
    is_red: bool
    """Whether it needs action."""
    is_due: bool = True
    """Whether this session is one of those that ``--dlperf-notify-on`` asks for."""
    ci_run: str | None = None
    """The address of the CI's run, which may become a link."""
    session: SessionReport | None = None
    """All of the session; ``None`` for a test."""

    @property
    def text(self) -> str:
        """The blocks as plain text."""
        return plain_text(self.blocks)


class Notifier:
    """Tells people of a session. Override ``send``.

    The methods are called on xdist's controller only, in a thread of their own, and given up after
    some seconds. Raise a ``NoticeError`` for what the user is to read: of other errors only the
    type is shown, since their text may hold an address that is a secret.
    """

    name: str = "notifier"
    """What messages call it."""
    is_told_always: bool = False
    """Whether it gets every notice, and goes by ``is_due`` itself: a comment has to turn green."""

    def begin(self) -> None:
        """Tell that a session has begun: its first test of a case runs."""

    def send(self, notice: Notice) -> bool | None:
        """Tell of a session. Return ``False`` where nothing was sent.

        Raises:
            NoticeError: It could not be told.
        """
        raise NotImplementedError


class Outcome(Struct):
    """What has become of one notifier."""

    notifier: Notifier
    is_told: bool = False
    fault: str | None = None


def send_all(notifiers: Iterable[Notifier], notice: Notice) -> list[Outcome]:
    """Send a notice by all who want it; none costs another, and none may raise."""
    chosen = [one for one in notifiers if notice.is_due or one.is_told_always]
    return _all_at_once(chosen, lambda one: one.send(notice) is not False, LIMIT_S)


def begin_all(notifiers: Iterable[Notifier]) -> list[Outcome]:
    """Tell all that a session has begun."""
    return _all_at_once(list(notifiers), _begun, BEGIN_LIMIT_S)


def _begun(notifier: Notifier) -> bool:
    notifier.begin()
    return False


def lines_of(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Say who was told, and who could not be."""
    told = [outcome.notifier.name for outcome in outcomes if outcome.is_told]
    if told:
        yield printable(f"notice sent: {', '.join(told)}")
    for outcome in outcomes:
        if outcome.fault:
            yield printable(f"no notice was sent by {outcome.notifier.name}: {outcome.fault}")


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
            why = f"gave up after {limit_s:.0f} s" if limit_s else "interrupted"
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
