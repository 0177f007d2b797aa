"""Read time stamps as logs print them, and measure the time between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date
from enum import Enum
from typing import Final

from msgspec import Struct

from pytest_dlperf.formats.printed import BrokenContractError, shown

NANOSECONDS: Final = 10**9
_DIGITS: Final = 9
_SECONDS_DIGITS: Final = 11
"""Seconds since 1970 have ten until the year 2286, milliseconds thirteen."""
_DAY: Final = 24 * 3600 * NANOSECONDS
_NOON: Final = 12

# Beyond this part of the measured time, the stamps' coarseness makes the number worthless; beyond
# the other, it is worth a note.
WORTHLESS_ERROR: Final = 0.05
NOTEWORTHY_ERROR: Final = 0.005

_STAMP: Final = re.compile(
    rb"\s*(?:"
    rb"(?:(?P<year>[0-9]{4})[-/.](?P<month>[0-9]{1,2})[-/.](?P<day>[0-9]{1,2})[ T]+"
    rb"|[0-9]{4} +"  # glog's month and day
    rb"|[0-9]{1,2}(?:[-/.][0-9]{1,2}[-/.](?:[0-9]{4}|[0-9]{2})|/[0-9]{1,2}),?[ T]+)?"
    rb"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
    rb"(?:[.,](?P<part>[0-9]*))?(?: ?(?P<half>[AaPp])\.?[Mm]\.?)?"
    rb" ?(?:Z|(?P<zone>[-+][0-9]{2}):?(?P<zone_minutes>[0-9]{2}))?"
    rb"|(?P<number>[0-9]{1,15})(?:\.(?P<number_part>[0-9]*))?"
    rb")\s*"
)


class StampKind(Enum):
    """What a stamp is made of."""

    DATED = "date and time"
    TIME_OF_DAY = "time without date"
    """Or with one that does not begin with the year: only the time counts."""
    NUMBER = "seconds as a number"


class Stamp(Struct, frozen=True):
    """A point in time: ``nanoseconds`` since an origin that all stamps of a kind share."""

    nanoseconds: int
    kind: StampKind
    decimals: int
    """How many digits of a second were printed."""


def parse(text: bytes, offset: int | None = None) -> Stamp:
    """Read a stamp, in whole numbers: a date's seconds as a float would lose the microseconds.

    ``offset`` is its place in the log, for what is said of one that is none.
    """
    match = _STAMP.fullmatch(text)
    if match is None:
        raise BrokenContractError(f"{shown(text)} is not a time stamp", offset=offset)
    year, number = match.group("year", "number")
    if number is not None:
        if len(number) > _SECONDS_DIGITS:
            raise BrokenContractError(
                f"{shown(text)} is not a number of seconds of these years; milliseconds since 1970 "
                "are of the group epoch_milliseconds",
                offset=offset,
            )
        part = match["number_part"] or b""
        return Stamp(_nanoseconds(int(number), part), StampKind.NUMBER, len(part))
    part = match["part"] or b""
    seconds = _time_of_day(match, text, offset)
    if year is not None:
        kind = StampKind.DATED
        days = _days(text, offset, year, match["month"], match["day"])
    else:
        kind, days = StampKind.TIME_OF_DAY, 0
    return Stamp(_nanoseconds(days * 86400 + seconds, part), kind, len(part))


def _time_of_day(match: re.Match[bytes], text: bytes, offset: int | None) -> int:
    """Read a time of day in seconds, in UTC where it has a zone."""
    half, zone = match.group("half", "zone")
    hour, minute, second = map(int, match.group("hour", "minute", "second"))
    is_hour = hour <= 23 if half is None else 1 <= hour <= _NOON  # noqa: PLR2004 - a clock
    if not is_hour or minute > 59 or second > 60:  # noqa: PLR2004
        raise BrokenContractError(f"{shown(text)} is not a time of day", offset=offset)
    if half is not None:
        hour = hour % _NOON + (_NOON if half in b"Pp" else 0)
    seconds = (hour * 60 + minute) * 60 + second
    if zone is None:
        return seconds
    ahead = int(zone) * 60
    ahead += int(match["zone_minutes"]) * (-1 if zone.startswith(b"-") else 1)
    return seconds - ahead * 60


def _days(text: bytes, offset: int | None, year: bytes, month: bytes, day: bytes) -> int:
    try:
        return date(int(year), int(month), int(day)).toordinal()
    except ValueError as error:
        raise BrokenContractError(f"{shown(text)} is not a date: {error}", offset=offset) from None


def _nanoseconds(seconds: int, part: bytes) -> int:
    return seconds * NANOSECONDS + int(part[:_DIGITS].ljust(_DIGITS, b"0"))


class Clock:
    """One process's stamps, given in the order of its steps.

    A time of day that falls by more than half a day has passed midnight. Any other fall is an
    error, since no step ends before the one before it.
    """

    __slots__ = ("_days", "_first", "_last", "_last_text", "_offset", "decimals")

    def __init__(self) -> None:
        self._first: Stamp | None = None
        self._last: Stamp | None = None
        self._last_text = b""
        self._offset: int | None = None
        self._days = 0
        self.decimals = 0
        """Digits of a second that stamps have at most: a whole one may lack its fraction."""

    def read(self, text: bytes, offset: int | None = None) -> None:
        """Take the next stamp, and its place in the log.

        Raises:
            BrokenContractError: It is none, or cannot follow the one before it.
        """
        stamp = parse(text, offset)
        last = self._last
        if last is None:
            self._first = stamp
        elif stamp.kind is not last.kind:
            raise BrokenContractError(
                f"{shown(text)} follows {shown(self._last_text)}: {stamp.kind.value} "
                f"after {last.kind.value}",
                offset=offset,
            )
        elif stamp.nanoseconds < last.nanoseconds:
            fall = last.nanoseconds - stamp.nanoseconds
            if stamp.kind is not StampKind.TIME_OF_DAY or fall <= _DAY // 2:
                raise BrokenContractError(
                    f"time runs backwards: {shown(text)} follows {shown(self._last_text)}",
                    offset=offset,
                )
            self._days += 1
        self._last, self._last_text, self._offset = stamp, text, offset
        self.decimals = max(self.decimals, stamp.decimals)

    @property
    def nanoseconds(self) -> int:
        """From the first stamp to the latest."""
        if self._first is None or self._last is None:
            return 0
        return self._last.nanoseconds - self._first.nanoseconds + self._days * _DAY

    @property
    def seconds(self) -> float:
        """From the first stamp to the latest, correctly rounded."""
        return self.nanoseconds / NANOSECONDS

    def error_note(self, passed: int | None = None) -> str | None:
        """How uncertain the stamps' coarseness makes the time between them, if noteworthy.

        ``passed`` is how much of it counts, in nanoseconds.
        """
        passed = self.nanoseconds if passed is None else passed
        if passed <= 0:
            raise BrokenContractError(
                f"no time passes in the window: both ends are at {shown(self._last_text)}",
                offset=self._offset,
            )
        resolution = 10.0**-self.decimals
        return uncertain("the stamps' resolution", resolution, passed / NANOSECONDS, self._offset)


def uncertain(what: str, error_s: float, seconds: float, offset: int | None) -> str | None:
    """Say how uncertain an error makes a time, if noteworthy.

    Raises:
        BrokenContractError: It makes the time worthless.
    """
    error = error_s / seconds
    if error > WORTHLESS_ERROR:
        raise BrokenContractError(
            f"{what} is too coarse: {error_s:g} s in {seconds:g} s is an error of {error:.1%}, "
            f"allowed are {WORTHLESS_ERROR:.0%}; measure more steps",
            offset=offset,
        )
    if error > NOTEWORTHY_ERROR:
        return f"{what} of {error_s:g} s makes the number uncertain by {error:.1%}"
    return None


def ordered(texts: Sequence[tuple[bytes, int]]) -> Sequence[tuple[bytes, int]]:
    """Order stamps of one moment, each with its place in the log.

    They are close to each other: without date, one that is more than half a day before another is
    of the day after.
    """
    if len(texts) == 1:
        return texts
    stamps = [(parse(*each), each) for each in texts]
    last = max(stamp.nanoseconds for stamp, _ in stamps)

    def ahead(stamp: Stamp) -> int:
        is_after = stamp.kind is StampKind.TIME_OF_DAY and last - stamp.nanoseconds > _DAY // 2
        return stamp.nanoseconds + _DAY * is_after

    return [text for _, text in sorted(stamps, key=lambda each: ahead(each[0]))]
