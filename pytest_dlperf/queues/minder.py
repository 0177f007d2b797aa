"""Has a job cancelled when the tests that submitted it are gone, however they went.

A process of its own for each job, which outlives the tests: it waits for the end of its input. Run
as a program, it is given the command that cancels, as JSON.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Final, final

_OVER: Final = b"over\n"
_SUCCESSES: Final = 3
"""So many times the command has to have worked: the job may be submitted just after the first."""
_BETWEEN_S: Final = 1.0
_LIMIT_S: Final = 3600.0
"""An engine that is down now may be up in a while."""
_CALL_LIMIT_S: Final = 60.0


@final
class Minder:
    """The process that cancels a job unless it is told that the job is over."""

    def __init__(self, command: list[str]) -> None:
        """Start it; ``command`` cancels the job, and ends with 0 where there is none."""
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", __file__, json.dumps(command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def close(self, *, is_over: bool) -> None:
        """Be done with it; it goes on to cancel a job of which nobody knows that it ``is_over``."""
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # somebody has killed it
                self._process.stdin.write(_OVER if is_over else b"")
                self._process.stdin.close()
        if is_over:
            self._process.wait()


def mind(command: list[str]) -> None:
    """Wait for the end of the input, then cancel, until it has worked."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    received = b""
    while new := os.read(0, 64):
        received += new
    if received == _OVER:
        return
    successes = 0
    deadline = time.monotonic() + _LIMIT_S
    while successes < _SUCCESSES and time.monotonic() < deadline:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # once more
            successes += not subprocess.call(command, timeout=_CALL_LIMIT_S)  # noqa: S603 - given
        time.sleep(_BETWEEN_S)


if __name__ == "__main__":
    mind(json.loads(sys.argv[1]))
