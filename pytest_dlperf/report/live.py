"""Progress while a test runs: how far a run has come, and what it waits for."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from pytest_dlperf.measure.by_launching import RunProgress
from pytest_dlperf.model import numbers
from pytest_dlperf.report import printing

_CLEAR: Final = "\033[K"


def progress_line(progress: RunProgress) -> str:
    """Describe a run: case, which of its repeats, how many steps, how fast, how long to go."""
    now = progress.progress
    parts = [progress.run, *([f"step {now.step} of {now.steps}"] if now.steps else [])]
    if now.throughput is not None:
        parts.append(numbers.quantity(now.throughput, progress.unit))
    if now.left_s is not None and now.step < now.steps:
        parts.append(f"{numbers.duration(now.left_s)} left")
    return ", ".join(parts)


class LiveReport:
    """One line of progress on a terminal; a worker has none.

    What a worker has to say goes to standard error, which is the controller's.
    """

    def __init__(
        self,
        uncaptured: Callable[[], AbstractContextManager[Any]],
        who: str,
        *,
        has_terminal: bool,
    ) -> None:
        self._has_terminal = has_terminal
        self._uncaptured = uncaptured
        self._who = who
        self._is_open = False

    def say(self, text: str) -> None:
        """Tell something in a line of its own: it may be what a host has printed."""
        text = printing.printable(text)
        with self._uncaptured() as reporter:
            if self._has_terminal:
                self._clear()
                reporter.ensure_newline()
                reporter.write_line(text)
            else:
                sys.stderr.write(f"dlperf: {self._who}: {text}\n")
                sys.stderr.flush()

    def show(self, progress: RunProgress) -> None:
        """Show how far a run has come, in the place of what was shown before."""
        if not self._has_terminal:
            return
        with self._uncaptured() as reporter:
            if not sys.stdout.isatty():
                return
            if not self._is_open:
                reporter.ensure_newline()
            self._is_open = True
            columns = shutil.get_terminal_size().columns
            line = printing.printable(progress_line(progress))[: columns - 1]
            # Past pytest's writer, which would count these columns as part of its own line.
            sys.stdout.write(f"\r{line}{_CLEAR}")
            sys.stdout.flush()

    def clear(self) -> None:
        """Take the line of progress away, where one stands."""
        if self._is_open:
            with self._uncaptured():
                self._clear()

    def _clear(self) -> None:
        if self._is_open:
            sys.stdout.write(f"\r{_CLEAR}")
            sys.stdout.flush()
            self._is_open = False
