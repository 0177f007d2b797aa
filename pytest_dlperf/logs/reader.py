"""Read a log fast: its bytes in pieces of whole lines.

One buffer is filled again and again; nothing of the file is kept but what a caller takes from it.
"""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from pytest_dlperf.files.writing import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from _typeshed import WriteableBuffer

    from pytest_dlperf.formats.keyed import Header
    from pytest_dlperf.logs.arrivals import ArrivalStamps

BUFFER_SIZE: Final = 256 * 1024
"""Bytes read at once: large enough that calls do not count, small enough for a core's cache."""

LONGEST_LINE: Final = 1024 * 1024
"""Bytes after which a line that does not end is cut; bounds the memory that any log can take."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class Memory(Struct):
    """What a log has shown up to some place, without which later records mean nothing."""

    headers: list[tuple[int, Header]] = []
    """The lines that name columns, by the bytes at which they stand."""
    counted: dict[int, int] = {}
    """How many records stand before a region, by its first byte."""
    arrivals: ArrivalStamps | None = None
    """What makes the stamps of records without a time."""


class Region(Struct, frozen=True):
    """Whole lines of a log: ``buffer[:end]``, which begin at ``offset`` of the file.

    The buffer is used again for the next region. ``terminated`` is false where the last line has
    not ended: at the end of the file, or within a line of more than ``LONGEST_LINE`` bytes.
    """

    buffer: bytearray
    end: int
    offset: int
    terminated: bool
    memory: Memory = field(default_factory=Memory)
    """Of the log, as far as it was read."""


class LogFile(io.FileIO):
    """A log open for reading, as far as it counts."""

    limit: int | None = None
    """How many bytes count, as if the log ended there."""

    def __init__(self, path: Path | str) -> None:
        """Open the log, which is a regular file."""
        super().__init__(path, opener=open_regular)

    @property
    def size(self) -> int:
        """How many bytes of it count by now."""
        size = os.fstat(self.fileno()).st_size
        return size if self.limit is None else min(size, self.limit)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read what fits into ``buffer`` and counts; return how much that was."""
        if self.limit is None:
            return super().readinto(buffer)
        return super().readinto(memoryview(buffer)[: max(self.limit - self.tell(), 0)])


class RegionReader:
    """Reads a file in pieces that end where lines end, and goes on when it has grown.

    A byte order mark at the begin is left out. A carriage return and a NUL end lines as well:
    progress bars and the holes that a rotated log is left with would otherwise be lines without
    end. How the file is cut depends on the buffer's size and on when it is read, but no line of up
    to ``LONGEST_LINE`` bytes is ever cut in two, and longer ones are always cut at the same places.
    """

    __slots__ = ("_buffer", "_file", "_filled", "_given", "_memory", "_offset")

    def __init__(self, file: io.FileIO, buffer_size: int = BUFFER_SIZE) -> None:
        """Begin where the file stands, which is its begin."""
        self._file = file
        self._buffer = bytearray(min(max(buffer_size, 1), LONGEST_LINE))
        self._offset = 0
        self._filled = 0
        self._given = 0
        self._memory = Memory()

    @property
    def position(self) -> int:
        """How many bytes of the file have been read, also of a line that has not ended."""
        return self._offset + self._filled

    @property
    def memory(self) -> Memory:
        """What the log has shown, as far as it was read."""
        return self._memory

    def available(self) -> Iterator[Region]:
        """Yield the lines that have ended by now, from where the reading stopped before."""
        self._drop_given()
        while count := self._file.readinto(memoryview(self._buffer)[self._filled :]):
            self._filled += count
            self._skip_mark()
            filled = self._filled
            cut = _last_line_end(self._buffer, filled)
            terminated = cut > 0
            if not terminated:
                if filled < len(self._buffer):
                    continue
                if filled < LONGEST_LINE:
                    larger = bytearray(min(2 * filled, LONGEST_LINE))
                    larger[:filled] = self._buffer
                    self._buffer = larger
                    continue
                cut = filled
            self._given = cut
            yield Region(self._buffer, cut, self._offset, terminated, self._memory)
            self._drop_given()

    def rest(self) -> Iterator[Region]:
        """Yield the last line, where it has not ended: for a file that grows no more."""
        self._drop_given()
        if self._filled:
            self._given = self._filled
            yield Region(
                self._buffer, self._filled, self._offset, terminated=False, memory=self._memory
            )

    def _drop_given(self) -> None:
        """Make room, once the caller is done with the last region."""
        given, self._given = self._given, 0
        if given:
            view = memoryview(self._buffer)
            view[: self._filled - given] = view[given : self._filled]
            self._offset += given
            self._filled -= given

    def _skip_mark(self) -> None:
        if not self._offset and self._buffer.startswith(_BYTE_ORDER_MARK, 0, self._filled):
            self._given = len(_BYTE_ORDER_MARK)
            self._drop_given()


def regions(file: io.FileIO, buffer_size: int = BUFFER_SIZE) -> Iterator[Region]:
    """Read a whole file in pieces that end where lines end."""
    reader = RegionReader(file, buffer_size)
    yield from reader.available()
    yield from reader.rest()


def _last_line_end(buffer: bytearray, filled: int) -> int:
    """Find where the last line that has ended ends; 0 without one."""
    return (
        buffer.rfind(b"\n", 0, filled) + 1
        or max(buffer.rfind(b"\r", 0, filled), buffer.rfind(b"\0", 0, filled)) + 1
    )


def readable(path: str) -> str:
    """Write a path as text that any process and file takes: its bytes need not be Unicode."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def line_number(file: io.FileIO, offset: int) -> int:
    """Find the line, counted from 1, on which a byte of the file stands."""
    file.seek(0)
    line = 1
    for region in regions(file):
        inside = min(region.end, offset - region.offset)
        line += region.buffer.count(b"\n", 0, inside)
        if inside < region.end:
            break
    return line


def digest_of_logs(paths: Iterable[str]) -> str | None:
    """Compute the digest by which the logs of an accepted number are known again.

    ``None`` without a log, or where one cannot be read any more.
    """
    import hashlib

    whole = hashlib.sha256()
    count = 0
    for path in paths:
        one = hashlib.sha256()
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - names need not be Unicode
                while block := file.read(BUFFER_SIZE):
                    one.update(block)
        except (OSError, ValueError):
            return None
        whole.update(one.digest())
        count += 1
    return f"sha256:{whole.hexdigest()}" if count else None
