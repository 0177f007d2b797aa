"""What is told of a session, and the protocol of all that tell it, our own and others'."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_dlperf.night.night import Night
    from pytest_dlperf.night.pieces import Text


class NoticeError(BrokenError):
    """A notice cannot be sent. The message holds no secret: of an address only its host."""


class Block(Struct, frozen=True):
    """A paragraph of a notice."""

    lines: tuple[Text, ...]
    below: tuple[Text, ...] = ()
    """What belongs to it: a list."""

    def __str__(self) -> str:
        """Return it as plain text."""
        return "\n".join([*map(str, self.lines), *(f"  {line}" for line in self.below)])


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
    """The same for GitHub, GitLab and Mattermost: quotes of logs and files are escaped."""
    cluster: str | None
    is_red: bool
    """Whether it needs action."""
    is_due: bool = True
    """Whether this session is one of those that ``--dlperf-notify-on`` asks for."""
    ci_run: str | None = None
    """The address of the CI's run, which may become a link."""
    night: Night | None = None
    """All of the session; ``None`` where there was none: that is what is told."""

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
