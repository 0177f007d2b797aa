"""Notices for chats: Slack, Teams and Mattermost, by their incoming webhooks, JSON, and Apprise.

Quotes of logs and files go where a chat takes plain text, so that they make no link, no mention and
no format.
"""

from __future__ import annotations

import logging
import warnings
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, final

from msgspec import to_builtins
from msgspec.structs import replace

from pytest_dlperf.config.notices import NO_APPRISE
from pytest_dlperf.night.case_status import counts, metric_words, status_of, worst_first
from pytest_dlperf.night.pieces import Role
from pytest_dlperf.night.texts import printable
from pytest_dlperf.notices.notice import Notice, NoticeError, Notifier
from pytest_dlperf.notices.posting import call, clipped, host_of
from pytest_dlperf.results.file import metric_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_dlperf.model.judgement import Explanation
    from pytest_dlperf.model.results import CaseResult
    from pytest_dlperf.night.pieces import Text
    from pytest_dlperf.notices.notice import Block

# https://docs.slack.dev/reference/block-kit: characters of a header, and of a section's text.
_SLACK_HEADER: Final = 150
_SLACK_SECTION: Final = 3000
_SLACK_STYLES: Final = {
    Role.STRONG: {"bold": True},
    Role.CODE: {"code": True},
    Role.CASE: {"code": True},
}
# A message may have 28 KB, with all that JSON adds to characters that are not ASCII.
_TEAMS_TEXT: Final = 4000
# A post may have 16,383 characters.
_MATTERMOST_TEXT: Final = 12_000
_RED, _GREEN = "#d24b4e", "#3db887"
_JSON_FORM: Final = 1
_JSON_CASES: Final = 200
_JSON_DIFFERENCES: Final = 20
_JSON_VALUE: Final = 500
"""Characters of a value."""


@final
class Webhook(Notifier):
    """Posts what ``payload`` makes of a notice to an address."""

    def __init__(
        self, kind: str, address: str, payload: Callable[[Notice], Mapping[str, Any]]
    ) -> None:
        """Take the address, which no message shows."""
        self.name = f"{kind} ({host_of(address)})"
        self._address = address
        self._payload = payload

    def send(self, notice: Notice) -> None:
        """Post it."""
        call("POST", self._address, self._payload(notice))


@final
class Apprise(Notifier):
    """Sends the text to whatever services Apprise knows."""

    def __init__(self, addresses: str) -> None:
        """Take the addresses, with blanks between them; of each, messages show the scheme."""
        self._addresses = addresses.split()
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
        if not services.notify(text, subject, kind, body_format=NotifyFormat.TEXT):
            raise NoticeError("a service could not be reached, or refused; see `apprise -vv`")


def slack_message(notice: Notice) -> dict[str, Any]:
    """Make a message of blocks; https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks."""
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": _slack_text(notice.subject, _SLACK_HEADER)},
        *map(_slack_block, notice.blocks),
    ]
    if notice.ci_run is not None:
        button = {"type": "button", "text": _slack_text("CI run", 75), "url": notice.ci_run}
        blocks.append({"type": "actions", "elements": [button]})
    # ``text`` is what notifications show, and the only part in which Slack looks for mentions.
    subject = notice.subject
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        subject = subject.replace(character, entity)
    return {"text": clipped(subject, _SLACK_SECTION), "blocks": blocks}


def _slack_text(text: str, most: int) -> dict[str, Any]:
    return {"type": "plain_text", "text": clipped(text, most) or "-", "emoji": False}


def _slack_block(block: Block) -> dict[str, Any]:
    """Write a paragraph by the roles of its pieces: Slack looks for no markup in these."""
    first, *others = map(_slack_line, block.lines)
    lines = [*first, *chain(*([{"type": "text", "text": "\n"}, *line] for line in others))]
    elements: list[dict[str, Any]] = [{"type": "rich_text_section", "elements": lines}]
    if block.below:
        items = [{"type": "rich_text_section", "elements": _slack_line(it)} for it in block.below]
        elements.append({"type": "rich_text_list", "style": "bullet", "elements": items})
    return {"type": "rich_text", "elements": elements}


def _slack_line(line: Text) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for piece in line.pieces:
        text = printable(piece.text)
        if piece.address is not None:
            found.append({"type": "link", "url": piece.address, "text": text})
        elif text:
            style = _SLACK_STYLES.get(piece.role)
            found.append({"type": "text", "text": text, **({"style": style} if style else {})})
    return found


def teams_message(notice: Notice) -> dict[str, Any]:
    """Make a message of one Adaptive Card, as the Workflows app takes it; https://adaptivecards.io."""
    colour = "attention" if notice.is_red else "good"
    subject = {"type": "TextRun", "text": notice.subject, "weight": "bolder", "color": colour}
    lines = [line or " " for line in clipped(notice.text, _TEAMS_TEXT).splitlines()]
    # The text of a TextBlock would be Markdown.
    body = [
        {"type": "RichTextBlock", "inlines": [subject]},
        *({"type": "RichTextBlock", "inlines": _runs(line), "spacing": "small"} for line in lines),
    ]
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": body,
        "msteams": {"width": "Full"},
    }
    if notice.ci_run is not None:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "CI run", "url": notice.ci_run}]
    attachment = {
        "contentType": "application/vnd.microsoft.card.adaptive",
        "contentUrl": None,
        "content": card,
    }
    return {"type": "message", "summary": notice.subject, "attachments": [attachment]}


def _runs(line: str) -> list[dict[str, Any]]:
    # Blanks at the start of a line would not be shown.
    text = line.lstrip(" ")
    indent = "\N{NO-BREAK SPACE}" * (len(line) - len(text))
    return [{"type": "TextRun", "text": f"{indent}{text}"}]


def mattermost_message(notice: Notice) -> dict[str, Any]:
    """Make a message; https://developers.mattermost.com/integrate/webhooks/incoming."""
    attachment: dict[str, Any] = {
        "fallback": notice.subject,
        "color": _RED if notice.is_red else _GREEN,
        "text": clipped(notice.markdown, _MATTERMOST_TEXT),
    }
    if notice.ci_run is not None:
        attachment |= {"title": "CI run", "title_link": notice.ci_run}
    return {"username": "pytest-dlperf", "attachments": [attachment]}


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
    if notice.night is None:
        return data
    results = notice.night.results
    cases = [case for case in worst_first(results.cases) if not status_of(case).is_good]
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
        "status": status_of(result).value,
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


WEBHOOKS: Final[Mapping[str, Callable[[Notice], Mapping[str, Any]]]] = {
    "slack": slack_message,
    "teams": teams_message,
    "mattermost": mattermost_message,
    "json": notice_data,
}
"""What each kind of webhook gets."""
