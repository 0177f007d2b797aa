"""Start the sessions of pytest within tests as forks of a process that has imported pytest.

A short session mostly imports: pytest, its plugins, the package. Each worker of the tests does that
once. A fork is still a process of its own, with its arguments, environment, working directory,
standard streams and exit code, and sees nothing of those before it. A session's workers are forks
of it, made before it begins.

``runpytest_subprocess`` of the fixture ``pytester`` forks. Tests of start-up, imports, or signals
to a session use ``subprocess``, or ``pytester.run(sys.executable, ...)``.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import pytest

import pytest_dlperf

# More than any request has: arguments, a folder, an environment.
_MAX_BYTES: Final = 1 << 18

_SET_BY_A_FORK: Final = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")


def popen(
    otherwise: Callable[..., Any],
    command: Sequence[str],
    *,
    stdin: object,
    stdout: IO[str],
    stderr: IO[str],
) -> Any:
    """Start a session by a fork, anything else by ``otherwise``, which is ``Pytester.popen``."""
    environment = dict(os.environ)
    folders = (str(Path.cwd()), environment.get("PYTHONPATH", ""))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    if (
        tuple(command[:2]) != (sys.executable, "-mpytest")
        or stdin is not pytest.Pytester.CLOSE_STDIN
        or _read_at_start(environment) != _server().environment
    ):
        return otherwise(command, stdin=stdin, stdout=stdout, stderr=stderr)
    with Path(os.devnull).open() as nothing:
        return _server().start(command[2:], environment, Path.cwd(), nothing, stdout, stderr)


def session(  # noqa: PLR0913 - as subprocess.Popen has it
    command: Sequence[str],
    *,
    cwd: str | Path,
    env: Mapping[str, str],
    stdin: int,
    stdout: IO[Any],
    stderr: int,
) -> Any:
    """Start a session, in the place of ``subprocess.Popen``; its errors go with its output."""
    assert [*command[:3]] == [sys.executable, "-m", "pytest"]
    assert (stdin, stderr) == (subprocess.DEVNULL, subprocess.STDOUT)
    if _read_at_start(env) != _server().environment:
        return subprocess.Popen(
            command, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr
        )
    with Path(os.devnull).open() as nothing:
        return _server().start(command[3:], dict(env), Path(cwd), nothing, stdout, stdout)


class _Server:
    """A process that forks, for one session at a time."""

    def __init__(self) -> None:
        self.environment = _read_at_start(os.environ)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection = ours
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env={
                    **_lasting(os.environ),
                    "OPENBLAS_NUM_THREADS": "1",  # a process with threads should not fork
                    # The package that is tested, which may be another than the one installed.
                    "PYTHONPATH": str(Path(pytest_dlperf.__file__).parent.parent),
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._stop)

    def start(
        self, arguments: Sequence[str], environment: dict[str, str], folder: Path, *streams: IO[Any]
    ) -> _Fork:
        """Start ``python -m pytest`` in a folder, with these standard streams."""
        request = json.dumps([arguments, str(folder), environment]).encode()
        socket.send_fds(self._connection, [request], [stream.fileno() for stream in streams])
        return _Fork(self._connection)

    def _stop(self) -> None:
        self._connection.close()
        self._process.wait()


@cache
def _server() -> _Server:
    return _Server()


class _Fork:
    """A session that runs: what ``Pytester.run`` uses of ``subprocess.Popen``."""

    stdin: Final = None

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = self._received()
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; return its exit code, of a signal the negative number.

        Raises:
            subprocess.TimeoutExpired: It did not end within ``timeout`` seconds.
        """
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                self.returncode = self._received()
            except TimeoutError:
                assert timeout is not None
                raise subprocess.TimeoutExpired("pytest", timeout) from None
            finally:
                self._connection.settimeout(None)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)

    def _received(self) -> int:
        answer = self._connection.recv(_MAX_BYTES)
        if not answer:
            raise RuntimeError("the fork server has ended")
        return int(answer)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that an interpreter reads once: a fork cannot have others."""
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(("PYTHON", "LANG", "LC_")) and name not in _SET_BY_A_FORK
    }


def _lasting(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that say nothing of the test that starts the server, nor of a fork."""
    here = str(Path.cwd())
    return {
        name: value
        for name, value in environment.items()
        if here not in value and name not in _SET_BY_A_FORK
    }


def _serve(connection: socket.socket) -> list[str] | None:
    """Fork for each request; return the arguments in the fork, nothing when the client has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the forks; the client ends this one
    while True:
        request, streams, _, _ = socket.recv_fds(connection, _MAX_BYTES, 3)
        if not request:
            return None
        if (process := os.fork()) == 0:
            connection.close()
            arguments, folder, environment = json.loads(request)
            _become(folder, environment, streams)
            return list(arguments)
        for stream in streams:
            os.close(stream)
        connection.send(b"%d" % process)
        connection.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))


def _become(folder: str, environment: dict[str, str], streams: list[int]) -> None:
    """Make this process what it would be, had the client started it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    tempfile.tempdir = None  # an import may have asked for it
    given = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [folder, *given, *sys.path[1:]]


class _Worker:
    """A worker of a session: what execnet uses of ``subprocess.Popen``."""

    def __init__(self, server: socket.socket) -> None:
        theirs, to_worker = os.pipe()
        from_worker, ours = os.pipe()
        socket.send_fds(server, [b"worker"], [theirs, ours])
        for number in (theirs, ours):
            os.close(number)
        self.stdin = os.fdopen(to_worker, "wb", buffering=0)
        self.stdout = os.fdopen(from_worker, "rb")
        self.pid = int(server.recv(_MAX_BYTES))
        self._process = os.pidfd_open(self.pid)

    def wait(self) -> None:
        select.select([self._process], [], [])

    def kill(self) -> None:
        signal.pidfd_send_signal(self._process, signal.SIGKILL)


def _fork_workers() -> bool:
    """Have xdist start its workers as forks of this process as it is now; say if this is one."""
    from execnet import gateway_io
    from execnet.gateway_base import Popen2IO

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if (process := os.fork()) == 0:
        ours.close()
        return _serve_workers(theirs)
    theirs.close()

    class Worker(gateway_io.Popen2IOMaster):
        def __init__(self, _: Sequence[str], execmodel: Any) -> None:
            self.popen = worker = _Worker(ours)
            Popen2IO.__init__(self, worker.stdin, worker.stdout, execmodel=execmodel)

    setattr(gateway_io, "Popen2IOMaster", Worker)  # noqa: B010 - what it makes for ``popen``

    def stop() -> None:
        ours.close()
        os.waitpid(process, 0)

    atexit.register(stop)
    return False


def _serve_workers(connection: socket.socket) -> bool:
    """Fork for each request; return in the forks, and exit when the session and they have ended."""
    interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        request, streams, _, _ = socket.recv_fds(connection, _MAX_BYTES, 2)
        if not request:
            break
        if (process := os.fork()) == 0:
            connection.close()
            signal.signal(signal.SIGINT, interrupt)
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return True
        for stream in streams:
            os.close(stream)
        connection.send(b"%d" % process)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)


class _Unsynced(sqlite3.Connection):
    """A database whose transactions do not wait for the disk."""

    def execute(self, statement: str, /, *parameters: Any) -> sqlite3.Cursor:
        if statement.startswith("BEGIN"):
            with contextlib.suppress(sqlite3.Error):  # the transaction itself meets it too
                super().execute("PRAGMA synchronous = OFF")
        return super().execute(statement, *parameters)


def wait_for_no_disk(patch: Callable[[object, str, object], None]) -> None:
    """Wait for no disk: nothing that a test writes has to survive a power cut."""
    patch(os, "fsync", lambda _: None)
    patch(sqlite3, "connect", partial(sqlite3.connect, factory=_Unsynced))


def _import_what_sessions_need() -> None:
    import _pytest.config
    from suites import import_package

    for plugin in _pytest.config.default_plugins:
        importlib.import_module(f"_pytest.{plugin}")
    for name in ("encodings.unicode_escape", "readline", "xdist.looponfail", "xdist.plugin"):
        importlib.import_module(name)
    # Else pytest warns that it comes too late to rewrite assertions, of which it has none.
    sys.modules["xdist"].__doc__ = "PYTEST_DONT_REWRITE"
    import_package()


def _main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        _import_what_sessions_need()
        sys.path.remove(os.environ.pop("PYTHONPATH"))
        gc.collect()
        gc.freeze()  # forks share what they do not change
        wait_for_no_disk(setattr)
        arguments = _serve(connection)
    if arguments is not None:
        if any(argument.startswith("-n") for argument in arguments) and _fork_workers():
            sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for good
            exec(eval(sys.stdin.readline()), {"__name__": "__main__"})  # noqa: S102, S307 - as execnet has it
            _exit(0)
        sys.argv[1:] = arguments
        try:
            runpy.run_module("pytest", run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            _exit(int(ended.code or 0))


def _exit(code: int) -> NoReturn:
    """End as an interpreter does, but for taking apart, and so copying, all that was imported."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing's forks do
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    _main()
