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
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Final, cast, final

from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Launcher, last_words
from pytest_dlperf.model.errors import BrokenError

SILENCE_S: Final = 3.0
"""Hosts may take so long before the user hears of it."""
_FILES_PER_HOST: Final = 4
"""Two pipes, a log, and for a moment one more."""
_OTHER_FILES: Final = 200
END_LIMIT_S: Final = 0.5
"""How long the launcher's command may take to end after the program."""

# Takes a program of a known length from standard input and runs it. It is one line without single
# quotes, exclamation marks and backslashes, so that any login shell at the other end hands it on.
_BOOTSTRAP: Final = (
    'import os,sys,zlib;n=int(sys.argv.pop(1));s=b"";'
    'exec("while len(s)<n:s+=os.read(0,n-len(s))or sys.exit(1)");'
    'exec(compile(zlib.decompress(s),"pytest-dlperf","exec"))'
)
# Stands before a program for each module of ours that it imports.
_MODULE: Final = """\
def _define(name, source):
    import sys, types
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, name, "exec"), module.__dict__)
_define({name!r}, {source!r})
"""
_IMPORTED: Final = re.compile(rb"^from (pytest_dlperf[\w.]+) import ", re.MULTILINE)
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
    return [sys.executable, "-I", "-S", "-c", _DYING, str(os.getpid()), *command]


def start(
    command: Sequence[str], launcher: Launcher, output: IO[bytes] | int, errors: IO[bytes]
) -> subprocess.Popen[bytes]:
    """Start a launcher's command; it ends with its input, which is a pipe of this process alone.

    Raises:
        BrokenError: It cannot be started.
    """
    try:
        return subprocess.Popen(  # noqa: S603 - what the launcher says
            # A step that cannot be reached would keep srun for ever.
            dying_with_parent(command) if launcher.queues else command,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    except OSError as error:
        raise BrokenError(f"cannot start {command[0]!r}: {error.strerror}") from error


def sent_program(python: str, source: bytes, *arguments: str) -> tuple[list[str], bytes]:
    """Give the command that takes a Python program from standard input, and what it takes there.

    That fits into a pipe: a client that is queued for does not read.
    """
    sent = _compressed(source)
    return [python, "-I", "-S", "-c", _BOOTSTRAP, str(len(sent)), *arguments], sent


def allow_connections(count: int) -> None:
    """Have this process open as many files as connections to so many hosts need, if it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count * _FILES_PER_HOST + _OTHER_FILES
    if needed > soft != resource.RLIM_INFINITY:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def source_of(program: ModuleType) -> bytes:
    """Give the source of a module that is sent to other hosts, with those of ours it imports."""
    *needed, _ = sent_modules(program)
    modules = [_MODULE.format(name=each.__name__, source=_read(each.__file__)) for each in needed]
    return "".join(modules).encode("ascii") + _read(program.__file__)


def sent_modules(program: ModuleType) -> tuple[ModuleType, ...]:
    """List a module and those of ours that it imports, each behind those that it needs itself."""
    names = _IMPORTED.findall(_read(program.__file__))
    imported = (importlib.import_module(name.decode("ascii")) for name in names)
    return tuple(dict.fromkeys((*chain.from_iterable(map(sent_modules, imported)), program)))


@cache
def _read(file: str | None) -> bytes:
    return Path(str(file)).read_bytes()


@lru_cache(maxsize=2)
def _compressed(source: bytes) -> bytes:
    return zlib.compress(source)


def describe_exit(command: Sequence[str], status: int) -> str:
    """Say how a launcher's command ended: ``ssh exited with status 255``."""
    name = Path(command[0]).name
    if status >= 0:
        return f"{name} exited with status {status}"
    return f"{name} was killed by {signal.Signals(-status).name}"


@final
class RemoteCall:
    """A small program on a host that does one thing, by an ``order`` on its standard input.

    Several of them run at once. Each ends, with its process group, as soon as this process ends or
    stops waiting for it (``node.processes.end_with_input``).
    """

    def __init__(self, launcher: Launcher, host: Host, source: bytes, order: object) -> None:
        """Send the program to the host."""
        self.host = host
        program, sent = sent_program(launcher.python, source)
        self._command = launcher.command(host, program, alongside=True)
        self._end_at = time.monotonic()
        # Files instead of pipes: many are waited for one after another, and none may block.
        self._files = contextlib.ExitStack()
        with contextlib.ExitStack() as files:
            self._output, self._errors = (
                files.enter_context(tempfile.TemporaryFile()) for _ in range(2)
            )
            self._process = start(self._command, launcher, self._output, self._errors)
            self._files = files.pop_all()
        self._started_at = time.monotonic()
        self._input = cast("IO[bytes]", self._process.stdin)
        with contextlib.suppress(BrokenPipeError):  # if it is not read, the exit status tells
            self._input.write(sent + json.dumps(order).encode("ascii") + b"\n")
            self._input.flush()

    def ends_within(self, limit_s: float) -> bool:
        """Wait for its end, for so many seconds from its start; say whether it came."""
        left_s = self._started_at + limit_s - time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, left_s))
        return self._process.poll() is not None

    def let_go(self) -> None:
        """Stop waiting: the end of its input ends it where it is, with its process group."""
        if not self._input.closed:
            self._end_at = time.monotonic() + END_LIMIT_S
            with contextlib.suppress(BrokenPipeError):  # what it has not taken is of no more use
                self._input.close()

    def result(self, limit_s: float) -> tuple[bytes | None, str]:
        """Return what it printed, ``None`` where it failed or was too slow, and why.

        The limit, in seconds, counts from its start, so it is one for all that are waited for in
        turn. The reason ends with the last words of its errors. Nothing of it is left here.
        """
        reason = f"no answer for {limit_s:g} s"
        if not self._input.closed:
            self.ends_within(limit_s)
        code = self._process.poll()
        self.let_go()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, self._end_at - time.monotonic()))
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        with self._files:
            self._output.seek(0)
            self._errors.seek(0)
            output = self._output.read()
            last = last_words(self._errors.read().decode("utf-8", "replace").splitlines())
        if code == 0:
            return output, last
        if code is not None:
            reason = describe_exit(self._command, code)
        return None, f"{reason}: {last}" if last else reason


def ask_hosts(  # noqa: PLR0913 - what is asked, and for how long, by name
    launcher: Launcher,
    orders: Mapping[Host, object],
    source: bytes,
    *,
    begin: str,
    limit_s: float,
    late: Callable[[list[str]], None],
) -> dict[Host, Any]:
    """Have a program on several hosts at once answer its order, in JSON on a line that begins so.

    Where there is no answer after ``limit_s`` seconds, a text says why. The names of hosts that
    take long go to ``late``, meanwhile.
    """
    allow_connections(len(orders))
    calls: list[RemoteCall] = []
    try:
        for host, order in orders.items():
            calls.append(RemoteCall(launcher, host, source, order))
        if missing := [call.host.name for call in calls if not call.ends_within(SILENCE_S)]:
            late(missing)
        for call in calls:
            call.ends_within(limit_s)
    finally:
        # All at once: each may take a moment until it is gone.
        for call in calls:
            call.let_go()
        results = [(call.host, *call.result(limit_s)) for call in calls]
    answers: dict[Host, Any] = {}
    for host, output, reason in results:
        lines = (output or b"").splitlines()
        line = next((line for line in lines if line.startswith(begin.encode())), None)
        answers[host] = json.loads(line[len(begin) :]) if line else reason or "no answer"
    return answers
