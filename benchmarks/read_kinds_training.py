"""A training whose every second is known, and how trainers print of it, for ``read_kinds.py``."""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICES: Final = 8
BATCH: Final = 256
LENGTH: Final = 512
RECORDS: Final = 150
SLOW_STEPS: Final = 10
START: Final = datetime(2026, 3, 14, 15, 9, 26, 535897)  # noqa: DTZ001 - logs tell no zone
EPOCH: Final = 1_773_500_966.535897


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a trainer can print of a step, with the steps since its last record."""

    n: int
    """From 1 on."""
    count: int
    """How many steps the record is of."""
    last: float
    """The seconds of the last of them alone."""
    total: float
    """The seconds of all of them."""
    elapsed: float
    recent: float
    """The seconds of each of the last 20, in the mean."""
    rank: int

    def __getattr__(self, name: str) -> object:
        """Compute what is printed of it by more than one trainer, in their units."""
        if name.startswith("__"):
            raise AttributeError(name)
        mean, so_far = self.total / self.count, self.elapsed / self.n
        now = START + timedelta(seconds=self.elapsed)
        rate, some_tokens = BATCH / mean, 1_500_000 + self.n * 7919 % 90_000
        values: dict[str, object] = {
            "z": self.n - 1,  # counted from 0
            "micros": 4 * self.n,
            "percent": self.n / 15,
            "batch": BATCH,
            "samples": BATCH * self.n,
            "all_tokens": BATCH * LENGTH * self.n,
            # when it ended
            "now": now,
            "comma": f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}",
            "epoch": EPOCH + self.elapsed,
            "epoch_ms": 1000 * (EPOCH + self.elapsed),
            "bar": f"{int(self.elapsed) // 60:02d}:{int(self.elapsed) % 60:02d}",
            # seconds of a step: of all since the last record, and since the start
            "mean": mean,
            "so_far": so_far,
            "mean_ms": 1000 * mean,
            "last_ms": 1000 * self.last,
            "so_far_ms": 1000 * so_far,
            "elapsed_ms": 1000 * self.elapsed,
            "micro_ms": 250 * self.last,
            # speeds: of the run, of each device, and without the wait for data
            "steps": 1 / mean,
            "rate": rate,
            "rate_each": rate / DEVICES,
            "rate_so_far": BATCH / so_far,
            "last_rate": BATCH / self.last,
            "quick": rate * 1.2,
            "quick_each": rate * 1.2 / DEVICES,
            "tokens": rate * LENGTH,
            "tokens_each": rate * LENGTH / DEVICES,
            "tokens_so_far": BATCH * LENGTH / so_far,
            # of samples of any length
            "some_tokens": some_tokens,
            "some_speed": some_tokens / mean / DEVICES,
            "loss": 2 + 6 * math.exp(-self.n / 60) + 0.01 * (self.n % 7),
        }
        return values[name]


@dataclass(frozen=True, kw_only=True)
class Log:
    """How a trainer prints."""

    kind: str
    line: str
    """Of a step that it prints; what stands in braces is of ``Step``."""
    head: str = ""
    foot: str = ""
    variant: str = ""
    every: int = 1
    first: int = 0
    """The first step that is printed, if it is not as many as lie between two records."""
    also: tuple[int, ...] = ()
    """Steps that are printed besides."""
    ranks: int = 1
    seconds: float = 0.5
    advice: str = ""
    """What has to be said, if it cannot be read."""
    end: str = "\n"

    def steps(self) -> Iterator[Step]:
        """Train, and yield the steps that are printed."""
        choose = random.Random(self.kind)  # noqa: S311 - uneven, and always the same
        first = self.first or self.every
        elapsed = total = 0.0
        recent: deque[float] = deque(maxlen=20)
        count = 0
        for n in range(1, first + self.every * RECORDS + 1):
            slow = 3 if n <= SLOW_STEPS else 1
            took = self.seconds * choose.uniform(0.97, 1.03) * slow
            recent.append(took)
            elapsed, total, count = elapsed + took, total + took, count + 1
            if (n >= first and (n - first) % self.every == 0) or n in self.also:
                yield from (
                    Step(
                        n=n,
                        count=count,
                        last=took,
                        total=total,
                        elapsed=elapsed,
                        recent=fmean(recent),
                        rank=rank,
                    )
                    for rank in range(self.ranks)
                )
                total, count = 0.0, 0

    def text(self) -> str:
        """Print the log."""
        lines = (self.line.format(s=step) + self.end for step in self.steps())
        return "".join((self.head, *lines, self.foot))
