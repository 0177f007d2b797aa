"""Measure one run from its log: the one way in for those who measure."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

from msgspec.structs import replace

from pytest_dlperf.formats.declared import DeclaredMetric
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.printed import BrokenContractError
from pytest_dlperf.logs.arrivals import Arrivals, ArrivalStamps, arrivals_of
from pytest_dlperf.logs.facts import FactCheck, why_no_steps
from pytest_dlperf.logs.lines import (
    BLOCK_SIZE,
    Block,
    LineReader,
    LogFile,
    block_between,
    line_number,
    readable,
)
from pytest_dlperf.logs.metrics import MetricScan, NodeLog, reduced, with_declared
from pytest_dlperf.logs.published import PublishedLines
from pytest_dlperf.logs.records import LONGEST_STEP, Record, RecordFinder
from pytest_dlperf.logs.steady import Estimate, NoStepTimesError, SteadySteps
from pytest_dlperf.logs.tracks import Mark, Span, StepProgress, epoch_hint, epoch_was_cut
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, Run, RunStatus, Window
from pytest_dlperf.model.metric import THROUGHPUT, Metric, Source
from pytest_dlperf.model.work import Timing

T = TypeVar("T")
_BEHIND: Final = 1024 * 1024
"""Bytes behind the window, and at the log's end, in which a second run is looked for."""


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
    ``finish`` then reads the rest; the run is the same without any ``advance``. One that is not
    there yet has not grown. Between two looks the log is not open.

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
        # What is looked for in the log; a second definition may go by another number of a line.
        self._format, published = self.log_format, self.log_format.published
        self._collector: SteadySteps | PublishedLines
        if self.estimator is Estimator.STEADY:
            span = Span.of(self._format, self.window)
            self._collector = SteadySteps(self._format, span, self.case)
        elif published is None:
            raise ValueError(f"the log format {self._format.name} has no published definition")
        else:
            self._format = self.log_format.as_published
            self._collector = PublishedLines(self._format, published, self.window, self.case)
        declared = [each for each in self.declared if each.is_on(self.node, self.nodes)]
        self._scan = MetricScan(declared) if declared else None
        self.facts = FactCheck(self.log_format, self.case)
        self.first_step: int | None = None
        """The step of the log's first record; ``None`` before it is there."""
        self.reason: str | None = None
        """What the log has broken, and on which line; ``None`` unless it is broken."""
        self._steps_done = self._enough = False
        self._reader = LineReader(self.buffer_size)
        self._arrivals = Arrivals(self.path)
        self._stamps: ArrivalStamps | None = None
        """What makes the stamps of records without a time."""
        if self._format.timing is Timing.ARRIVAL:
            self._stamps = ArrivalStamps(self._arrivals, self._format.ranks.printers(self.case))
        self._finder = RecordFinder(self._format, self._stamps)

    # ------------------------------------------------------------------- while the log grows

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
        return self._reader.position

    @property
    def steps(self) -> StepProgress:
        """How far the ranks have come."""
        return self._collector.seen

    @property
    def window_in_steps(self) -> tuple[int, int]:
        """The last step before the measured ones, and the last of them."""
        return self.steps.warmup, self.steps.window

    def advance(self, limit: int | None = None) -> bool:
        """Read what is new, up to ``limit`` bytes of the log; say whether that was all there is."""
        if self.reason is not None or self._enough:
            return True
        with suppress(FileNotFoundError):
            self._look(lambda file: self._read(self._reader.available(file)), limit)
        return limit is None or self.position < limit

    def _look(self, act: Callable[[LogFile], T], limit: int | None) -> T | None:
        """Do something with the log, which ends at ``limit`` for now; note what is broken."""
        try:
            with LogFile(self.path) as file:
                if self._stamps is not None:
                    # Records without a time wait for theirs.
                    self._arrivals.refresh()
                    limit = min(self._arrivals.known, sys.maxsize if limit is None else limit)
                file.limit = limit
                try:
                    return act(file)
                except BrokenContractError as error:
                    self.reason = error.reason
                    if error.offset is not None:
                        self.reason += f" ({error.place} {line_number(file, error.offset)})"
        except FileNotFoundError:
            raise
        except OSError as error:
            self.reason = f"the log cannot be read: {error.strerror or error}"
        return None

    def _read(self, found: Iterable[Block]) -> None:
        """Go through blocks until the log has shown enough."""
        for block in () if self._enough else found:
            records, scan = self._finder.find(block), self._scan
            if not self._steps_done:
                self._steps_done = self._feed(block, records)
            if scan is not None:
                if self._steps_done and (following := next(records, None)) is not None:
                    scan.leave_window(following.offset)
                scan.search(block, self.window_in_steps)
            self._enough = self._steps_done and (scan is None or scan.is_done)
            if self._enough:
                return

    def _feed(self, block: Block, records: Iterator[Record]) -> bool:
        """Take the steps of a block; say whether the log has shown enough of them."""
        facts, collector, scan = self.facts, self._collector, self._scan
        facts.look(block, in_header=self.first_step is None)
        try:
            for record in records:
                enough = collector.enough
                if scan is not None and enough is not None:
                    scan.leave_window(record.offset)
                if enough is not None and record.offset >= enough:
                    break
                step, shift, inside = collector.take(record)
                if self.first_step is None:
                    self.first_step = step
                if scan is not None and enough is None:
                    scan.at_record(record.offset, step, shift, inside=inside)
        except BrokenContractError as error:
            # What the log says of its run up to there explains more.
            raise facts.contradiction(error.offset or sys.maxsize) or error from None
        # Without a step, a log that contradicts its case may well be another system's.
        if self.first_step is not None:
            facts.check(sys.maxsize if collector.enough is None else collector.enough)
        return collector.enough is not None and collector.enough <= block.end

    # ------------------------------------------------------------------- at its end

    def up_to(self, limit: int | None) -> LogReading:
        """Give a reading that has not gone beyond ``limit``: this one, or one that begins anew."""
        if limit is not None and self.position > limit:
            return dataclasses.replace(self)
        return self

    def finish(self, limit: int | None = None) -> Run:
        """Read the rest and measure a run that has this log alone; the reading is over then.

        With a ``limit`` the log counts as if it ended after so many bytes. Where more have been
        read, it is read again.
        """
        run, log = self.result(limit)
        if run.status is not RunStatus.OK or not self.declared:
            return run
        return with_declared(run, self.declared, [log], self.window_in_steps)

    def result(self, limit: int | None = None) -> tuple[Run, NodeLog]:
        """Do as ``finish``, and give the numbers of declared metrics apart."""
        reading = self.up_to(limit)
        if reading is not self:
            return reading.result(limit)
        estimate: Estimate | None = None
        if self.reason is None:
            try:
                estimate = self._look(self._estimate, limit)
            except FileNotFoundError as error:
                self.reason = f"the log cannot be read: {error.strerror or error}"
        run, scan = Run(run=self.number, status=RunStatus.OK, log=str(self.path)), self._scan
        if estimate is None:
            invalid, steps = RunStatus.INVALID, self.steps.found
            run = replace(run, status=invalid, reason=self.reason, steps=steps)
        else:
            times, missing = self._times_of_steps()
            run = replace(
                run,
                metrics={THROUGHPUT: estimate.throughput, **times},
                missing=missing,
                reason=estimate.note,
                steps=estimate.steps,
                paused=estimate.paused,
            )
        has_steps = self.first_step is not None
        if scan is not None and not has_steps:
            scan.settle(self.log_format.first_step, self.window_in_steps)
        found = () if scan is None else scan.numbers
        numbers = {each.declared.metric.name: each for each in found}
        problem = None if estimate is not None else run.reason
        return run, NodeLog(str(self.path), numbers, problem=problem, has_steps=has_steps)

    def _times_of_steps(self) -> tuple[dict[str, float], dict[str, str]]:
        """Give the wanted percentiles of the steps' times, or why they are missing."""
        wanted = {
            metric.name: metric.statistic
            for metric in self.metrics
            if metric.source is Source.STEPS and metric.statistic is not None
        }
        why = "the window is one step"
        try:
            times = self._collector.step_times() if wanted else []
        except (NoStepTimesError, BrokenContractError) as error:
            times, why = [], str(error)
        if not times:
            return {}, dict.fromkeys(wanted, why)
        return {name: reduced(statistic, times) for name, statistic in wanted.items()}, {}

    def _estimate(self, file: LogFile) -> Estimate:
        self._read(self._reader.available(file))
        self._read(self._reader.rest())
        collector, stamps = self._collector, self._stamps
        if stamps is not None and not self._arrivals.known:
            raise BrokenContractError(
                "the record has no time, so it counts when its lines came, and that is unknown: "
                f"{readable(str(arrivals_of(self.path)))} is missing, or is not of this log. "
                "Launch the run, or give the record a group of its time, such as 'seconds'"
            )
        if self.first_step is None:
            raise why_no_steps(file, self.log_format, self.facts)
        self.facts.check_end(file, collector.enough)
        if collector.complete and stamps is not None:
            for first, last in collector.ends:
                stamps.check(first, last)
        estimate = collector.estimate()
        throughput = estimate.throughput * self.case.tokens_per_sample(self.unit)
        if not (math.isfinite(throughput) and throughput > 0):
            raise BrokenContractError(
                f"the throughput comes out as {throughput!r}; needed is a finite number above zero"
            )
        if collector.mark is not None and self._format.step_every is None:
            self._check_behind(file, collector.mark)
        return replace(estimate, throughput=throughput)

    def _check_behind(self, file: LogFile, mark: Mark) -> None:
        """Look for earlier steps in what follows the window, and at the log's end.

        Behind the mark every rank has gone on, so two records of earlier steps in a row are those
        of a second run, and two of later steps than epochs had before show that these have lost
        some. A single one is damaged.
        """
        behind = beyond = False
        longest = mark.last_of_epoch
        for record in self._records_behind(file, mark.offset):
            numbers = record.step, record.epoch or b"0"
            if not all(each.isdigit() and len(each) <= LONGEST_STEP for each in numbers):
                continue
            step, epoch = map(int, numbers)
            was_behind, was_beyond = behind, beyond
            behind = (epoch, step) < (mark.epoch, mark.number)
            beyond = longest is not None and step > longest
            if longest is not None and beyond and was_beyond:
                raise epoch_was_cut(longest, step, record.offset)
            if behind and was_behind:
                raise BrokenContractError(
                    f"a second run begins in the same file: step {step} stands behind step "
                    f"{mark.number}, with which the window of the first has ended; keep one "
                    f"run a file{epoch_hint(self._format)}",
                    offset=record.offset,
                )

    def _records_behind(self, file: LogFile, begin: int) -> Iterator[Record]:
        """Find records up to the first broken one: behind the window nothing depends on it."""
        near = min(begin + _BEHIND, file.size)
        for start, end in ((begin, near), (max(file.size - _BEHIND, near), file.size)):
            with suppress(BrokenContractError):
                yield from self._finder.find(block_between(file, start, end, is_cut=start > near))
