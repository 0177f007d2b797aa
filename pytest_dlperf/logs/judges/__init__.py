"""Judges of a number whose records are all sound: each has one suspicion, in a module of its own.

A module of this package with a subclass of ``Judge`` is one; no list names it. They are asked in
the order of their modules' names, and the first that refuses is heard.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct

from pytest_dlperf.logs.lines import LINE_ENDS, without_colours
from pytest_dlperf.logs.reader import Memory, Region
from pytest_dlperf.logs.records import LONGEST_STEP, records
from pytest_dlperf.model.work import StepsIn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.logs.arrivals import Arrivals
    from pytest_dlperf.logs.numbering import Mark
    from pytest_dlperf.logs.reader import LogFile
    from pytest_dlperf.logs.steps import Ends, Estimate, Series
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import WitnessKind

_LABELS: Final = ("rank", "epoch")
_LONGEST_LINE: Final = 4096
_NEAR_BYTES: Final = 256 * 1024


class PrintedRecord(NamedTuple):
    """A record of the log: its place, and what is printed."""

    offset: int
    step: bytes
    epoch: bytes
    rank: bytes
    time: bytes


class Evidence(Struct, kw_only=True):
    """What is known of a window once its throughput has been computed."""

    file: LogFile
    memory: Memory
    """Of the whole log."""
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
    """Who has confirmed the throughput from outside; set by the judge that has asked."""
    paused: bool = False
    """Whether most of the window is a gap; set by the judge that has seen it."""

    @property
    def throughput(self) -> float:
        """The number that is judged, in ``unit``."""
        return self.estimate.throughput

    def text(self, begin: int, end: int) -> bytes:
        """Read a part of the log, as far as it counts."""
        begin = max(begin, 0)
        size = min(end, self.file.size) - begin
        return os.pread(self.file.fileno(), size, begin) if size > 0 else b""

    def line(self, offset: int) -> bytes:
        """Read the line around a byte, without colours."""
        begin = max(offset - _LONGEST_LINE, 0)
        text = self.text(begin, offset + _LONGEST_LINE).translate(LINE_ENDS)
        start = text.rfind(b"\n", 0, offset - begin) + 1
        return without_colours(text[start:].partition(b"\n")[0])

    def records(self, begin: int, end: int) -> list[PrintedRecord]:
        """Find the records of a part of the log; ranks only where they name themselves."""
        begin = max(begin, 0)
        text = bytearray(self.text(begin, end))
        memory = Memory(headers=self.memory.headers)
        region = Region(text, len(text), begin, terminated=True, memory=memory)
        labelled, has_epochs = (each in self.log_format.record.groupindex for each in _LABELS)
        return [
            PrintedRecord(
                begin + start, step, epoch if has_epochs else b"", rank if labelled else b"", time
            )
            for start, _, step, epoch, rank, time in records(region, self.log_format)
        ]

    def outside(self, series: Series, *, later: bool) -> list[tuple[int, PrintedRecord]]:
        """Find the records of the same rank and epoch beyond an end of the window.

        Each has its step, numbered as those of the series are; the nearest come first.
        """
        at = len(series) - 1 if later else 0
        offset = series.columns[2][at]
        before, behind = (_LONGEST_LINE, _NEAR_BYTES) if later else (_NEAR_BYTES, _LONGEST_LINE)
        begin = max(offset - before, 0)
        if begin:  # the first line is cut
            begin += self.text(begin, offset).translate(LINE_ENDS).find(b"\n") + 1
        near = [
            each
            for each in self.records(begin, offset + behind)
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


class Judge:
    """Suspects one thing of a log."""

    def __init__(self, log_format: LogFormat, case: Case) -> None:
        """Begin before the first byte."""
        self.log_format = log_format
        self.case = case

    def decide(self, evidence: Evidence) -> str | None:
        """Look at the whole window; return what to know of the number, if anything.

        Raises:
            BrokenContractError: No number may be taken of the log.
        """


@cache
def _kinds() -> tuple[type[Judge], ...]:
    modules = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    found = (each for module in modules for each in vars(module).values())
    return tuple(each for each in found if isinstance(each, type) and each.__bases__ == (Judge,))


def judges(log_format: LogFormat, case: Case) -> list[Judge]:
    """Call all judges of a log."""
    return [kind(log_format, case) for kind in _kinds()]
