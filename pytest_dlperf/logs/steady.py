"""``steady``: the window of each rank, or of all that print into a log without a name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.logs.records import records
from pytest_dlperf.logs.steps import LOOK_AHEAD, Ends, Estimate, StepProgress
from pytest_dlperf.logs.streams import Process, Processes
from pytest_dlperf.logs.values import agreement

if TYPE_CHECKING:
    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.logs.numbering import Mark
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.logs.scan import MetricScan
    from pytest_dlperf.logs.steps import Series, Span
    from pytest_dlperf.logs.streams import Stream
    from pytest_dlperf.model.case import Case


class SteadySteps:
    """The window of each rank that names itself, or of all together that print without a name."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        """Expect each rank that prints."""
        self._format = log_format
        self._span = span
        self._case = case
        self._kind = Process if log_format.has_one_order else Processes
        self._ranks = log_format.ranks.printers(case) if log_format.has_one_order else 1
        self._labelled = log_format.labels_ranks
        self._streams: dict[bytes, Process | Processes] = {}
        self._complete = 0
        self._enough: int | None = None
        self.mark: Mark | None = None
        """Where the last rank has completed its window."""

    @property
    def complete(self) -> bool:
        """Whether every rank's window is complete."""
        return self._complete == self._ranks

    @property
    def seen(self) -> StepProgress:
        """How far the log has come; of ranks without names it is not known which is how far."""
        streams = {_label(rank): stream for rank, stream in self._streams.items()}
        last = {rank: each.furthest for rank, each in streams.items()}
        all_there = len(last) == self._ranks
        waiting = {rank: each.reached for rank, each in streams.items() if not each.complete}
        return StepProgress(
            found=max(last.values(), default=0),
            warmup=self._span.after,
            window=self._span.last,
            slowest=min(each.reached for each in streams.values()) if all_there else 0,
            last=last,
            awaited=waiting if all_there else {**waiting, "": 0},
        )

    @property
    def ends(self) -> dict[str, Ends]:
        """The ends of each rank's window, if it has two records; under "" where ranks have no name.

        That one has the last record of either step, whichever rank printed it.
        """
        ends = {_label(rank): stream.values.ends for rank, stream in self._streams.items()}
        return {rank: each for rank, each in ends.items() if each is not None}

    @property
    def series(self) -> dict[str, Series]:
        """What each rank has printed."""
        return {_label(rank): stream.values.series for rank, stream in self._streams.items()}

    def feed(self, region: Region, scan: MetricScan | None = None) -> int | None:
        """Take the region's records; return where the log has shown enough."""
        base = region.offset
        for start, end, printed, epoch, rank, text in records(region, self._format):
            if self._enough is not None and base + start >= self._enough:
                break
            stream = self._stream(rank if self._labelled else b"", base + start)
            if self._format.epoch_length is not None:
                stream.numbers.note_length(epoch, region.buffer, start)
            was_complete = stream.complete
            step = stream.take(printed, epoch, text, base + start)
            if scan is not None:
                self._tell(scan, (start, end), stream, step, is_over=was_complete)
            if stream.complete and not was_complete:
                self._complete_one(stream, step, base + end)
        if self._enough is None or base + region.end < self._enough:
            return None
        return max(self._enough - base, 0)

    def _tell(
        self, scan: MetricScan, place: tuple[int, int], stream: Stream, step: int, *, is_over: bool
    ) -> None:
        """Tell of a record; ``is_over`` where the window of its rank was complete before."""
        if self._enough is not None:
            scan.leave_window(place[0])
            return
        inside = not is_over and self._span.after < step <= self._span.last
        scan.at_record(*place, step=step, shift=stream.numbers.shift, inside=inside)

    def _complete_one(self, stream: Stream, step: int, end: int) -> None:
        self._complete += 1
        if self.complete:
            self.mark = stream.numbers.mark(step, end)
            # Of ranks without a name, another may have been silent until then.
            self._enough = end if self._format.has_one_order else end + LOOK_AHEAD

    def _stream(self, rank: bytes, offset: int) -> Process | Processes:
        stream = self._streams.get(rank)
        if stream is None:
            if len(self._streams) == self._ranks:
                named = ", ".join(sorted(map(_shown, (*self._streams, rank))))
                raise BrokenContractError(
                    f"the log holds steps of more ranks than {self._ranks}: {named}", offset=offset
                )
            stream = self._streams[rank] = self._kind(self._format, self._span, self._case)
        return stream

    def estimate(self) -> Estimate:
        """Take the mean time of the ranks."""
        for stream in self._streams.values():
            stream.settle()
        if len(self._streams) < self._ranks:
            named = ", ".join(sorted(map(_shown, self._streams)))
            raise BrokenContractError(
                f"the log holds steps of {len(self._streams)} rank(s) ({named}); the case "
                f"{self._case.id} has {self._ranks} that print into it"
            )
        estimates = [self._estimate(rank, stream) for rank, stream in self._streams.items()]
        seconds = [1 / estimate.throughput for estimate in estimates]
        apart = agreement(seconds, [f"rank {_shown(rank)}" for rank in self._streams])
        notes = [next((each.note for each in estimates if each.note), None), apart]
        return Estimate(
            len(seconds) / math.fsum(seconds),
            min(estimate.steps for estimate in estimates),
            "; ".join(note for note in notes if note) or None,
        )

    def step_times(self) -> list[float]:
        """Take the slowest rank of each step."""
        longest: dict[int, float] = {}
        for stream in self._streams.values():
            for step, seconds in stream.step_times().items():
                longest[step] = max(seconds, longest.get(step, 0.0))
        return [longest[step] for step in sorted(longest)]

    def _estimate(self, rank: bytes, stream: Stream) -> Estimate:
        try:
            return stream.estimate()
        except BrokenContractError as error:
            if self._labelled:
                error.reason = f"rank {_shown(rank)}: {error.reason}"
            raise


def _label(rank: bytes) -> str:
    return f"rank {rank.decode(errors='backslashreplace')}" if rank else ""


def _shown(rank: bytes) -> str:
    return rank[:20].decode(errors="replace")
