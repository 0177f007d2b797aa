"""A small program that is sent to a host, does one thing there and says what came of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from typing import IO, TYPE_CHECKING, Final, final

from pytest_dlperf.launch.launchers import sent_program, source_of

if TYPE_CHECKING:
    from pytest_dlperf.launch.hosts import Host
    from pytest_dlperf.launch.launchers import Launcher

END_LIMIT_S: Final = 0.5
"""How long the way to it may take to end after it."""

# Stands before a program whose orders are known: it finds them on its standard input. The input
# that it really has ends when nobody waits for it any more, and so does the program, with what it
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


@final
class RemoteCall:
    """A program on its way; several of them run at once."""

    __slots__ = ("_errors", "_let_go_at", "_output", "_process", "_started_at", "host")

    def __init__(
        self, host: Host, process: subprocess.Popen[bytes], output: IO[bytes], errors: IO[bytes]
    ) -> None:
        """Wait for nothing yet."""
        self.host = host
        self._process = process
        self._output = output
        self._errors = errors
        self._started_at = time.monotonic()
        self._let_go_at: float | None = None

    def wait(self, limit_s: float) -> None:
        """Wait until it has ended, ``limit_s`` seconds from its start at most."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, self._started_at + limit_s - time.monotonic()))

    def result(self, limit_s: float) -> tuple[bytes | None, str]:
        """What it printed, ``None`` where it did not end well within ``limit_s`` seconds; and why.

        The limit counts from its start, so it is one for all that are waited for in turn. The
        second value is what stands in the way, in its own last words.
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
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        if code == 0:
            return output, last
        reason = reason or f"the way there ended with exit code {code}"
        return None, f"{reason}: {last}" if last else reason

    def let_go(self) -> None:
        """Wait no longer: the end of its input ends it where it is, with its process group."""
        if self._let_go_at is None:
            self._let_go_at = time.monotonic()
            if self._process.stdin is not None:
                # What it has not taken is of no more use.
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()

    def end(self) -> None:
        """Let it go, and see that nothing of it is left here."""
        self.let_go()
        left_s = (self._let_go_at or 0.0) + END_LIMIT_S - time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, left_s))
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def start_remote(
    launcher: Launcher, host: Host, file: str, orders: bytes, *arguments: str
) -> RemoteCall:
    """Send the module ``file`` to a host, to run there with ``orders`` as its standard input.

    It ends at once, with its process group, when this process does or stops waiting for it.

    Raises:
        OSError: The launcher's command cannot be started.
    """
    source = _WATCHED.format(orders=orders).encode("ascii") + source_of(file)
    program = sent_program(launcher.python, source, *arguments)
    # Files instead of pipes: many are waited for one after another, and none may block.
    with contextlib.ExitStack() as files:
        output, errors = (files.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        process = subprocess.Popen(  # noqa: S603 - what the launcher says
            launcher.command(host, program, alongside=True),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        files.pop_all()  # they are closed with the errand
    if process.stdin is not None:
        # Where nobody takes it, the errand's end says so.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(source)
            process.stdin.flush()
    return RemoteCall(host, process, output, errors)
