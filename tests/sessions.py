"""Sessions of pytest that run while a test does something else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clusters.processes import LONG_S, wait_until
from suites import Suite


class BackgroundSession:
    """A session of pytest on a suite, and what it prints."""

    def __init__(self, suite: Suite, *arguments: str | Path, **environment: str) -> None:
        self._output = suite.path / f"session-{os.urandom(4).hex()}.txt"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "bench_tests", *map(str, arguments)],
                cwd=suite.path,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        """What it has printed by now."""
        return self._output.read_text(encoding="utf-8", errors="replace")

    def wait_until(self, condition: Callable[[], object], *, what: str) -> None:
        """Return as soon as the condition holds.

        Raises:
            TimeoutError: It did not hold in time.
            RuntimeError: The session ended before; with what it has printed.
        """
        wait_until(lambda: condition() or self.process.poll() is not None, what=what)
        if not condition():
            raise RuntimeError(f"the session ended before {what}:\n{self.output}")

    def result(self) -> int:
        """Wait for its end, and give its exit code."""
        return self.process.wait(LONG_S)


@contextmanager
def in_background(
    suite: Suite, *arguments: str | Path, **environment: str
) -> Iterator[BackgroundSession]:
    """Run a session beside the block; what the block leaves of it is killed."""
    session = BackgroundSession(suite, *arguments, **environment)
    try:
        yield session
    finally:
        session.process.kill()
        session.process.wait()
