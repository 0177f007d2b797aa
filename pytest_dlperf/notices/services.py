"""Notices by the services of Apprise, as plain text, and as JSON to an address."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, final

from msgspec import to_builtins
from msgspec.structs import replace

from pytest_dlperf.config.notices import NO_APPRISE
from pytest_dlperf.model.judgement import Explanation
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.notices.notice import Notice, NoticeError, Notifier
from pytest_dlperf.notices.posting import call, clipped, host_of
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.status import counts, metric_words, worst_first
from pytest_dlperf.results.file import metric_entry

_JSON_FORM: Final = 1
_JSON_CASES: Final = 200
_JSON_DIFFERENCES: Final = 20
_JSON_VALUE: Final = 500
"""Characters of a value."""


@final
class Webhook(Notifier):
    """Posts a notice as JSON to an address."""

    def __init__(self, address: str) -> None:
        self.name = f"json ({host_of(address)})"
        self._address = address

    def send(self, notice: Notice) -> None:
        """Post it."""
        call("POST", self._address, notice_data(notice))


@final
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
    from pytest_dlperf.report.html.page import html_page

    file = Path(folder) / "results.html"
    file.write_text(html_page(session), encoding="utf-8", errors="backslashreplace")
    return str(file)


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
        "cases": [_json_case(case) for case in cases[:_JSON_CASES]],
        "more_cases": max(len(cases) - _JSON_CASES, 0),
    }


def _json_case(result: CaseResult) -> dict[str, Any]:
    words = metric_words(result)
    return {
        "id": result.case.id,
        "status": result.status.value,
        "metrics": {
            name: {
                **metric_entry(known),
                "verdict": words[name][0],
                "explanation": _json_explanation(known.explanation),
            }
            for name, known in result.metrics().items()
            if name in words and not words[name][1].is_good
        },
    }


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
