"""Notices by mail, over the server that ``DLPERF_SMTP`` names."""

from __future__ import annotations

import getpass
import html
import smtplib
import socket
import ssl
from dataclasses import dataclass, field
from email import policy
from email.headerregistry import Address
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import TYPE_CHECKING, Final, final
from urllib.parse import parse_qs, unquote, urlsplit

from pytest_dlperf.config.notices import SMTP_VARIABLE
from pytest_dlperf.notices.notice import NoticeError, Notifier
from pytest_dlperf.notices.posting import TIMEOUT_S, unreachable
from pytest_dlperf.reports.html.pieces import rendered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.notices.notice import Block, Notice

_PORTS: Final = {"smtp": 25, "smtps": 465}
_SUBMISSION: Final = 587
_FORM: Final = "smtps://USER:PASSWORD@HOST?from=ADDRESS"
_SUBJECT_LENGTH: Final = 200
_FAULTS: Final = {
    smtplib.SMTPNotSupportedError: "offers no TLS or no login, and takes no password in the clear",
    smtplib.SMTPAuthenticationError: "refuses user and password ({code})",
    smtplib.SMTPResponseException: "refuses the mail ({code})",
    smtplib.SMTPException: "broke the connection off",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A mail server, and how it is reached."""

    host: str
    port: int
    is_tls: bool
    """Whether the connection begins with TLS."""
    needs_starttls: bool
    """Whether it has to become one of TLS before anything is said."""
    user: str = ""
    password: str = field(default="", repr=False)
    sender: str = ""
    """Whom the mail is from; empty for the user of this machine."""

    @classmethod
    def of(cls, text: str) -> Server:
        """Read ``smtp[s]://[USER:PASSWORD@]HOST[:PORT][?from=ADDRESS][&starttls=yes]``.

        Raises:
            NoticeError: It has another form. The message does not show it.
        """
        try:
            parts = urlsplit(text)
            port, asked = parts.port, parse_qs(parts.query, strict_parsing=bool(parts.query))
        except ValueError:
            raise NoticeError(f"{SMTP_VARIABLE} is not of the form {_FORM}") from None
        if parts.scheme not in _PORTS or not parts.hostname or set(asked) - {"from", "starttls"}:
            raise NoticeError(f"{SMTP_VARIABLE} is not of the form {_FORM}")
        is_tls = parts.scheme == "smtps"
        # A password is never sent in the clear.
        needs_starttls = not is_tls and bool(parts.username or asked.get("starttls") == ["yes"])
        return cls(
            host=parts.hostname,
            port=port or (_SUBMISSION if needs_starttls else _PORTS[parts.scheme]),
            is_tls=is_tls,
            needs_starttls=needs_starttls,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            sender=asked.get("from", [""])[0],
        )


@final
class Mail(Notifier):
    """Sends a mail: the subject, the text, the same as HTML, and the page if it was asked for."""

    def __init__(
        self,
        receivers: Sequence[str],
        server: Server,
        *,
        with_page: bool = False,
    ) -> None:
        """Take whom to write to, and whether the page is attached."""
        self.name = f"mail ({server.host})"
        self._receivers = tuple(receivers)
        self._server = server
        self._with_page = with_page

    def send(self, notice: Notice) -> None:
        """Send it."""
        message = self._message(notice)
        server = self._server
        try:
            with self._connected() as connection:
                if server.user:
                    connection.login(server.user, server.password)
                _check_addresses(message, connection, server.host)
                connection.send_message(message, to_addrs=self._receivers)
        except (OSError, smtplib.SMTPException) as error:
            raise NoticeError(_fault(error, server.host)) from None

    def _connected(self) -> smtplib.SMTP:
        server = self._server
        context = ssl.create_default_context()
        if server.is_tls:
            return smtplib.SMTP_SSL(server.host, server.port, timeout=TIMEOUT_S, context=context)
        connection = smtplib.SMTP(server.host, server.port, timeout=TIMEOUT_S)
        try:
            if server.needs_starttls:
                connection.starttls(context=context)
        except BaseException:
            connection.close()
            raise
        return connection

    def _message(self, notice: Notice) -> EmailMessage:
        # A subject that is folded at its first word begins with a space for some readers.
        message = EmailMessage(policy.SMTP.clone(max_line_length=_SUBJECT_LENGTH + 80))
        # A line end in a header would begin another header.
        message["Subject"] = _line(notice.subject)[:_SUBJECT_LENGTH]
        message["From"] = self._server.sender or _own_address()
        message["To"] = ", ".join(self._receivers)
        message["Date"] = formatdate(localtime=True)
        message["Message-ID"] = make_msgid(domain=socket.getfqdn())
        # RFC 3834: no absence notice comes back.
        message["Auto-Submitted"] = "auto-generated"
        subject, text = _whole(notice.subject), _whole(notice.text)
        link = "" if notice.ci_run is None or notice.ci_run in text else notice.ci_run
        message.set_content("\n\n".join(filter(None, (subject, text, link))) + "\n")
        message.add_alternative(_html(notice, subject, link), subtype="html")
        if self._with_page and notice.night is not None:
            from pytest_dlperf.reports.html.page import html_page

            page = html_page(notice.night).encode("utf-8", "backslashreplace")
            message.add_attachment(page, maintype="text", subtype="html", filename="results.html")
        return message


def _check_addresses(message: EmailMessage, connection: smtplib.SMTP, host: str) -> None:
    """Refuse addresses that the server cannot take (RFC 6531)."""
    connection.ehlo_or_helo_if_needed()
    addresses = f"{message['From']} {message['To']}"
    if not (addresses.isascii() or connection.has_extn("smtputf8")):
        raise NoticeError(
            f"{host} takes ASCII addresses alone (it offers no SMTPUTF8), and that of the sender "
            "or of a receiver is not ASCII"
        )


def _html(notice: Notice, subject: str, link: str) -> str:
    colour = "#b3261e" if notice.is_red else "#1b6e3c"
    blocks = [_block(block) for block in notice.blocks]
    if link:
        blocks.append(f'<p><a href="{html.escape(link)}">CI run</a></p>')
    return (
        '<!DOCTYPE html><html><head><meta charset="utf-8"></head>'
        '<body style="font-family:sans-serif;font-size:15px;line-height:1.4">'
        f'<p style="font-weight:bold;color:{colour}">{html.escape(subject)}</p>\n'
        f"{''.join(blocks)}</body></html>\n"
    )


def _block(block: Block) -> str:
    below = "".join(f"<li>{rendered(line)}</li>\n" for line in block.below)
    listed = f'<ul style="margin-top:0">{below}</ul>\n' if below else ""
    margin = ' style="margin-bottom:0"' if below else ""
    return f"<p{margin}>{'<br>'.join(map(rendered, block.lines))}</p>\n{listed}"


def _line(text: str) -> str:
    return " ".join(_whole(text).split())


def _whole(text: str) -> str:
    """Write half of a character, as broken logs have it, as its code: mail cannot carry it."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _own_address() -> Address:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = "pytest-dlperf"
    return Address("pytest-dlperf", username=user, domain=socket.getfqdn())


def _fault(error: Exception, host: str) -> str:
    """Say what went wrong. A server's own words may repeat what it was told: its code stands."""
    if isinstance(error, smtplib.SMTPServerDisconnected) and isinstance(error.__context__, OSError):
        error = error.__context__  # what smtplib makes of a time-out, for one
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        codes = ", ".join(sorted({str(code) for code, _ in error.recipients.values()}))
        return f"{host} refuses every receiver ({codes})"
    for kind, said in _FAULTS.items():
        if isinstance(error, kind):
            return f"{host} {said.format(code=getattr(error, 'smtp_code', ''))}"
    return unreachable(error, host)
