"""``steady`` for logs into which several ranks print without saying which of them does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.formats.contract import BrokenContractError, whole_number
from pytest_dlperf.logs.numbering import Mark, StepNumbers
from pytest_dlperf.logs.ranked import WindowSteps
from pytest_dlperf.logs.records import records
from pytest_dlperf.logs.step_times import slowest
from pytest_dlperf.logs.steps import LOOK_AHEAD, Estimate, RankCount, StepsSeen

if TYPE_CHECKING:
    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.logs.scan import MetricScan
    from pytest_dlperf.logs.steps import Ends, Span
    from pytest_dlperf.logs.values import Text
    from pytest_dlperf.model.case import Case


class SharedSteps:
    """A log into which several ranks print without saying which of them does.

    Each step stands there once per rank; in what order the ranks come, whole blocks of one rank
    or turn by turn, does not matter: a step is over when all have printed it, and that happens in
    the steps' order. An epoch's length is known as soon as its successor shows, since the rank that
    printed that has printed all of the epoch.
    """

    def __init__(self, log_format: LogFormat, span: Span, case: Case, *, keeps_steps: bool) -> None:
        """Expect each step as often as there are ranks that print into the log."""
        self._format = log_format
        self._span = span
        self._ranks = log_format.ranks.printers(case)
        self._restarts = "epoch" in log_format.record.groupindex
        self._numbers = StepNumbers(log_format)
        self._count = RankCount(log_format, case, self._ranks)
        self._pending: dict[int, list[Text]] = {}
        self._steps = WindowSteps(log_format, span, case, self._numbers, keeps_steps=keeps_steps)
        self._enough: int | None = None
        self.mark: Mark | None = None
        """Where the last rank has completed its window."""

    @property
    def complete(self) -> bool:
        """Whether each expected rank has completed its window."""
        return self._enough is not None

    @property
    def seen(self) -> StepsSeen:
        """How far the log has come; which rank has shown the last step is not known."""
        furthest, slowest = self._numbers.furthest, self._steps.step
        return StepsSeen(
            found=furthest,
            warmup=self._span.after,
            window=self._span.last,
            slowest=slowest,
            last={"": furthest} if furthest else {},
            awaited={} if self.complete else {"": slowest},
        )

    @property
    def ends(self) -> dict[str, Ends]:
        """The last records of the window's first and last step, whichever ranks printed them."""
        ends = self._steps.ends
        return {} if ends is None else {"": ends}

    def feed(self, region: Region, scan: MetricScan | None = None) -> int | None:
        """Take the region's records; return where the last rank completed its window."""
        span = self._span
        for start, end, printed, epoch, _, text in records(region, self._format):
            offset = region.offset + start
            if self._enough is None:
                self._numbers.note_length(epoch, region.buffer, start)
                self._count.note(epoch, printed, offset)
                step = self._take(printed, epoch, text, offset)
                if self._steps.complete:
                    self._enough = region.offset + end + LOOK_AHEAD
                    self.mark = self._numbers.mark(step, region.offset + end)
                if scan is not None:
                    inside = span.after < step <= span.last
                    shift = self._numbers.shift
                    scan.at_record(start, end, step=step, shift=shift, inside=inside)
            elif offset < self._enough:
                self._count.note(epoch, printed, offset)
                if scan is not None:
                    scan.leave_window(start)
            else:
                break
        if self._enough is None or region.offset + region.end < self._enough:
            return None
        return max(self._enough - region.offset, 0)

    def _take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> int:
        number = whole_number(printed, what="step", offset=offset)
        step = self._numbers.place(number, epoch if self._restarts else b"", offset)
        if step <= self._steps.step:
            if self._ranks == 1 and step < self._steps.step:
                raise BrokenContractError(
                    f"steps are out of order: step {number} stands behind a later one",
                    offset=offset,
                )
            if step >= self._span.begin:
                self._count.check_step(printed, self._ranks + 1, offset)
            return step
        texts = self._pending.setdefault(step, [])
        texts.append((text, offset))
        if len(texts) == self._ranks:
            self._end_step(step)
        return step

    def _end_step(self, step: int) -> None:
        """Go on to a step that all ranks have printed."""
        steps = self._steps
        if next(iter(self._pending)) != step:
            for before in sorted(each for each in self._pending if each < step):
                lacking = self._pending.pop(before)
                if before >= self._span.begin:
                    raise self._count.too_seldom(len(lacking), lacking[-1][1])
        turned = self._numbers.has_turned(steps.step, step)
        steps.take(step, self._pending.pop(step), turned=turned)

    def estimate(self) -> Estimate:
        """Take the mean over all ranks; by stamps, a step has ended when the last says so."""
        self._count.check_all_there()
        return self._steps.estimate()

    def step_times(self) -> list[float]:
        """Take the slowest rank of each step; where steps have stamps, the last to end it."""
        return slowest([self._steps.step_times()])
