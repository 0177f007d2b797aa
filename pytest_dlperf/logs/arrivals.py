"""When the bytes of a log came, by the clock of the node that printed them.

The supervisor of a launched run sees output first and keeps its times; ``<log>.arrivals`` beside
the log has them. Its first line is a JSON object with the first bytes of the output, since a
launcher such as ssh may have put a warning in front of them. Each line behind it is of output that
came at once: how many bytes, how many microseconds after that of the line before, and within how
many, where it was not at a moment. The clock is monotonic, and each node has its own.
"""

from __future__ import annotations

import contextlib
import json
import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, final

from pytest_dlperf.files.writing import open_at_end
from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.logs.clock import WORTHLESS_ERROR

SUFFIX: Final = ".arrivals"
ANCHOR_REACH: Final = 64 * 1024
"""What a launcher prints before the program does has at most so many bytes."""

_NANOSECONDS: Final = 1000
_MILLISECOND: Final = 10**6
_ENDS: Final = 2
_PAUSE: Final = 20_000
_LONGEST_FLUSH: Final = 300_000
"""Microseconds between outputs that may be one flush, and within which it is over."""
_BLOCK: Final = 64 * 1024
_MOST: Final = 1 << 60
"""No log has so many bytes, and no clock has run for so many microseconds."""


def arrivals_of(log: Path | str) -> Path:
    """Name the file beside a log that says when its bytes came."""
    return Path(f"{os.fspath(log)}{SUFFIX}")


class Burst(NamedTuple):
    """Output that came at once: bytes ``begin`` to ``end`` of the log.

    It came from ``earliest`` to ``latest``, in nanoseconds. The bytes from ``flush`` on may have
    come in one go with it, out of the same buffer.
    """

    begin: int
    end: int
    earliest: int
    latest: int
    flush: int


@final
class ArrivalsWriter:
    """Writes what a supervisor reports of a log's arrivals; a full disk only ends that."""

    def __init__(self, log: Path) -> None:
        self._path = arrivals_of(log)
        self._broken = False
        self._end = self._time = 0
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def add(self, arrivals: Sequence[Sequence[int]], anchor: str) -> None:
        """Write more: the bytes until then, the time and the span in microseconds, of each."""
        lines = []
        if not self._end:
            lines.append(json.dumps({"anchor": anchor}))
        for end, moment, span in arrivals:
            fields = (end - self._end, moment - self._time, *([span] if span else []))
            lines.append(" ".join(map(str, fields)))
            self._end, self._time = end, moment
        if not self._broken:
            try:
                with open_at_end(self._path) as file:
                    file.write(("\n".join(lines) + "\n").encode("ascii"))
            except OSError:
                self._broken = True


@final
class Arrivals:
    """What is known of a log's arrivals, which may still grow; without a file, nothing."""

    def __init__(self, log: Path | str) -> None:
        self._log = log
        self._path = arrivals_of(log)
        self._position = 0
        self._rest = b""
        self._anchor: bytes | None = None
        self._shift: int | None = None
        self._broken = False
        self._ends = array("q")
        self._times = array("q")
        self._spans = array("q")

    @property
    def known(self) -> int:
        """How many bytes of the log have an arrival that is known."""
        if self._shift is None or not self._ends:
            return 0
        return self._shift + self._ends[-1]

    def refresh(self) -> None:
        """Read what is new."""
        try:
            if not self._path.is_file():
                return  # what is something else could be endless
            with self._path.open("rb") as file:
                file.seek(self._position)
                while not self._broken and (block := file.read(_BLOCK)):
                    self._position += len(block)
                    *lines, self._rest = (self._rest + block).split(b"\n")
                    try:
                        self._take(lines)
                    except (
                        ValueError,
                        TypeError,
                        KeyError,
                        AttributeError,
                        IndexError,
                        RecursionError,
                    ):
                        self._broken = True  # what follows would have no place
            if self._shift is None and self._anchor is not None:
                self._find_anchor(self._anchor)
        except OSError:
            return

    def _take(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            if self._anchor is None:
                self._anchor = json.loads(line)["anchor"].encode("latin-1")
                continue
            count, passed, *spans = map(int, line.split(b" "))
            span = spans[0] if spans else 0
            end = count + (self._ends[-1] if self._ends else 0)
            moment = passed + (self._times[-1] if self._times else 0)
            if count <= 0 or span < 0 or (self._ends and passed < span):
                raise ValueError(line)
            if max(end, moment, span) > _MOST or moment < 0:
                raise ValueError(line)
            self._ends.append(end)
            self._times.append(moment)
            self._spans.append(span)

    def _find_anchor(self, anchor: bytes) -> None:
        with open(self._log, "rb") as file:  # noqa: PTH123 - the path may be text
            begin = file.read(ANCHOR_REACH + len(anchor))
        found = begin.find(anchor)
        if found >= 0 and anchor:
            self._shift = found

    def burst(self, offset: int) -> Burst | None:
        """Give the output that a byte of the log came with; ``None`` where it is not known."""
        if self._shift is None or not self._shift <= offset < self.known:
            return None
        index = bisect_right(self._ends, offset - self._shift)
        moment = self._times[index]
        return Burst(
            begin=self._shift + (self._ends[index - 1] if index else 0),
            end=self._shift + self._ends[index],
            earliest=(moment - self._spans[index]) * _NANOSECONDS,
            latest=moment * _NANOSECONDS,
            flush=self._shift + self._flush(index),
        )

    def _flush(self, index: int) -> int:
        """Find the first byte that may have come in one go with some output.

        What a large buffer held may take a moment to come.
        """
        begin = self._times[index] - self._spans[index]
        floor = begin - _LONGEST_FLUSH
        while index and begin - self._times[index - 1] < _PAUSE and begin > floor:
            index -= 1
            begin = self._times[index] - self._spans[index]
        return self._ends[index - 1] if index else 0

    def gaps(self, first: int, last: int) -> list[int]:
        """Give the nanoseconds without output from that of a byte to that of a later one."""
        if self._shift is None:
            return []
        begin, end = (bisect_right(self._ends, each - self._shift) for each in (first, last))
        return [
            (self._times[at] - self._spans[at] - self._times[at - 1]) * _NANOSECONDS
            for at in range(begin + 1, end + 1)
        ]

    def at(self, offset: int) -> int | None:
        """Give the nanoseconds of the node's clock at which a byte of the log had come."""
        found = self.burst(offset)
        return None if found is None else found.latest


@final
class ArrivalStamps:
    """Makes time stamps of when records came, for a log whose lines have no time."""

    def __init__(self, arrivals: Arrivals, ranks: int) -> None:
        self._arrivals = arrivals
        self._ranks = ranks
        self._offsets = array("q")
        self._moments = array("q")

    def stamp(self, offset: int) -> bytes | None:
        """Give the seconds at which a record came; ``None`` where the program did not print it."""
        moment = self._arrivals.at(offset)
        if moment is None:
            return None
        if not self._offsets or offset > self._offsets[-1]:
            self._offsets.append(offset)
            self._moments.append(moment)
        seconds, part = divmod(moment // _MILLISECOND, 1000)
        return b"%d.%03d" % (seconds, part)

    def check(self, first: int, last: int) -> None:
        """Check that the records between two did not come in a few bursts.

        Raises:
            BrokenContractError: They did, so when they came says little of when they were printed.
        """
        moments = self._moments[
            bisect_left(self._offsets, first) : bisect_right(self._offsets, last)
        ]
        steps = len(moments) // self._ranks
        distinct = len(set(moments))
        # Each end of the window is uncertain by as long as a burst was held back.
        if 2 * distinct < steps and WORTHLESS_ERROR * distinct < _ENDS:
            raise BrokenContractError(
                f"the records of {steps} steps came in {distinct} burst{'s' * (distinct > 1)}, "
                "so when they came does not say when they were printed: the output is "
                "block-buffered. Print each record at once: PYTHONUNBUFFERED=1 in the environment, "
                "print(..., flush=True), stdbuf -oL for other programs",
                offset=first,
            )
