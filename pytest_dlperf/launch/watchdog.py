"""Cancels a job when the pytest that submitted it is gone, however it ended.

Each job has such a process, which outlives pytest: it waits for the end of its input. As a program
it is given the command that cancels, as JSON, and files that are to go with the job.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, final

_SUBMITTED, _OVER = b"s", b"o"
_SUBMITTING_S: Final = 60.0
"""A submission that was under way when pytest ended may take effect for so long."""
_BETWEEN_S: Final = 2.0
_LIMIT_S: Final = 900.0
"""An engine that is down now may be up in a while."""
_CALL_LIMIT_S: Final = 60.0


@final
class Watchdog:
    """The process that cancels a job unless it is told that the job is over."""

    def __init__(self, command: list[str], file: Path | None = None) -> None:
        """Start it; ``command`` cancels the job, and ends with 0 where there is none.

        A job that it cancels needs ``file`` no more.
        """
        files = [] if file is None else [str(file.absolute())]
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-I", "-S", __file__, json.dumps(command), *files],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def submitted(self) -> None:
        """Tell it that the job is submitted, and not about to be any more."""
        self._tell(_SUBMITTED)

    def close(self, *, is_over: bool) -> None:
        """Be done with it; unless the job ``is_over``, it goes on to cancel it."""
        if is_over:
            self._tell(_OVER)
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        if is_over:
            self._process.wait()
        else:
            self._process.returncode = 0  # it lives on, and Python shall not warn of that

    def _tell(self, word: bytes) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):  # it was killed
                self._process.stdin.write(word)
                self._process.stdin.flush()


def watch(command: list[str], files: list[str]) -> None:
    """Wait for the end of the input, then remove files and cancel, until it has worked."""
    with contextlib.suppress(OSError):
        # Neither killall python3 nor pkill pytest is its end.
        Path("/proc/self/comm").write_text("dlperf-watchdog")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    told = b""
    while new := os.read(0, 64):
        told += new
    if told.endswith(_OVER):
        return
    for file in files:
        with contextlib.suppress(OSError):
            Path(file).unlink()
    ended = time.monotonic()
    enough_at = ended if told else ended + _SUBMITTING_S
    has_worked = False
    while not has_worked or time.monotonic() < enough_at:
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # once more
            has_worked = not subprocess.call(command, timeout=_CALL_LIMIT_S)  # noqa: S603 - given
        if time.monotonic() > ended + _LIMIT_S:
            return
        if not has_worked or time.monotonic() < enough_at:
            time.sleep(_BETWEEN_S)


if __name__ == "__main__":
    watch(json.loads(sys.argv[1]), sys.argv[2:])
