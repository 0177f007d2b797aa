"""Number the steps of a log from 1 on, by how many had ended, whatever the log calls them.

Numbering goes on where the log begins anew with each epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pytest_dlperf.formats.contract import BrokenContractError, whole_number

if TYPE_CHECKING:
    from pytest_dlperf.formats.log_format import LogFormat

_NEVER: Final = 1 << 62
"""A step that no run reaches."""
_MIN_INTERVAL: Final = 2
"""Odd numbers may be those of every second step from either 0 or 1 on."""


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
        """Begin before the first record, which decides what the first step is called."""
        self.first = log_format.first_step
        self.epoch = -1
        self.shift = 0
        """What is added to a number of the current epoch."""
        self.furthest = 0
        """The last step of all."""
        self.guessed = _NEVER
        """The step with which an epoch was first taken to end, since no later one is printed."""
        self._begin = 0
        self._shifts: dict[int, int] = {}
        self._lengths: dict[bytes, int] = {}
        self._turns: list[int] = []
        self._even = log_format.even_epochs
        self._length = log_format.epoch_length
        self._last = _NEVER

    def begin(self, number: int) -> None:
        """Take the number of the log's first record."""
        if self.first is None:
            self.first = min(number, 1)
        self.shift = 1 - self.first
        self._begin = number

    def tell_first(self, number: int, following: int) -> None:
        """Take the numbers of the first two records for what the log calls its first step.

        Numbers such as 19, 39, 59 are of steps that begin with 0, and of every twentieth of them.
        """
        interval = following - number
        if self.first is None and interval > _MIN_INTERVAL and (number + 1) % interval == 0:
            self.first = 0

    def note_length(self, epoch: bytes, buffer: bytearray, start: int) -> None:
        """Read on an epoch's first record how many steps the log says it has."""
        if self._length is None or epoch in self._lengths:
            return
        match = self._length.match(buffer, start)
        self._lengths[epoch] = 0 if match is None else int(match[1])

    def enter(self, epoch: int, offset: int) -> bool:
        """Go on in an epoch; say whether it is a further one, behind all steps so far."""
        shift = self._shifts.get(epoch)
        if shift is not None:
            self.shift = shift
            return False
        if epoch < self.epoch:
            raise BrokenContractError(
                f"steps are out of order: epoch {epoch} follows epoch {self.epoch}", offset=offset
            )
        begins = self.epoch < 0
        after = 0 if begins else self._end_of_epoch(offset)
        self.epoch = epoch
        self.shift = self._shifts[epoch] = after + 1 - (self.first or 0)
        if not begins:
            self._turns.append(after)
        return not begins

    def _end_of_epoch(self, offset: int) -> int:
        before = self._shifts[self.epoch] - 1 + (self.first or 0)
        if self._even:
            last = self.furthest - self._shifts[self.epoch]
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
            self.guessed = min(self.guessed, self.furthest)
        return max(self.furthest, before + length)

    def has_turned(self, before: int, step: int) -> bool:
        """Say whether an epoch begins behind one step, and up to another."""
        return any(before <= turn < step for turn in self._turns)

    def begins_within(self, least: int, interval: int) -> bool:
        """Say whether the log begins within an epoch that is not its first, ``least``."""
        begins = min(self._shifts, default=0)
        return begins > least and self._begin - (self.first or 0) >= interval

    def check(self, number: int, offset: int) -> None:
        """Check that no epoch with as many steps as this one has ended before such a number."""
        if number > self._last:
            raise epoch_was_cut(self._last, number, offset)

    def check_begin(self, number: int, offset: int) -> None:
        """Check a later epoch's number against the first, which the log's begin may not show."""
        if self._turns and number < (self.first or 0):
            raise BrokenContractError(
                f"the log's begin is missing: it counts from step {number}, as a later epoch shows",
                offset=offset,
            )

    def mark(self, step: int, offset: int) -> Mark:
        """Name a step as the log does, in the epoch that was entered last."""
        epoch = next((each for each, shift in self._shifts.items() if shift == self.shift), 0)
        return Mark(offset, epoch, step - self.shift, self.last_of_epoch)

    @property
    def last_of_epoch(self) -> int | None:
        """With which number all epochs have ended so far, where all have the same length."""
        return self._last if self._last < _NEVER else None

    def place(self, number: int, epoch: bytes, offset: int) -> int:
        """Number a step that any of several ranks has printed; of an epoch, where it has one."""
        if not self.furthest:
            self.begin(number)
        if epoch:
            self.enter(whole_number(epoch, what="epoch", offset=offset), offset)
        self.check(number, offset)
        self.check_begin(number, offset)
        step = number + self.shift
        if step < 1:
            raise BrokenContractError(
                f"step {number} stands below the first step, {self.first}", offset=offset
            )
        self.furthest = max(self.furthest, step)
        return step


_SECOND_RUN: Final = "; a second run begins there, in the same file"


class StepOrder:
    """Follows the records of one process, each of which has to come behind the one before."""

    __slots__ = ("_epoch", "_hint", "_restarts", "_text", "gap", "numbers", "offset", "turned")

    def __init__(self, log_format: LogFormat) -> None:
        """Begin before the first record."""
        self.numbers = StepNumbers(log_format)
        self.gap = 0
        """How many steps the record is behind the one before."""
        self.turned = False
        """Whether it is the first of a further epoch."""
        self.offset: int | None = None
        self._restarts = "epoch" in log_format.record.groupindex
        self._hint = ""
        if log_format.whole_lines:
            several = "; if several processes print into it, say which by 'ranks'"
            self._hint = epoch_hint(log_format) + several
        self._epoch = b""
        self._text = b""

    @property
    def step(self) -> int:
        """The last step, counted from 1."""
        return self.numbers.furthest

    def follow(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> bool:
        """Go on to a record; false for an identical copy of the one before."""
        numbers = self.numbers
        number = whole_number(printed, what="step", offset=offset)
        if self.offset is None:
            numbers.begin(number)
        self.turned = False
        if self._restarts and epoch != self._epoch:
            self.turned = self._turn(epoch, number, offset)
        if self.turned:
            numbers.check_begin(number, offset)
        step = number + numbers.shift
        self.gap = gap = step - numbers.furthest
        if gap == 0 and text == self._text and self.offset is not None:
            return False
        if gap <= 0:
            raise self._disorder(number, offset)
        numbers.check(number, offset)
        numbers.furthest = step
        self._text = text
        self.offset = offset
        return True

    def _turn(self, epoch: bytes, number: int, offset: int) -> bool:
        numbers = self.numbers
        into = whole_number(epoch, what="epoch", offset=offset)
        if into < numbers.epoch:
            reason = f"steps are out of order: epoch {into} follows epoch {numbers.epoch}"
            if number == numbers.first:
                reason += _SECOND_RUN
            raise BrokenContractError(reason, offset=offset)
        self._epoch = epoch
        return numbers.enter(into, offset)

    def _disorder(self, number: int, offset: int) -> BrokenContractError:
        numbers = self.numbers
        last = numbers.furthest - numbers.shift
        if self.offset is None:
            reason = f"the log begins with step {number}, below its first, {numbers.first}"
        elif self.gap == 0:
            reason = (
                f"step {number} stands twice with different times; more than one process prints "
                "into the log ('ranks: local' is for all of a node, 'nodes' for one of each node), "
                "or a second run was appended"
            )
        else:
            reason = f"steps are out of order: step {number} follows step {last}"
            if number == numbers.first:
                reason += _SECOND_RUN + self._hint
        return BrokenContractError(reason, offset=offset)


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
    number = int(printed[:15])
    first = min(number, 1) if log_format.first_step is None else log_format.first_step
    return number - first + 1


def epoch_hint(log_format: LogFormat) -> str:
    """Say what a declared record may lack where numbers begin again."""
    if not log_format.whole_lines or "epoch" in log_format.record.groupindex:
        return ""
    return "; if numbering begins again with each epoch, the record needs a group 'epoch'"
