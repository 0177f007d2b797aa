"""Break off the reading of a log that burns processor time: an expression may try for ever."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.formats.contract import BrokenContractError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

PIECE_LIMIT_S: Final = 2.0
"""Processor time for one piece of a log, which usually takes milliseconds.

A match keeps other threads waiting, and supervisors give up a silent test process after 3.5 s.
"""
LOOK_LIMIT_S: Final = 1.0
"""A look at a growing log stops for now after so long, with what it has read."""


@final
class Limit:
    """The processor time that a piece may take."""

    def __init__(self, *, holds: bool) -> None:
        """Begin without a piece; it ``holds`` where signals reach this thread."""
        self.holds = holds
        self._limit_s = PIECE_LIMIT_S
        self._offset: int | None = None
        self.over = False
        """Whether nothing is to be broken off any more."""

    def begin(self, offset: int | None = None) -> None:
        """Give the next piece, from a byte on, all of the time."""
        self._offset = offset
        # It goes off again and again: what it breaks off may be made good by something as slow.
        if self.holds:
            signal.setitimer(signal.ITIMER_VIRTUAL, self._limit_s, self._limit_s)

    def pause(self) -> None:
        """Take as long as it needs, up to the next piece: no expression is matched."""
        if self.holds:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def break_off(self, _number: int, _frame: FrameType | None) -> None:
        """Raise out of whatever goes on."""
        if self.over:
            return
        raise BrokenContractError(
            f"to read a piece of the log took more than {self._limit_s:g} s of processor time: an "
            "expression tries too many ways to match it; write it without repetitions inside of "
            "repetitions",
            offset=self._offset,
            place="the piece begins on line",
        )


@contextmanager
def limited() -> Iterator[Limit]:
    """Limit the processor time of each piece that is read in the block, in the main thread only.

    The timer counts the time of this process; that of real time is left to others.
    """
    limit = Limit(holds=threading.current_thread() is threading.main_thread())
    if not limit.holds:
        yield limit
        return
    before = signal.getsignal(signal.SIGVTALRM)
    signal.signal(signal.SIGVTALRM, limit.break_off)
    try:
        limit.begin()
        yield limit
    finally:
        limit.over = True
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)
