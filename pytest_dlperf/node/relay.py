"""Passes on what a program prints, within milliseconds, and keeps when it came.

The lines of files that it writes beside that (``FileTail``) go the same way, between its own.

The reader of the output may be slow. Nothing here waits for it: the program does, as with any pipe,
once some output is held back.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import struct
import termios
import time
from collections import namedtuple
from typing import TYPE_CHECKING

from pytest_dlperf.node.file_tail import FileTail

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MERGED_S = 0.005
"""Output that comes within this time counts as having come at once."""
ANCHOR_BYTES = 64
"""The first bytes of the output, by which its begin is found in a log."""

_PIPE_BYTES = 1048576
_HELD_BYTES = 262144
_HELD_IN_THE_END_BYTES = 67108864
_AT_ONCE_BYTES = 4096
"""A pipe into which can be written takes so many bytes without waiting."""
_CHATTER_BYTES = 16384
"""Who prints so much within ``MERGED_S`` is listened to less often."""
_CHATTER_PAUSE_S = 0.02
_PROMPT_S = 0.002
_F_SETPIPE_SZ, _F_GETPIPE_SZ = 1031, 1032  # of Linux; Python knows them since 3.10
_ENTRIES_HELD = 2000
_ENTRIES_TOLD = 80
_TELL_S = 0.2
_RETRY_S = 1.0
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_READER = (errno.EPIPE, errno.ECONNRESET)


class Arrival(namedtuple("Arrival", ("end", "time", "span"))):  # noqa: PYI024 - as typing
    """Output that came within ``span`` microseconds up to ``time``.

    ``end`` counts the bytes of all output until then. The time is that of the node's monotonic
    clock, which has nothing to do with that of another.
    """

    __slots__ = ()

    @property
    def begin(self) -> int:
        """When the first of it came."""
        return int(self.time - self.span)


class Relay:
    """The way from a program's output to its reader."""

    def __init__(
        self, target: int, file: "bytes | None" = None, *, whole_file: bool = False
    ) -> None:
        """Pass on to the descriptor ``target`` what is written into ``entrance`` and ``file``.

        With ``whole_file`` that is passed on in one piece, when the program has ended.
        """
        self._whole_file = whole_file
        self.anchor = b""
        self._lost = None  # type: str | None
        self._source, self.entrance = os.pipe()
        os.set_blocking(self._source, False)
        self._room = 65536
        # A user may have so many large pipes only; all more are small, and are emptied at once.
        for order in ((_F_SETPIPE_SZ, _PIPE_BYTES), (_F_GETPIPE_SZ,)):
            with contextlib.suppress(OSError):
                self._room = fcntl.fcntl(self._source, *order)
        self._open = True
        self._target = target
        self._is_file = stat.S_ISREG(os.fstat(target).st_mode)
        self._write = _writer(target)
        self._tail = None if file is None else FileTail(os.fsdecode(file))
        self._looked_at = time.monotonic()
        self._held = bytearray()
        self._in_line = False
        self._taken = 0
        self._arrivals = []  # type: list[Arrival]
        self._tell_at = 0.0
        self._retry_at = 0.0
        self._took_at = 0.0
        self._take_at = 0.0

    def close_entrance(self) -> None:
        """Leave the entrance to the program, which has it by now."""
        os.close(self.entrance)

    @property
    def sources(self) -> "list[int]":
        """What to wait for until something can be taken."""
        wanted = self._open and len(self._held) < _HELD_BYTES
        return [self._source] if wanted and time.monotonic() >= self._take_at else []

    @property
    def targets(self) -> "list[int]":
        """What to wait for until something can be passed on."""
        return [self._target] if self._held and time.monotonic() >= self._retry_at else []

    @property
    def wait_s(self) -> float:
        """Seconds after which there is something to do, whatever happens until then."""
        now = time.monotonic()
        due = self._tell_at - now if self._arrivals else float("inf")
        if self._held and self._retry_at > now:
            due = min(due, self._retry_at - now)
        if self._open and self._take_at > now:
            due = min(due, self._take_at - now)
        if self._tail is not None and not self._whole_file and len(self._held) < _HELD_BYTES:
            due = min(due, self._tail.wait_s)
        return max(due, 0.0)

    def take(self) -> None:
        """Take what has been printed."""
        try:
            received = os.read(self._source, _HELD_BYTES)
        except BlockingIOError:
            return
        if not received:
            self._open = False
            os.close(self._source)
            return
        now = time.monotonic()
        held_back = self._take_at > self._took_at and now - self._take_at < _PROMPT_S
        self._hold(received, now, self._took_at if held_back else now)
        if now - self._took_at < 2 * _CHATTER_PAUSE_S and len(received) < self._room // 4:
            # What comes in between is noted together, and costs as little as one line.
            chatters = len(received) >= _CHATTER_BYTES
            self._take_at = now + (_CHATTER_PAUSE_S if chatters else MERGED_S)
        self._took_at = now

    def look(self) -> None:
        """Take what is new in the files beside the output."""
        if self._tail is not None and not self._whole_file and len(self._held) < _HELD_BYTES:
            self._take_lines(self._tail.take())

    def _take_lines(self, lines: bytes) -> None:
        now = time.monotonic()
        if lines:
            self._hold(b"\n" + lines if self._in_line else lines, now, self._looked_at)
        self._looked_at = now

    def _hold(self, received: bytes, now: float, since: float) -> None:
        """Hold output that came between two moments until it is passed on."""
        self._taken += len(received)
        if len(self.anchor) < ANCHOR_BYTES:
            self.anchor += received[: ANCHOR_BYTES - len(self.anchor)]
        self._note(now, since)
        self._in_line = not received.endswith(b"\n")
        self._held += received
        if self._is_file:
            self.pass_on()

    def pass_on(self) -> None:
        """Write what the target takes without waiting."""
        if time.monotonic() < self._retry_at:
            return
        try:
            written = self._write(self._held)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in _NO_SPACE:
                # Space may come; meanwhile the program waits, and the tests see a full disk.
                self._retry_at = time.monotonic() + _RETRY_S
                return
            if error.errno not in _NO_READER:
                self._lost = os.strerror(error.errno or 0)
            self._held.clear()
            return
        del self._held[:written]

    def _note(self, now: float, since: float) -> None:
        moment = int(now * 1e6)
        begin = int(since * 1e6)
        if not self._arrivals:
            self._tell_at = now + _TELL_S
        elif moment - self._arrivals[-1].begin <= MERGED_S * 1e6:
            begin = self._arrivals.pop().begin
        self._arrivals.append(Arrival(self._taken, moment, moment - begin))
        if len(self._arrivals) == _ENTRIES_HELD:
            # They are not read for now: two are told of as one.
            pairs = zip(self._arrivals[::2], self._arrivals[1::2])  # noqa: B905 - not in 3.6
            self._arrivals = [
                Arrival(late.end, late.time, late.time - early.begin) for early, late in pairs
            ]

    def has_arrivals(self, *, hurry: bool) -> bool:
        """Say whether to tell of arrivals: some times a second at most, unless in a hurry."""
        now = time.monotonic()
        if not self._arrivals or (now < self._tell_at and not hurry):
            return False
        self._tell_at = now + _TELL_S
        return True

    def pending_arrivals(self) -> "dict[str, Any]":
        """Give the next arrivals to tell of, and why some of the output is lost, if it is."""
        told = self._arrivals[:_ENTRIES_TOLD]
        del self._arrivals[:_ENTRIES_TOLD]
        return {
            "arrivals": told,
            "anchor": self.anchor.decode("latin-1"),
            "lost": self._lost,
        }

    def bytes_produced(self) -> int:
        """Count all bytes that have been printed by now."""
        if self._tail is not None and self._whole_file:
            # Lines of the output first, so that none is cut in two.
            for _ in range(_PIPE_BYTES // _HELD_BYTES + 1):
                if self._open:
                    self.take()
            self._take_lines(self._tail.whole())
            self._tail = None
        while self._tail is not None and len(self._held) < _HELD_IN_THE_END_BYTES:
            lines = self._tail.take(hurry=True)
            self._take_lines(lines)
            if not lines:
                break
        if not self._open:
            return self._taken
        found = fcntl.ioctl(self._source, termios.FIONREAD, struct.pack("i", 0))
        return self._taken + int(struct.unpack("i", found)[0])

    def is_flushed(self, count: int) -> bool:
        """Say whether so many bytes were passed on; ``bytes_produced`` counts them."""
        return self._taken - len(self._held) >= count


def _writer(target: int) -> "Callable[[bytearray], int]":
    """Give what writes into a descriptor, as much as goes without waiting.

    The descriptor itself is left as it is: others may have it too, and may count on waiting.
    """
    mode = os.fstat(target).st_mode
    if stat.S_ISREG(mode):
        return lambda data: os.write(target, data)
    if stat.S_ISSOCK(mode):
        end = socket.socket(fileno=os.dup(target))
        return lambda data: end.send(data, socket.MSG_DONTWAIT)
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY  # a terminal would become the session's
        with contextlib.suppress(OSError):
            own = os.open(f"/proc/self/fd/{target}", flags)
            return lambda data: os.write(own, data)
    return lambda data: os.write(target, data[:_AT_ONCE_BYTES])
