"""Passes on what a program prints, within milliseconds, and keeps when it came.

The lines of files that it writes beside that (``FileTail``) go the same way, between its own.

The reader of the output may be slow: then this thread waits, and the program as with any pipe.
"""

import contextlib
import errno
import fcntl
import glob
import os
import select
import stat
import threading
import time
from typing import Any

MERGED_S = 0.005
"""Output that comes within this time counts as having come at once."""
ANCHOR_BYTES = 64
"""The first bytes of the output, by which its begin is found in a log."""

_LOOK_S = 0.05
_PIPE_BYTES = 1048576
_READ_BYTES = 262144
_LARGE_BYTES = 16384
"""So much may fill a small pipe, and is read on at once."""
_PROMPT_S = 0.002
_F_SETPIPE_SZ = 1031  # of Linux; Python knows it since 3.10
_ENTRIES_TOLD = 80
_RETRY_S = 1.0
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NO_READER = (errno.EPIPE, errno.ECONNRESET)
_LONGEST_LINE = 1 << 20
_MAX_BYTES = 1 << 25


class Relay(threading.Thread):
    """The way from a program's output to its reader, once it is started."""

    def __init__(
        self, target: int, file: "bytes | None" = None, *, whole_file: bool = False
    ) -> None:
        """Pass on to the descriptor ``target`` what is written into ``entrance`` and ``file``.

        With ``whole_file`` that is passed on in one piece, when the program has ended.
        """
        super().__init__(daemon=True)
        self._source, self.entrance = os.pipe()
        # A user may have so many large pipes only.
        with contextlib.suppress(OSError):
            fcntl.fcntl(self._source, _F_SETPIPE_SZ, _PIPE_BYTES)
        self._target = target
        self._tail = None if file is None else FileTail(os.fsdecode(file))
        self._whole_file = whole_file
        self._asked = self._flushed = 0
        self._lock = threading.Lock()
        self._arrivals = []  # type: list[tuple[int, int, int]]
        self._anchor = b""
        self._lost = None  # type: str | None
        self._taken = 0
        self._in_line = False
        self._looked_at = time.monotonic()

    def run(self) -> None:
        """Pass on to the end of the output."""
        last = 0.0
        while True:
            asked, begin = self._asked, time.monotonic()
            is_there = select.select([self._source], [], [], _LOOK_S)[0]
            came = time.monotonic()
            if is_there:
                received = os.read(self._source, _READ_BYTES)
                if not received:
                    break
                now = time.monotonic()
                # What was there at once may have come since the last look.
                self._pass_on(received, now, last if came - begin < _PROMPT_S else came)
                last = now
                if len(received) < _LARGE_BYTES:
                    time.sleep(MERGED_S)  # what comes meanwhile is noted together
            self._follow(to_the_end=asked > self._flushed)
            if not is_there:
                self._flushed = asked
        self._follow(to_the_end=True)
        self._flushed = float("inf")  # type: ignore[assignment]

    def flush(self) -> None:
        """Ask for what was printed until now, and for all that is new in the files."""
        self._asked += 1

    @property
    def is_flushed(self) -> bool:
        """Whether all that was asked for has been passed on."""
        return self._flushed >= self._asked

    def pending_arrivals(self) -> "dict[str, Any] | None":
        """Give the next arrivals to tell of, and why some of the output is lost, if it is.

        Each is the end of output, in bytes of all that came, when it came, and within how many
        microseconds until then, by the node's monotonic clock: nothing to do with that of another.
        """
        with self._lock:
            told = self._arrivals[:_ENTRIES_TOLD]
            del self._arrivals[:_ENTRIES_TOLD]
        if not told:
            return None
        return {"arrivals": told, "anchor": self._anchor.decode("latin-1"), "lost": self._lost}

    def _follow(self, *, to_the_end: bool) -> None:
        """Pass on what is new in the files."""
        if self._tail is None:
            return
        if self._whole_file:
            if to_the_end:
                self._pass_on_lines(self._tail.whole())
                self._tail = None
            return
        lines = self._tail.take()
        self._pass_on_lines(lines)
        while lines and to_the_end:
            lines = self._tail.take()
            self._pass_on_lines(lines)

    def _pass_on_lines(self, lines: bytes) -> None:
        now = time.monotonic()
        if lines:
            self._pass_on(b"\n" + lines if self._in_line else lines, now, self._looked_at)
        self._looked_at = now

    def _pass_on(self, received: bytes, now: float, since: float) -> None:
        """Note output that came between two moments, and write it."""
        self._taken += len(received)
        self._anchor += received[: max(0, ANCHOR_BYTES - len(self._anchor))]
        self._in_line = not received.endswith(b"\n")
        moment, begin = int(now * 1e6), int(since * 1e6)
        with self._lock:
            if self._arrivals:
                _, last, span = self._arrivals[-1]
                if moment - (last - span) <= MERGED_S * 1e6:
                    begin = last - span
                    self._arrivals.pop()
            self._arrivals.append((self._taken, moment, moment - begin))
        while received:
            try:
                received = received[os.write(self._target, received) :]
            except BlockingIOError:  # others have this descriptor too, and may not want to wait
                select.select([], [self._target], [])
            except OSError as error:
                if error.errno in _NO_SPACE:
                    # Space may come; meanwhile the program waits, and the tests see a full disk.
                    time.sleep(_RETRY_S)
                    continue
                if error.errno not in _NO_READER:
                    self._lost = os.strerror(error.errno or 0)
                return


class FileTail:
    """The files of a name, in which ``*`` stands for anything but a slash.

    What a file holds already is of an earlier run; one that gets shorter was written anew.
    """

    def __init__(self, name: str) -> None:
        """Begin at the ends of the files that are there."""
        # Brackets and question marks are what they are.
        self._pattern = glob.escape(name).replace("[*]", "*")
        self._seen = {path: _state(path) for path in glob.glob(self._pattern)}
        self._offsets = {path: size for path, (size, _) in self._seen.items()}

    def take(self) -> bytes:
        """Give some lines that are new and have ended."""
        for path in sorted(glob.glob(self._pattern)):
            size, _ = _state(path)
            offset = self._offsets.get(path, 0)
            if size != offset:
                lines = _lines_at(path, 0 if size < offset else offset)
                self._offsets[path] = (0 if size < offset else offset) + len(lines)
                if lines:
                    return lines
        return b""

    def whole(self) -> bytes:
        """Give all of the files that have changed since the begin, each with its last line's end.

        For when the program has ended: a document that is written as a whole stays in one piece.
        """
        found = b""
        for path in sorted(glob.glob(self._pattern)):
            if _state(path) not in ((0, 0), self._seen.get(path)):
                with contextlib.suppress(OSError), open(path, "rb") as file:
                    text = file.read(_MAX_BYTES)
                    found += text if text.endswith(b"\n") else text + b"\n"
        return found


def _state(path: str) -> "tuple[int, int]":
    """Give size and time of a file's last change; zeros where it is none: a pipe never ends."""
    with contextlib.suppress(OSError):
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode):
            return status.st_size, status.st_mtime_ns
    return 0, 0


def _lines_at(path: str, offset: int) -> bytes:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(offset)
        text = file.read(_LONGEST_LINE)
        is_one_line = len(text) == _LONGEST_LINE and b"\n" not in text
        return text if is_one_line else text[: text.rfind(b"\n") + 1]
    return b""
