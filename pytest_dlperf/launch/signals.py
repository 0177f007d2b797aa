"""Signals that wait until a run has been cleaned up."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class SignalCameError(Exception):
    """A signal came that what was going on is broken off for."""


@final
class DeferredSignals(list[int]):
    """The signals that came by now, and wait."""

    def __init__(self) -> None:
        """Begin without one."""
        super().__init__()
        self._breaks = False

    @contextlib.contextmanager
    def breaking(self) -> Iterator[None]:
        """Have a signal raise out of the block, which leaves nothing behind: it may take long.

        Raises:
            SignalCameError: A signal came; it waits all the same.
        """
        self._breaks = True
        try:
            yield
        finally:
            self._breaks = False

    def note(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal that has come."""
        self.append(number)
        if self._breaks:
            self._breaks = False
            raise SignalCameError


@contextlib.contextmanager
def deferred_signals() -> Iterator[DeferredSignals]:
    """Keep signals that end this process waiting until the block is left; yield those that came.

    An exception in the middle of a clean-up would leave the rest of it undone. When the block is
    left they do what they would have done, in the order in which they came, up to the first that
    raises an exception or ends the process. Python allows this in the main thread only; elsewhere
    the block does nothing.
    """
    received = DeferredSignals()
    handlers = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                handler = signal.getsignal(number)
                # A handler that is not Python's own cannot be put back.
                if handler is not None and handler != signal.SIG_IGN:
                    handlers[number] = handler
                    signal.signal(number, received.note)
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for arrived in dict.fromkeys(received):
            signal.raise_signal(arrived)
