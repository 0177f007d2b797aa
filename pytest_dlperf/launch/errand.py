"""A small program that is sent to a host, does one thing there and says what came of it."""

from __future__ import annotations

import subprocess
import tempfile
from typing import IO, TYPE_CHECKING, final

from pytest_dlperf.launch.launcher import sent_program, source_of

if TYPE_CHECKING:
    from pytest_dlperf.launch.hosts import Host
    from pytest_dlperf.launch.launcher import Launcher


@final
class Errand:
    """A program on its way; several of them run at once."""

    __slots__ = ("_errors", "_output", "_process", "host")

    def __init__(
        self, host: Host, process: subprocess.Popen[bytes], output: IO[bytes], errors: IO[bytes]
    ) -> None:
        """Wait for nothing yet."""
        self.host = host
        self._process = process
        self._output = output
        self._errors = errors

    def result(self, limit_s: float) -> tuple[bytes | None, str]:
        """What it printed, ``None`` where it did not end well within ``limit_s`` seconds; and why.

        The second value is what stands in the way, in its own last words.
        """
        reason = ""
        try:
            code = self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            code, reason = None, f"no answer for {limit_s:g} s"
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


def sent(launcher: Launcher, host: Host, file: str, orders: bytes, *arguments: str) -> Errand:
    """Send the module ``file`` to a host, to run there with ``orders`` as its standard input.

    Raises:
        OSError: The launcher's command cannot be started.
    """
    source = source_of(file)
    program = sent_program(launcher.python, source, *arguments)
    # Files instead of pipes: many are waited for one after another, and none may block.
    output, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - kept open
    with tempfile.TemporaryFile() as given:
        given.write(source + orders)
        given.seek(0)
        process = subprocess.Popen(  # noqa: S603 - what the launcher says
            launcher.command(host, program, alongside=True),
            stdin=given,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
    return Errand(host, process, output, errors)
