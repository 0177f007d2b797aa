"""Leave out what cannot hold a record, at the speed of memory, before a pattern is looked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_dlperf.logs.reader import Region

_WORTHWHILE: Final = 500
"""Bytes of a region to each line that is let through; with less, patterns alone are as fast."""
_PAUSE: Final = 64
"""Regions to go through without, before another attempt."""
_HEAD: Final = 4
"""Regions before the first: short logs are read before it could help, and headers are no noise."""


class Sieve:
    """Lets those lines through which have a byte that all records have and hardly any other line.

    Which byte that is depends on the log: it is the rarest of those that stand in each record. To
    look for a single byte takes a tenth of the time of any longer text.
    """

    __slots__ = ("_byte", "_pause", "_texts")

    def __init__(self, texts: Iterable[bytes]) -> None:
        """Take texts each of which stands in every record."""
        self._texts = frozenset(b"".join(texts))
        self._byte: bytes | None = None
        self._pause = _HEAD

    def lines(self, region: Region) -> bytes | None:
        """Return the lines of a region that may hold a record; ``None`` where that is no help."""
        if self._pause or not self._texts:
            self._pause = max(self._pause - 1, 0)
            return None
        buffer, end = region.buffer, region.end
        if self._byte is None:
            self._byte = min(
                (bytes((each,)) for each in self._texts),
                key=lambda byte: buffer.count(byte, 0, end),
            )
        byte, most = self._byte, end // _WORTHWHILE
        find, find_back = buffer.find, buffer.rfind
        found: list[bytearray] = []
        stop = 0
        position = find(byte, 0, end)
        while position >= 0:
            begin = find_back(b"\n", stop, position) + 1 or stop
            stop = find(b"\n", position, end)
            if stop < 0:
                stop = end
            found.append(buffer[begin:stop])
            position = find(byte, stop, end)
        if len(found) > most:
            self._byte, self._pause = None, _PAUSE
        return b"\n".join(found)
