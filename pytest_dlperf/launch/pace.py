"""How far a run has come and how fast it goes, by when its steps are seen: for the reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from pytest_dlperf.logs.throughput import LogReading


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come."""

    step: int
    """The step that the slowest rank has shown, as far as the log tells ranks apart."""
    steps: int
    """How many it has to show. An estimate for ``published``, which counts lines."""
    throughput: float | None
    """Samples per second over all devices since the warm-up, by when steps were seen here."""
    left_s: float | None
    """Seconds until the last step that counts, going by those seen so far."""


@final
class Pace:
    """How fast steps come in, by when they are seen: for the reader, never a measurement."""

    __slots__ = ("_batch", "_last", "_mark", "_warm")

    def __init__(self, batch: int) -> None:
        """Take ``batch`` samples for a step."""
        self._batch = batch
        self._mark: tuple[int, float] | None = None
        self._last = (0, 0.0)
        self._warm = False

    def note(self, reading: LogReading, now: float) -> None:
        """Look how far the slowest rank has come."""
        step = reading.slowest_step
        if step <= self._last[0]:
            return
        self._last = step, now
        warm = step >= max(reading.warmup_steps, 1)
        if self._mark is None or (warm and not self._warm):
            self._mark = self._last
        self._warm = self._warm or warm

    @property
    def throughput(self) -> float | None:
        """Samples per second since the warm-up."""
        duration = self.seconds(1)
        return self._batch / duration if self._warm and duration else None

    def seconds(self, steps: int) -> float | None:
        """How long so many steps take; during the warm-up, by the steps of the warm-up."""
        if self._mark is None:
            return None
        (first, begin), (last, end) = self._mark, self._last
        return steps * (end - begin) / (last - first) if last > first else None
