"""``steady`` for logs into which several ranks print without saying which of them does."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_dlperf.logs.clock import Clock, parse
from pytest_dlperf.logs.contract import BrokenContractError, Estimate, whole_number
from pytest_dlperf.logs.records import records
from pytest_dlperf.logs.step_times import slowest, step_times
from pytest_dlperf.logs.steps import (
    LOOK_AHEAD,
    NEVER,
    Ends,
    Gaps,
    Place,
    RankCount,
    Records,
    StepNumbers,
    StepsSeen,
    check_epochs,
)
from pytest_dlperf.logs.timing import Kind, samples_per_second, step_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.logs.scan import MetricScan
    from pytest_dlperf.logs.steps import Span
    from pytest_dlperf.model.case import Case


class SharedSteps:
    """A log into which several ranks print without saying which of them does.

    Each step stands there once per rank; in what order the ranks come, whole blocks of one rank
    or turn by turn, does not matter. An epoch's length is known as soon as its successor shows,
    since the rank that printed that has printed all of the epoch.
    """

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        """Expect each step as often as the case has devices on a node."""
        self._format = log_format
        self._span = span
        self._case = case
        self._ranks = case.topology.devices_per_node
        self._restarts = "epoch" in log_format.record.groupindex
        self._numbers = StepNumbers(log_format.first_step)
        self._shifts: dict[int, int] = {}
        self._turns: set[int] = set()
        self._texts: dict[int, list[tuple[bytes, int]]] = {}
        self._before: dict[int, int] = {}
        self._count = RankCount(log_format, case, self._ranks)
        self._enough: int | None = None
        self._closing = NEVER
        self._closing_count = 0
        self._step = 0
        self._taken = 0
        self._slowest = 0
        self._offset: int | None = None

    @property
    def complete(self) -> bool:
        """Whether each expected rank has completed its window."""
        return self._enough is not None

    @property
    def seen(self) -> StepsSeen:
        """How far the log has come; which rank has shown the last step is not known."""
        return StepsSeen(
            found=self._step,
            warmup=self._span.after,
            window=self._span.last,
            slowest=self._slowest,
            last={"": self._step} if self._step else {},
            awaited={} if self.complete else {"": self._slowest},
        )

    @property
    def ends(self) -> dict[str, Ends]:
        """The last records of the window's first and last step, whichever ranks printed them."""
        if not self.complete or len(self._texts) < 2:  # noqa: PLR2004 - both ends
            return {}
        first, last = (
            Place(step, max(offset for _, offset in self._texts[step]))
            for step in (min(self._texts), max(self._texts))
        )
        return {"": Ends(first, last)}

    def feed(self, region: Region, scan: MetricScan | None = None) -> int | None:
        """Take the region's records; return where the last rank completed its window."""
        span = self._span
        for start, end, printed, epoch, _, text in records(region, self._format):
            offset = region.offset + start
            if self._enough is None:
                self._count.note(epoch, printed, offset)
                if self._take(printed, epoch, text, offset):
                    self._enough = region.offset + end + LOOK_AHEAD
                if scan is not None:
                    step = self._taken
                    inside = span.after < step <= span.last
                    scan.at_record(start, end, step=step, shift=step - int(printed), inside=inside)
            elif offset < self._enough:
                self._count.note(epoch, printed, offset)
                if scan is not None:
                    scan.leave_window(start)
            else:
                break
        if self._enough is None or region.offset + region.end < self._enough:
            return None
        return max(self._enough - region.offset, 0)

    def _take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> bool:
        number = whole_number(printed, what="step", offset=offset)
        if self._offset is None:
            self._numbers.begin(number)
        if self._restarts:
            shift = self._shift_of(whole_number(epoch, what="epoch", offset=offset), offset)
        else:
            shift = self._numbers.shift
        step = number + shift
        if step < 1:
            raise BrokenContractError(
                f"step {number} stands below the first step, {self._numbers.first}", offset=offset
            )
        if self._ranks == 1 and step < self._step:
            raise BrokenContractError(
                f"steps are out of order: step {number} stands behind a later one", offset=offset
            )
        self._offset = offset
        self._step = max(self._step, step)
        self._taken = step
        span = self._span
        if step < span.begin:
            count = self._before[step] = self._before.get(step, 0) + 1
            self._note_reached(step, count)
            return False
        if step <= span.last:
            texts = self._texts.setdefault(step, [])
            texts.append((text, offset))
            self._count.check_step(printed, len(texts), offset)
            self._note_reached(step, len(texts))
        # Ranks print the same steps, so the one that ends the window for a rank does for all.
        if span.last <= step < self._closing:
            self._closing, self._closing_count = step, 0
        if step == self._closing:
            self._closing_count += 1
        return self._closing_count == self._ranks

    def _note_reached(self, step: int, count: int) -> None:
        if count == self._ranks and step > self._slowest:
            self._slowest = step

    def _shift_of(self, epoch: int, offset: int) -> int:
        shift = self._shifts.get(epoch)
        if shift is None:
            self._numbers.turn(epoch, self._step, offset)
            shift = self._shifts[epoch] = self._numbers.shift
            if self._offset is not None and self._step < self._span.last:
                self._turns.add(self._step + 1)
        return shift

    def estimate(self) -> Estimate:
        """Take the mean over all ranks."""
        self._check_ranks()
        steps = sorted(self._texts)
        if self._format.timing.kind is Kind.MOMENT:
            return self._by_stamps(steps)
        if self._format.timing.kind is Kind.RATE:
            return self._by_rates(steps)
        self._span.check_two(self._checked(steps[:1], steps))
        times = [
            step_seconds(self._format.timing, text, offset)
            for step in steps
            for text, offset in self._texts[step]
        ]
        mean = math.fsum(times) / len(times)
        return Estimate(self._case.global_batch / mean, len(steps))

    def step_times(self) -> list[float]:
        """Take the slowest rank of each step; where steps have stamps, the last to end it."""
        steps = sorted(self._texts)
        if self._format.timing.kind is Kind.MOMENT:
            ends = [
                max((parse(text).nanoseconds, text) for text, _ in self._texts[s]) for s in steps
            ]
            kept = [(step, text) for step, (_, text) in zip(steps, ends, strict=True)]
            return slowest([step_times(self._format, self._case, kept)])
        return slowest(
            step_times(
                self._format, self._case, [(step, self._texts[step][rank][0]) for step in steps]
            )
            for rank in range(self._ranks)
        )

    def _check_ranks(self) -> None:
        ranks = self._ranks
        self._count.check_all_there()
        uneven = [step for step, texts in self._texts.items() if len(texts) != ranks]
        if uneven and self._closing_count != ranks:
            # Some rank has not come as far as others.
            found = min(uneven) - 1
            raise self._span.too_few(found, self._offset)
        if uneven:
            texts = self._texts[min(uneven)]
            raise self._count.too_seldom(len(texts), texts[-1][1])

    def _checked(self, first: Sequence[int], steps: Sequence[int]) -> Records:
        known = sorted({*self._before, *steps, *({self._closing} - {NEVER})})
        gaps = Gaps()
        for before, after in pairwise(known):
            gaps.note(
                after - before,
                before,
                in_epoch=after not in self._turns,
                in_window=after >= self._span.begin,
            )
        records = Records(
            first=first[0] if first else 0,
            last=steps[-1] if steps else 0,
            count=len(steps),
            furthest=self._step,
            gaps=gaps,
        )
        self._span.check(records, self._offset)
        return records

    def _turned_between(self, first: int, last: int) -> bool:
        return any(first <= turn <= last for turn in self._turns)

    def _by_rates(self, steps: Sequence[int]) -> Estimate:
        used = 0
        time = 0.0
        covered = []
        before = max(self._before, default=0)
        timing, scope = self._format.timing, self._format.rate_scope
        for step in steps:
            gap = step - before
            if before >= self._span.after:
                rates = [
                    samples_per_second(timing, scope, text, offset, self._case)
                    for text, offset in self._texts[step]
                ]
                used += gap
                time += gap * len(rates) / math.fsum(rates)
                covered += [before + 1, step]
            before = step
        records = self._checked(covered[:1], steps)
        check_epochs(self._turned_between(records.first, records.last), records.gaps.interval)
        return Estimate(used / time, used)

    def _by_stamps(self, steps: Sequence[int]) -> Estimate:
        # A step has ended when the last rank says so.
        records = self._checked(steps[:1], steps)
        if len(steps) == 1:
            raise self._span.only_one(records.first)
        check_epochs(self._turned_between(steps[0] + 1, steps[-1]), records.gaps.interval)
        clock = Clock()
        for step in steps:
            _, text, at = max(
                (parse(text, offset).nanoseconds, text, offset)
                for text, offset in self._texts[step]
            )
            clock.read(text, at)
        note = clock.error_note
        count = steps[-1] - steps[0]
        return Estimate(self._case.global_batch * count / clock.seconds, count, note)
