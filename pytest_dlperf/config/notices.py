"""The receivers of a session's notices: ``--dlperf-notify``, with the secrets in it.

The address of a webhook is a secret: with it one can write into the channel. So name the
variable that holds it (``json=WEBHOOK``, in capitals: another word might be the secret) or a file
(``json=@FILE``). It is looked up when it is needed, and stands in no message.
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
_NO_ADDRESSES: Final = (
    "needs the name of a variable, or addresses of Apprise with blanks between, as in tgram://T/C"
)
_NO_ADDRESS: Final = (
    "needs the name of a variable, or an address that begins with https:// or http://"
)
_NO_NAME: Final = "takes a name of letters, digits, '.', '_' and '-'"
_OF_APPRISE: Final = r"[a-z][a-z0-9+.-]*://\S+"
_KINDS: Final[Mapping[str, tuple[str, str]]] = {
    **dict.fromkeys(APPRISE, (rf"{_OF_APPRISE}(\s+{_OF_APPRISE})*", _NO_ADDRESSES)),
    **dict.fromkeys(("json", *PINGS), (_ADDRESS, _NO_ADDRESS)),
    **dict.fromkeys(COMMENTS, (r"[A-Za-z0-9_.-]{0,60}", _NO_NAME)),
}
"""What a receiver of each kind is found by, as an expression and in words."""


def is_address(text: str) -> bool:
    """Whether a text is an HTTP address without a user name."""
    return re.fullmatch(_ADDRESS, text) is not None


class Target(NamedTuple):
    """A receiver of notices: its kind, and where it is found."""

    kind: str
    value: str
    """As it was written: it may be a secret, or name one."""
    place: str
    folder: Path
    """Where relative paths start from."""

    def __repr__(self) -> str:
        return f"<{self.kind} of {self.place}>"

    @property
    def _names_variable(self) -> bool:
        return self.kind not in COMMENTS and bool(re.fullmatch("[A-Z_][A-Z0-9_]*", self.value))

    @property
    def is_in_clear(self) -> bool:
        """Whether the value itself is a secret, and does not name a variable or a file."""
        return not (self.kind in COMMENTS or self.value.startswith("@") or self._names_variable)

    @property
    def remedy(self) -> str:
        """How to keep the secret elsewhere."""
        return f"name a variable that holds it, {self.kind}=VARIABLE, or a file, {self.kind}=@FILE"

    def where(self, environment: Mapping[str, str] = os.environ) -> str:
        """Look up the address or the comment's name."""
        value = self.value
        if self._names_variable:
            value = environment.get(value, "").strip()
            if not value:
                raise self.error(f"the variable {self.value} is not set")
        elif value.startswith("@"):
            file = self.folder / os.path.expanduser(value[1:])  # noqa: PTH111 - pathlib refuses unknown users
            try:
                with file.open(encoding="utf-8") as opened:
                    value = opened.read(_MAX_FILE_SIZE).strip()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is not UTF-8"
                raise self.error(f"{file} cannot be read: {why}") from None
        expression, needs = _KINDS[self.kind]
        if not re.fullmatch(expression, value):
            raise self.error(needs)
        return value

    def warning(self) -> str | None:
        """Return why no notice can be sent, or who can read the secret; it holds no secret."""
        try:
            self.where()
        except UsageError as error:
            return f"{error}; no notice will be sent"
        if self.kind in APPRISE:
            from importlib.util import find_spec

            if find_spec("apprise") is None:
                return str(self.error(f"{NO_APPRISE}; no notice will be sent"))
        if not self.is_in_clear:
            return None
        exposure = "its address stands in the variable itself, which logs and trainers may show"
        if self.place.startswith("--"):
            exposure = "its address is on the command line, where all users of this machine see it"
        return str(self.error(f"{exposure}; {self.remedy}"))

    def error(self, message: str) -> UsageError:
        """Make an error that names the place and the kind."""
        return UsageError(f"{self.place} {self.kind}: {message}")


def targets(option: OptionText) -> tuple[Target, ...]:
    """Read notifiers, as in ``json=WEBHOOK``; several have blanks between them."""
    kinds = "|".join(map(re.escape, _KINDS))
    texts = re.split(rf"\s+(?=(?:{kinds})(?:=|\s|$))", option.text.strip())
    return tuple(_target(option, *text.partition("=")[::2]) for text in texts)


def _target(option: OptionText, kind: str, value: str) -> Target:
    kind, value = kind.strip(), value.strip()
    if kind not in _KINDS:
        from pytest_dlperf.files.mistakes import nearest

        # It may be an address without its kind: a secret.
        is_word = re.fullmatch("[a-z+_-]{1,20}", kind) is not None
        found = f"unknown notifier {kind!r}" if is_word else "needs a notifier"
        near = nearest(kind, _KINDS) if is_word else ""
        raise UsageError(
            f"{option.place}: {found}; allowed: {', '.join(_KINDS)}, as in "
            f"apprise=SLACK_WEBHOOK{near}"
        )
    target = Target(kind=kind, value=value, place=option.place, folder=option.folder)
    if kind not in COMMENTS and not value:
        raise target.error(f"needs an address, as in {kind}=NAME_OF_A_VARIABLE")
    if target.is_in_clear and option.place.startswith("ini "):
        raise target.error(f"its address is a secret, and ini files are shared: {target.remedy}")
    if target.is_in_clear or kind in COMMENTS:
        target.where()
    return target
