"""Ends the clients of a process that is gone, as ``ssh`` and ``srun``; itself a small program.

The end of a client's input is the end of it, as long as the other side answers. Where the network
is cut as well, a client would stay for minutes, and ``srun`` for ever. So a process that starts
clients also starts this program, in a session of its own, and tells it their numbers. When that
process ends, however it does, the clients have a moment to end by themselves.

A client that would stay for ever where this program is killed as well is started through it: the
kernel kills that with its parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GRACE_S: Final = 2.5
"""Clients may take so long to end by themselves, and with them what is on their hosts."""
KILL_GRACE_S: Final = 1.0
"""And so long with SIGTERM: ``srun`` has something to end elsewhere."""
_POLL_S: Final = 0.05
_PR_SET_PDEATHSIG: Final = 1

_lock = threading.Lock()
_orders: int | None = None
"""Where the program of this process takes its orders, once it was started."""


@contextlib.contextmanager
def _telling() -> Iterator[int]:
    """Have the program running; yield where it takes orders, from one thread at a time."""
    global _orders
    with _lock:
        if _orders is None:
            taken, _orders = os.pipe()
            os.posix_spawn(
                sys.executable,
                [sys.executable, "-I", "-S", __file__],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, taken, 0),
                    *((os.POSIX_SPAWN_OPEN, out, os.devnull, os.O_WRONLY, 0) for out in (1, 2)),
                ],
                setsid=True,
            )
            os.close(taken)
        # If somebody has killed it, clients end as they did without.
        with contextlib.suppress(BrokenPipeError):
            yield _orders


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """Give the command of a client that the kernel kills when this thread ends, where it can."""
    if not sys.platform.startswith("linux"):
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def end_with_this_process(client: int) -> None:
    """Have a client ended, with its process group, when this process is gone."""
    with _telling() as orders:
        os.write(orders, b"+%d\n" % client)


def has_ended(client: int) -> None:
    """Forget a client, whose number may be another's from now on."""
    with _telling() as orders:
        os.write(orders, b"-%d\n" % client)


def _leave() -> None:
    """Let a process that is only forked, and may live on, have a program of its own."""
    global _lock, _orders
    if _orders is not None:
        os.close(_orders)
    _lock, _orders = threading.Lock(), None


os.register_at_fork(after_in_child=_leave)


# ---------------------------------------------------------------------- the program


def _watch() -> None:
    """Take the numbers of clients from standard input, and end those that are left at its end."""
    os.chdir("/")
    # By this name killall goes, and python3 is a trainer's.
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:  # noqa: PTH123 - quick
        name.write("pytest-dlperf")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    clients: dict[int, int | None] = {}
    for line in sys.stdin.buffer:
        client = int(line[1:])
        handle = clients.pop(client, None)
        if handle is not None:
            os.close(handle)
        if line[:1] == b"+":
            # It may be over already.
            with contextlib.suppress(ProcessLookupError):
                clients[client] = _handle(client)
    for grace_s, order in ((GRACE_S, signal.SIGTERM), (KILL_GRACE_S, signal.SIGKILL)):
        deadline = time.monotonic() + grace_s
        while any(map(_lives, clients.items())) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        for process, _ in filter(_lives, clients.items()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, order)


def _handle(client: int) -> int | None:
    """Get hold of a process, so that a later one of its number is not taken for it."""
    try:
        return os.pidfd_open(client)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        return None  # this system knows nothing of the kind


def _lives(client: tuple[int, int | None]) -> bool:
    process, handle = client
    try:
        if handle is None:
            os.killpg(process, 0)
        else:
            signal.pidfd_send_signal(handle, 0)
    except OSError:
        return False
    return True


def _become(parent: int, command: list[str]) -> None:
    """Become a client that is killed with its parent."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == parent:  # it may be gone by now
        os.execvp(command[0], command)  # noqa: S606 - the launcher's own


if __name__ == "__main__":
    if sys.argv[1:]:
        _become(int(sys.argv[1]), sys.argv[2:])
    else:
        _watch()
