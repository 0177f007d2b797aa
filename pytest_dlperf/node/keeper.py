"""Keeps what a head node starts on another one where all of it can be found and ended.

mpirun starts its daemons on other nodes by itself, so they are no descendants of the run's
supervisor there; and what they start may leave its parents, and clear its environment. Open MPI
lets the daemon be started by a command of one's own, which is this one: it puts the run's marker in
front of the environment, and is the reaper of all that comes of the daemon. Its own arguments hold
the marker, by which the supervisor finds it (``processes.end_keepers``). With SIGTERM it ends
everything below it; without, it ends when nothing is there any more.

It is sent to a node as a file of the run, and runs on Python 3.6.
"""

import contextlib
import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from pytest_dlperf.node.processes import KEEPER, KILL_LIMIT_S, MARKER, Below, become_reaper, end_all

if TYPE_CHECKING:
    from types import FrameType

_STALE_S = 60.0
_NOT_STARTED = 127  # as shells have it
_SIGNALLED = 128
_NAME = re.compile("pytest-dlperf-[0-9a-f]{32}" + KEEPER.decode() + "$")


def install(path: str, source: str) -> int:
    """Write this program to a file, locked while this process lives, and return the lock.

    Supervisors of one run that share a machine share the file. Files of runs whose supervisors are
    gone are removed first.
    """
    parent, name = os.path.split(path)
    with contextlib.suppress(OSError):
        for other in os.listdir(parent):  # noqa: PTH208 - importing pathlib takes long
            if _NAME.match(other) and other != name:
                _remove_stale(os.path.join(parent, other))  # noqa: PTH118 - as above
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if os.fstat(file).st_uid != os.geteuid():
        raise FileExistsError(errno.EEXIST, "it is another user's", path)
    # A network's file system may have no locks. There nobody can take this one for left, either.
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    # Two that write at once write the same.
    os.pwrite(file, source.encode("ascii"), 0)
    return file


def take_away(path: str) -> None:
    """Remove the program, unless another one on this machine has."""
    with contextlib.suppress(OSError):
        os.unlink(path)  # noqa: PTH108 - importing pathlib takes long


def _remove_stale(path: str) -> None:
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(file)
            is_old = time.time() - status.st_ctime > _STALE_S
            if status.st_uid == os.geteuid() and is_old:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                take_away(path)
        finally:
            os.close(file)


class _EndedError(Exception):
    """SIGTERM came."""


def keep(marker: str, command: "list[str]") -> int:
    """Run a command under a marker, and return its exit code; what it leaves is kept behind it."""
    told, tell = os.pipe()
    if os.fork():
        # A daemon that goes into the background has ended for whoever started it.
        os.close(tell)
        code = os.read(told, 1)
        return code[0] if code else _NOT_STARTED
    try:
        _keep(marker, command, tell)
    except _EndedError:
        end_all(Below(os.getpid()), KILL_LIMIT_S, _pause)
    finally:
        os._exit(0)


def _keep(marker: str, command: "list[str]", tell: int) -> None:
    os.setsid()
    become_reaper()
    signal.signal(signal.SIGTERM, _end)
    try:
        program = subprocess.Popen(command, env=dict(os.environ, **{MARKER: marker}))  # noqa: S603
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {os.strerror(error.errno or 0)}\n")
        sys.stderr.flush()
        return
    finally:
        # Whoever reads the output waits for the end of it.
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nothing, stream)
    while True:
        try:
            child, status = os.wait()
        except ChildProcessError:
            return
        if child == program.pid:
            exited = os.WIFEXITED(status)
            code = os.WEXITSTATUS(status) if exited else _SIGNALLED + os.WTERMSIG(status)
            program.returncode = code
            os.write(tell, bytes([code]))
            os.close(tell)


def _pause(seconds: float) -> None:
    """Let those go meanwhile that have ended."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    time.sleep(seconds)


def _end(_number: int, _frame: "FrameType | None") -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _EndedError


if __name__ == "__main__":
    sys.exit(keep(sys.argv[1], sys.argv[2:]))
