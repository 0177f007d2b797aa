"""Requests to web services: bounded in time and size, without redirects, silent about secrets."""

from __future__ import annotations

import http
import http.client
import json
import socket
import ssl
import time
from email.utils import parsedate_to_datetime
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final
from urllib import error, request
from urllib.parse import urlsplit

from pytest_dlperf.notices.notice import NoticeError

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT_S: Final = 10.0
LONGEST_WAIT_S: Final = 5.0
"""What a service may have us wait before the second try."""
_LARGEST_ANSWER: Final = 16 * 1024 * 1024
_CAUSES: Final = (
    # Slack
    *("action_prohibited", "channel_is_archived", "channel_not_found", "invalid_payload"),
    *("invalid_token", "no_active_hooks", "no_service", "no_service_id", "no_team", "no_text"),
    *("team_disabled", "too_many_attachments", "user_not_found"),
    # GitHub, GitLab, Mattermost, Teams
    *("Bad credentials", "Requires authentication", "Resource not accessible by integration"),
    *("Resource protected by organization SAML enforcement", "Validation Failed", "rate limit"),
    *("insufficient_scope", "invalid_grant", "Project Not Found", "Invalid webhook"),
    *("Unable to parse incoming data", "Bad payload"),
)
"""What services say of a fault. Other words of theirs are not shown: they may repeat a secret."""
_AGAIN: Final = (429, 500, 502, 503, 504)
_GONE: Final = (401, 403, 404, 410)


class RefusedError(NoticeError):
    """A service has refused; ``code`` is that of HTTP."""

    def __init__(self, message: str, code: int) -> None:
        """Take the message and the code."""
        super().__init__(message)
        self.code = code


class _NoRedirect(request.HTTPRedirectHandler):
    """Follows no redirect: what is sent holds secrets, and was meant for that host alone."""

    def redirect_request(self, *_: Any) -> None:
        """Have the redirect become an error."""


def host_of(address: str) -> str:
    """Name the host of an address, which is all of it that a message may show."""
    parts = urlsplit(address)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def clipped(text: str, most: int) -> str:
    """Cut a text to so many characters, which is how services count."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def call(
    method: str,
    address: str,
    payload: Any = None,
    *,
    headers: Mapping[str, str] | None = None,
    tries: int = 2,
) -> bytes:
    """Send a request, once more if the service is busy, and return its answer.

    ``payload`` is sent as JSON, or as it is if it is ``bytes``.

    Raises:
        NoticeError: The service cannot be reached, or refuses.
    """
    body, kind = _body(payload)
    asked = request.Request(  # noqa: S310 - only http and https come so far (config.notices)
        address,
        data=body,
        method=method,
        headers={
            "User-Agent": f"pytest-dlperf/{metadata.version('pytest-dlperf')}",
            **({"Content-Type": kind} if body is not None else {}),
            **(headers or {}),
        },
    )
    opener = request.build_opener(_NoRedirect)
    host = host_of(address)
    while True:
        tries -= 1
        try:
            with opener.open(asked, timeout=TIMEOUT_S) as answer:
                return answer.read(_LARGEST_ANSWER)  # type: ignore[no-any-return]
        except error.HTTPError as refused:
            with refused:
                if tries > 0 and refused.code in _AGAIN:
                    time.sleep(_wait_s(refused.headers.get("Retry-After")))
                    continue
                raise RefusedError(_refusal(refused, host), refused.code) from None
        except (OSError, http.client.HTTPException, ValueError) as fault:
            raise NoticeError(unreachable(fault, host)) from None


def _body(payload: Any) -> tuple[bytes | None, str]:
    if payload is None or isinstance(payload, bytes):
        return payload, "text/plain; charset=utf-8"
    # JSON has no lone surrogates, as broken logs have: they are escaped.
    return json.dumps(payload, ensure_ascii=True).encode(), "application/json; charset=utf-8"


def _wait_s(after: str | None) -> float:
    """Return how long to wait, from the ``Retry-After`` of RFC 9110: seconds or a date."""
    try:
        wanted = float(after or 1)
    except ValueError:
        try:
            wanted = parsedate_to_datetime(after or "").timestamp() - time.time()
        except ValueError:
            wanted = 1
    return min(max(wanted, 0), LONGEST_WAIT_S) if wanted == wanted else 1  # noqa: PLR0124 - NaN


def _refusal(refused: error.HTTPError, host: str) -> str:
    code = refused.code
    if code in (301, 302, 303, 307, 308):
        return f"{host} answers with a redirect ({code}), which is not followed; name the address"
    try:
        phrase = http.HTTPStatus(code).phrase
    except ValueError:
        phrase = ""
    told = f"{host} answers {code} {phrase}".rstrip()
    cause = _cause(refused)
    if cause:
        told += f" ({cause})"
    return f"{told}; is its address or token still right?" if code in _GONE else told


def _cause(refused: error.HTTPError) -> str:
    """Return which of the known causes the service tells, if any."""
    try:
        text = refused.read(2000).decode("utf-8", "replace").lower()
    except (OSError, http.client.HTTPException):
        return ""
    # The longest: one may hold another.
    return max((cause for cause in _CAUSES if cause.lower() in text), key=len, default="")


def unreachable(fault: Exception, host: str) -> str:
    """Say why a host cannot be asked, without what its address holds beside the host."""
    reason = fault.reason if isinstance(fault, error.URLError) else fault
    if isinstance(reason, TimeoutError):
        return f"{host} did not answer within {TIMEOUT_S:.0f} s"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"the certificate of {host} is not trusted: {reason.verify_message}"
    if isinstance(reason, ssl.SSLError):
        return f"{host} takes no TLS connection: {reason.reason or 'it was broken off'}"
    if isinstance(reason, socket.gaierror):
        return f"there is no host {host}: {reason.strerror}"
    if isinstance(reason, OSError):
        return f"{host} cannot be reached: {reason.strerror or type(reason).__name__}"
    # The text of others may hold the address.
    return f"{host} cannot be asked: {type(fault).__name__}"
