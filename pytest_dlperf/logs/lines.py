"""The lines of a region: where they begin and end, which hold a text, and what they say.

Escape sequences of terminals, such as colours, are no part of what a line says.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.formats.expressions import Expression
    from pytest_dlperf.formats.keyed import JsonRecord
    from pytest_dlperf.logs.reader import Region

LINE_ENDS: Final = bytes.maketrans(b"\r\0\b", b"\n\n\n")
"""Makes each line's end a newline; with backspaces a bar goes back to its begin."""
LONGEST_TEXT: Final = 64 * 1024
"""Bytes of a line that are looked at: no expression may take for ever."""
_ESCAPE: Final = b"\x1b"
_SEQUENCE: Final = re.compile(rb"\x1b\[[0-9;:?]{0,40}[A-Za-z]")


def without_colours(text: bytes) -> bytes:
    """Leave out the escape sequences of terminals."""
    return _SEQUENCE.sub(b"", text) if _ESCAPE in text else text


class Lines:
    """The lines of a region that have ended; positions are those of its buffer."""

    def __init__(self, region: Region) -> None:
        """Look which bytes end lines."""
        self.buffer = buffer = region.buffer
        self.offset = region.offset
        self._others = [
            each for each in (b"\r", b"\0", b"\b") if buffer.find(each, 0, region.end) >= 0
        ]
        self._is_coloured = buffer.find(_ESCAPE, 0, region.end) >= 0
        # Only lines that have ended: a number may still be growing.
        self.end = region.end if region.terminated else self.line_begin(0, region.end)

    @property
    def is_plain(self) -> bool:
        """Whether lines end with a line feed alone, and hold no colours."""
        return not (self._others or self._is_coloured)

    @cached_property
    def _text(self) -> bytes:
        """The region with each line's end as a newline."""
        text = bytes(self.buffer[: self.end])
        return text.translate(LINE_ENDS) if self._others else text

    def line_begin(self, least: int, position: int) -> int:
        """Find where the line begins on which a byte stands, at ``least`` or behind it."""
        begin = self.buffer.rfind(b"\n", least, position) + 1 or least
        for other in self._others:
            begin = self.buffer.rfind(other, begin, position) + 1 or begin
        return begin

    def line_end(self, position: int) -> int:
        """Find where the line ends on which a byte stands."""
        end = self.buffer.find(b"\n", position, self.end)
        end = self.end if end < 0 else end
        for other in self._others:
            found = self.buffer.find(other, position, end)
            end = end if found < 0 else found
        return end

    def text(self, begin: int, end: int) -> bytes:
        """Return what a line says; it may be shorter than the line.

        A long one is cut at a blank, so that no number loses digits.
        """
        if end - begin > LONGEST_TEXT:
            end = max(self.buffer.rfind(b" ", begin, begin + LONGEST_TEXT), begin)
        line = bytes(self.buffer[begin:end])
        return without_colours(line) if self._is_coloured else line

    def having(
        self, expression: Expression | JsonRecord, begin: int, end: int
    ) -> Iterator[tuple[int, int]]:
        """Find the lines between two places at lines' ends that may match an expression."""
        if not (self.is_plain and expression.literal):
            yield from self._having(expression, begin, end)
            return
        buffer, literal = self.buffer, expression.literal
        while (found := buffer.find(literal, begin, end)) >= 0:
            start = buffer.rfind(b"\n", begin, found) + 1 or begin
            begin = buffer.find(b"\n", found, self.end) + 1 or self.end + 1
            yield start, begin - 1

    def _having(
        self, expression: Expression | JsonRecord, begin: int, end: int
    ) -> Iterator[tuple[int, int]]:
        while begin < end:
            found = self._next(expression, begin, end)
            if found < 0:
                return
            line = self.line_begin(begin, found), self.line_end(found)
            yield line
            begin = line[1] + 1

    def every(self) -> Iterator[tuple[int, int]]:
        """Find all lines."""
        begin = 0
        while begin < self.end:
            stop = self.line_end(begin)
            yield begin, stop
            begin = stop + 1

    def _next(self, expression: Expression | JsonRecord, begin: int, end: int) -> int:
        """Find a byte of the next line that may match; -1 without one."""
        if self._is_coloured:
            return self._next_coloured(expression, begin, end)
        if expression.literal:
            return self.buffer.find(expression.literal, begin, end)
        match = expression.search(self._text, begin, end)
        return -1 if match is None else match.start()

    def _next_coloured(self, expression: Expression | JsonRecord, begin: int, end: int) -> int:
        while begin < end:
            stop = self.line_end(begin)
            if stop > begin and expression.literal in self.text(begin, stop):
                return begin
            begin = stop + 1
        return -1
