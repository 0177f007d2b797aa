"""Servers on loopback that notices are sent to: HTTP, with a GitHub and a GitLab, and SMTP."""

from __future__ import annotations

import json
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct

LOOPBACK = "127.0.0.1"


def self_signed(folder: Path) -> Path:
    """A key with a certificate for this machine that nobody has signed."""
    file = folder / "server.pem"
    asked = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    asked += ["-nodes", "-keyout", str(folder / "key"), "-out", str(folder / "cert")]
    asked += ["-subj", "/CN=localhost", "-days", "2"]
    asked += ["-addext", f"subjectAltName=IP:{LOOPBACK},DNS:localhost"]
    subprocess.run(asked, check=True, capture_output=True)
    parts = [(folder / name).read_text("utf-8") for name in ("key", "cert")]
    file.write_text("".join(parts), encoding="utf-8")
    return file


class Request(Struct, frozen=True):
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Response(Struct, frozen=True):
    """The answer to a request."""

    status: int = 200
    body: bytes = b"ok"
    headers: Mapping[str, str] = {}
    delay_s: float = 0.0


class Web(Struct):
    """A web service that keeps what it was asked, and answers as it is told."""

    port: int = 0
    asked: list[Request] = []
    answer: Callable[[Request], Response] = lambda _: Response()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def answers(self, *said: Response) -> None:
        """Answer these in turn, the last one for good."""
        left = list(said)
        self.answer = lambda _: left.pop(0) if len(left) > 1 else left[0]


@contextmanager
def web_server(certificate: Path | None = None) -> Iterator[Web]:
    """Serve HTTP, or with a certificate HTTPS."""
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            asked = Request(self.command, self.path, dict(self.headers.items()), body)
            web.asked.append(asked)
            said = web.answer(asked)
            time.sleep(said.delay_s)
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(said.body)))
            self.end_headers()
            self.wfile.write(said.body)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self._any
            raise AttributeError(name)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its own name
            del format, args

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            del request, client_address  # a client that gives up is part of the tests

    server = Server((LOOPBACK, 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    web.port = server.server_address[1]
    with serving(server):
        yield web


@contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Forge:
    """Comments of a pull request by GitHub's interface, or of a merge request by GitLab's."""

    def __init__(self, web: Web, user: Mapping[str, Any]) -> None:
        """Answer for ``web``; ``user`` is whose token is given."""
        self.comments: list[dict[str, Any]] = []
        self.pulls: list[dict[str, Any]] = []
        self.has_graphql = True
        self.before_creation: Callable[[], None] = lambda: None
        self._user = user
        self._lock = threading.Lock()
        self._number = 0
        web.answer = self._answer

    def add(self, body: str, user: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Have a comment there, of this user."""
        with self._lock:
            self._number += 1
            who = user or self._user
            comment = {"id": self._number, "body": body, "user": who, "author": who}
            self.comments.append(comment)
            return comment

    def _answer(self, asked: Request) -> Response:
        url = urlsplit(asked.path)
        *_, last = url.path.split("/")
        known: dict[str, Any] = {
            "user": self._user,
            "graphql": {"data": {"viewer": self._user}},
            "pulls": self.pulls,
        }
        if last == "graphql" and not self.has_graphql:
            return _json({"message": "Not Found"}, 404)
        if last in known:
            return _json(known[last])
        if last in ("comments", "notes"):
            return self._all(asked, parse_qs(url.query))
        comment = next((one for one in self.comments if str(one["id"]) == last), None)
        if comment is None:
            return _json({"message": "Not Found"}, 404)
        if asked.method == "DELETE":
            self.comments.remove(comment)
            return Response(204, b"")
        comment["body"] = asked.json["body"]
        return _json(comment)

    def _all(self, asked: Request, query: Mapping[str, list[str]]) -> Response:
        if asked.method == "POST":
            self.before_creation()
            return _json(self.add(asked.json["body"]), 201)
        size, number = int(query["per_page"][0]), int(query["page"][0])
        return _json(self.comments[size * (number - 1) : size * number])


def _json(data: Any, status: int = 200) -> Response:
    return Response(status, json.dumps(data).encode(), {"Content-Type": "application/json"})


class MailServer(Struct):
    """A mail server that keeps what it was given."""

    port: int = 0
    said: list[str] = []
    """The commands of all clients."""
    mails: list[EmailMessage] = []
    refuses: str | None = None
    """The command that it refuses."""


@contextmanager
def mail_server(
    certificate: Path | None = None, *, is_tls: bool = False, offers_tls: bool = True
) -> Iterator[MailServer]:
    """Speak SMTP (RFC 5321), with STARTTLS and AUTH PLAIN where there is a certificate."""
    known = MailServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if certificate is not None:
        context.load_cert_chain(certificate)

    class Handler(_MailHandler):
        mail_server = known
        tls = context
        is_tls_at_once = is_tls
        has_starttls = certificate is not None and offers_tls and not is_tls

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            del request, client_address

    server = Server((LOOPBACK, 0), Handler)
    known.port = server.server_address[1]
    with serving(server):
        yield known


class _MailHandler(socketserver.StreamRequestHandler):
    mail_server: MailServer
    tls: ssl.SSLContext
    is_tls_at_once: bool
    has_starttls: bool

    def setup(self) -> None:
        if self.is_tls_at_once:
            self.request = self.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def handle(self) -> None:
        self._say("220 test")
        while line := self.rfile.readline().decode().strip():
            self.mail_server.said.append(line)
            verb = line.split()[0].upper()
            if verb == self.mail_server.refuses:
                self._say("550 5.7.1 no")
                continue
            getattr(self, f"_{verb.lower()}", lambda: self._say("250 fine"))()
            if verb == "QUIT":
                return

    def finish(self) -> None:
        super().finish()
        self.request.close()

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())

    def _ehlo(self) -> None:
        is_open = isinstance(self.request, ssl.SSLSocket)
        starts = ["250-STARTTLS"] if self.has_starttls and not is_open else []
        self._say("250-test", *starts, *["250-AUTH PLAIN"] * is_open, "250 8BITMIME")

    def _starttls(self) -> None:
        self._say("220 go on")
        self.request = self.tls.wrap_socket(self.request, server_side=True)
        self.rfile = self.request.makefile("rb")
        self.wfile = self.request.makefile("wb", buffering=0)

    def _auth(self) -> None:
        self._say("235 welcome")

    def _quit(self) -> None:
        self._say("221 bye")

    def _data(self) -> None:
        self._say("354 go on")
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            lines.append(line.removeprefix(b"."))
        self.mail_server.mails.append(message_from_bytes(b"".join(lines), policy=default))
        self._say("250 taken")
