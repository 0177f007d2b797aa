"""Metrics: what is measured of a run, in which unit, and which direction is better."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace


class Better(StrEnum):
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
        """Whether a number is worse than another."""
        return self.sign * (value - other) < 0


class Source(StrEnum):
    """Where the numbers of a metric come from."""

    STEPS = "steps"
    """The records of steps: their work and the time that passed for it."""
    LOG = "log"
    """Records of their own in the log, found by a declared expression."""
    LAUNCH = "launch"
    """The clock of a launched run; logs that exist already do not have it."""
    RATIO = "ratio"
    """Two measurements: how many times that of the reference topology it is."""


class Statistic(StrEnum):
    """What reduces all samples of a run to one number: those of all steps, ranks and nodes."""

    MEDIAN = "median"
    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    LAST = "last"
    P95 = "p95"
    P99 = "p99"


_Bound = Annotated[float, Meta(ge=-1e300, le=1e300)]


class Sanity(Struct, frozen=True, kw_only=True):
    """What a run's samples have to fulfil, whatever was accepted; else the run is invalid."""

    finite: bool = True
    """No number is NaN or infinite."""
    falls: bool = False
    """The window's second half is lower than its first, by more than the scatter."""
    below: _Bound | None = None
    """Each number of the window lies below, in the unit."""
    above: _Bound | None = None
    """Each number of the window lies above, in the unit."""


class Metric(Struct, frozen=True, kw_only=True):
    """A number of each run that can be judged."""

    name: str
    unit: str
    """What its numbers count, such as ``images/s``; ``x`` for a ratio."""
    better: Better | None
    """``None`` for a metric without a baseline: it is recorded, or ``sanity`` alone judges it."""
    source: Source
    statistic: Statistic | None = None
    """What reduces all samples of a run to one number; ``None`` where the metric says so itself."""
    tolerance_percent: float | None = None
    """``None`` where the system's tolerance holds."""
    tolerance_at_least: float | None = None
    """A loss of so much passes, however many percent it is; in the unit."""
    sanity: Sanity | None = None
    ratio_of: str | None = None
    """The metric whose ratio over the reference topology this one is."""
    is_judged: bool = True
    """Whether a test judges it; else it is recorded and shown."""
    named_by: tuple[str, ...] = ()
    """Of a family and its members, what names these: ``size``, ``percentile``."""
    family: str | None = None
    """The family that it is a member of: one of the metrics that an entry names by what is read."""

    @property
    def is_family(self) -> bool:
        """Whether it stands for its members, which have the numbers."""
        return bool(self.named_by) and self.family is None

    @property
    def member_name(self) -> str:
        """The name of a member within its family."""
        return self.name.partition(MEMBER)[2]

    def member(self, name: str) -> Metric:
        """Return the member of this family with a name, such as ``1048576``."""
        return replace(self, name=f"{self.name}{MEMBER}{name}", family=self.name)


MEMBER: Final = "/"
"""Stands between the name of a family and that of a member: ``busbw/1048576``."""

SHARED: Final = ("acceptance", "machine")
"""What a file of baselines says once for all metrics of a case that do not say it themselves. None
of them can have such a name."""

THROUGHPUT: Final = "throughput"
SPEEDUP: Final = "speedup"


def throughput(unit: str) -> Metric:
    """Work per second over all devices; its ``unit`` is such as ``images/s``."""
    return Metric(name=THROUGHPUT, unit=unit, better=Better.HIGHER, source=Source.STEPS)


SPEEDUP_METRIC: Final = Metric(
    name=SPEEDUP, unit="x", better=Better.HIGHER, source=Source.RATIO, ratio_of=THROUGHPUT
)
"""How many times the throughput of the reference topology is reached."""
