"""Watches the logs of a run while it lives: how far it is, and when to stop waiting."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from msgspec import Struct

from pytest_dlperf.launch.record import FirstStep, Stop, Stopped
from pytest_dlperf.logs.run_logs import RunLogs
from pytest_dlperf.logs.run_numbers import RunNumbers
from pytest_dlperf.logs.throughput import LogReading, LogState
from pytest_dlperf.logs.tracks import StepProgress
from pytest_dlperf.model.measurement import Run, RunStatus
from pytest_dlperf.model.metric import THROUGHPUT
from pytest_dlperf.model.numbers import named

BYTES_PER_LOOK: Final = 8 * 1024 * 1024
"""Bytes of the log that counts that one look reads at most; the other logs share as many."""

PROGRESS_INTERVAL_S: Final = 1.0
DISK_INTERVAL_S: Final = 1.0
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


def full_disk(folder: Path, *, free_bytes: Callable[[Path], int] = free_bytes) -> str | None:
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


@final
class _Pace:
    """The rate at which steps are seen: for the reader, never a measurement."""

    def __init__(self, work_of_step: int) -> None:
        self._work_of_step = work_of_step
        self._mark: tuple[int, float] | None = None
        self._last = (0, 0.0)
        self._warm = False

    def note(self, seen: StepProgress, now: float) -> None:
        step = seen.slowest
        if step <= self._last[0]:
            return
        self._last = step, now
        warm = step >= max(seen.warmup, 1)
        if self._mark is None or (warm and not self._warm):
            self._mark = self._last
        self._warm = self._warm or warm

    @property
    def throughput(self) -> float | None:
        duration = self.seconds(1)
        return self._work_of_step / duration if self._warm and duration else None

    def seconds(self, steps: int) -> float | None:
        """Estimate the time for so many steps; during the warm-up, by the steps of the warm-up."""
        if self._mark is None:
            return None
        (first, begin), (last, end) = self._mark, self._last
        return steps * (end - begin) / (last - first) if last > first else None


@final
@dataclass(slots=True, kw_only=True)
class HangRule:
    """Allows each rank so many seconds for its first step, and for each further one."""

    first_step_limit_s: float
    step_limit_s: float
    _last_seen: dict[tuple[int, str], tuple[int, float]] = field(default_factory=dict, init=False)

    def check(self, logs: RunLogs | RunNumbers, *, now: float, started: float) -> str | None:
        """Say what hangs; ``None`` where nothing does."""
        readings = logs.readings
        self._last_seen = last_seen = self._last_steps(logs, now, started)
        none_yet = any(not step for step, _ in last_seen.values())
        if none_yet and now - started >= self.first_step_limit_s:
            shown = _shown_steps(readings)
            missing = "not every rank has shown a first step" if shown else "no first step"
            return f"{missing} within {self.first_step_limit_s:g} s{shown}"
        stuck = [
            rank
            for rank, (step, since) in last_seen.items()
            if step and now - since >= self.step_limit_s
        ]
        if stuck:
            alone = len(stuck) < len(last_seen)
            of = f" of {named([_name(*rank) for rank in stuck], _RANKS_SHOWN)}" if alone else ""
            return f"no new step{of} for {self.step_limit_s:g} s{_shown_steps(readings)}"
        return None

    def _last_steps(
        self, logs: RunLogs | RunNumbers, now: float, started: float
    ) -> dict[tuple[int, str], tuple[int, float]]:
        """Find the last step of each rank from which more is needed, and when it was seen first."""
        seen = {}
        for rank, step in logs.awaited.items():
            known = self._last_seen.get(rank)
            if known is not None and known[0] == step:
                seen[rank] = known
            else:
                seen[rank] = step, now if step else started
        return seen


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
        free_bytes: Callable[[Path], int] = free_bytes,
    ) -> None:
        """Begin before the run does.

        ``logs`` lie in ``folders``, whose disks must not fill up. The run hangs if a rank has no
        first step after ``first_step_limit_s`` seconds, or no new one for ``step_limit_s``. With
        ``end_early`` it ends as soon as it has shown what is needed; else it is only watched until
        then. ``on_progress`` is called once a second at most.
        """
        self._logs = logs
        self._hang_rule = HangRule(first_step_limit_s=first_step_limit_s, step_limit_s=step_limit_s)
        self._step_limit_s = step_limit_s
        self._end_early = end_early
        self._clock = clock
        self._free_bytes = free_bytes
        self._folders = frozenset(folders)
        self._next_disk_check: float | None = None
        self._pace = _Pace(work_of_step)
        self._on_progress = on_progress
        self._progress: Progress | None = None
        self._reported_at: float | None = None
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
            seen = logs.steps
            if self._completed is None and logs.state is LogState.COMPLETE:
                self._completed = now
            if self._first_step_s is None and logs.first_step == 1 and seen.slowest:
                self._first_step_s = now - self._started
            self._pace.note(seen, now)
            self._report(now)
            self._stopped = self._judge(now, self._started, caught_up=caught_up)
        return self._stopped

    def finish(self, limits: Sequence[int | None] = ()) -> Run:
        """Measure the run by its logs, of which so many bytes count; they are closed."""
        run = self._logs.finish(limits)
        if run.status is RunStatus.OK:
            # The last steps may have come between two looks.
            steps = self._logs.steps.window
            self._on_progress(
                Progress(
                    step=steps, steps=steps, throughput=run.metrics.get(THROUGHPUT), left_s=0.0
                )
            )
        return run

    def close(self) -> None:
        """Close the logs."""
        self._logs.close()

    def _judge(self, now: float, started: float, *, caught_up: bool) -> Stopped | None:
        if (broken := self._logs.reason) is not None:
            return Stopped(Stop.BROKEN, broken)
        if (
            self._completed is not None
            and self._end_early
            and self._nothing_missing(now)
            and self._has_numbers(now - self._completed)
        ):
            return Stopped(Stop.COMPLETE, "every rank has shown the steps that count")
        full = self._full_disk(now)
        if full is not None:
            return Stopped(Stop.DISK_FULL, full)
        # What has not been read yet may be a step of the rank that seems to hang.
        if caught_up and self._completed is None:
            hung = self._hang_rule.check(self._logs, now=now, started=started)
            if hung is not None:
                return Stopped(Stop.HUNG, hung)
        return None

    def _nothing_missing(self, now: float) -> bool:
        """Say whether the other nodes' ranks have shown their steps too, or will not.

        Their logs are not measured: one that shows no step, or is broken, is not waited for, and
        one that lags behind only as long as any step is.
        """
        if self._completed is not None and now - self._completed >= self._step_limit_s:
            return True
        return not self._logs.any_lags

    def _has_numbers(self, waited_s: float) -> bool:
        """Say whether every declared metric has a number, or has had its chance."""
        if waited_s >= NUMBER_GRACE_S:
            return True
        return not self._logs.lacks_numbers

    def _full_disk(self, now: float) -> str | None:
        if self._next_disk_check is not None and now < self._next_disk_check:
            return None
        self._next_disk_check = now + DISK_INTERVAL_S
        found = (full_disk(folder, free_bytes=self._free_bytes) for folder in self._folders)
        return next(filter(None, found), None)

    def _report(self, now: float) -> None:
        """Report the progress, unless it was reported a moment ago or is no news."""
        last = self._reported_at
        if last is not None and now - last < PROGRESS_INTERVAL_S:
            return
        seen = self._logs.steps
        steps = seen.window
        complete = self._completed is not None
        step = steps if complete else min(seen.slowest, steps)
        progress = Progress(
            step=step,
            steps=steps,
            throughput=self._pace.throughput,
            left_s=0.0 if complete else self._pace.seconds(steps - step),
        )
        if progress != self._progress:
            self._progress, self._reported_at = progress, now
            self._on_progress(progress)
