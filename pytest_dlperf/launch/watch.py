"""Watches the logs of a run while it lives: how far it is, and when to stop waiting."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pytest_dlperf.launch.record import FirstStep, Stop, Stopped
from pytest_dlperf.logs.reading import LogReading, LogState
from pytest_dlperf.logs.run import RunLogs, RunNumbers
from pytest_dlperf.model.measurement import Run, RunStatus
from pytest_dlperf.model.metric import THROUGHPUT
from pytest_dlperf.model.numbers import named

BYTES_PER_LOOK: Final = 8 * 1024 * 1024
"""Bytes of the log that counts that one look reads at most; the other logs share as many."""
INTERVAL_S: Final = 1.0
"""Between two looks at the disks, and two reports of progress."""
NUMBER_GRACE_S: Final = 15.0
"""A metric that is printed once may come so long after the last step that counts."""
MIN_FREE_BYTES: Final = 1024 * 1024
"""With less than this a disk counts as full."""
_RANKS_SHOWN: Final = 32


def free_bytes(folder: Path) -> int:
    """Return the bytes that users other than root can still write below a folder."""
    found = os.statvfs(folder)
    # Some network file systems do not know their size.
    return found.f_bavail * found.f_frsize if found.f_blocks else sys.maxsize


def full_disk(folder: Path) -> str | None:
    """Say if the disk of a run's logs is full; ``None`` if not, or if unknown."""
    try:
        free = free_bytes(folder)
    except OSError:
        return None
    if free >= MIN_FREE_BYTES:
        return None
    return (
        f"the disk is full: {free} bytes are free in {folder}, where the logs of the run lie; "
        f"needed are {MIN_FREE_BYTES} at least"
    )


class Progress(Struct, frozen=True, kw_only=True):
    """The progress of a run."""

    step: int
    """The step that the slowest rank has shown, as far as the log names ranks."""
    steps: int
    """The number that it has to show. An estimate for ``published``, which counts lines."""
    throughput: float | None
    """Samples per second over all devices since the warm-up, by when steps were seen here."""
    left_s: float | None
    """Seconds until the last step that counts, going by those seen so far."""


class RunWatch:
    """One run's logs, followed while they grow, and measured at the end.

    One thread calls ``look`` again and again while the run lives, then ``finish`` or ``close``.
    """

    def __init__(  # noqa: PLR0913 - all that ends a run, by name
        self,
        logs: RunLogs | RunNumbers,
        *,
        folders: Iterable[Path],
        work_of_step: int,
        first_step_limit_s: float,
        step_limit_s: float,
        end_early: bool,
        on_progress: Callable[[Progress], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin before the run does.

        ``logs`` lie in ``folders``, whose disks must not fill up. The run hangs if a rank has no
        first step after ``first_step_limit_s`` seconds, or no new one for ``step_limit_s``. With
        ``end_early`` it ends as soon as it has shown what is needed; else it is only watched until
        then. ``on_progress`` is called once a second at most.
        """
        self._logs = logs
        self._folders = frozenset(folders)
        self._work_of_step = work_of_step
        self._first_step_limit_s = first_step_limit_s
        self._step_limit_s = step_limit_s
        self._end_early = end_early
        self._on_progress = on_progress
        self._clock = clock
        self._next_disk_check = self._next_report = 0.0
        self._pace: tuple[int, float] | None = None
        """The step and the time that the pace of steps is counted from."""
        self._newest = (0, 0.0)
        self._is_warm = False
        self._last_seen: dict[tuple[int, str], tuple[int, float]] = {}
        """The last step of each rank from which more is needed, and when it was seen first."""
        self._progress: Progress | None = None
        self._started: float | None = None
        self._completed: float | None = None
        self._stopped: Stopped | None = None
        self._first_step_s: float | None = None

    @property
    def first_step(self) -> FirstStep:
        """When the first step of all ranks was seen."""
        first = self._logs.first_step
        problem = "the run had ended before its first step was seen"
        if first not in (None, 1):
            problem = f"the first step that the log shows is step {first}"
        return FirstStep(seconds=self._first_step_s, problem=problem)

    def look(self) -> Stopped | None:
        """Read what the logs show by now, and say why the run has to end, or ``None``."""
        if self._stopped is None:
            now = self._clock()
            if self._started is None:
                self._started = now
            logs = self._logs
            caught_up = logs.advance(BYTES_PER_LOOK)
            if self._completed is None and logs.state is LogState.COMPLETE:
                self._completed = now
            if self._first_step_s is None and logs.first_step == 1 and logs.steps.slowest:
                self._first_step_s = now - self._started
            self._report(now)
            self._stopped = self._judge(now, self._started, caught_up=caught_up)
        return self._stopped

    def finish(self, limits: Sequence[int | None] = ()) -> Run:
        """Measure the run by its logs, of which so many bytes count."""
        run = self._logs.finish(limits)
        if run.status is RunStatus.OK:
            # The last steps may have come between two looks.
            steps, rate = self._logs.steps.window, run.metrics.get(THROUGHPUT)
            self._on_progress(Progress(step=steps, steps=steps, throughput=rate, left_s=0.0))
        return run

    def _judge(self, now: float, started: float, *, caught_up: bool) -> Stopped | None:
        logs, completed = self._logs, self._completed
        if (broken := logs.reason) is not None:
            return Stopped(Stop.BROKEN, broken)
        if completed is not None and self._end_early:
            waited_s = now - completed
            # Other nodes' logs are not measured: one that shows no step, or is broken, is not
            # waited for, and one that lags behind only as long as any step is.
            is_whole = waited_s >= self._step_limit_s or not logs.any_lags
            if is_whole and (waited_s >= NUMBER_GRACE_S or not logs.lacks_numbers):
                return Stopped(Stop.COMPLETE, "every rank has shown the steps that count")
        if now >= self._next_disk_check:
            self._next_disk_check = now + INTERVAL_S
            for full in filter(None, map(full_disk, self._folders)):
                return Stopped(Stop.DISK_FULL, full)
        # What has not been read yet may be a step of the rank that seems to hang.
        if caught_up and completed is None and (hung := self._hung(now, started)) is not None:
            return Stopped(Stop.HUNG, hung)
        return None

    def _hung(self, now: float, started: float) -> str | None:
        """Say what hangs; ``None`` where nothing does."""
        seen = {}
        for rank, step in self._logs.awaited.items():
            known = self._last_seen.get(rank)
            since = known[1] if known and known[0] == step else now if step else started
            seen[rank] = step, since
        self._last_seen = seen
        limit_s = self._first_step_limit_s
        if now - started >= limit_s and not all(step for step, _ in seen.values()):
            shown = _shown_steps(self._logs.readings)
            missing = "not every rank has shown a first step" if shown else "no first step"
            return f"{missing} within {limit_s:g} s{shown}"
        limit_s = self._step_limit_s
        stuck = [rank for rank, (step, since) in seen.items() if step and now - since >= limit_s]
        if not stuck:
            return None
        alone = len(stuck) < len(seen)
        of = f" of {named([_name(*rank) for rank in stuck], _RANKS_SHOWN)}" if alone else ""
        return f"no new step{of} for {limit_s:g} s{_shown_steps(self._logs.readings)}"

    def _report(self, now: float) -> None:
        """Report the progress, unless it was reported a moment ago or is no news."""
        seen = self._logs.steps
        if seen.slowest > self._newest[0]:
            self._newest = seen.slowest, now
            is_warm = seen.slowest >= max(seen.warmup, 1)
            if self._pace is None or (is_warm and not self._is_warm):
                self._pace = self._newest
            self._is_warm = self._is_warm or is_warm
        if now < self._next_report:
            return
        complete = self._completed is not None
        step = seen.window if complete else min(seen.slowest, seen.window)
        # For the reader, never a measurement; during the warm-up, by the steps of the warm-up.
        first, begin = self._pace or (0, 0.0)
        last, end = self._newest
        step_s = (end - begin) / (last - first) if last > first and self._pace else None
        progress = Progress(
            step=step,
            steps=seen.window,
            throughput=self._work_of_step / step_s if step_s and self._is_warm else None,
            left_s=0.0 if complete else step_s and step_s * (seen.window - step),
        )
        if progress != self._progress:
            self._progress, self._next_report = progress, now + INTERVAL_S
            self._on_progress(progress)


def _shown_steps(readings: Sequence[LogReading]) -> str:
    """Write the last step of each rank as the end of a message; nothing without a step."""
    steps = []
    for node, reading in enumerate(readings):
        seen = reading.steps
        for label, step in seen.last.items():
            reached = seen.awaited.get(label, step)
            behind = f" (all of its ranks: {reached})" if reached < step else ""
            steps.append((reached, node, len(label), label, f"{step}{behind}"))
    if not steps:
        return ""
    if len(readings) == 1 and not steps[0][3]:
        return f"; last step: {steps[0][4]}"
    # Those that are behind tell most.
    shown = [f"{_name(node, label)}: {text}" for _, node, _, label, text in sorted(steps)]
    return f"; last steps: {named(shown, _RANKS_SHOWN)}"


def _name(node: int, label: str) -> str:
    """Name a rank, or all ranks of a node where they do not name themselves."""
    if not label:
        return f"node {node}"
    return f"node {node} {label}" if node else label
