"""What the time on a step's record is: a duration, a speed or a moment, and of which steps."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Final

from pytest_dlperf.logs.contract import BrokenContractError, positive

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


_CLOCK: Final = re.compile(
    rb"(?:(?P<days>[0-9]{1,4}) days?, )?(?:(?P<hours>[0-9]{1,4}):)?"
    rb"(?P<minutes>[0-9]{1,2}):(?P<seconds>[0-9]{2}(?:\.[0-9]{0,9})?)"
)
_DECIMAL: Final = re.compile(rb"(?P<whole>[0-9]{1,15})(?:\.(?P<part>[0-9]{0,30}))?")
_PLAIN_STAMPS: Final = (Timing.TIMESTAMP, Timing.ARRIVAL)
_LEAST_EPOCH: Final = 10**11
_GREATEST_EPOCH: Final = 10**14
THOUSANDS: Final = re.compile(rb"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_PREFIXED: Final = re.compile(rb"([0-9][0-9.,]*) ?([kKMG])")
_PREFIXES: Final = {b"k": 1e3, b"K": 1e3, b"M": 1e6, b"G": 1e9}


def amount(text: bytes, *, what: str, offset: int) -> float:
    """Read a time or a speed as people print it: ``7,282``, ``122.0K``, ``01:02``."""
    factor = 1.0
    if prefixed := _PREFIXED.fullmatch(text):
        text, factor = prefixed[1], _PREFIXES[prefixed[2]]
    return factor * positive(_in_seconds(text), what=what, offset=offset)


def _in_seconds(text: bytes) -> bytes:
    """Write ``1:02:03.5`` and ``7,282`` as plain numbers, of as many decimals."""
    if clock := _CLOCK.fullmatch(text):
        hours = int(clock["days"] or 0) * 24 + int(clock["hours"] or 0)
        seconds, point, part = clock["seconds"].partition(b".")
        return b"%d" % ((hours * 60 + int(clock["minutes"])) * 60 + int(seconds)) + point + part
    if b"," in text and THOUSANDS.fullmatch(text):
        return text.replace(b",", b"")
    return text


def stamp_of(timing: Timing, text: bytes, offset: int) -> bytes:
    """Write a printed moment as a stamp: what is no date or time of day, as seconds.

    As many decimals are kept as were printed.
    """
    if timing in _PLAIN_STAMPS:
        return text
    plain = _in_seconds(text)
    number = _DECIMAL.fullmatch(plain)
    if number is None:
        shown = text[:60].decode(errors="replace")
        raise BrokenContractError(f"{shown!r} is no number of {timing.value}", offset=offset)
    whole, part = number["whole"], number["part"] or b""
    if timing is Timing.EPOCH_MILLISECONDS and not _LEAST_EPOCH < int(whole) < _GREATEST_EPOCH:
        raise BrokenContractError(
            f"{text.decode()!r} is no time of these years in milliseconds since 1970; seconds are "
            "of the group timestamp",
            offset=offset,
        )
    if timing is Timing.ELAPSED_SECONDS:
        return plain
    whole = whole.rjust(4, b"0")
    return whole[:-3] + b"." + whole[-3:] + part


def step_seconds(timing: Timing, text: bytes, offset: int) -> float:
    """Read the duration of a step, in seconds."""
    seconds = amount(text, what="the step's time", offset=offset)
    return seconds / 1000 if timing is Timing.MILLISECONDS else seconds


def samples_per_second(
    timing: Timing, scope: RateScope, text: bytes, offset: int, case: Case
) -> float:
    """Read a speed, in samples per second over all devices."""
    rate = amount(text, what="the printed speed", offset=offset)
    if timing is Timing.STEPS_PER_SECOND:
        return rate * case.global_batch
    if timing is Timing.TOKENS_PER_SECOND:
        if case.sequence_length is None:
            raise BrokenContractError(
                f"the log prints tokens per second, and the case {case.id} has no sequence_length",
                offset=offset,
            )
        rate /= case.sequence_length
    return rate * parts_of(scope, case)


def parts_of(scope: RateScope, case: Case) -> int:
    """Say how many speeds of a scope make up that of all devices."""
    # The ranks of one replica share its samples.
    return {
        RateScope.GLOBAL: 1,
        RateScope.NODE: min(case.topology.nodes, case.replicas),
        RateScope.RANK: case.replicas,
        RateScope.DEVICE: case.topology.world_size,
    }[scope]
