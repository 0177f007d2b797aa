"""Keeps signals that end this process waiting while a run is alive."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType


@final
class Interrupts:
    """Keeps signals that end this process waiting until the block is left.

    They are noted, never raised, inside the block: an exception in the middle of a clean-up would
    leave the rest of it undone. When the block is left they do what they would have done, in the
    order in which they came, up to the first that raises an exception or ends the process. Python
    allows this in the main thread only; elsewhere the block does nothing.
    """

    _NUMBERS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        """Note nothing before the block is entered."""
        self._received: list[int] = []
        self._handlers: dict[int, Callable[[int, FrameType | None], object] | int] = {}

    def __enter__(self) -> Interrupts:
        """Take the place of the handlers."""
        if threading.current_thread() is threading.main_thread():
            for number in self._NUMBERS:
                handler = signal.getsignal(number)
                # A handler that is not Python's own cannot be put back.
                if handler is not None and handler != signal.SIG_IGN:
                    self._handlers[number] = handler
                    signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Put the handlers back, and give them the signals that came."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(self._received):
            signal.raise_signal(number)

    def arrived(self) -> bool:
        """Say whether a signal has come."""
        return bool(self._received)

    @property
    def first(self) -> str:
        """The name of the signal that came first, as in SIGTERM; only if one has come."""
        return signal.Signals(self._received[0]).name

    def arrived_again(self) -> bool:
        """Say whether a second signal has come: somebody is losing patience."""
        return len(self._received) > 1

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._received.append(number)
