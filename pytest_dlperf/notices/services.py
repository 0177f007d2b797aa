"""Where notices go: the services of Apprise, JSON to an address, pings, comments of a forge."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import to_builtins
from msgspec.structs import replace

from pytest_dlperf.config.notices import NO_APPRISE
from pytest_dlperf.model.judgement import Explanation
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.notices.comments import GitHubComments, GitLabComments
from pytest_dlperf.notices.notice import Notice, NoticeError, Notifier
from pytest_dlperf.notices.posting import call, clipped, host_of
from pytest_dlperf.report.html.page import html_page
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.status import counts, metric_words, worst_first
from pytest_dlperf.results.file import metric_entry

_JSON_FORM: Final = 1
_JSON_CASES: Final = 200
_JSON_DIFFERENCES: Final = 20
_JSON_VALUE: Final = 500
"""Characters of a value."""
_MAX_BYTES: Final = 10_000
"""Of a ping's text; such services keep some 10 to 100 kB."""


class Webhook(Notifier):
    """Posts a notice as JSON to an address."""

    kind = "json"

    def __init__(self, address: str) -> None:
        self.name = f"{self.kind} ({host_of(address)})"
        self._address = address

    def send(self, notice: Notice) -> bool | None:
        """Post it."""
        call("POST", self._address, notice_data(notice))
        return True


class Ping(Webhook):
    """Requests an address of a dead man's switch at the end of each whole session."""

    kind = "ping"

    def send(self, notice: Notice) -> bool | None:
        """Ping, unless the session was interrupted."""
        if notice.session is None or notice.session.results.interrupted:
            return False
        call("GET", self._address)
        return True


class Healthchecks(Webhook):
    """Pings a check by the protocol of Healthchecks, which others speak too.

    ``/start`` at the first test, the address itself at the end of a whole session, ``/fail`` at
    that of one that was interrupted; https://healthchecks.io/docs/http_api.
    """

    kind = "healthchecks"

    def begin(self) -> None:
        """Say that the session has begun."""
        call("POST", self._with("/start"), b"", tries=1)

    def send(self, notice: Notice) -> bool | None:
        """Say that it has ended, and how."""
        if notice.session is None:
            return False
        text = f"{notice.subject}\n\n{notice.text}".encode("utf-8", "backslashreplace")
        signal = "/fail" if notice.session.results.interrupted else ""
        call("POST", self._with(signal), text[:_MAX_BYTES])
        return True

    def _with(self, signal: str) -> str:
        parts = urlsplit(self._address)
        return parts._replace(path=f"{parts.path.rstrip('/')}{signal}").geturl()


class Apprise(Notifier):
    """Sends the text to whatever services Apprise knows."""

    def __init__(self, addresses: str, *, with_page: bool = False) -> None:
        """Take the addresses, with blanks between them; of each, messages show the scheme.

        ``with_page`` attaches the page where a service takes files.
        """
        self._addresses = addresses.split()
        self._with_page = with_page
        schemes = dict.fromkeys(one.partition("://")[0] for one in self._addresses)
        self.name = f"apprise ({', '.join(schemes)})"

    def send(self, notice: Notice) -> None:
        """Send it."""
        log = logging.getLogger("apprise")
        before = log.disabled
        log.disabled = True  # what it says of a fault may hold the address
        try:
            with warnings.catch_warnings():  # of what it imports
                warnings.simplefilter("ignore")
                self._send(notice)
        except ImportError as error:
            raise NoticeError(NO_APPRISE) from error
        finally:
            log.disabled = before

    def _send(self, notice: Notice) -> None:
        from apprise import Apprise as Services
        from apprise import AppriseAsset, NotifyFormat, NotifyType

        services = Services(asset=AppriseAsset(app_id="pytest-dlperf"))
        for number, one in enumerate(self._addresses, 1):
            if not services.add(one):
                raise NoticeError(f"Apprise does not know address {number}; see `apprise -vv`")
        kind = NotifyType.FAILURE if notice.is_red else NotifyType.SUCCESS
        # Some services would take a name in a quoted log for a mention, whatever the format.
        subject, text = (one.replace("@", "@\u200b") for one in (notice.subject, notice.text))
        with TemporaryDirectory() as folder:
            page = _page(notice.session, folder) if self._with_page and notice.session else None
            is_sent = services.notify(
                text, subject, kind, body_format=NotifyFormat.TEXT, attach=page
            )
        if not is_sent:
            raise NoticeError("a service could not be reached, or refused; see `apprise -vv`")


def _page(session: SessionReport, folder: str) -> str:
    file = Path(folder) / "results.html"
    file.write_text(html_page(session), encoding="utf-8", errors="backslashreplace")
    return str(file)


MAKERS: Final[Mapping[str, Callable[[str], Notifier]]] = {
    "apprise": Apprise,
    "apprise+page": partial(Apprise, with_page=True),
    "json": Webhook,
    "ping": Ping,
    "healthchecks": Healthchecks,
    "github": GitHubComments,
    "gitlab": GitLabComments,
}
"""What makes a notifier of a kind, of its address or its name."""


# ------------------------------------------------------------------------------------ JSON


def notice_data(notice: Notice) -> dict[str, Any]:
    """Make the data of ``json``: docs/notices.md lists them."""
    data: dict[str, Any] = {
        "schema": _JSON_FORM,
        "subject": notice.subject,
        "text": notice.text,
        "markdown": notice.markdown,
        "red": notice.is_red,
        "cluster": notice.cluster,
        "ci_run": notice.ci_run,
        "session": None,
    }
    if notice.session is None:
        return data
    results = notice.session.results
    cases = [case for case in worst_first(results.cases) if not case.status.is_good]
    return {
        **data,
        "session": {
            "id": results.session,
            "estimator": results.estimator.value,
            "started": results.started,
            "ended": results.ended,
            "interrupted": results.interrupted,
            "strict": results.strict,
            "commit": results.origin.commit,
            "counts": {status.value: count for status, count in counts(results.cases).items()},
        },
        "cases": list(map(_json_case, cases[:_JSON_CASES])),
        "more_cases": max(len(cases) - _JSON_CASES, 0),
    }


def _json_case(result: CaseResult) -> dict[str, Any]:
    words, known = metric_words(result), result.metrics()
    bad = [name for name in known if name in words and not words[name][1].is_good]
    metrics = {
        name: {
            **metric_entry(known[name]),
            "verdict": words[name][0],
            "explanation": _json_explanation(known[name].explanation),
        }
        for name in bad
    }
    return {"id": result.case.id, "status": result.status.value, "metrics": metrics}


def _json_explanation(explanation: Explanation | None) -> dict[str, Any] | None:
    """Give the most suspicious differences alone: a service takes no message of megabytes."""
    if explanation is None:
        return None
    suspicious = explanation.differences[:_JSON_DIFFERENCES]
    data: dict[str, Any] = to_builtins(replace(explanation, differences=suspicious))
    data["differences"] = [
        {key: clipped(it, _JSON_VALUE) if isinstance(it, str) else it for key, it in one.items()}
        for one in data["differences"]
    ]
    return data | {"more_differences": len(explanation.differences) - len(suspicious)}
