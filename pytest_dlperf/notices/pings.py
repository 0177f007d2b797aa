"""Pings of a dead man's switch: a service that tells when none has come for too long."""

from __future__ import annotations

from typing import Final, final
from urllib.parse import urlsplit, urlunsplit

from pytest_dlperf.notices.notice import Notice, Notifier
from pytest_dlperf.notices.posting import call, host_of

_MAX_BYTES: Final = 10_000
"""Of a ping's text; such services keep some 10 to 100 kB."""


@final
class Ping(Notifier):
    """Requests an address at the end of each whole session, red or green."""

    def __init__(self, address: str) -> None:
        self.name = f"ping ({host_of(address)})"
        self._address = address

    def send(self, notice: Notice) -> bool:
        """Ping, unless the session was interrupted."""
        if notice.session is None or notice.session.results.interrupted:
            return False
        call("GET", self._address)
        return True


@final
class Healthchecks(Notifier):
    """Pings a check by the protocol of Healthchecks, which others speak too.

    ``/start`` at the first test, the address itself at the end of a whole session, ``/fail`` at
    that of one that was interrupted; https://healthchecks.io/docs/http_api.
    """

    def __init__(self, address: str) -> None:
        self.name = f"healthchecks ({host_of(address)})"
        self._address = address

    def begin(self) -> None:
        """Say that the session has begun."""
        call("POST", self._with("start"), b"", tries=1)

    def send(self, notice: Notice) -> bool:
        """Say that it has ended, and how."""
        if notice.session is None:
            return False
        text = f"{notice.subject}\n\n{notice.text}".encode("utf-8", "backslashreplace")
        signal = "fail" if notice.session.results.interrupted else ""
        call("POST", self._with(signal), text[:_MAX_BYTES])
        return True

    def _with(self, signal: str) -> str:
        parts = urlsplit(self._address)
        path = parts.path.rstrip("/") + (f"/{signal}" if signal else "")
        return urlunsplit(parts._replace(path=path))
