"""What is told while a test runs: one line of progress, and what a run waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.progress import ProgressFile, progress_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from pytest_dlperf.measure.by_launching import RunProgress

_CLEARED = "\r\033[K"


@final
class LiveReport:
    """Tells it on the terminal; a worker, which has none, writes it down instead."""

    __slots__ = ("_file", "_is_open", "_prefix", "_terminal")

    def __init__(
        self, terminal: Callable[[], AbstractContextManager[Any]] | None, file: ProgressFile
    ) -> None:
        """Take ``terminal`` for a way to pytest's terminal reporter, ``None`` where there is none.

        Within its block nothing is captured.
        """
        self._terminal = terminal
        self._file = file
        self._is_open = False
        self._prefix: object = None
        """What pytest had begun a line with before the progress was shown."""

    def say(self, text: str) -> None:
        """Tell something in a line of its own: it may be what a host has printed."""
        text = numbers.printable(text)
        if self._terminal is None:
            self._file.write(text)
            return
        with self._terminal() as reporter:
            self._clear(reporter)
            reporter.ensure_newline()
            reporter.write_line(text)

    def show(self, progress: RunProgress) -> None:
        """Show how far a run has come, in the place of what was shown before."""
        if self._terminal is None:
            self._file.show(progress)
            return
        with self._terminal() as reporter:
            if not reporter.isatty:
                self._file.show(progress)
                return
            if not self._is_open:
                self._prefix = reporter.currentfspath
                reporter.ensure_newline()
            self._is_open = True
            line = progress_line(progress)[: reporter._tw.fullwidth - 1]  # noqa: SLF001 - no other way
            reporter.write(f"\r{line}\033[K", flush=True)

    def clear(self) -> None:
        """Take the line of progress away, where one stands."""
        if self._is_open and self._terminal is not None:
            with self._terminal() as reporter:
                self._clear(reporter)
                # The name of the file, or of the test, stands above: it need not be told again.
                reporter.currentfspath = self._prefix

    def _clear(self, reporter: Any) -> None:
        if self._is_open:
            reporter.write(_CLEARED, flush=True)
            # The writer counts columns from the last line end on; it cannot know of this.
            reporter._tw._current_line = ""  # noqa: SLF001 - no other way
            self._is_open = False
