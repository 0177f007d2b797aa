"""Processes of this machine: finding them by a text that they carry, waiting, ending them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

PROC = Path("/proc")
LONG_S: Final = 120.0
"""Far more than anything waits for, also beside much load: a safety net, and no part of a test."""
_SERVER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process as it was when it was looked at; its start tells it from a later one."""

    pid: int
    parent: int
    started: str
    command: str

    def lives(self) -> bool:
        """Whether it still runs; a zombie does not."""
        now = _process(self.pid)
        return now is not None and now.started == self.started


def _process(pid: int) -> Process | None:
    folder = PROC / str(pid)
    try:
        # The name stands in brackets and may hold anything; what follows it does not.
        name, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
        command = (folder / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, parent, *_ = fields = rest.split()
    if state in {"Z", "X"}:
        return None
    words = command.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return Process(
        pid=pid, parent=int(parent), started=fields[19], command=words or name.partition("(")[2]
    )


def is_running(pid: int) -> bool:
    """Whether there is such a process; a zombie does not run."""
    return _process(pid) is not None


def processes() -> list[Process]:
    """All processes of this machine but zombies."""
    pids = [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]
    return [process for pid in pids if (process := _process(pid)) is not None]


def processes_with(*texts: str, files: Sequence[str] = ("cmdline", "environ")) -> list[Process]:
    """The processes whose environment and command line, or one of them, hold all the texts.

    The environment is that of their start. This process is never among them.
    """
    found = []
    for process in processes():
        if process.pid == os.getpid():
            continue
        carried = b""
        for file in files:
            with suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                carried += (PROC / str(process.pid) / file).read_bytes()
        if all(os.fsencode(text) in carried for text in texts):
            found.append(process)
    return found


def descendants_of(pid: int) -> list[Process]:
    """The children of a process, theirs, and so on."""
    children: dict[int, list[Process]] = {}
    for process in processes():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    parents = [pid]
    while parents:
        below = children.get(parents.pop(), [])
        found += below
        parents += [process.pid for process in below]
    return found


def ancestors_of(pid: int) -> list[Process]:
    """The parent of a process, the parent's parent, and so on."""
    known = {process.pid: process for process in processes()}
    found: list[Process] = []
    while (process := known.get(pid)) is not None and process.parent in known:
        found.append(known[process.parent])
        pid = process.parent
    return found


def end(unwanted: Iterable[Process]) -> None:
    """Kill each, by its pid, and wait until all are gone."""
    unwanted = list(unwanted)
    for process in unwanted:
        if process.lives():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    wait_until(
        lambda: not any(process.lives() for process in unwanted),
        what=f"the end of {[process.command for process in unwanted]}",
    )


def wait_until(condition: Callable[[], object], *, what: str = "it") -> None:
    """Return as soon as the condition holds.

    Raises:
        TimeoutError: It did not hold in time.
    """
    deadline = time.monotonic() + LONG_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {LONG_S:g} s in vain for {what}")
        time.sleep(0.02)


@dataclass(slots=True)
class Server:
    """A server in the foreground that ends with us, whatever ends us."""

    arguments: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.arguments[0]} has not been started"
        return self._process.pid

    def start(self) -> None:
        arguments = list(self.arguments)
        if (setpriv := shutil.which("setpriv")) is not None:
            arguments = [setpriv, "--pdeathsig", "KILL", "--", *arguments]
        with self.log.open("ab") as log:
            # Of our own environment nothing: a real server does not know of pytest or its workers.
            self._process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": _SERVER_PATH, **self.environment},
                cwd="/",
                start_new_session=True,
            )

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Return as soon as the server is ready, which the condition tells.

        Raises:
            RuntimeError: It ended before, or was not ready in time; with its log.
        """
        try:
            wait_until(lambda: not self.runs() or condition(), what=self.arguments[0])
        except TimeoutError as error:
            raise RuntimeError(f"{error}; its log:\n{self.log_text()}") from error
        if not self.runs():
            raise RuntimeError(f"{self.arguments} ended at once; its log:\n{self.log_text()}")

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def stop(self, number: int = signal.SIGTERM, limit_s: float = 5) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None
