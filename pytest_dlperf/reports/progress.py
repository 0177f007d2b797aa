"""How far a run has come: one line of it, rewritten on a terminal and written down beside xdist."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.reports import numbers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_dlperf.measure.by_launching import RunProgress

FILE: Final = "progress.txt"
FILE_INTERVAL_S: Final = 10.0
"""How often a run that goes on is written down."""


def progress_line(progress: RunProgress) -> str:
    """One run: case, which of its repeats, how many steps, how fast, how long to go."""
    now = progress.progress
    at_most = "at most " if progress.may_be_fewer else ""
    arm = f" of {progress.arm}" if progress.arm else ""
    parts = [
        f"{progress.case.id}  run {progress.run} of {at_most}{progress.runs}{arm}",
        f"step {now.step} of {now.steps}",
    ]
    if now.throughput is not None:
        parts.append(f"{numbers.throughput(now.throughput)} {progress.unit}")
    if now.left_s is not None and now.step < now.steps:
        parts.append(f"{_duration(now.left_s)} left")
    return ", ".join(parts)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@final
class ProgressFile:
    """``progress.txt`` in a run directory: what each worker is doing, for ``tail -f``."""

    __slots__ = ("_clock", "_done", "_last", "_path", "_who")

    def __init__(
        self, folder: Path, who: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Write as ``who``; the file is made with the first line."""
        self._path = folder / FILE
        self._who = who
        self._clock = clock
        self._last: tuple[tuple[str, int, str | None], float] | None = None
        self._done: tuple[str, int, str | None] | None = None

    def show(self, progress: RunProgress) -> None:
        """Write a run down: when it begins, every few seconds, and when it has its steps."""
        run = (progress.case.id, progress.run, progress.arm)
        now = self._clock()
        is_done = progress.progress.step >= progress.progress.steps
        due = self._last is None or self._last[0] != run or now - self._last[1] >= FILE_INTERVAL_S
        if run != self._done and (due or is_done):
            self._last = run, now
            self._done = run if is_done else None
            self.write(progress_line(progress))

    def write(self, text: str) -> None:
        """Write one line, with the time and the writer's name."""
        stamp = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"{stamp} {self._who} {text}\n")
        except OSError:
            return  # it is for the reader; the run's own record does not depend on it
