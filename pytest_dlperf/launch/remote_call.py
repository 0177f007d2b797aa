"""Programs that are sent to a host: how they get there, and small ones that do one thing."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final, final

from pytest_dlperf.files.masking import in_message
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher
from pytest_dlperf.model.errors import BrokenError

SILENCE_S: Final = 3.0
"""Hosts may take so long before the user hears of it."""
_FILES_PER_HOST: Final = 4
"""Two pipes, a log, and for a moment one more."""
_OTHER_FILES: Final = 200
END_LIMIT_S: Final = 0.5
"""How long the launcher's command may take to end after the program."""

_POINTS_TO_HELP: Final = re.compile(r"(?:run|see|try) ['\"`].* --?help\b", re.IGNORECASE).match
"""What the last line is after a wrong option, with GNU's programs, Slurm's and Docker."""

# Takes a program of a known length from standard input and runs it. It is one line without single
# quotes, exclamation marks and backslashes, so that any login shell at the other end hands it on.
_BOOTSTRAP: Final = (
    'import os,sys,zlib;n=int(sys.argv.pop(1));s=b"";'
    'exec("while len(s)<n:s+=os.read(0,n-len(s))or sys.exit(1)");'
    'exec(compile(zlib.decompress(s),"pytest-dlperf","exec"))'
)

# Stands before a program whose orders are known: it finds them on its standard input. The input
# that it really has ends when it is no longer waited for, and so does the program, with what it
# has started: whatever it looks at may hang.
_WATCHED: Final = """\
def _be_watched(orders):
    import os, signal, threading
    real = os.dup(0)
    taken, given = os.pipe()
    os.dup2(taken, 0)
    os.close(taken)
    def watch():
        with os.fdopen(given, "wb") as file:
            file.write(orders)
        os.read(real, 1)
        os.killpg(0, signal.SIGKILL)
    threading.Thread(target=watch, daemon=True).start()
_be_watched({orders!r})
"""


# Becomes a command that is killed at the end of the thread that has started it.
_DYING: Final = (
    "import ctypes,os,sys;ctypes.CDLL(None).prctl(1,9,0,0,0);"  # PR_SET_PDEATHSIG
    "os.getppid()==int(sys.argv[1])and os.execvp(sys.argv[2],sys.argv[2:])"
)


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """Give a command that the kernel kills when this thread ends, where it can.

    It is for what does not end with its input, as ``srun`` where the network is cut.
    """
    if not sys.platform.startswith("linux"):
        return list(command)
    own = str(os.getpid())
    return [sys.executable, "-I", "-S", "-c", _DYING, own, *command]


def sent_program(python: str, source: bytes, *arguments: str) -> tuple[list[str], bytes]:
    """Give the command that takes a Python program from standard input, and what it takes there.

    That fits into a pipe: a client that is queued for does not read.
    """
    sent = _compressed(source)
    return [python, "-I", "-S", "-c", _BOOTSTRAP, str(len(sent)), *arguments], sent


def allow_connections(count: int) -> None:
    """Have this process open as many files as connections to so many hosts need.

    Raises:
        BrokenError: It may not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count * _FILES_PER_HOST + _OTHER_FILES
    if needed <= soft or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise BrokenError(
            f"connections to {count} hosts need {needed} open files, and this process may have "
            f"{hard}; raise the limit where pytest is started (ulimit -n {needed}), as root if "
            "need be (nofile in /etc/security/limits.conf), or use fewer hosts"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


# Stands before a program for each module of ours that it imports.
_MODULE: Final = """\
def _define(name, source):
    import sys, types
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
_define({name!r}, {source!r})
"""


_IMPORTED: Final = re.compile(rb"^from (pytest_dlperf[\w.]+) import ", re.MULTILINE)
"""What a module of ours needs to run: what only its types need is imported further to the right."""


def source_of(program: ModuleType) -> bytes:
    """Give the source of a module that is sent to other hosts, with those of ours it imports."""
    *needed, _ = sent_modules(program)
    modules = [
        _MODULE.format(name=each.__name__, source=_read(str(each.__file__))) for each in needed
    ]
    return "".join(modules).encode("ascii") + _read(str(program.__file__))


def sent_modules(program: ModuleType) -> tuple[ModuleType, ...]:
    """List a module and those of ours that it imports, each behind those that it needs itself."""
    needed = map(sent_modules, _imported_by(str(program.__file__)))
    return tuple(dict.fromkeys((*chain.from_iterable(needed), program)))


@cache
def _imported_by(file: str) -> tuple[ModuleType, ...]:
    names = _IMPORTED.findall(_read(file))
    return tuple(importlib.import_module(name.decode("ascii")) for name in names)


@lru_cache(maxsize=2)
def _compressed(source: bytes) -> bytes:
    return zlib.compress(source)


@cache
def _read(file: str) -> bytes:
    return Path(file).read_bytes()


def describe_exit(command: Sequence[str], status: int) -> str:
    """Say how a launcher's command ended: ``ssh exited with status 255``."""
    name = Path(command[0]).name
    if status >= 0:
        return f"{name} exited with status {status}"
    return f"{name} was killed by {signal.Signals(-status).name}"


def last_words(lines: Sequence[str]) -> str:
    """Return the last line that says something, without secrets; ``Try "srun --help"`` does not."""
    said = (line.strip() for line in reversed(lines))
    last = next((line for line in said if line and not _POINTS_TO_HELP(line)), "")
    return last and in_message(last)


@final
@dataclass(slots=True, eq=False)
class RemoteCall:
    """A small program on a host that does one thing; several of them run at once."""

    host: Host
    _command: Sequence[str]
    _process: subprocess.Popen[bytes]
    _output: IO[bytes]
    _errors: IO[bytes]
    _started_at: float = field(default_factory=time.monotonic)
    _let_go_at: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def wait(self, limit_s: float) -> None:
        """Wait for its end, ``limit_s`` seconds from its start at most."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, self._started_at + limit_s - time.monotonic()))

    def result(self, limit_s: float) -> tuple[bytes | None, str]:
        """Return what it printed, ``None`` where it failed or was too slow, and why.

        The limit, in seconds, counts from its start, so it is one for all that are waited for in
        turn. The reason ends with the last words of its errors.
        """
        self.wait(limit_s)
        code = self._process.poll()
        reason = f"no answer for {limit_s:g} s" if code is None else ""
        self.end()
        self._output.seek(0)
        self._errors.seek(0)
        output = self._output.read()
        lines = self._errors.read().decode("utf-8", "replace").splitlines()
        self._output.close()
        self._errors.close()
        last = last_words(lines)
        if code == 0:
            return output, last
        if code is not None:
            reason = describe_exit(self._command, code)
        return None, f"{reason}: {last}" if last else reason

    def let_go_after(self, limit_s: float) -> None:
        """Stop waiting if it was started longer ago."""
        if time.monotonic() - self._started_at > limit_s:
            self.let_go()

    def let_go(self) -> None:
        """Stop waiting: the end of its input ends it where it is, with its process group."""
        if self._let_go_at is None:
            self._let_go_at = time.monotonic()
            if self._process.stdin is not None:
                # What it has not taken is of no more use.
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()

    def end(self) -> None:
        """Let it go, and leave nothing of it here."""
        self.let_go()
        left_s = (self._let_go_at or 0.0) + END_LIMIT_S - time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, left_s))
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def start_remote(launcher: Launcher, host: Host, source: bytes, orders: bytes) -> RemoteCall:
    """Send a program to a host, to run there with ``orders`` as its standard input.

    It ends, with its process group, as soon as this process ends or stops waiting for it.
    """
    source = _WATCHED.format(orders=orders).encode("ascii") + source
    program, sent = sent_program(launcher.python, source)
    command = launcher.command(host, program, alongside=True)
    # Files instead of pipes: many are waited for one after another, and none may block.
    with contextlib.ExitStack() as files:
        output, errors = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        process = subprocess.Popen(  # noqa: S603 - what the launcher says
            dying_with_parent(command) if launcher.queues else command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        files.pop_all()  # the call closes them
    if process.stdin is not None:
        # If it is not read, the exit status tells.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(sent)
            process.stdin.flush()
    return RemoteCall(host, command, process, output, errors)


def ask_hosts(  # noqa: PLR0913 - what is asked, and for how long, by name
    launcher: Launcher,
    orders: Mapping[Host, bytes],
    source: bytes,
    *,
    begin: str,
    limit_s: float,
    late: Callable[[list[str]], None] | None = None,
) -> dict[Host, Any]:
    """Have a program on several hosts at once answer its order, in JSON on a line that begins so.

    Where there is no answer after ``limit_s`` seconds, a text says why. The names of hosts that
    take long go to ``late``, meanwhile.
    """
    allow_connections(len(orders))
    answers: dict[Host, Any] = {}
    with contextlib.ExitStack() as stack:
        calls = []
        for host, order in orders.items():
            call = start_remote(launcher, host, source, order)
            stack.callback(call.end)
            calls.append(call)
        # All at once, last of all: each may take a moment until it is gone.
        stack.callback(_let_go, calls)
        if late is not None:
            for call in calls:
                call.wait(SILENCE_S)
            if missing := [call.host.name for call in calls if not call.is_over]:
                late(missing)
        for call in calls:
            call.wait(limit_s)
        _let_go(calls)
        for call in calls:
            output, reason = call.result(limit_s)
            lines = (output or b"").splitlines()
            line = next((line for line in lines if line.startswith(begin.encode())), None)
            found = None if line is None else json.loads(line.removeprefix(begin.encode()))
            answers[call.host] = reason or "no answer" if found is None else found
    return answers


def _let_go(calls: Sequence[RemoteCall]) -> None:
    for call in calls:
        call.let_go()
