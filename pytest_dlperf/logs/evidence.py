"""What is known of a window whose records are all sound, and what the log says around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.logs.lines import LINE_ENDS, Block, block_between, without_colours
from pytest_dlperf.logs.records import LONGEST_STEP
from pytest_dlperf.model.work import StepsIn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.logs.arrivals import Arrivals
    from pytest_dlperf.logs.lines import LogFile
    from pytest_dlperf.logs.numbering import Mark
    from pytest_dlperf.logs.records import Record, RecordFinder
    from pytest_dlperf.logs.track_times import Ends, Estimate, Series
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import WitnessKind

_LONGEST_LINE: Final = 4096
_NEAR_BYTES: Final = 256 * 1024


class Evidence(Struct, kw_only=True):
    """What is known of a window once its throughput has been computed."""

    file: LogFile
    finder: RecordFinder
    """What has found the records of the log."""
    log_format: LogFormat
    case: Case
    arrivals: Arrivals
    """When the log's lines came."""
    series: Mapping[str, Series]
    """By rank such as ``rank 3``; empty where lines are counted."""
    ends: Mapping[str, Ends]
    """The ends of the window, likewise."""
    mark: Mark | None
    """Behind what no earlier step can stand."""
    estimate: Estimate
    """The throughput, in ``unit``, and what it rests on."""
    unit: str
    seen_by: WitnessKind | None = None
    """Who has confirmed the throughput from outside; set by the check that has asked."""
    paused: bool = False
    """Whether most of the window is a gap; set by the check that has seen it."""

    @property
    def throughput(self) -> float:
        """The number that is checked, in ``unit``."""
        return self.estimate.throughput

    def line(self, offset: int) -> bytes:
        """Read the line around a byte, without colours."""
        begin = max(offset - _LONGEST_LINE, 0)
        text = self.file.part(begin, offset + _LONGEST_LINE).translate(LINE_ENDS)
        start = text.rfind(b"\n", 0, offset - begin) + 1
        return without_colours(text[start:].partition(b"\n")[0])

    def records(self, begin: int, end: int, *, is_cut: bool = False) -> list[Record]:
        """Find the records of a part of the log."""
        block = block_between(self.file, begin, end, is_cut=is_cut)
        return [*self.finder.elsewhere(Block(block.text, block.offset))]

    def outside(self, series: Series, *, later: bool) -> list[tuple[int, Record]]:
        """Find the records of the same rank and epoch beyond an end of the window.

        Each has its step, numbered as those of the series are; the nearest come first.
        """
        at = len(series) - 1 if later else 0
        offset = series.columns[2][at]
        before, behind = (_LONGEST_LINE, _NEAR_BYTES) if later else (_NEAR_BYTES, _LONGEST_LINE)
        begin = max(offset - before, 0)
        near = [
            each
            for each in self.records(begin, offset + behind, is_cut=begin > 0)
            if each.step.isdigit() and len(each.step) <= LONGEST_STEP
        ]
        if not near:
            return []
        own = min(near, key=lambda each: abs(each.offset - offset))
        size = self.case.global_batch if self.log_format.steps_in is StepsIn.SAMPLES else 1
        first = series.columns[0][at] - int(own.step) // size
        beside = [
            (first + int(each.step) // size, each)
            for each in near
            if (each.rank, each.epoch) == (own.rank, own.epoch)
            and (int(each.step) > int(own.step) if later else int(each.step) < int(own.step))
        ]
        return sorted(beside, key=lambda each: each[0], reverse=not later)
