"""What the time on a step's record is: a duration, a speed or a moment, and of which steps."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.model.case import Case


class Kind(Enum):
    """What can be done with a printed time."""

    DURATION = "how long a step took"
    RATE = "how much was done per second"
    MOMENT = "when a step had ended"


class Timing(str, Enum):
    """The time on a record; the values name the pattern's groups."""

    SECONDS = "seconds"
    MILLISECONDS = "milliseconds"
    SECONDS_PER_STEP = "seconds_per_step"
    SAMPLES_PER_SECOND = "samples_per_second"
    TOKENS_PER_SECOND = "tokens_per_second"
    STEPS_PER_SECOND = "steps_per_second"
    TIMESTAMP = "timestamp"
    """A date and a time, a time alone, or seconds since whenever."""
    EPOCH_MILLISECONDS = "epoch_milliseconds"
    """Milliseconds since 1970."""
    ELAPSED_SECONDS = "elapsed_seconds"
    """Since the run began, also as ``1:02:03``."""
    ELAPSED_MILLISECONDS = "elapsed_milliseconds"
    ARRIVAL = "arrival"
    """No group: the time at which the supervisor had the record."""

    @property
    def kind(self) -> Kind:
        """What can be done with it."""
        return _KINDS[self]


_KINDS: Final[Mapping[Timing, Kind]] = {
    Timing.SECONDS: Kind.DURATION,
    Timing.MILLISECONDS: Kind.DURATION,
    Timing.SECONDS_PER_STEP: Kind.DURATION,
    Timing.SAMPLES_PER_SECOND: Kind.RATE,
    Timing.TOKENS_PER_SECOND: Kind.RATE,
    Timing.STEPS_PER_SECOND: Kind.RATE,
    Timing.TIMESTAMP: Kind.MOMENT,
    Timing.EPOCH_MILLISECONDS: Kind.MOMENT,
    Timing.ELAPSED_SECONDS: Kind.MOMENT,
    Timing.ELAPSED_MILLISECONDS: Kind.MOMENT,
    Timing.ARRIVAL: Kind.MOMENT,
}
TIMING_GROUPS: Final = tuple(timing.value for timing in Timing if timing is not Timing.ARRIVAL)


class Covers(str, Enum):
    """The steps that a printed duration or speed is of."""

    LAST_STEP = "last_step"
    """The step that it is printed with, whatever came between two records."""
    SINCE_LAST = "since_last"
    """The mean of the steps since the record before."""
    SINCE_START = "since_start"
    """The mean of all steps so far; two of them are differenced."""


class RateScope(str, Enum):
    """What a printed speed covers."""

    GLOBAL = "global"
    NODE = "node"
    RANK = "rank"
    """The replica that the rank is of; all its ranks print the same."""
    DEVICE = "device"
    """A device's share of its replica."""


def parts_of(scope: RateScope, case: Case) -> int:
    """Say how many speeds of a scope make up that of all devices."""
    # The ranks of one replica share its samples.
    return {
        RateScope.GLOBAL: 1,
        RateScope.NODE: min(case.topology.nodes, case.replicas),
        RateScope.RANK: case.replicas,
        RateScope.DEVICE: case.topology.world_size,
    }[scope]
