"""Metrics: what is measured of a run, in which unit, and which direction is better."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Better(str, Enum):
    """The direction in which a metric improves."""

    HIGHER = "higher"
    LOWER = "lower"

    @property
    def sign(self) -> int:
        """1 if a larger number is better, else -1."""
        return 1 if self is Better.HIGHER else -1

    def loss(self, measured: float, reference: float) -> float:
        """Return by how much a number is worse, as a part of the reference; negative: better."""
        return self.sign * (reference - measured) / reference

    def changed(self, value: float, gain: float) -> float:
        """Return a number that is better by this part of it; negative: worse."""
        return value * (1 + self.sign * gain)

    def is_worse(self, value: float, other: float) -> bool:
        """Tell whether a number is worse than another."""
        return self.sign * (value - other) < 0

    def worst(self, values: tuple[float, ...]) -> float:
        """Return the worst of some values."""
        return min(values) if self is Better.HIGHER else max(values)

    def best(self, values: tuple[float, ...]) -> float:
        """Return the best of some values."""
        return max(values) if self is Better.HIGHER else min(values)


class Source(str, Enum):
    """Where the numbers of a metric come from."""

    STEPS = "steps"
    """The records of steps: their work and the time that passed for it."""
    LOG = "log"
    """Records of their own in the log, found by a declared expression."""
    LAUNCH = "launch"
    """The clock of a launched run; logs that exist already do not have it."""
    RATIO = "ratio"
    """Two measurements: how many times that of the reference topology it is."""


class Statistic(str, Enum):
    """What makes one number of a run of all its samples: of all steps, ranks and nodes."""

    MEDIAN = "median"
    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    LAST = "last"
    P95 = "p95"
    P99 = "p99"


class RuleName(str, Enum):
    """The rules that a gate can decide by."""

    TOLERANCE = "tolerance"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sanity:
    """What a run's samples have to fulfil, whatever was accepted; else the run is invalid.

    ``below`` and ``above`` are bounds of every sample in the window, in the metric's unit.
    """

    finite: bool = True
    """No sample is NaN or infinite."""
    falls: bool = False
    """The samples of the window's second half have a lower median than those of its first."""
    below: float | None = None
    above: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number of each run that can be judged.

    ``tolerance_percent`` and ``rule`` are ``None`` where the system's tolerance and the rule that
    the baseline allows hold. ``better`` is ``None`` for one that is not held against a baseline:
    it is recorded, or ``sanity`` alone judges it. ``ratio_of`` names the metric whose ratio over
    the reference topology a derived one is.
    """

    name: str
    unit: str
    better: Better | None
    source: Source
    statistic: Statistic | None = None
    tolerance_percent: float | None = None
    rule: RuleName | None = None
    sanity: Sanity | None = None
    ratio_of: str | None = None
    is_judged: bool = True
    """Whether a test judges it; else it is recorded and shown."""


SHARED: Final = ("acceptance", "machine")
"""What a file of baselines says once for all metrics of a case that do not say it themselves."""
ENTRY_KEYS: Final = (*SHARED, "recorded")
"""What it says beside a case's metrics: none of them can have such a name."""

THROUGHPUT: Final = "throughput"
SPEEDUP: Final = "speedup"


def throughput(unit: str) -> Metric:
    """Work per second over all devices; its ``unit`` is such as ``images/s``."""
    return Metric(name=THROUGHPUT, unit=unit, better=Better.HIGHER, source=Source.STEPS)


SPEEDUP_METRIC: Final = Metric(
    name=SPEEDUP, unit="x", better=Better.HIGHER, source=Source.RATIO, ratio_of=THROUGHPUT
)
"""How many times the throughput of the reference topology is reached."""
