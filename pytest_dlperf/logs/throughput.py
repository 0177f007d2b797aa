"""Measure one run from its log: the one way in for those who measure."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Final, TypeVar

from msgspec.structs import replace

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.declared import DeclaredMetric
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.logs.arrivals import Arrivals, ArrivalStamps, arrivals_of
from pytest_dlperf.logs.fact_check import FactCheck
from pytest_dlperf.logs.lines import BLOCK_SIZE, Block, LineReader, LogFile, line_number, readable
from pytest_dlperf.logs.numbering import first_step
from pytest_dlperf.logs.published import PublishedLines
from pytest_dlperf.logs.records import Record, RecordFinder
from pytest_dlperf.logs.run_metrics import NodeLog, reduced, with_declared
from pytest_dlperf.logs.scan import MetricScan
from pytest_dlperf.logs.second_run import check_behind
from pytest_dlperf.logs.steady import SteadySteps
from pytest_dlperf.logs.track_times import Estimate, NoStepTimesError
from pytest_dlperf.logs.tracks import Span, StepProgress
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, Run, RunStatus, Window
from pytest_dlperf.model.metric import THROUGHPUT, Metric, Source
from pytest_dlperf.model.work import Timing

T = TypeVar("T")
LOOK_LIMIT_S: Final = 1.0
"""A look at a growing log stops for now after so long, with what it has read."""


class LogState(Enum):
    """How far a log has come that may still be growing."""

    GROWING = "more steps are needed"
    COMPLETE = "every rank has shown what the estimate needs"
    """No later step can change the throughput. It may be that there is none. A declared metric may
    still lack its number (``LogReading.lacking``)."""
    BROKEN = "the log breaks its contract"
    """Nothing that follows can mend it."""


@dataclass(eq=False)
class LogReading:
    """Reads a log that may still be growing, as far as it has come, and measures its run.

    Whatever the log holds, the answer is a run: ok with its metrics, or invalid with a reason.
    ``steps`` of an ok run are those that its throughput rests on (for ``published``, lines or
    iterations, as its definition counts); of an invalid one, those that were found.

    ``advance`` reads what is new, as often as one likes and wherever the log happens to end.
    ``finish`` then reads the rest; the run is the same without any ``advance``. A log is read once,
    but where a message needs to say what is wrong on which line of it. One that is not there yet
    has not grown.

    Raises:
        ValueError: The window is none, or the format has no published definition to take.
    """

    path: Path | str
    """The log; one of them, when a run has several (``RunLogs``)."""
    _: KW_ONLY
    number: int
    """Which run of its case it is."""
    case: Case
    """What was to be trained; the log must not contradict it."""
    log_format: LogFormat
    window: Window
    estimator: Estimator
    unit: str = "samples/s"
    """What throughput counts: tokens, or else samples of whatever name."""
    metrics: Sequence[Metric] = ()
    """Which metrics of the steps are wanted beside the throughput."""
    declared: Sequence[DeclaredMetric] = ()
    """Those that the logs of the run print."""
    node: int = 0
    """Whose log it is, of the ``nodes`` that have one."""
    nodes: int = 1
    buffer_size: int = BLOCK_SIZE
    """Bytes to read at once; the result does not depend on it."""

    def __post_init__(self) -> None:
        if self.window.warmup_steps < 0 or self.window.measured_steps < 1:
            raise ValueError(f"{self.window} is not a valid window: measure one step or more")
        self.log_format = self.log_format.of(self.case)
        self._step_times = [
            metric
            for metric in self.metrics
            if metric.source is Source.STEPS and metric.statistic is not None
        ]
        # What is looked for in the log; a second definition may go by another number of a line.
        self._format = self.log_format
        if self.estimator is Estimator.PUBLISHED:
            self._format = self.log_format.as_published
        self._collector = _collector(self._format, self.case, self.window, self.estimator)
        declared = [each for each in self.declared if each.is_on(self.node, self.nodes)]
        self._scan = MetricScan(declared) if declared else None
        self.first_step: int | None = None
        """The step of the log's first record; ``None`` before it is there."""
        self._steps_done = False
        self.facts = FactCheck(self.log_format, self.case)
        self._in_header = True
        self._enough = False
        self._found: tuple[int, ...] | None = None
        self._progress: StepProgress | None = None
        self._file: LogFile | None = None
        self._reader: LineReader | None = None
        self.reason: str | None = None
        """What the log has broken, and on which line; ``None`` unless it is broken."""
        self._closed = False
        self._arrivals = Arrivals(self.path)
        self._stamps: ArrivalStamps | None = None
        """What makes the stamps of records without a time."""
        if self._format.timing is Timing.ARRIVAL:
            self._stamps = ArrivalStamps(self._arrivals, self._format.ranks.printers(self.case))
        self._finder = RecordFinder(self._format, self._stamps)

    @property
    def state(self) -> LogState:
        """How far the log has come."""
        if self.reason is not None:
            return LogState.BROKEN
        return LogState.COMPLETE if self._collector.complete else LogState.GROWING

    @property
    def lacking(self) -> frozenset[str]:
        """The metrics looked for here that have no number yet, which may still come."""
        if self._scan is None or self._enough:
            return frozenset()
        return frozenset(each.metric.name for each in self._scan.lacking)

    @property
    def has_metrics(self) -> bool:
        """Whether declared metrics are looked for here."""
        return self._scan is not None

    @property
    def position(self) -> int:
        """How many bytes of the log have been read."""
        return 0 if self._reader is None else self._reader.position

    @property
    def steps(self) -> StepProgress:
        """How far the ranks have come."""
        if self._progress is None:
            self._progress = self._collector.seen
        return self._progress

    def advance(self, limit: int | None = None) -> bool:
        """Read what is new, up to ``limit`` bytes of the log; say whether that was all there is."""
        if self.reason is not None or self._enough or self._closed or self._is_read(limit):
            return True
        caught_up = True
        with suppress(FileNotFoundError):
            caught_up = self._noting(self._look, limit) is not False
        if not self.position:
            # Another file may still take the place of one that is empty.
            self._let_go()
        return caught_up and (limit is None or self.position < limit)

    def _look(self, _file: LogFile, reader: LineReader) -> bool:
        return self._take(reader.available(), time.monotonic() + LOOK_LIMIT_S)

    def _is_read(self, limit: int | None) -> bool:
        """Whether all of the log has been read, and nothing has come of it since the last look.

        Of many nodes most print nothing, and none must cost more than this.
        """
        before, self._found = self._found, None
        if limit is not None and self.position >= limit:
            return False
        with suppress(OSError):
            found = os.stat(self.path)  # noqa: PTH116 - the path may be text
            self._found = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
            return self._found == before and found.st_size == self.position
        return False

    def finish(self, limit: int | None = None) -> Run:
        """Read the rest and measure a run that has this log alone; the reading is over then.

        With a ``limit`` the log counts as if it ended after so many bytes. Where more have been
        read, or the log has been closed, it is read again.
        """
        run, log = self.result(limit)
        if run.status is not RunStatus.OK or not self.declared:
            return run
        return with_declared(run, self.declared, [log], self.window_in_steps)

    def up_to(self, limit: int | None) -> LogReading:
        """Give a reading that has not gone beyond ``limit``: this one, or one that begins anew."""
        if self._closed or (limit is not None and self.position > limit):
            self.close()
            return dataclasses.replace(self)
        return self

    def result(self, limit: int | None = None) -> tuple[Run, NodeLog]:
        """Do as ``finish``, and give the numbers of declared metrics apart."""
        reading = self.up_to(limit)
        if reading is not self:
            return reading.result(limit)
        try:
            run = self._finished(limit)
        finally:
            self.close()
        if self._scan is not None and self._in_header:
            self._scan.settle(self.log_format.first_step, self.window_in_steps)
        found = () if self._scan is None else self._scan.numbers
        numbers = {each.declared.metric.name: each for each in found}
        problem = None if run.status is RunStatus.OK else run.reason
        log = NodeLog(str(self.path), numbers, problem=problem, has_steps=not self._in_header)
        return run, log

    def close(self) -> None:
        """Close the log; nothing more is read of it."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _finished(self, limit: int | None) -> Run:
        estimate: Estimate | None = None
        if self.reason is None:
            try:
                estimate = self._noting(self._estimate, limit)
            except FileNotFoundError as error:
                self.reason = f"the log cannot be read: {error.strerror or error}"
        if estimate is None:
            return Run(
                run=self.number,
                status=RunStatus.INVALID,
                reason=self.reason,
                log=str(self.path),
                steps=self._collector.seen.found,
            )
        step_times, missing = self._times_of_steps()
        return Run(
            run=self.number,
            status=RunStatus.OK,
            metrics={THROUGHPUT: estimate.throughput, **step_times},
            missing=missing,
            reason=estimate.note,
            log=str(self.path),
            steps=estimate.steps,
            paused=estimate.paused,
        )

    def _times_of_steps(self) -> tuple[dict[str, float], dict[str, str]]:
        """Give the wanted percentiles of the steps' times, or why they are missing."""
        why = "the window is one step"
        try:
            times = self._collector.step_times() if self._step_times else []
        except (NoStepTimesError, BrokenContractError) as error:
            times, why = [], str(error)
        if not times:
            return {}, {metric.name: why for metric in self._step_times}
        wanted = ((metric.name, metric.statistic) for metric in self._step_times)
        return {name: reduced(how, times) for name, how in wanted if how is not None}, {}

    def _noting(self, act: Callable[[LogFile, LineReader], T], limit: int | None) -> T | None:
        """Do something with the log, which ends at ``limit`` for now; note what is broken."""
        try:
            file, reader = self._opened(limit)
            try:
                return act(file, reader)
            except BrokenContractError as error:
                self.reason = error.reason
                if error.offset is not None:
                    self.reason += f" ({error.place} {line_number(file, error.offset)})"
        except FileNotFoundError:
            raise
        except OSError as error:
            self.reason = f"the log cannot be read: {error.strerror or error}"
        return None

    def _opened(self, limit: int | None) -> tuple[LogFile, LineReader]:
        if self._file is None or self._reader is None:
            self._file = LogFile(self.path)
            self._reader = LineReader(self._file, self.buffer_size)
        if self._stamps is not None:
            # Records without a time wait for theirs.
            self._arrivals.refresh()
            limit = self._arrivals.known if limit is None else min(self._arrivals.known, limit)
        self._file.limit = limit
        return self._file, self._reader

    def _estimate(self, file: LogFile, reader: LineReader) -> Estimate:
        if not self._enough:
            self._take(reader.available())
        if not self._enough:
            self._take(reader.rest())
        collector, stamps = self._collector, self._stamps
        if stamps is not None and not self._arrivals.known:
            raise BrokenContractError(
                "the record has no time, so it counts when its lines came, and that is unknown: "
                f"{readable(str(arrivals_of(self.path)))} is missing, or is not of this log. "
                "Launch the run, or give the record a group of its time, such as 'seconds'"
            )
        if self._in_header:
            raise self.facts.without_steps(file, is_empty=not reader.position)
        self.facts.look_behind(file)
        if collector.complete and stamps is not None:
            for first, last in collector.ends:
                stamps.check(first, last)
        estimate = collector.estimate()
        throughput = estimate.throughput * self.case.tokens_per_sample(self.unit)
        self.facts.check_devices()
        if not (math.isfinite(throughput) and throughput > 0):
            raise BrokenContractError(
                f"the throughput comes out as {throughput!r}; needed is a finite number above zero"
            )
        if collector.mark is not None:
            check_behind(file, self._finder, self._format, collector.mark)
        return replace(estimate, throughput=throughput)

    def _take(self, found: Iterator[Block], until: float = math.inf) -> bool:
        """Go through blocks until the log has shown enough; false where it is too late for all."""
        for block in found:
            self._progress = None
            records = self._finder.find(block)
            if not self._steps_done:
                self._steps_done = self._feed(block, records)
            self._search(block, records)
            if self._enough:
                break
            if time.monotonic() > until:
                return False
        return True

    def _feed(self, block: Block, records: Iterator[Record]) -> bool:
        """Take the steps of a block; say whether the log has shown enough of them."""
        facts, collector = self.facts, self._collector
        if self._in_header:
            first = next(records, None)
            end = len(block.text) if first is None else first.end - block.offset
            facts.look(block, end, in_header=True)
            if first is None:
                # Without a step, a log that contradicts its case may well be another system's.
                if facts.contradiction is None:
                    facts.note_devices(block, end)
                return False
            self._in_header = False
            facts.settle()
            self.first_step = first_step(self._format, first.step)
            records = chain([first], records)
        try:
            for record in records:
                if not collector.take(record, block, self._scan):
                    if self._scan is not None:
                        self._scan.leave_window(record.offset)
                    break
            enough = collector.enough_in(block)
        except BrokenContractError as error:
            # What the log says of its run up to there explains more.
            facts.look_among_steps(block, error.offset or 0)
            raise
        facts.look_among_steps(block, block.end_offset if enough is None else enough)
        return enough is not None

    def _search(self, block: Block, records: Iterator[Record]) -> None:
        """Look for declared metrics in a block, also behind the last step that counts."""
        scan = self._scan
        if scan is None:
            self._enough = self._steps_done
            return
        if self._steps_done and (following := next(records, None)) is not None:
            scan.leave_window(following.offset)
        scan.search(block, self.window_in_steps)
        self._enough = self._steps_done and scan.is_done

    @property
    def window_in_steps(self) -> tuple[int, int]:
        """The last step before the measured ones, and the last of them."""
        seen = self._collector.seen
        return seen.warmup, seen.window


def _collector(
    log_format: LogFormat, case: Case, window: Window, estimator: Estimator
) -> SteadySteps | PublishedLines:
    if estimator is Estimator.STEADY:
        return SteadySteps(log_format, Span.of(log_format, window), case)
    if log_format.published is None:
        raise ValueError(f"the log format {log_format.name} has no published definition")
    from pytest_dlperf.logs.published import PublishedLines

    return PublishedLines(log_format, log_format.published, window, case)
