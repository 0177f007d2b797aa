"""Hold a log to its contract: proper numbers, and errors that say what is wrong where."""

from __future__ import annotations

import math
from typing import Final

# No training is so fast or slow; outside, sums and products could leave the range of a float.
_LEAST: Final = 1e-12
_GREATEST: Final = 1e15
_UNCOUNTABLE: Final = 10**15


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


def positive(text: bytes, *, what: str, offset: int) -> float:
    """Read a time or a speed."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not _LEAST < value < _GREATEST:
        raise BrokenContractError(
            f"{what} is {shown(text)}; needed is a finite number above zero", offset=offset
        )
    return value


def whole_number(text: bytes, *, what: str, offset: int) -> int:
    """Read a step's or an epoch's number."""
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < _UNCOUNTABLE:
        raise BrokenContractError(f"{what} {shown(text)} is not a whole number", offset=offset)
    return number
