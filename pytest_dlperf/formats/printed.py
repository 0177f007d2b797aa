"""Read a number, a time, a speed or a moment as people print it, and say what is wrong where."""

from __future__ import annotations

import math
import re
from typing import Final

from pytest_dlperf.model.work import Timing

_CLOCK: Final = re.compile(
    rb"(?:(?P<days>[0-9]{1,4}) days?, )?(?:(?P<hours>[0-9]{1,4}):)?"
    rb"(?P<minutes>[0-9]{1,2}):(?P<seconds>[0-9]{2}(?:\.[0-9]{0,9})?)"
)
_DECIMAL: Final = re.compile(rb"(?P<whole>[0-9]{1,15})(?:\.(?P<part>[0-9]{0,30}))?")
_MIN_EPOCH: Final = 10**11
_MAX_EPOCH: Final = 10**14
_THOUSANDS: Final = re.compile(rb"[-+]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_PREFIXES: Final = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9}
# No training is so fast or slow; outside, sums and products could leave the range of a float.
_LEAST: Final = 1e-12
_GREATEST: Final = 1e15


class BrokenContractError(Exception):
    """A log from which no throughput may be taken.

    ``offset`` is the byte of the log that the reason is about, ``place`` what to call its line.
    """

    def __init__(self, reason: str, *, offset: int | None = None, place: str = "line") -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset
        self.place = place


def shown(text: bytes) -> str:
    """Quote what a log says in a message, its begin at least."""
    return repr(text[:60].decode(errors="replace"))


def whole_number(text: bytes, *, what: str, offset: int) -> int:
    """Read a step's or an epoch's number."""
    number = int(text) if text.isdigit() and len(text) < 16 else -1  # noqa: PLR2004 - of a step
    if number < 0:
        raise BrokenContractError(f"{what} {shown(text)} is not a whole number", offset=offset)
    return number


def amount(text: bytes, *, what: str, offset: int) -> float:
    """Read a time or a speed as people print it: ``7,282``, ``122.0K``, ``01:02``."""
    try:
        value, prefix = printed_number(_in_seconds(text))
    except ValueError:
        value, prefix = math.nan, ""
    if not _LEAST < value < _GREATEST:
        raise BrokenContractError(
            f"{what} is {shown(text)}; needed is a finite number above zero", offset=offset
        )
    return value * _PREFIXES[prefix]


def printed_number(text: bytes) -> tuple[float, str]:
    """Read a number as people print it: ``7,282``, and ``122.0K`` with its prefix.

    Raises:
        ValueError: It is none.
    """
    prefix = text[-1:].decode(errors="replace")
    if prefix in _PREFIXES and text[:-1].strip():
        return float(_without_commas(text[:-1].rstrip())), prefix
    return float(_without_commas(text)), ""


def _without_commas(text: bytes) -> bytes:
    return text.replace(b",", b"") if b"," in text and _THOUSANDS.fullmatch(text) else text


def _in_seconds(text: bytes) -> bytes:
    """Write ``1:02:03.5`` as a plain number, of as many decimals."""
    clock = _CLOCK.fullmatch(text) if b":" in text else None
    if clock is None:
        return text
    hours = int(clock["days"] or 0) * 24 + int(clock["hours"] or 0)
    seconds, point, part = clock["seconds"].partition(b".")
    return b"%d" % ((hours * 60 + int(clock["minutes"])) * 60 + int(seconds)) + point + part


def stamp_of(timing: Timing, text: bytes, offset: int) -> bytes:
    """Write a printed moment as a stamp: a number that is neither date nor time of day, as seconds.

    As many decimals are kept as were printed.
    """
    if timing in (Timing.TIMESTAMP, Timing.ARRIVAL):
        return text
    plain = _without_commas(_in_seconds(text))
    number = _DECIMAL.fullmatch(plain)
    if number is None:
        raise BrokenContractError(f"{shown(text)} is not a number of {timing.value}", offset=offset)
    whole, part = number["whole"], number["part"] or b""
    if timing is Timing.EPOCH_MILLISECONDS and not _MIN_EPOCH < int(whole) < _MAX_EPOCH:
        raise BrokenContractError(
            f"{text.decode()!r} is not a time of these years in milliseconds since 1970; seconds "
            "are of the group timestamp",
            offset=offset,
        )
    if timing is Timing.ELAPSED_SECONDS:
        return plain
    whole = whole.rjust(4, b"0")
    return whole[:-3] + b"." + whole[-3:] + part
