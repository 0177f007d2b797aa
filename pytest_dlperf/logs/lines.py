"""Read a log that may still be growing: blocks of whole lines, and the lines of a block.

Progress bars end lines with a carriage return or go back by backspaces, and a rotated log is left
with holes of NUL. Each such byte is a newline here, so that every byte keeps its place. Escape
sequences of terminals, such as colours, are no part of what a line says.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pytest_dlperf.files.writing import open_regular

BLOCK_SIZE: Final = 256 * 1024
"""Bytes read at once: large enough that calls do not count, small enough for a core's cache."""
LONGEST_LINE: Final = 1024 * 1024
"""Bytes after which a line that does not end is cut; bounds the memory that any log can take."""
LONGEST_TEXT: Final = 64 * 1024
"""Bytes of a line that are looked at: no expression may take for ever."""
LINE_ENDS: Final = bytes.maketrans(b"\r\0\b", b"\n\n\n")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_ESCAPE: Final = b"\x1b"
_SEQUENCE: Final = re.compile(rb"\x1b\[[0-9;:?]{0,40}[A-Za-z]")


def without_colours(text: bytes) -> bytes:
    """Leave out the escape sequences of terminals."""
    return _SEQUENCE.sub(b"", text) if _ESCAPE in text else text


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

    def part(self, begin: int, end: int) -> bytes:
        """Read some bytes, as far as they count; where the file stands does not change."""
        begin = max(begin, 0)
        size = (end if self.limit is None else min(end, self.limit)) - begin
        return os.pread(self.fileno(), size, begin) if size > 0 else b""


class Block:
    """Lines of a log, each ended by a newline; ``text`` begins at byte ``offset`` of the log.

    ``is_whole`` is false where the last line has not ended: at the end of the log, or within a line
    of more than ``LONGEST_LINE`` bytes.
    """

    __slots__ = ("_end", "_is_coloured", "is_whole", "offset", "text")

    def __init__(self, text: bytes, offset: int = 0, *, is_whole: bool = True) -> None:
        """Take a text in which lines end with newlines."""
        self.text = text
        self.offset = offset
        self.is_whole = is_whole
        # A number on a line that has not ended may still be growing.
        self._end = len(text) if is_whole else text.rfind(b"\n") + 1
        self._is_coloured = _ESCAPE in text

    @property
    def end(self) -> int:
        """The byte of the log behind the last line that has ended."""
        return self.offset + self._end

    def lines_with(
        self, literal: bytes = b"", begin: int = 0, end: int | None = None
    ) -> Iterator[tuple[int, int, bytes]]:
        """Find the lines that have ended and hold a text, between two bytes of the log.

        Of each, where it begins and ends, and what it says. A long one is cut at a blank, so that
        no number loses digits.
        """
        text, at = self.text, max(begin - self.offset, 0)
        stop = self._end if end is None else min(end - self.offset, self._end)
        is_searched = bool(literal) and not self._is_coloured
        while at < stop:
            place = text.find(literal, at, stop) if is_searched else at
            if place < 0:
                return
            first = text.rfind(b"\n", at, place) + 1 or at
            last = text.find(b"\n", place, self._end)
            last = shown = self._end if last < 0 else last
            if last - first > LONGEST_TEXT:
                shown = max(text.rfind(b" ", first, first + LONGEST_TEXT), first)
            line = text[first:shown]
            if self._is_coloured:
                line = without_colours(line)
            if is_searched or literal in line:
                yield self.offset + first, self.offset + last, line
            at = last + 1


class LineReader:
    """Reads a log block by block, and goes on when it has grown.

    A byte order mark at the begin is left out. How the log is cut into blocks depends on when it is
    read, but no line of up to ``LONGEST_LINE`` bytes is ever cut in two, and longer ones are always
    cut at the same places.
    """

    def __init__(self, size: int = BLOCK_SIZE) -> None:
        """Begin at the first byte; ``size`` bytes are read at once."""
        self._size = min(max(size, 1), LONGEST_LINE)
        self._rest = b""
        self.position = 0
        """How many bytes of the log have been read, also of a line that has not ended."""

    def available(self, file: LogFile) -> Iterator[Block]:
        """Yield the lines that have ended by now, from where the reading stopped before."""
        while data := file.part(self.position, self.position + self._size):
            self.position += len(data)
            self._rest += data.translate(LINE_ENDS)
            while len(self._rest) >= LONGEST_LINE and b"\n" not in self._rest[:LONGEST_LINE]:
                yield self._taken(LONGEST_LINE, is_whole=False)
            if cut := self._rest.rfind(b"\n") + 1:
                yield self._taken(cut, is_whole=True)

    def rest(self) -> Iterator[Block]:
        """Yield the last line, where it has not ended: for a log that grows no more."""
        block = self._taken(len(self._rest), is_whole=False)
        if block.text:
            yield block

    def _taken(self, count: int, *, is_whole: bool) -> Block:
        offset = self.position - len(self._rest)
        text, self._rest = self._rest[:count], self._rest[count:]
        if not offset and text.startswith(_BYTE_ORDER_MARK):
            offset = len(_BYTE_ORDER_MARK)
            text = text[offset:]
        return Block(text, offset, is_whole=is_whole)


def blocks(file: LogFile, size: int = BLOCK_SIZE) -> Iterator[Block]:
    """Read a whole log."""
    reader = LineReader(size)
    yield from reader.available(file)
    yield from reader.rest()


def block_between(file: LogFile, begin: int, end: int, *, is_cut: bool) -> Block:
    """Read a part of a log; where its first line ``is_cut``, behind that."""
    begin = max(begin, 0)
    text = file.part(begin, end).translate(LINE_ENDS)
    cut = text.find(b"\n") + 1 if is_cut else 0
    return Block(text[cut:], begin + cut, is_whole=text.endswith(b"\n"))


def line_number(file: LogFile, offset: int) -> int:
    """Find the line, counted from 1 as an editor does, on which a byte of the log stands."""
    places = range(0, offset, BLOCK_SIZE)
    parts = (file.part(place, min(place + BLOCK_SIZE, offset)) for place in places)
    return 1 + sum(part.count(b"\n") for part in parts)


def readable(path: str) -> str:
    """Write a path as text that any process and file takes: its bytes need not be Unicode."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
