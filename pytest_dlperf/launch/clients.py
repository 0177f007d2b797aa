"""Cleans up after a process that is gone: its clients here, its runs on hosts; a small program.

The end of a client's input, of ``ssh`` or ``srun``, is the end of it, as long as the other side
answers. Where the network is cut as well, a client would stay for minutes, and ``srun`` for ever.
And where the watchers of a node were killed, nothing there ends the run. So a process that starts
clients also starts this program, in a session of its own, and tells it their numbers, and the
commands that sweep the hosts of a run. When that process ends, however it does, the clients have a
moment to end by themselves, and then they are ended; the watchers of hosts that are swept have one.

A client that would stay for ever where this program is killed as well is started through it: the
kernel kills that with its parent.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence
    from typing import Any

GRACE_S: Final = 2.5
"""Clients may take so long to end by themselves, and with them what is on their hosts."""
KILL_GRACE_S: Final = 1.0
"""And so long with SIGTERM: ``srun`` has something to end elsewhere."""
SWEEP_LIMIT_S: Final = 4.5
"""A host may take so long to be reached; what sweeps it then goes on by itself."""
PATIENCE_S: Final = 4.0
"""The watchers of a node that are still there may take so long: devices are slow to be freed."""
_SWEEPS_AT_ONCE: Final = 64
_POLL_S: Final = 0.05
_END_LIMIT_S: Final = 0.5
"""A process that ends waits so long for its program, which ends at once where all is clean."""
_PR_SET_PDEATHSIG: Final = 1

_lock = threading.Lock()
_orders: int | None = None
"""Where the program of this process takes its orders, once it was started."""


def _tell(**message: object) -> None:
    """Tell the program, which is started for the first message, from one thread at a time."""
    global _orders
    with _lock:
        if _orders is None:
            taken, _orders = os.pipe()
            program = os.posix_spawn(
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
            atexit.register(_end, program, os.getpid())
        rest = json.dumps(message).encode("ascii") + b"\n"
        # If somebody has killed it, all ends as it did without.
        with contextlib.suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(_orders, rest) :]


def dying_with_parent(command: Sequence[str]) -> list[str]:
    """Give the command of a client that the kernel kills when this thread ends, where it can."""
    if not sys.platform.startswith("linux"):
        return list(command)
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def end_with_this_process(client: int) -> None:
    """Have a client ended, with its process group, when this process is gone."""
    _tell(client=client)


def has_ended(client: int) -> None:
    """Forget a client, whose number may be another's from now on."""
    _tell(ended=client)


def sweep_after_this_process(run: str, commands: Sequence[tuple[list[str], str]]) -> None:
    """Have the hosts of a run swept when this process is gone.

    ``commands`` do so for a host each; with a command comes its input, a character a byte.
    """
    _tell(run=run, sweeps=commands, folder=os.getcwd())  # noqa: PTH109 - text is what is sent


def is_over(run: str) -> None:
    """Forget a run, of which nothing is left."""
    _tell(over=run)


def _end(program: int, parent: int) -> None:
    """End the program with this process, so that nothing is seen of it afterwards."""
    if _orders is None or os.getpid() != parent:
        return
    os.close(_orders)
    deadline = time.monotonic() + _END_LIMIT_S
    with contextlib.suppress(ChildProcessError):
        while not os.waitpid(program, os.WNOHANG)[0] and time.monotonic() < deadline:
            time.sleep(0.005)


def _leave() -> None:
    """Let a process that is only forked, and may live on, have a program of its own."""
    global _lock, _orders
    if _orders is not None:
        os.close(_orders)
    _lock, _orders = threading.Lock(), None


os.register_at_fork(after_in_child=_leave)


# ---------------------------------------------------------------------- the program


def _watch() -> None:
    """Take messages from standard input; at its end, clean up what is left of what they named."""
    os.chdir("/")
    # By this name killall and pkill go: python3 is a trainer's, and pytest what this outlives.
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:  # noqa: PTH123 - quick
        name.write("dlperf-clients")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    clients: dict[int, int | None] = {}
    runs: dict[str, dict[str, Any]] = {}
    for line in sys.stdin.buffer:
        if line.endswith(b"\n"):  # its sender may have been killed meanwhile
            _note(json.loads(line), clients, runs)
    sweeps = [(run["folder"], *sweep) for run in runs.values() for sweep in run["sweeps"]]
    threading.Thread(target=_sweep, args=[sweeps]).start()
    for grace_s, order in ((GRACE_S, signal.SIGTERM), (KILL_GRACE_S, signal.SIGKILL)):
        deadline = time.monotonic() + grace_s
        while any(map(_lives, clients.items())) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        for process, _ in filter(_lives, clients.items()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, order)


def _note(
    message: dict[str, Any], clients: dict[int, int | None], runs: dict[str, dict[str, Any]]
) -> None:
    if "run" in message:
        runs[message["run"]] = message
    runs.pop(message.get("over", ""), None)
    client = message.get("client", message.get("ended", 0))
    handle = clients.pop(client, None)
    if handle is not None:
        os.close(handle)
    if "client" in message:
        # It may be over already.
        with contextlib.suppress(ProcessLookupError):
            clients[client] = _handle(client)


def _sweep(waiting: list[tuple[str, list[str], str]]) -> None:
    """Run the commands that sweep hosts, each in its folder, some at a time."""
    running: list[tuple[float, subprocess.Popen[bytes]]] = []
    while waiting or running:
        while waiting and len(running) < _SWEEPS_AT_ONCE:
            with contextlib.suppress(OSError):
                running.append((time.monotonic() + SWEEP_LIMIT_S, _swept(*waiting.pop())))
        time.sleep(_POLL_S)
        for late in [process for until, process in running if time.monotonic() > until]:
            late.kill()
        running = [(until, process) for until, process in running if process.poll() is None]


def _swept(folder: str, command: list[str], text: str) -> subprocess.Popen[bytes]:
    import subprocess
    import tempfile

    # A file: what is queued for would not read from a pipe.
    with tempfile.TemporaryFile() as taken:
        taken.write(text.encode("latin-1"))
        taken.seek(0)
        return subprocess.Popen(  # noqa: S603 - what the launcher says
            command,
            stdin=taken,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder if os.path.isdir(folder) else "/",  # noqa: PTH112 - pathlib is slow
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - the other thread only sends signals
        )


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


def _die_with_parent() -> None:
    import ctypes

    with contextlib.suppress(AttributeError):  # other systems know nothing of the kind
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _become(parent: int, command: list[str]) -> None:
    """Become a client that is killed with its parent."""
    _die_with_parent()
    if os.getppid() == parent:  # it may be gone by now
        os.execvp(command[0], command)  # noqa: S606 - the launcher's own


if __name__ == "__main__":
    if sys.argv[1:]:
        _become(int(sys.argv[1]), sys.argv[2:])
    else:
        _watch()
