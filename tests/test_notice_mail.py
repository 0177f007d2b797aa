"""Notices by mail, over a server that speaks SMTP."""

from __future__ import annotations

import base64
import socket
from email.message import EmailMessage
from pathlib import Path

import pytest
from notice_servers import LOOPBACK, MailServer, mail_server, self_signed
from test_notices import CASE, COMMIT_PAGE, HOSTILE, SECRET, green, red, sent, with_commit

from pytest_dlperf.night.night import night_of
from pytest_dlperf.night.pieces import phrase
from pytest_dlperf.notices import posting
from pytest_dlperf.notices.brief import notice_of
from pytest_dlperf.notices.mail import Server
from pytest_dlperf.notices.notice import Block, Notice, NoticeError

RECEIVERS = "team@example.org,boss@example.org"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return self_signed(tmp_path_factory.mktemp("tls"))


def send(
    server: MailServer,
    monkeypatch: pytest.MonkeyPatch,
    *,
    notice: Notice | None = None,
    form: str = "smtp://{host}?from=dlperf@example.org",
    what: str = "mail",
) -> list[str]:
    """Send a mail to this server, and give the lines that a session would end with."""
    monkeypatch.setenv("DLPERF_SMTP", form.format(host=f"{LOOPBACK}:{server.port}"))
    return sent(f"{what}={RECEIVERS}", notice or notice_of(night_of(red())))


def parts(mail: EmailMessage) -> dict[str, str]:
    texts = [part for part in mail.walk() if part.get_content_maintype() == "text"]
    return {part.get_content_type(): part.get_content().replace("\r\n", "\n") for part in texts}


def test_a_mail_has_the_words_as_text_and_as_html(monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server() as server:
        notice = notice_of(night_of(red("exit code 1", ci_run="https://ci.example/7")))
        assert send(server, monkeypatch, notice=notice) == [f"notice sent: mail ({LOOPBACK})"]
        [mail] = server.mails
    assert mail["Subject"] == notice.subject
    assert mail["From"] == "dlperf@example.org"
    assert mail["To"] == "team@example.org, boss@example.org"
    # Pythons write the word before the colon in different cases.
    assert [said.lower() for said in server.said if said.startswith("rcpt")] == [
        "rcpt to:<team@example.org>", "rcpt to:<boss@example.org>"
    ]  # fmt: skip
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content_type() == "multipart/alternative"
    found = parts(mail)
    assert notice.text in found["text/plain"]
    assert found["text/plain"].startswith(notice.subject)
    assert found["text/plain"].count("https://ci.example/7") == 1
    assert "-9.9 %" in found["text/html"]
    assert '<a href="https://ci.example/7">' in found["text/html"]
    assert list(mail.iter_attachments()) == []


def test_in_html_each_piece_is_written_by_its_role(monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server() as server:
        send(server, monkeypatch, notice=notice_of(night_of(with_commit("<b>@all</b> & more"))))
        [mail] = server.mails
    html = parts(mail)["text/html"]
    line = "commit 3f2a91c of suite, Ben &lt;b@x.org&gt;: &lt;b&gt;@all&lt;/b&gt; &amp; more"
    assert f'<li><a href="{COMMIT_PAGE}">{line}</a></li>' in html
    assert f"<b>regressed -9.9 % since Tuesday</b>: <code>{CASE}</code>" in html
    assert "<li><code>--step-delay-ms</code>: accepted not set, tonight <code>1000</code>" in html


def test_the_page_comes_along_if_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    with mail_server() as server:
        send(server, monkeypatch, what="mail+page")
        [mail] = server.mails
    [page] = mail.iter_attachments()
    assert (page.get_content_type(), page.get_filename()) == ("text/html", "results.html")
    assert page.get_content().lstrip().lower().startswith("<!doctype html>")


@pytest.mark.parametrize("reason", [HOSTILE, "x" * 100_000, ".\r\n.\r\nQUIT\r\n"])
def test_what_a_log_says_is_text(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    with mail_server() as server:
        notice = notice_of(night_of(red(reason)))
        assert send(server, monkeypatch, notice=notice) == [f"notice sent: mail ({LOOPBACK})"]
        [mail] = server.mails
    html = parts(mail)["text/html"]
    assert "<script>" not in html
    assert "-9.9 %" in html
    assert len(html) < 10_000


def test_a_subject_is_one_header(monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = Notice(
        subject="red\r\nBcc: all@example.org\n\nwords \ud800 " + "x" * 5000,
        blocks=(Block((phrase("t"),)),), markdown="m", cluster="lab", is_red=True,
    )  # fmt: skip
    with mail_server() as server:
        send(server, monkeypatch, notice=hostile)
        [mail] = server.mails
    assert mail["Bcc"] is None
    assert mail["Subject"].startswith("red Bcc: all@example.org words \\ud800")
    assert len(mail["Subject"]) <= 200
    assert len([said for said in server.said if said.startswith("rcpt")]) == 2


@pytest.mark.parametrize("is_tls", [True, False])
def test_user_and_password_go_over_tls_only(
    certificate: Path, monkeypatch: pytest.MonkeyPatch, *, is_tls: bool
) -> None:
    scheme = "smtps" if is_tls else "smtp"
    form = f"{scheme}://me%40x:{SECRET}%21@{{host}}"
    with mail_server(certificate, is_tls=is_tls) as server:
        [line] = send(server, monkeypatch, form=form)
        assert "certificate" in line  # that nobody has signed
        assert SECRET not in line
        assert not [said for said in server.said if said.startswith("AUTH")]

        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        [line] = send(server, monkeypatch, form=form)
        assert line == f"notice sent: mail ({LOOPBACK})"
        [login] = [said for said in server.said if said.startswith("AUTH")]
    assert base64.b64decode(login.split()[2]) == f"\0me@x\0{SECRET}!".encode()
    assert len(server.mails) == 1


@pytest.mark.parametrize(
    ("refuses", "form", "words"),
    [
        (None, f"smtp://me:{SECRET}@{{host}}", "no password in the clear"),
        (None, "smtp://{host}?starttls=yes", "offers no TLS"),
        (None, "smtp://{host}?from=jörg@example.org", "offers no SMTPUTF8"),
        ("MAIL", "smtp://{host}", "refuses the mail (550)"),
        ("RCPT", "smtp://{host}", "refuses every receiver (550)"),
        (None, f"smtp://{LOOPBACK}:1", "cannot be reached"),
        (None, f"http://{SECRET}@{{host}}", "smtps://USER:PASSWORD@HOST"),
        (None, f"smtp://me:{SECRET}@{{host}}?form=x", "smtps://USER:PASSWORD@HOST"),
        (None, f"smtp://{SECRET}:x", "smtps://USER:PASSWORD@HOST"),
    ],
)
def test_what_is_wrong_is_one_line_without_the_password(
    monkeypatch: pytest.MonkeyPatch, refuses: str | None, form: str, words: str
) -> None:
    with mail_server() as server:
        server.refuses = refuses
        [line] = send(server, monkeypatch, form=form)
    assert line.startswith("no notice was sent by mail")
    assert words in line
    assert SECRET not in line + " ".join(server.said)
    assert server.mails == []


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_dlperf.notices.mail.TIMEOUT_S", 0.1)
    monkeypatch.setattr(posting, "TIMEOUT_S", 0.1)
    with socket.create_server((LOOPBACK, 0)) as silent:
        monkeypatch.setenv("DLPERF_SMTP", f"smtp://{LOOPBACK}:{silent.getsockname()[1]}")
        [line] = sent(f"mail={RECEIVERS}", notice_of(night_of(green())))
    assert "did not answer" in line


@pytest.mark.parametrize(
    ("text", "port", "starttls"),
    [
        ("smtp://h", 25, False),
        ("smtp://h:2525", 2525, False),
        ("smtp://u:p@h", 587, True),
        ("smtp://h?starttls=yes", 587, True),
        ("smtps://u:p@h", 465, False),
    ],
)
def test_ports_are_the_usual_ones(text: str, port: int, *, starttls: bool) -> None:
    server = Server.of(text)
    assert (server.port, server.needs_starttls) == (port, starttls)
    assert "password" not in repr(server)


def test_a_server_s_form_is_told_without_what_was_given() -> None:
    with pytest.raises(NoticeError) as error:
        Server.of(f"imap://u:{SECRET}@h")
    assert SECRET not in str(error.value)
