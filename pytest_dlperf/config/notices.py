"""The receivers of a session's notices: ``--dlperf-notify``, with the secrets in it.

The address of a webhook is a secret: with it one can write into the channel. So name the
variable that holds it (``json=WEBHOOK``, in capitals: another word might be the secret) or a file
(``json=@FILE``). It is looked up when it is needed, and stands in no message.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_dlperf.config.values import OptionText

PINGS: Final = ("ping", "healthchecks")
ADDRESSES: Final = ("json", *PINGS)
"""Kinds that go to an address, which is a secret."""
APPRISE: Final = ("apprise", "apprise+page")
"""Go to any number of addresses of https://github.com/caronc/apprise, which hold tokens."""
NO_APPRISE: Final = "Apprise is not installed: pip install 'pytest-dlperf[notify]'"
COMMENTS: Final = ("github", "gitlab")
"""Kinds that need no more than the CI's own variables; a name tells comments apart."""
_KINDS: Final = (*APPRISE, *ADDRESSES, *COMMENTS)
# As text: most sessions compile none of them.
_NEXT: Final = rf"\s+(?=(?:{'|'.join(map(re.escape, _KINDS))})(?:=|\s|$))"
_VARIABLE: Final = "[A-Z_][A-Z0-9_]*"
_KIND: Final = "[a-z+_-]{1,20}"
_NAME: Final = "[A-Za-z0-9_.-]{1,60}"
_APPRISE: Final = r"[a-z][a-z0-9+.-]*://\S+"
_MAX_FILE_SIZE: Final = 4096


class Target(NamedTuple):
    """A receiver of notices: its kind, and where it is found."""

    kind: str
    value: str
    """As it was given: it may be a secret, or name one."""
    place: str
    folder: Path
    """Where relative paths start from."""

    def __repr__(self) -> str:
        """Leave the value out."""
        return f"<{self.kind} of {self.place}>"

    @property
    def is_indirect(self) -> bool:
        """Whether the value only names where the real one is found: in a variable or a file."""
        return self.value.startswith("@") or self._names_variable

    def where(self, environment: Mapping[str, str] = os.environ) -> str:
        """Look up the address or the comment's name.

        Raises:
            UsageError: There is none, or it is malformed. It names no secret.
        """
        found = self.value
        if self._names_variable:
            found = environment.get(self.value, "").strip()
            if not found:
                raise self._error(f"the variable {self.value} is not set")
        elif found.startswith("@"):
            found = self._read(self.folder / os.path.expanduser(found[1:]))  # noqa: PTH111 - pathlib refuses unknown users
        self._check(found)
        return found

    def warning(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """Return why no notice can be sent, or who can read the secret; it holds no secret."""
        try:
            self.where(environment)
        except UsageError as error:
            return f"{error}; no notice will be sent"
        if self.kind in APPRISE:
            from importlib.util import find_spec

            if find_spec("apprise") is None:
                return str(self._error(f"{NO_APPRISE}; no notice will be sent"))
        if self.kind not in COMMENTS and not self.is_indirect:
            fault = "its address stands in the variable itself, which logs and trainers may show"
            if self.place.startswith("--"):
                fault = "its address is on the command line, where all users of this machine see it"
            return str(self._error(f"{fault}; {self._remedy}"))
        return None

    @property
    def _remedy(self) -> str:
        return f"name a variable that holds it, {self.kind}=VARIABLE, or a file, {self.kind}=@FILE"

    @property
    def _names_variable(self) -> bool:
        return self.kind not in COMMENTS and re.fullmatch(_VARIABLE, self.value) is not None

    def _read(self, file: Path) -> str:
        try:
            with file.open(encoding="utf-8") as opened:
                found = opened.read(_MAX_FILE_SIZE).strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise self._error(f"{file} cannot be read: {why}") from None
        if not found:
            raise self._error(f"{file} is empty")
        return found

    def _check(self, found: str) -> None:
        if self.kind in ADDRESSES:
            if not is_address(found):
                raise self._error(
                    "needs the name of a variable, or an address that begins with https:// or http://"
                )
        elif self.kind in APPRISE:
            if not all(re.fullmatch(_APPRISE, one) for one in found.split()):
                raise self._error(
                    "needs the name of a variable, or addresses of Apprise with blanks between "
                    "them, as in tgram://TOKEN/CHAT"
                )
        elif found and not re.fullmatch(_NAME, found):
            raise self._error("takes a name of letters, digits, '.', '_' and '-'")

    def _error(self, fault: str) -> UsageError:
        return UsageError(f"{self.place} {self.kind}: {fault}")


def targets(given: OptionText) -> tuple[Target, ...]:
    """Read notifiers, as in ``json=WEBHOOK``; several have blanks between them."""
    return tuple(_targets(given))


def _targets(given: OptionText) -> Iterator[Target]:
    for text in re.split(_NEXT, given.text.strip()):
        kind, separator, value = text.partition("=")
        if kind not in _KINDS:
            # It may be an address without its kind: a secret.
            is_word = re.fullmatch(_KIND, kind) is not None
            named = f"unknown notifier {kind!r}" if is_word else "needs a notifier"
            from pytest_dlperf.files.mistakes import nearest

            near = nearest(kind, _KINDS) if is_word else ""
            raise UsageError(
                f"{given.place}: {named}; allowed: {', '.join(_KINDS)}, as in "
                f"apprise=SLACK_WEBHOOK{near}"
            )
        target = Target(kind=kind, value=value.strip(), place=given.place, folder=given.folder)
        if kind not in COMMENTS and not (separator and target.value):
            raise UsageError(
                f"{given.place}: {kind} needs an address, as in {kind}=NAME_OF_A_VARIABLE"
            )
        if not target.is_indirect:
            if kind not in COMMENTS and given.place.startswith("ini "):
                raise UsageError(
                    f"{given.place}: the address of {kind} is a secret, and ini files are shared: "
                    f"{target._remedy}"  # noqa: SLF001 - of this module
                )
            target.where()
        yield target


def is_address(text: str) -> bool:
    """Whether a text is an HTTP address without a user name."""
    if not text.isascii() or not text.isprintable() or " " in text:
        return False
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("https", "http") and bool(parts.hostname) and parts.username is None
