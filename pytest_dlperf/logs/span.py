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
    from pytest_dlperf.cases import Case
    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.measurement import Window


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

    def check_ends(self, first: int, last: int, found: int, offset: int | None, gap: int) -> None:
        """Check that records reach within one print interval of the window's ends.

        Raises:
            BrokenContractError: They do not.
        """
        if found < self.last and self.last - last >= gap:
            raise self.too_few(found, offset)
        if not first or first - self.begin >= gap:
            begins = f"step {first}" if first else f"step {found}"
            raise BrokenContractError(
                f"the log begins too late: {begins} is the first there is of steps "
                f"{self.begin} to {self.last}, counted from 1"
            )


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
            f"an epoch ends within the window, and with only each {interval}th step printed its "
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
