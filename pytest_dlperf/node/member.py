"""Runs one node of a queued job: meets the others, and has a supervisor run the node's program.

What the controller does over a connection where there is one, this does on the node: a queue starts
it there at a time of its own choice. It tells the other nodes how to reach this one, fills in what
of the program's command was not known before, gives the supervisor its orders, and passes on
what that reports: into a file, or, where the controller does not see the node's disk, as lines of
its output. SIGTERM means the end of the run, and so does the end of this process.
"""

import base64
import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_dlperf.node.probe import look
from pytest_dlperf.node.processes import KILL_LIMIT_S, become_reaper, descendants, end_all
from pytest_dlperf.node.remains import clean_up

if TYPE_CHECKING:
    from collections.abc import Iterator
    from re import Match

ADDRESS = "@dlperf-address-{}@"
"""Stands in a command for the address of a node."""
HOST = "@dlperf-host@"
"""Stands for the name of the node."""
REPORT = b"dlperf-report "
"""Begins a line of output that is a report, not the program's; behind it comes the job's name."""

_POLL_S = 0.1
_BEAT_S = 1.0
_TERMINATED = 143
_ADDRESS = re.compile(ADDRESS.format("([0-9]+)") + "(:?)")


class CannotGoOnError(Exception):
    """The node cannot run its program; the text is for people."""


class Member:
    """One node of a job."""

    def __init__(self, order: "dict[str, Any]") -> None:
        """Take the order for all nodes, of which this is one."""
        self._order = order
        self._rank = int(os.environ[order["rank_variable"]])
        self._host = os.environ.get(order["host_variable"]) or os.uname().nodename
        self._supervisor = None  # type: subprocess.Popen[bytes] | None
        self._asked = 0
        self._fate = "was killed"
        self._tells_in_lines = order["tells_in_lines"]
        self._reports = 1
        if not self._tells_in_lines:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            self._reports = os.open(order["reports"][self._rank], flags, 0o600)
        self._wake_up, wake_up = os.pipe()
        os.set_blocking(wake_up, False)
        signal.set_wakeup_fd(wake_up)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def run(self) -> int:
        """Run the node's program to its end, and return an exit code by the program's."""
        self._tell(host=self._host)
        try:
            self._tell(look=look(self._order["wanted"]))
            addresses = self._meet()
            self._tell(addresses=addresses)
        except (CannotGoOnError, OSError) as error:
            self._tell(cannot_start=str(error))
            return 1
        if self._asked:
            return _TERMINATED
        return self._supervised(addresses)

    # ------------------------------------------------------------------ meeting the others

    def _meet(self) -> "list[str]":
        """Find the addresses of all nodes, by rank."""
        order, deadline = self._order, time.monotonic() + self._order["meeting_limit_s"]
        if order["names"]:
            return [self._address_of(name, deadline) for name in order["names"]]
        self._write(f"meet-{self._rank}", self._own_address())
        return [self._read(f"meet-{rank}", deadline) for rank in range(order["nodes"])]

    def _own_address(self) -> str:
        """Find how the others reach this node: as the engine says, or else by its name."""
        with contextlib.suppress(OSError), open(self._path("addresses")) as file:
            for line in file:
                name, _, address = line.strip().partition(" ")
                if name == self._host and address:
                    return address
        return self._host

    def _address_of(self, name: str, deadline: float) -> str:
        """Look a node's name up until it is known: it may come up after this one."""
        while True:
            try:
                found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            except socket.gaierror as error:
                if time.monotonic() > deadline:
                    text = "the name {} of another node is not known here: {}"
                    raise CannotGoOnError(text.format(name, error)) from error
            else:
                return str(found[0][4][0])
            self._pause()

    def _write(self, name: str, content: object) -> None:
        path = self._path(name)
        with open(path + ".new", "w") as file:
            json.dump(content, file)
        os.rename(path + ".new", path)

    def _read(self, name: str, deadline: float) -> str:
        while True:
            # What a network's file system has said is missing, it may say for a while.
            with contextlib.suppress(OSError):
                os.listdir(self._order["folder"])
            with contextlib.suppress(OSError), open(self._path(name)) as file:
                return str(json.load(file))
            if time.monotonic() > deadline:
                rank = name.rpartition("-")[2]
                raise CannotGoOnError(f"node {rank} of the run has not come up")
            self._pause()

    def _path(self, name: str) -> str:
        return os.path.join(self._order["folder"], name)

    def _pause(self) -> None:
        if self._asked:
            raise CannotGoOnError("the run was ended before all of its nodes had come up")
        select.select([self._wake_up], [], [], _POLL_S)

    # ------------------------------------------------------------------ under the supervisor

    def _supervised(self, addresses: "list[str]") -> int:
        order, rank = self._order, self._rank
        log = 1
        if not self._tells_in_lines:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            log = os.open(order["logs"][rank], flags, 0o644)
        supervisor = self._supervisor = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, *order["supervisor"], order["markers"][rank]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        # What is below the supervisor becomes ours when that is gone.
        become_reaper()
        self._send(base64.b64decode(order["sent"]))
        # Where this process is killed, its file of reports says so nevertheless.
        reports = None if self._tells_in_lines else order["reports"][rank]
        prepared = self._filled(order["prepare"][rank], addresses)
        self._send(_line("prepare", dict(prepared, reports=reports)))
        is_known = False
        for report in self._told():
            is_known = is_known or "final" in report
            if "prepared" in report:
                self._send(_line("start", self._filled(order["start"][rank], addresses)))
            if "ended" in report or "cannot_start" in report or "cannot_prepare" in report:
                # What the program has left ends with the supervisor.
                self._send(b"end\n")
            self._pass_on(report)
        status = supervisor.wait()
        if status < 0 and not is_known:
            self._tell(supervisor_killed=self._fate)
            end_all(partial(descendants, os.getpid()), KILL_LIMIT_S)
            found = {"sweep": prepared["sweep"], "folder": prepared["node_folder"]}
            clean_up({"marker": order["markers"][rank], **found}, self._tell)
        return status

    def _filled(self, content: "Any", addresses: "list[str]") -> "Any":
        return filled(content, addresses, self._host)

    def _told(self) -> "Iterator[dict[str, Any]]":
        """Give what the supervisor reports, to its end; meanwhile pass signals on to it."""
        if self._supervisor is None or self._supervisor.stdout is None:
            raise AssertionError("there is a supervisor")
        source = self._supervisor.stdout.fileno()
        rest = b""
        passed_on = 0
        heard_at = time.monotonic()
        while True:
            ready, _, _ = select.select([source, self._wake_up], [], [], _BEAT_S)
            self._send(b"\n")  # a sign of life
            if self._wake_up in ready:
                os.read(self._wake_up, 4096)
            if self._asked > passed_on:
                passed_on = self._asked
                self._tell(asked=True)
                self._send(b"end\n" if passed_on == 1 else b"kill\n")
            if source not in ready:
                self._give_up(self._supervisor, time.monotonic() - heard_at)
                continue
            heard_at = time.monotonic()
            received = os.read(source, 65536)
            if not received:
                return
            lines = (rest + received).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if line.strip():
                    yield json.loads(line.decode("ascii"))

    def _give_up(self, supervisor: "subprocess.Popen[bytes]", silent_s: float) -> None:
        """End a supervisor that shows no sign of life."""
        if silent_s > self._order["timeout_s"]:
            self._fate = "was stopped"
            end_all(partial(descendants, supervisor.pid), KILL_LIMIT_S)
            supervisor.kill()

    def _send(self, order: bytes) -> None:
        stream = self._supervisor.stdin if self._supervisor is not None else None
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.write(order)
                stream.flush()

    def _pass_on(self, report: "dict[str, Any]") -> None:
        # Between lines of the program's output there is no place for times: its reader has
        # times of its own.
        if "alive" not in report and not (self._tells_in_lines and "arrivals" in report):
            self._tell(**report)

    def _tell(self, **report: object) -> None:
        line = json.dumps(report).encode("ascii") + b"\n"
        if self._tells_in_lines:
            line = b"\n" + REPORT + self._order["name"].encode("ascii") + b" " + line
        with contextlib.suppress(OSError):
            os.write(self._reports, line)

    def _on_signal(self, _number: int, _frame: object) -> None:
        self._asked += 1


def filled(content: "Any", addresses: "list[str]", host: str) -> "Any":
    """Put addresses and the host's name in all text, wherever it stands."""
    if isinstance(content, dict):
        return {key: filled(value, addresses, host) for key, value in content.items()}
    if isinstance(content, list):
        return [filled(value, addresses, host) for value in content]
    if not isinstance(content, str) or "@dlperf-" not in content:
        return content

    def address(found: "Match[str]") -> str:
        known = addresses[int(found.group(1))]
        # In front of a port, an IPv6 address stands in brackets.
        return f"[{known}]:" if ":" in known and found.group(2) else known + found.group(2)

    return _ADDRESS.sub(address, content).replace(HOST, host)


def _line(word: str, details: "dict[str, Any]") -> bytes:
    return f"{word} {json.dumps(details)}\n".encode("ascii")


if __name__ == "__main__":
    sys.exit(Member(json.loads(sys.argv[1])).run())
