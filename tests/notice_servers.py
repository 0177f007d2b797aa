"""Servers on loopback that notices are sent to: HTTP, with a GitHub and a GitLab."""

from __future__ import annotations

import json
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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
        self._user = user
        self._lock = threading.Lock()
        web.answer = self._answer

    def add(self, body: str, user: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Have a comment there, of this user."""
        with self._lock:
            who = user or self._user
            comment = {"id": len(self.comments) + 1, "body": body, "user": who, "author": who}
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
        if last in known and (last != "graphql" or self.has_graphql):
            return _json(known[last])
        if last in ("comments", "notes"):
            return self._all(asked, parse_qs(url.query))
        comment = next((one for one in self.comments if str(one["id"]) == last), None)
        if comment is None:
            return _json({"message": "Not Found"}, 404)
        comment["body"] = asked.json["body"]
        return _json(comment)

    def _all(self, asked: Request, query: Mapping[str, list[str]]) -> Response:
        if asked.method == "POST":
            return _json(self.add(asked.json["body"]), 201)
        size, number = int(query["per_page"][0]), int(query["page"][0])
        return _json(self.comments[size * (number - 1) : size * number])


def _json(data: Any, status: int = 200) -> Response:
    return Response(status, json.dumps(data).encode(), {"Content-Type": "application/json"})
