"""The receivers of a session's notices, which ``--dlperf-notify`` names.

The address of a webhook is a secret: with it one can write into the channel. So the option names
the variable that holds it (``json=WEBHOOK``) or a file (``json=@FILE``). It is looked up when it is
needed, and stands in no message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pytest_dlperf.config.values import OptionText
from pytest_dlperf.model.errors import UsageError

PINGS: Final = ("ping", "healthchecks")
APPRISE: Final = ("apprise", "apprise+page")
"""Go to any number of addresses of https://github.com/caronc/apprise, which hold tokens."""
NO_APPRISE: Final = "Apprise is not installed: pip install 'pytest-dlperf[notify]'"
COMMENTS: Final = ("github", "gitlab")
"""Kinds that need no more than the CI's own variables; a name tells comments apart."""
_MAX_FILE_SIZE: Final = 4096
_ADDRESS: Final = r"https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?#][!-~]*)?"
"""An HTTP address without a user name."""
_OF_APPRISE: Final = r"[a-z][a-z0-9+.-]*://\S+"
_ADDRESSES: Final = (
    rf"{_OF_APPRISE}(\s+{_OF_APPRISE})*",
    "holds no addresses of Apprise with blanks between, as in tgram://T/C",
)
_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(APPRISE, _ADDRESSES),
    **dict.fromkeys(("json", *PINGS), (_ADDRESS, "holds no address with https:// or http://")),
    **dict.fromkeys(COMMENTS, ("[A-Za-z0-9_.-]{0,60}", "is no name of letters, digits, . _ and -")),
}
"""What a receiver of each kind is found by, and what is wrong with another."""


def is_address(text: str) -> bool:
    """Whether a text is an HTTP address without a user name."""
    return re.fullmatch(_ADDRESS, text) is not None


class Target(NamedTuple):
    """A receiver of notices: its kind, and where it is found."""

    kind: str
    value: str
    """A variable, a file behind ``@``, or the name of a comment."""
    place: str
    folder: Path
    """Where relative paths start from."""

    def where(self, environment: Mapping[str, str] = os.environ) -> str:
        """Look up the address or the comment's name."""
        value = self.value
        if value.startswith("@"):
            file = self.folder / os.path.expanduser(value[1:])  # noqa: PTH111 - pathlib refuses unknown users
            try:
                with file.open(encoding="utf-8") as opened:
                    value = opened.read(_MAX_FILE_SIZE).strip()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is not UTF-8"
                raise self.error(f"{file} cannot be read: {why}") from None
        elif self.kind not in COMMENTS:
            value = environment.get(value, "").strip()
            if not value:
                raise self.error(f"the variable {self.value} is not set")
        expression, problem = _KINDS[self.kind]
        if not re.fullmatch(expression, value):
            raise self.error(f"{self.value} {problem}".strip())
        return value

    def warning(self) -> str | None:
        """Return why no notice can be sent."""
        from importlib.util import find_spec

        try:
            self.where()
            if self.kind in APPRISE and find_spec("apprise") is None:
                raise self.error(NO_APPRISE)
        except UsageError as error:
            return f"{error}; no notice will be sent"
        return None

    def error(self, message: str) -> UsageError:
        """Make an error that names the place and the kind."""
        return UsageError(f"{self.place} {self.kind}: {message}")


def targets(option: OptionText) -> tuple[Target, ...]:
    """Read notifiers, as in ``json=WEBHOOK``; several have blanks between them."""
    kinds = "|".join(map(re.escape, _KINDS))
    texts = re.split(rf"\s+(?=(?:{kinds})(?:=|\s|$))", option.text.strip())
    return tuple(_target(option, *text.partition("=")[::2]) for text in texts)


def _target(option: OptionText, kind: str, value: str) -> Target:
    target = Target(kind.strip(), value.strip(), option.place, option.folder)
    if target.kind not in _KINDS:
        from pytest_dlperf.files.mistakes import nearest

        # It may be an address without its kind: a secret.
        is_word = re.fullmatch("[a-z+_-]{1,20}", target.kind) is not None
        raise UsageError(
            f"{option.place}: {f'unknown notifier {kind!r}' if is_word else 'needs a notifier'}; "
            f"allowed: {', '.join(_KINDS)}, as in apprise=SLACK_WEBHOOK"
            f"{nearest(target.kind, _KINDS) if is_word else ''}"
        )
    if target.kind in COMMENTS:
        target.where()
    elif not re.fullmatch("@.+|[A-Z_][A-Z0-9_]*", target.value):
        # Another word might be the secret itself, which all users of a machine can see here.
        raise target.error(
            f"name the variable that holds its address, in capitals: {kind}=WEBHOOK; or a file: "
            f"{kind}=@FILE"
        )
    return target
