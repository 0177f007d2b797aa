"""Number the steps of a log from 1 on, by how many had ended, whatever the log calls them.

Numbering goes on where the log begins anew with each epoch.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pytest_dlperf.formats.contract import BrokenContractError, whole_number
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.logs.records import LONGEST_STEP, Record

_NEVER: Final = 1 << 62
"""A step that no run reaches."""
_MIN_INTERVAL: Final = 2
"""Odd numbers may be those of every second step from either 0 or 1 on."""
_SECOND_RUN: Final = "; a second run begins there, in the same file"


class Mark(NamedTuple):
    """Where every rank has gone beyond a step, and what the log calls it."""

    offset: int
    epoch: int
    number: int
    last_of_epoch: int | None = None
    """With which number all epochs have ended so far, where all have the same length."""


class StepNumbers:
    """Numbers steps from 1 on, whatever a log calls its first one, and on through its epochs.

    The length of an epoch is what the log prints of it, at least as many steps as were seen.
    """

    def __init__(self, log_format: LogFormat) -> None:
        self.first = log_format.first_step
        self.epoch = -1
        self.shift = 0
        """What is added to a number of the current epoch."""
        self.furthest = 0
        """The last step of all."""
        self.turned = False
        """Whether the last record was the first of a further epoch."""
        self._begin: int | None = None
        self._shifts: dict[int, int] = {}
        self._lengths: dict[bytes, int] = {}
        self._turns: list[int] = []
        self._even = log_format.even_epochs
        self._last = _NEVER
        self._guessed = _NEVER

    def tell_first(self, number: int, following: int) -> None:
        """Take the numbers of the first two records for what the log calls its first step.

        Numbers such as 19, 39, 59 are of steps that begin with 0, and of every twentieth of them.
        """
        interval = following - number
        if self.first is None and interval > _MIN_INTERVAL and (number + 1) % interval == 0:
            self.first = 0

    def place(self, record: Record) -> int:
        """Number the step of a record, which any of several ranks may have printed.

        Raises:
            BrokenContractError: It has no number, or the log's begin or an epoch's end is missing.
        """
        offset = record.offset
        number = whole_number(record.step, what="step", offset=offset)
        if self._begin is None:
            self._begin = number
            self.first = min(number, 1) if self.first is None else self.first
            self.shift = 1 - self.first
        self.turned = False
        if record.epoch:
            epoch = whole_number(record.epoch, what="epoch", offset=offset)
            self._lengths.setdefault(record.epoch, record.epoch_length)
            if epoch != self.epoch:
                self.turned = self._enter(epoch, number, offset)
        if number > self._last:
            raise epoch_was_cut(self._last, number, offset)
        if self._turns and number < (self.first or 0):
            raise BrokenContractError(
                f"the log's begin is missing: it counts from step {number}, as a later epoch shows",
                offset=offset,
            )
        step = number + self.shift
        if step < 1:
            raise BrokenContractError(
                f"step {number} stands below the log's first step, {self.first}", offset=offset
            )
        return step

    def _enter(self, epoch: int, number: int, offset: int) -> bool:
        """Go on in an epoch; say whether it is a further one, behind all steps so far."""
        if (shift := self._shifts.get(epoch)) is not None:
            self.epoch, self.shift = epoch, shift
            return False
        if epoch < (newest := max(self._shifts, default=-1)):
            raise self.epoch_goes_back(epoch, newest, number, offset)
        begins = not self._shifts
        after = 0 if begins else self._end_of_epoch(offset)
        self.epoch = epoch
        self.shift = self._shifts[epoch] = after + 1 - (self.first or 0)
        if not begins:
            self._turns.append(after)
        return not begins

    def epoch_goes_back(
        self, epoch: int, before: int, number: int, offset: int
    ) -> BrokenContractError:
        """Make the error of an epoch that follows a later one."""
        begins = _SECOND_RUN if number == self.first else ""
        return BrokenContractError(
            f"steps are out of order: epoch {epoch} follows epoch {before}{begins}", offset=offset
        )

    def _end_of_epoch(self, offset: int) -> int:
        newest = max(self._shifts)
        before = self._shifts[newest] - 1 + (self.first or 0)
        if self._even:
            last = self.furthest - self._shifts[newest]
            if last < self._last < _NEVER:
                raise BrokenContractError(
                    f"steps are missing from the log: an epoch ended with step {last}, and one "
                    f"before it with step {self._last}",
                    offset=offset,
                )
            self._last = last
        # All epochs have the same data: of lengths that differ, one is damaged.
        lengths = set(self._lengths.values())
        length = lengths.pop() if len(lengths) == 1 else 0
        if not length:
            self._guessed = min(self._guessed, self.furthest)
        return max(self.furthest, before + length)

    def has_turned(self, before: int, step: int) -> bool:
        """Say whether an epoch begins behind one step, and up to another."""
        return any(before <= turn < step for turn in self._turns)

    def check_epochs(self, log_format: LogFormat, last: int, interval: int) -> None:
        """Check that steps up to the ``last`` are known by number, where some only are printed.

        Raises:
            BrokenContractError: They are not.
        """
        begins = min(self._shifts, default=0)
        into = (self._begin or 0) - (self.first or 0)
        if begins > log_format.first_epoch and into >= interval:
            raise BrokenContractError(
                "the log's begin is missing: it begins within an epoch that is not the first, so "
                "it is not known which steps these are"
            )
        if self._guessed < last and interval > 1:
            raise BrokenContractError(
                f"an epoch ends before the window does, and with only every {interval} steps "
                "printed its length is not known; print every step, or make the epoch longer"
            )

    def mark(self, step: int, offset: int) -> Mark:
        """Name a step as the log does, in the epoch that was entered last."""
        return Mark(offset, max(self.epoch, 0), step - self.shift, self.last_of_epoch)

    @property
    def last_of_epoch(self) -> int | None:
        """With which number all epochs have ended so far, where all have the same length."""
        return self._last if self._last < _NEVER else None


class StepOrder:
    """Follows the records of one process, each of which has to come behind the one before."""

    def __init__(self, log_format: LogFormat) -> None:
        self.numbers = StepNumbers(log_format)
        self.gap = 0
        """How many steps the record is behind the one before."""
        self._before: Record | None = None
        several = "; if several processes print into it, say which by 'ranks'"
        self._hint = epoch_hint(log_format) + several

    def follow(self, record: Record) -> bool:
        """Go on to a record; false for an identical copy of the one before.

        Raises:
            BrokenContractError: It does not come behind that.
        """
        numbers, before = self.numbers, self._before
        epoch = numbers.epoch
        step = numbers.place(record)
        if numbers.epoch < epoch:
            number = step - numbers.shift
            raise numbers.epoch_goes_back(numbers.epoch, epoch, number, record.offset)
        self.gap = gap = step - numbers.furthest
        if before is not None and gap == 0 and record.time == before.time:
            return False
        if before is not None and gap <= 0:
            number, last = step - numbers.shift, numbers.furthest - numbers.shift
            reason = f"steps are out of order: step {number} follows step {last}"
            if number == numbers.first:
                reason += _SECOND_RUN + self._hint
            if gap == 0:
                reason = (
                    f"step {number} stands twice with different times; more than one process "
                    "prints into the log ('ranks: local' is for all of a node, 'nodes' for one of "
                    "each node), or a second run was appended"
                )
            raise BrokenContractError(reason, offset=record.offset)
        numbers.furthest = step
        self._before = record
        return True


def epoch_was_cut(last: int, number: int, offset: int) -> BrokenContractError:
    """Make the error of an epoch that goes on to a number, where one before ended sooner."""
    return BrokenContractError(
        f"steps are missing from the log: an epoch ended with step {last}, and a later one goes on "
        f"to step {number}",
        offset=offset,
    )


def first_step(log_format: LogFormat, printed: bytes) -> int | None:
    """Number the step of a log's first record; ``None`` where it is not a number."""
    if not printed.isdigit():
        return None
    number = int(printed[:LONGEST_STEP])
    first = min(number, 1) if log_format.first_step is None else log_format.first_step
    return number - first + 1


def epoch_hint(log_format: LogFormat) -> str:
    """Say what a declared record may lack where numbers begin again."""
    if "epoch" in log_format.record.groupindex:
        return ""
    return "; if numbering begins again with each epoch, the record needs a group 'epoch'"
