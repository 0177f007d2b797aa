"""The steps that ``steady`` measures, and what holds for them whoever printed them.

Steps are numbered by how many had ended: the first is 1, whatever the log calls it, and numbering
goes on where the log begins anew with each epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_dlperf.logs.contract import BrokenContractError, positive
from pytest_dlperf.logs.formats import RateScope, Timing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Window


@dataclass(frozen=True, slots=True)
class Span:
    """The window in step numbers: the steps above ``after``, up to ``last``.

    ``begin`` is the least number of a record that can count. Durations and speeds belong to the
    step that they are printed with. Of stamps the earliest is the end of step ``after``, or of
    the first step where nothing is left out.
    """

    after: int
    last: int
    begin: int

    @classmethod
    def of(cls, log_format: LogFormat, window: Window) -> Span:
        """Shift a window by the steps that the format's logs need to settle."""
        after = window.warmup_steps + log_format.settling_steps
        stamps = log_format.timing is Timing.TIMESTAMP
        begin = max(after, 1) if stamps else after + 1
        return cls(after, after + window.measured_steps, begin)

    def too_few(self, found: int, offset: int | None) -> BrokenContractError:
        """The log ends before the window does."""
        return BrokenContractError(
            f"too few steps: found {found}, needed {self.last} "
            f"(measured are steps {self.after + 1} to {self.last}, counted from 1)",
            offset=offset,
            place="the last step is on line",
        )

    def check(self, records: Records, offset: int | None) -> None:
        """Check that the records which count make up a window; ``offset`` is the last one's.

        Raises:
            BrokenContractError: They reach less far than one print interval from its ends, or
                some are missing between them.
        """
        interval = records.interval
        if records.furthest < self.last and self.last - records.last >= interval:
            raise self.too_few(records.furthest, offset)
        check_no_hole(*records.widest, interval)
        measured = self.last - self.after
        if interval > measured:
            raise BrokenContractError(
                f"only every {interval} steps are printed, and {measured} are measured; measure "
                "more of them"
            )
        if not records.first or records.first - self.begin >= interval:
            begins = records.first or records.furthest
            raise BrokenContractError(
                f"the log begins too late: step {begins} is the first there is of steps "
                f"{self.begin} to {self.last}, counted from 1"
            )
        if records.count < measured // interval - 1:
            raise BrokenContractError(
                f"steps are missing from the log: it has {records.count} records of the "
                f"{measured} steps that are measured, and prints every {interval} steps"
            )

    def check_two(self, records: Records) -> None:
        """Check that there is more than one record, where one alone tells nothing of the window.

        Raises:
            BrokenContractError: There is not.
        """
        if records.count < min(2, self.last - self.begin + 1):
            raise self.only_one(records.first)

    def only_one(self, step: int) -> BrokenContractError:
        """A single record does not tell what a window does."""
        return BrokenContractError(
            f"step {step} is the only one printed of steps {self.begin} to {self.last}, "
            "counted from 1; needed are two at least"
        )


@dataclass(frozen=True, slots=True)
class Records:
    """What the records of a rank have in common, for the question whether they are a window.

    ``first`` and ``last`` are the steps of the first and the last record that count, ``count`` is
    how many there are, ``furthest`` the last step of all. ``widest`` is the longest way from one
    record to the next, and the step before it: from the last record in front of the window to the
    one that ends it.
    """

    first: int
    last: int
    count: int
    furthest: int
    widest: tuple[int, int]
    interval: int


def print_interval(gaps: Mapping[int, int]) -> int:
    """How many steps lie between two records, of how often each number was seen.

    The most frequent one: a hole is a gap as well, and so is an epoch's last, shorter interval.
    """
    return min(gaps, key=lambda gap: (-gaps[gap], gap), default=1)


def check_no_hole(gap: int, before: int, interval: int) -> None:
    """Check that no record is missing between two, ``gap`` steps apart, the first ``before``.

    Raises:
        BrokenContractError: One is.
    """
    # The first interval of all may be one shorter, where numbering begins with 1.
    if gap >= 2 * interval:
        raise BrokenContractError(
            f"steps are missing from the log: none between step {before} and step "
            f"{before + gap}, counted from 1"
        )


def check_epochs(turned_inside: bool, interval: int) -> None:
    """Check that the steps between two records can be counted.

    Raises:
        BrokenContractError: An epoch ends there and its last steps were not printed.
    """
    if turned_inside and interval > 1:
        raise BrokenContractError(
            f"an epoch ends within the window, and with only every {interval} steps printed its "
            "length is not known; print every step, or make the epoch longer"
        )


def global_rate(log_format: LogFormat, rate: float, case: Case) -> float:
    """What all devices do together when the log prints ``rate``."""
    if log_format.rate_scope is RateScope.GLOBAL:
        return rate
    if log_format.rate_scope is RateScope.NODE:
        return rate * case.topology.nodes
    return rate * case.topology.world_size


def step_seconds(log_format: LogFormat, text: bytes, offset: int) -> float:
    """The duration of a step, in seconds.

    Raises:
        BrokenContractError: It is no finite number above zero.
    """
    seconds = positive(text, what="the step's time", offset=offset)
    return seconds / 1000 if log_format.timing is Timing.MILLISECONDS else seconds
