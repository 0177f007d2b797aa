"""Requests to web services: bounded in time and size, without redirects, silent about secrets."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Final
from urllib import error, request
from urllib.parse import urlsplit

from pytest_dlperf.notices.notice import NoticeError

TIMEOUT_S: Final = 10.0
_PAUSE_S: Final = 1.0
"""Before the second try."""
_LARGEST_ANSWER: Final = 16 * 1024 * 1024
_AGAIN: Final = (429, 500, 502, 503, 504)


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
    known = {"User-Agent": f"pytest-dlperf/{metadata.version('pytest-dlperf')}", **(headers or {})}
    body = payload if isinstance(payload, bytes) else None
    if payload is not None:
        known["Content-Type"] = "text/plain; charset=utf-8"
    if payload is not None and body is None:
        known["Content-Type"] = "application/json; charset=utf-8"
        # JSON has no lone surrogates, as broken logs have: they are escaped.
        body = json.dumps(payload, ensure_ascii=True).encode()
    # Only http and https come so far (config.notices).
    asked = request.Request(address, body, known, method=method)  # noqa: S310
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
                    time.sleep(_PAUSE_S)
                    continue
                # Not in the service's own words: they may repeat a secret.
                phrase = http.client.responses.get(refused.code, "")
                raise NoticeError(f"{host} answers {refused.code} {phrase}".rstrip()) from None
        except (OSError, http.client.HTTPException, ValueError) as fault:
            reason = fault.reason if isinstance(fault, error.URLError) else fault
            # The text of others may hold the address.
            why = reason if isinstance(reason, OSError) else type(fault).__name__
            raise NoticeError(f"{host} cannot be reached: {why}") from None
