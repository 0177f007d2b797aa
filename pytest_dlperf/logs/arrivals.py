"""When the bytes of a log came, by the clock of the node that printed them.

The supervisor of a launched run sees output first and keeps its times; ``<log>.arrivals`` beside
the log has them. Its first line is a JSON object with the first bytes of the output, since a
launcher such as ssh may have put a warning in front of them. Each line behind it is of output that
came at once: how many bytes, and how many microseconds after that of the line before. The clock is
monotonic, and each node has its own.
"""

from __future__ import annotations

import contextlib
import json
import os
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import msgspec

from pytest_dlperf.files.writing import open_at_end
from pytest_dlperf.formats.printed import BrokenContractError
from pytest_dlperf.logs.clock import WORTHLESS_ERROR

SUFFIX: Final = ".arrivals"
ANCHOR_REACH: Final = 64 * 1024
"""What a launcher prints before the program does has at most so many bytes."""

_NANOSECONDS: Final = 1000
_MILLISECOND: Final = 10**6
_ENDS: Final = 2
_BLOCK: Final = 64 * 1024
_MOST: Final = 1 << 60
"""No log has so many bytes, and no clock has run for so many microseconds."""


class _Head(msgspec.Struct):
    anchor: str


def arrivals_of(log: Path | str) -> Path:
    """Name the file beside a log that says when its bytes came."""
    return Path(f"{os.fspath(log)}{SUFFIX}")


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
        """Write more: the bytes until then and the time in microseconds, of each."""
        lines = [] if self._end else [json.dumps({"anchor": anchor})]
        for end, moment, *_ in arrivals:
            lines.append(f"{end - self._end} {moment - self._time}")
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
        """Begin without a look at the file."""
        self._log = log
        self._path = arrivals_of(log)
        self._position = 0
        self._rest = b""
        self._anchor: bytes | None = None
        self._shift: int | None = None
        self._broken = False
        self._ends = array("q")
        self._times = array("q")

    @property
    def known(self) -> int:
        """How many bytes of the log have an arrival that is known."""
        if self._shift is None or not self._ends:
            return 0
        return self._shift + self._ends[-1]

    def refresh(self) -> None:
        """Read what is new."""
        with contextlib.suppress(OSError):
            if self._path.is_file():  # what is something else could be endless
                with self._path.open("rb") as file:
                    file.seek(self._position)
                    while not self._broken and (block := file.read(_BLOCK)):
                        self._position += len(block)
                        *lines, self._rest = (self._rest + block).split(b"\n")
                        self._take(lines)
                if self._shift is None and self._anchor:
                    with open(self._log, "rb") as file:  # noqa: PTH123 - the path may be text
                        begin = file.read(ANCHOR_REACH + len(self._anchor))
                    found = begin.find(self._anchor)
                    self._shift = found if found >= 0 else None

    def _take(self, lines: Sequence[bytes]) -> None:
        end, moment = (self._ends[-1], self._times[-1]) if self._ends else (0, 0)
        for line in lines:
            try:
                if self._anchor is None:
                    self._anchor = msgspec.json.decode(line, type=_Head).anchor.encode("latin-1")
                    continue
                count, passed, *_ = map(int, line.split(b" "))
            except (ValueError, msgspec.MsgspecError):
                count = passed = -1
            end, moment = end + count, moment + passed
            self._broken = count <= 0 or passed < 0 or max(end, moment) > _MOST
            if self._broken:
                return  # what follows would have no place
            self._ends.append(end)
            self._times.append(moment)

    def at(self, offset: int) -> int | None:
        """Give the nanoseconds of the node's clock at which a byte of the log had come."""
        if self._shift is None or not self._shift <= offset < self.known:
            return None
        return self._times[bisect_right(self._ends, offset - self._shift)] * _NANOSECONDS


@final
class ArrivalStamps:
    """Makes time stamps of when records came, for a log whose lines have no time."""

    def __init__(self, arrivals: Arrivals, ranks: int) -> None:
        self._arrivals = arrivals
        self._ranks = ranks
        self._moments: dict[int, int] = {}

    def stamp(self, offset: int) -> bytes | None:
        """Give the seconds at which a record came; ``None`` where the program did not print it."""
        moment = self._arrivals.at(offset)
        if moment is None:
            return None
        self._moments[offset] = moment
        seconds, part = divmod(moment // _MILLISECOND, 1000)
        return b"%d.%03d" % (seconds, part)

    def check(self, first: int, last: int) -> None:
        """Check that the records between two did not come in a few bursts.

        Raises:
            BrokenContractError: They did, so when they came says little of when they were printed.
        """
        moments = [each for offset, each in self._moments.items() if first <= offset <= last]
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
