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
from typing import Any

_LOOK_S = 0.1
_ANSWER_LIMIT_S = 5.0
_GRACE_S = 10.0
_OUTPUT_LIMIT_S = 2.0
"""So long its last lines may take, which a process that it has left may hold back."""
_SIGNALLED = 128
_LOCK = threading.Lock()
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class FaultError(Exception):
    """The server is at fault, or a program cannot be started."""


class Program:
    """A program that was started, all of whose lines are printed, with something in front."""

    def __init__(self, what: str, command: "Sequence[str]", line: "str | None" = None) -> None:
        """Start it; the server is in a session of its own, so that all of it can be ended."""
        self._before = b"server: " if what == "server" else b""
        self._line = None if line is None else re.compile(line.encode())
        self.line_seen = False
        try:
            self.process = subprocess.Popen(  # noqa: S603 - the user's own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=what == "server",
            )
        except OSError as error:
            why = f"the {what} {command[0]!r} cannot be started: {error.strerror}"
            raise FaultError(why) from error
        self.printer = threading.Thread(target=self._print, daemon=True)
        self.printer.start()

    def _print(self) -> None:
        # Of both by this process, or a line of one could come into the middle of the other's.
        for line in self.process.stdout or ():
            _write(self._before + line)
            if self._line is not None and self._line.search(line.rstrip(b"\r\n")):
                self.line_seen = True


def wait_until_ready(server: Program, order: "dict[str, Any]") -> None:
    """Wait for the server's line, or for its address to answer."""
    started, address = time.monotonic(), order["address"]
    while True:
        if address is None:
            problem = None if server.line_seen else "was not printed by it"
        else:
            problem = connection_problem(address)
        waited_s = time.monotonic() - started
        if problem is None:
            _tell(f"the server was ready after {waited_s:.1f} s")
            return
        check(server, "before it was ready")
        if waited_s > order["limit_s"]:
            wanted = address or order["line"]
            raise FaultError(
                f"the server was not ready within {order['limit_s']:g} s: {wanted} {problem}"
            )
        time.sleep(_LOOK_S)


def check(server: Program, when: str) -> None:
    """Raise if the server has ended."""
    code = server.process.poll()
    if code is not None:
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        raise FaultError(f"the server ended with {how} {when}")


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


def wait_for_client(client: Program, server: Program) -> int:
    """Wait for the client while the server lives; its exit code."""
    while True:
        try:
            code = client.process.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            check(server, "while the client ran")
            continue
        if code:
            time.sleep(_LOOK_S)  # it may have met the end of the server
            check(server, f"and the client, after it, with exit code {code}")
        return code if code >= 0 else _SIGNALLED - code


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
    order, server, client, fault = json.loads(sys.argv[1]), None, None, None
    code = 1
    try:
        server = Program("server", order["server"], order["line"])
        wait_until_ready(server, order)
        client = Program("client", sys.argv[2:])
        code = wait_for_client(client, server)
    except FaultError as error:
        fault = str(error)
    finally:
        if client is not None:
            client.process.kill()
            client.printer.join(_OUTPUT_LIMIT_S)
        if server is not None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(server.process.pid, number)
                    server.process.wait(_GRACE_S)
            server.printer.join(_OUTPUT_LIMIT_S)
    if fault is not None:
        _tell(fault)
    return code


if __name__ == "__main__":
    sys.exit(main())
