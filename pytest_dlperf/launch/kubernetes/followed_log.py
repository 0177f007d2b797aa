"""The log of a pod, brought here line by line while it grows, each line once."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.launch.queue import SilentQueueError
from pytest_dlperf.model.errors import BrokenError
from pytest_dlperf.node.member import REPORT
from pytest_dlperf.node.relay import ANCHOR_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    _Open = Callable[[int | None, bool], Iterator[bytes]]

AGAIN_S: Final = 1.0
"""Time until the next try after a connection has broken."""
MARGIN_S: Final = 10
"""A connection asks for so many seconds more than it has missed: what comes twice is left out."""

_STAMP: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ?")


@final
class FollowedLog:
    """Brings a pod's log, in a thread of its own.

    Kubernetes puts a time in front of each line. By it lines are known again after a connection has
    broken, and it is when the line came. Lines that are reports of ours go into a file of their
    own.
    """

    def __init__(
        self,
        open_log: _Open,
        is_over: Callable[[], bool],
        *,
        log: Path,
        reports: Path,
        job: str,
    ) -> None:
        """Begin to bring it.

        ``open_log`` gives the log as it comes, of so many of the last seconds, and goes on waiting
        for more if it is to follow; it raises ``SilentQueueError`` where that may work later.
        ``is_over`` says whether the container has ended, or is gone.
        """
        self._open = open_log
        self._is_over = is_over
        self._log = log
        self._reports = reports
        self._mark = REPORT + job.encode("ascii") + b" "
        self._last = (0, 0)
        """The time of the last line, in nanoseconds, and how many lines have it."""
        self._heard_at = time.monotonic()
        self._blank = False
        self._size = 0
        self._anchor = b""
        self._stop = threading.Event()
        self.problem: str | None = None
        """Why lines are missing, if that is known."""
        self.is_refused = False
        """Whether the log cannot be had at all."""
        self._thread = threading.Thread(target=self._run, name="dlperf-pod-log", daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        """Whether all of it is here."""
        return not self._thread.is_alive()

    def close(self, limit_s: float) -> None:
        """Be done with a container that has ended."""
        self._thread.join(limit_s)
        self._stop.set()

    # ------------------------------------------------------------------ connections

    def _run(self) -> None:
        is_last = False
        while not self._stop.is_set():
            try:
                self._take_all(follow=not is_last)
            except SilentQueueError:
                if self._is_over():
                    is_last = True
            except BrokenError as error:
                self.problem, self.is_refused = str(error), True
                return
            else:
                if is_last:
                    return
            # The connection may only have been cut: after the end it asks once more.
            is_last = self._is_over()
            self._stop.wait(0.05 if is_last else AGAIN_S)

    def _take_all(self, *, follow: bool) -> None:
        since_s = None
        again = bool(self._last[0])
        if again:
            since_s = int(time.monotonic() - self._heard_at) + MARGIN_S
        known = self._last if again else (0, 0)
        count = 0
        rest = b""
        lines: list[bytes] = []
        for received in self._open(since_s, follow):
            if self._stop.is_set():
                return
            *lines, rest = (rest + received).split(b"\n")
            fresh = []
            for line in lines:
                moment = _moment(line)
                if moment == known[0]:
                    count += 1
                if moment > known[0] or (moment == known[0] and count > known[1]):
                    fresh.append((moment, line))
            if again and lines and count == 0 and fresh:
                self.problem = "lines of it are missing: its file was rotated away on the node"
            again = again and not (lines and (count or fresh))
            self._keep(fresh)
        # A line without an end is one only if the container has ended.
        if rest and not follow and (moment := _moment(rest)) > known[0]:
            self._keep([(moment, rest)], ends=False)

    # ------------------------------------------------------------------ lines

    def _keep(self, stamped: list[tuple[int, bytes]], *, ends: bool = True) -> None:
        """Write lines into the log or the reports, and when they came."""
        if not stamped:
            return
        self._heard_at = time.monotonic()
        arrivals: list[tuple[int, int, int]] = []
        output = bytearray()
        for moment, line in stamped:
            last, count = self._last
            self._last = (moment, count + 1 if moment == last else 1)
            found = _STAMP.match(line)
            text = line[found.end() :] if found else line
            if text.startswith(self._mark):
                self._write(output, arrivals)
                self._blank = False  # it was put in front of the report
                self._append(self._reports, text[len(self._mark) :] + b"\n")
                continue
            if self._blank:
                output += b"\n"
            self._blank = not text and ends
            output += text + b"\n" if ends and text else text
            end = self._size + len(output)
            if arrivals and arrivals[-1][1] == moment // 1000:
                arrivals.pop()
            arrivals.append((end, moment // 1000, 0))
        self._write(output, arrivals)

    def _write(self, output: bytearray, arrivals: list[tuple[int, int, int]]) -> None:
        if not output:
            return
        self._append(self._log, bytes(output))
        self._anchor += bytes(output[: ANCHOR_BYTES - len(self._anchor)])
        self._size += len(output)
        report = {"arrivals": arrivals, "anchor": self._anchor.decode("latin-1"), "lost": None}
        self._append(self._reports, json.dumps(report).encode("ascii") + b"\n")
        output.clear()
        arrivals.clear()

    def _append(self, file: Path, content: bytes) -> None:
        """Append; on a full disk, again until there is room or the log is closed."""
        done = 0
        while done < len(content) and not self._stop.is_set():
            with contextlib.suppress(OSError), file.open("ab", buffering=0) as opened:
                done += opened.write(content[done:])
                continue
            self._stop.wait(AGAIN_S)


def _moment(line: bytes) -> int:
    """Read the time in front of a line, in nanoseconds; 0 where there is none."""
    found = _STAMP.match(line)
    if found is None:
        return 0
    second, part, zone = found.groups()
    zone = b"+00:00" if zone == b"Z" else zone
    whole = datetime.fromisoformat((second + zone).decode("ascii"))
    return int(whole.timestamp()) * 10**9 + int((part or b"0").ljust(9, b"0"))
