"""``steady``: the window of each rank, or of all that print into a log without a name."""

from __future__ import annotations

import math

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.logs.lines import Block
from pytest_dlperf.logs.numbering import Mark
from pytest_dlperf.logs.records import Record
from pytest_dlperf.logs.scan import MetricScan
from pytest_dlperf.logs.track_times import Estimate, TrackTimes, agreement
from pytest_dlperf.logs.tracks import LOOK_AHEAD, Span, StepProgress, Track
from pytest_dlperf.model.case import Case


class SteadySteps:
    """The window of each rank that names itself, or of all together that print without a name."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        self._format = log_format
        self._span = span
        self._case = case
        printers = log_format.ranks.printers(case)
        self._ranks, self._printers = (printers, 1) if log_format.has_one_order else (1, printers)
        self._tracks: dict[bytes, Track] = {}
        self._known: dict[bytes, TrackTimes] | None = None
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
        tracks = {_label(rank): track for rank, track in self._tracks.items()}
        last = {rank: each.furthest for rank, each in tracks.items()}
        all_there = len(last) == self._ranks
        waiting = {rank: each.reached for rank, each in tracks.items() if not each.complete}
        return StepProgress(
            found=max(last.values(), default=0),
            warmup=self._span.after,
            window=self._span.last,
            slowest=min(each.reached for each in tracks.values()) if all_there else 0,
            last=last,
            awaited=waiting if all_there else {**waiting, "": 0},
        )

    @property
    def _times(self) -> dict[bytes, TrackTimes]:
        if self._known is None:
            self._known = {
                rank: TrackTimes(track, self._format, self._span, self._case)
                for rank, track in self._tracks.items()
            }
        return self._known

    @property
    def ends(self) -> list[tuple[int, int]]:
        """Where the first and the last record of each rank's window stand."""
        return [each.ends for each in self._times.values() if each.ends is not None]

    def take(self, record: Record, _block: Block, scan: MetricScan | None = None) -> bool:
        """Take the next record; false where enough was shown before it."""
        if self._enough is not None and record.offset >= self._enough:
            return False
        self._known = None
        track = self._track(record)
        was_complete = track.complete
        step = track.take(record)
        if scan is not None:
            if self._enough is not None:
                scan.leave_window(record.offset)
            else:
                inside = not was_complete and self._span.after < step <= self._span.last
                scan.at_record(record, step=step, shift=track.numbers.shift, inside=inside)
        if track.complete and not was_complete:
            self._complete += 1
            if self.complete:
                self.mark = track.numbers.mark(step, record.end)
                # Of ranks without a name, another may have been silent until then.
                one_order = self._format.has_one_order
                self._enough = record.end if one_order else record.end + LOOK_AHEAD
        return True

    def enough_in(self, block: Block) -> int | None:
        """Return up to which byte of the log it has shown enough, if that is read by now."""
        enough = self._enough
        return enough if enough is not None and enough <= block.end_offset else None

    def _track(self, record: Record) -> Track:
        rank = record.rank if self._format.labels_ranks else b""
        track = self._tracks.get(rank)
        if track is None:
            if len(self._tracks) == self._ranks:
                named = ", ".join(sorted(map(_shown, (*self._tracks, rank))))
                raise BrokenContractError(
                    f"the log holds steps of more ranks than {self._ranks}: {named}",
                    offset=record.offset,
                )
            track = Track(self._format, self._span, self._case, self._printers)
            self._tracks[rank] = track
        return track

    def estimate(self) -> Estimate:
        """Take the mean time of the ranks."""
        for track in self._tracks.values():
            track.settle()
        self._known = None
        if len(self._tracks) < self._ranks:
            named = ", ".join(sorted(map(_shown, self._tracks)))
            raise BrokenContractError(
                f"the log holds steps of {len(self._tracks)} rank(s) ({named}); the case "
                f"{self._case.id} has {self._ranks} that print into it"
            )
        estimates = [self._estimate(rank, times) for rank, times in self._times.items()]
        seconds = [1 / estimate.throughput for estimate in estimates]
        apart = agreement(seconds, [f"rank {_shown(rank)}" for rank in self._tracks])
        notes = [next((each.note for each in estimates if each.note), None), apart]
        return Estimate(
            len(seconds) / math.fsum(seconds),
            min(estimate.steps for estimate in estimates),
            "; ".join(note for note in notes if note) or None,
            any(estimate.paused for estimate in estimates),
        )

    def step_times(self) -> list[float]:
        """Take the slowest rank of each step."""
        longest: dict[int, float] = {}
        for times in self._times.values():
            for step, seconds in times.step_times().items():
                longest[step] = max(seconds, longest.get(step, 0.0))
        return [longest[step] for step in sorted(longest)]

    def _estimate(self, rank: bytes, times: TrackTimes) -> Estimate:
        try:
            return times.estimate()
        except BrokenContractError as error:
            if self._format.labels_ranks:
                error.reason = f"rank {_shown(rank)}: {error.reason}"
            raise


def _label(rank: bytes) -> str:
    return f"rank {rank.decode(errors='backslashreplace')}" if rank else ""


def _shown(rank: bytes) -> str:
    return rank[:20].decode(errors="replace")
