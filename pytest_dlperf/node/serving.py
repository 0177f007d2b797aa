"""Runs a client beside a server: waits until that is ready, and ends both; a program on a node.

The first argument is a JSON object: ``server``, its command, ``line``, an expression that a line of
its output has when it is ready, or ``address``, which answers then, and ``limit_s`` for that. The
others are the client's command. The server's lines are printed with ``server: `` in front. The exit
code is the client's; 1 where the server is at fault, and the last line says how.

It is sent to the node, runs on Python 3.6 and imports the standard library only.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import IO, Any

_LOOK_S = 0.1
_ANSWER_LIMIT_S = 5.0
_GRACE_S = 10.0
_OUTPUT_LIMIT_S = 2.0
"""So long its last lines may take, which a process that it has left may hold back."""
_SIGNALLED = 128
_LOCK = threading.Lock()
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class ServerError(Exception):
    """The server is at fault."""


class Server:
    """A server that was started, and whether it is ready."""

    def __init__(self, order: "dict[str, Any]") -> None:
        self._address, self._limit_s = order["address"], order["limit_s"]
        self._line = None if order["line"] is None else re.compile(order["line"].encode())
        self._ready_line_seen = threading.Event()
        self._not_ready_reason = "was not printed by it"
        self._started = time.monotonic()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command
                order["server"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            what = f"the server {order['server'][0]!r} cannot be started"
            raise ServerError(f"{what}: {error.strerror}") from error
        self._printer = threading.Thread(target=self._print, daemon=True)
        self._printer.start()

    def wait_until_ready(self) -> None:
        """Wait for the line, or for an answer."""
        while not self._is_ready():
            self.check("before it was ready")
            if time.monotonic() - self._started > self._limit_s:
                wanted = self._address or self._line.pattern.decode()  # type: ignore[union-attr]
                raise ServerError(
                    f"the server was not ready within {self._limit_s:g} s: {wanted} "
                    f"{self._not_ready_reason}"
                )
            time.sleep(_LOOK_S)
        _tell(f"the server was ready after {time.monotonic() - self._started:.1f} s")

    def check(self, when: str) -> None:
        """Raise if it has ended."""
        code = self._process.poll()
        if code is not None:
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise ServerError(f"the server ended with {how} {when}")

    def end(self) -> None:
        """End it with all that is in its session, and print what it had to say."""
        for number, limit_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(self._process.pid, number)
                self._process.wait(limit_s)
        self._printer.join(_OUTPUT_LIMIT_S)

    def _is_ready(self) -> bool:
        if self._address is None:
            return self._ready_line_seen.is_set()
        problem = connection_problem(self._address)
        self._not_ready_reason = problem or ""
        return problem is None

    def _print(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        for line in self._process.stdout:
            _write(b"server: " + line)
            if self._line is not None and self._line.search(line.rstrip(b"\r\n")):
                self._ready_line_seen.set()


def connection_problem(address: str) -> "str | None":
    """Say how an address does not answer: http with a status below 400, host:port at all."""
    try:
        if "://" in address:
            with _OPENER.open(address, timeout=_ANSWER_LIMIT_S):
                return None
        host, _, port = address.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), _ANSWER_LIMIT_S):
            return None
    except urllib.error.HTTPError as error:
        return f"answers with status {error.code}"
    except (OSError, ValueError, urllib.error.URLError):
        return "does not answer"


def run_client(command: "Sequence[str]", server: Server) -> int:
    """Run the client while the server lives; its exit code."""
    try:
        client = subprocess.Popen(  # noqa: S603 - as above
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        _tell(f"the client {command[0]!r} cannot be started: {error.strerror}")
        return 127
    # Its lines go through here, or one of the server's could come into the middle of them.
    printer = threading.Thread(target=_print_lines, args=(client.stdout,), daemon=True)
    printer.start()
    try:
        while True:
            try:
                code = client.wait(_LOOK_S)
            except subprocess.TimeoutExpired:
                server.check("while the client ran")
                continue
            if code:
                time.sleep(_LOOK_S)  # it may have met the end of the server
                server.check(f"and the client, after it, with exit code {code}")
            return code if code >= 0 else _SIGNALLED - code
    finally:
        if client.poll() is None:
            client.kill()
            client.wait()
        printer.join(_OUTPUT_LIMIT_S)


def _print_lines(lines: "IO[bytes]") -> None:
    for line in lines:
        _write(line)


def _write(line: bytes) -> None:
    """Write a whole line, also where a write takes only a part."""
    if not line.endswith(b"\n"):
        line += b"\n"
    with _LOCK:
        while line:
            line = line[os.write(1, line) :]


def _tell(text: str) -> None:
    _write(f"dlperf server: {text}\n".encode())


def main() -> int:
    """Run both, and end the server however the client ends."""
    server, fault = None, None
    code = 1
    try:
        server = Server(json.loads(sys.argv[1]))
        server.wait_until_ready()
        code = run_client(sys.argv[2:], server)
    except ServerError as error:
        fault = str(error)
    finally:
        if server is not None:
            server.end()
    if fault is not None:
        _tell(fault)
    return code


if __name__ == "__main__":
    sys.exit(main())
