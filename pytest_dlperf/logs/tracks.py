"""Follow the steps of a process through a log: in order, without holes, up to the window's end.

Steps are numbered from 1 on, by how many had ended, whatever the log calls them. Numbering goes on
where the log begins anew with each epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.printed import BrokenContractError, whole_number
from pytest_dlperf.logs.records import Record
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.model.work import Covers, TimeKind

LOOK_AHEAD: Final = 256 * 1024
"""Bytes in which every rank of a node shows: output to a pipe comes in blocks of 8 KiB."""
NEVER: Final = 1 << 62
"""A step that no run reaches."""
_SECOND_RUN: Final = "; a second run begins there, in the same file"

Text: TypeAlias = tuple[bytes, int]
"""What is printed of a time, and its place in the log."""


class StepProgress(Struct, frozen=True, kw_only=True):
    """How far a log has come, in steps numbered from 1 on through all epochs.

    Where ranks do not name themselves, ``last`` and ``awaited`` have one entry under the name "".
    """

    found: int
    """Steps of the rank that came furthest; for ``published``, lines that count."""
    warmup: int
    """Steps that a rank shows before the measured ones, settling included."""
    window: int
    """Steps that a rank has to show: settling, warm-up and measured ones."""
    slowest: int
    """The last step that all ranks have reached, as far as they are told apart."""
    last: Mapping[str, int]
    """The last step of each rank such as ``rank 3``, at most the one that completed its window."""
    awaited: Mapping[str, int]
    """The last step of each rank from which more is needed; 0 under "" while a rank is missing."""

    @property
    def furthest(self) -> int:
        """The last step of all."""
        return max(self.last.values(), default=0)


class Span(NamedTuple):
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
        ends = log_format.timing.kind is TimeKind.MOMENT or log_format.covers is Covers.SINCE_START
        return cls(after, after + window.measured_steps, max(after, 1) if ends else after + 1)

    @property
    def measured(self) -> int:
        """How many steps there are."""
        return self.last - self.after


class Mark(NamedTuple):
    """Where every rank has gone beyond a step, and what the log calls it."""

    offset: int
    epoch: int
    number: int
    last_of_epoch: int | None = None
    """With which number all epochs have ended so far, where all have the same length."""


class Step(NamedTuple):
    """A step of the window as each rank has printed it, ``gap`` steps behind the one before."""

    number: int
    gap: int
    texts: Sequence[Text]
    turned: bool
    """Whether it is the first of a further epoch."""

    @property
    def offset(self) -> int:
        """Where its last record stands."""
        return self.texts[-1][1]


class StepNumbers:
    """Numbers steps from 1 on, whatever a log calls its first one, and on through its epochs.

    The length of an epoch is what the log prints of it, at least as many steps as were seen.
    """

    def __init__(self, log_format: LogFormat) -> None:
        """Begin before the first record, which may decide what the first step is called."""
        self._format = log_format
        self.first = log_format.first_step
        self.epoch = -1
        self.shift = 0
        """What is added to a number of the current epoch."""
        self.step = 0
        """That of the latest record."""
        self.furthest = 0
        """The last step of all."""
        self.last_of_epoch: int | None = None
        self._begin: int | None = None
        self._shifts: dict[int, int] = {}
        self._lengths: dict[bytes, int] = {}
        self._ends: list[int] = []
        self._guessed = NEVER

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
        if record.epoch:
            epoch = whole_number(record.epoch, what="epoch", offset=offset)
            self._lengths.setdefault(record.epoch, record.epoch_length)
            if epoch != self.epoch:
                self._enter(epoch, number, offset)
        if self.last_of_epoch is not None and number > self.last_of_epoch:
            raise epoch_was_cut(self.last_of_epoch, number, offset)
        if self._ends and number < (self.first or 0):
            raise BrokenContractError(
                f"the log's begin is missing: it counts from step {number}, as a later epoch shows",
                offset=offset,
            )
        self.step = number + self.shift
        if self.step < 1:
            raise BrokenContractError(
                f"step {number} stands below the log's first step, {self.first}", offset=offset
            )
        return self.step

    def _enter(self, epoch: int, number: int, offset: int) -> None:
        """Go on in an epoch, which may be a further one, behind all steps so far."""
        newest = max(self._shifts, default=-1)
        if epoch not in self._shifts:
            if epoch < newest:
                raise self.epoch_goes_back(epoch, newest, number, offset)
            after = self._end_of(newest, offset) if self._shifts else 0
            if self._shifts:
                self._ends.append(after)
            self._shifts[epoch] = after + 1 - (self.first or 0)
        self.epoch, self.shift = epoch, self._shifts[epoch]

    def epoch_goes_back(
        self, epoch: int, before: int, number: int, offset: int
    ) -> BrokenContractError:
        """Make the error of an epoch that follows a later one."""
        begins = _SECOND_RUN if number == self.first else ""
        return BrokenContractError(
            f"steps are out of order: epoch {epoch} follows epoch {before}{begins}", offset=offset
        )

    def _end_of(self, newest: int, offset: int) -> int:
        """Find the last step of the newest epoch, when a further one begins."""
        shift, before = self._shifts[newest], self.last_of_epoch
        if self._format.even_epochs:
            last = self.last_of_epoch = self.furthest - shift
            if before is not None and last < before:
                raise BrokenContractError(
                    f"steps are missing from the log: an epoch ended with step {last}, and one "
                    f"before it with step {before}",
                    offset=offset,
                )
        # All epochs have the same data: of lengths that differ, one is damaged.
        lengths = {*self._lengths.values()}
        length = lengths.pop() if len(lengths) == 1 else 0
        if not length:
            self._guessed = min(self._guessed, self.furthest)
        return max(self.furthest, shift - 1 + (self.first or 0) + length)

    def has_turned(self, before: int, step: int) -> bool:
        """Say whether an epoch begins behind one step, and up to another."""
        return any(before <= end < step for end in self._ends)

    def check_epochs(self, last: int, interval: int) -> None:
        """Check that steps up to the ``last`` are known by number, where some only are printed.

        Raises:
            BrokenContractError: They are not.
        """
        begins = min(self._shifts, default=0)
        into = (self._begin or 0) - (self.first or 0)
        if begins > self._format.first_epoch and into >= interval:
            raise BrokenContractError(
                "the log's begin is missing: it begins within an epoch that is not the first, so "
                "it is not known which steps these are"
            )
        if self._guessed < last and interval > 1:
            raise BrokenContractError(
                f"an epoch ends before the window does, and with only every {interval} steps "
                "printed its length is not known; print every step, or make the epoch longer"
            )

    def mark(self, offset: int) -> Mark:
        """Name the step of the latest record as the log does."""
        return Mark(offset, max(self.epoch, 0), self.step - self.shift, self.last_of_epoch)


class Track:
    """The steps of one process, or of several that print the same without a name.

    In what order several print, whole blocks of one or turn by turn, does not matter: a step is
    over when all have printed it, and that happens in the steps' order. An epoch's length is known
    as soon as its successor shows: the process that printed that has printed all of the epoch.
    """

    def __init__(self, log_format: LogFormat, span: Span, case: Case, printers: int) -> None:
        """Expect each step as often as there are ``printers``."""
        self.log_format = log_format
        self.span = span
        self.case = case
        self.printers = printers
        self.numbers = StepNumbers(log_format)
        self.steps: list[Step] = []
        """Those of the window."""
        self.gaps: Counter[int] = Counter()
        """How often records of an epoch are so many steps apart."""
        self.widest = 0, 0
        """The longest way from one record of the window to the next, and the step of the one."""
        self.step = 0
        """The last that all have shown, at most the one that completed the window."""
        self.complete = False
        self._begun = 0
        self._before: Record | None = None
        self._first: tuple[bytes, bytes] | None = None
        self._pending: dict[int, list[Text]] = {}
        self._offset: int | None = None

    @property
    def furthest(self) -> int:
        """The last step that any of them has shown."""
        return self.step if self.printers == 1 else max(self.step, self.numbers.furthest)

    @property
    def all_begun(self) -> bool:
        """Whether each of them has printed the step that the log begins with."""
        return self._begun == self.printers

    @property
    def interval(self) -> int:
        """How many steps its records are apart."""
        return usual_gap(self.gaps)

    def take(self, record: Record) -> bool:
        """Take the next record; false of an identical copy of the one before.

        Behind the window only the order counts, and how many print.
        """
        if self.printers > 1:
            self._take_of_several(record)
            return True
        numbers, before = self.numbers, self._before
        epoch = numbers.epoch
        step = numbers.place(record)
        if numbers.epoch < epoch:
            number = step - numbers.shift
            raise numbers.epoch_goes_back(numbers.epoch, epoch, number, record.offset)
        if before is not None and step <= numbers.furthest:
            if step == numbers.furthest and record.time == before.time:
                return False
            raise self._disorder(step, record.offset)
        numbers.furthest, self._before = step, record
        if not self.complete:
            self._add(step, ((record.time, record.offset),))
        return True

    def _take_of_several(self, record: Record) -> None:
        name = record.epoch, record.step
        self._first = self._first or name
        self._begun += name == self._first
        if self._begun > self.printers:
            raise self._too_often(record)
        if self.complete:
            return
        step = self.numbers.place(record)
        self.numbers.furthest = max(self.numbers.furthest, step)
        if step > self.step:
            texts = self._pending.setdefault(step, [])
            texts.append((record.time, record.offset))
            if len(texts) == self.printers:
                self._end_step(step)
        elif step >= self.span.begin:
            raise self._too_often(record)

    def _end_step(self, step: int) -> None:
        """Go on to a step that all have printed."""
        for before in sorted(each for each in self._pending if each < step):
            texts = self._pending.pop(before)
            if before >= self.span.begin:
                raise self._too_seldom(len(texts), texts[-1][1])
        self._add(step, self._pending.pop(step))

    def _add(self, number: int, texts: Sequence[Text]) -> None:
        span, before = self.span, self.step
        turned = self.numbers.has_turned(before, number)
        if before:
            if not turned:
                self.gaps[number - before] += 1
            if number >= span.begin:
                self.widest = max(self.widest, (number - before, before))
        if span.begin <= number <= span.last:
            self.steps.append(Step(number, number - before, texts, turned))
        self.step, self._offset = number, texts[-1][1]
        self.complete = number >= span.last

    def check(self, first: int, last: int) -> None:
        """Check that the steps from ``first`` to ``last`` make up the window, without holes.

        Raises:
            BrokenContractError: They do not.
        """
        self.check_all_begun()
        span, interval, count = self.span, self.interval, len(self.steps)
        if self.step < span.last and span.last - last >= interval:
            raise BrokenContractError(
                f"too few steps: found {self.step}, needed {span.last} "
                f"(measured are steps {span.after + 1} to {span.last}, counted from 1)",
                offset=self._offset,
                place="the last step is on line",
            )
        self.check_no_hole()
        if interval > span.measured:
            raise BrokenContractError(
                f"only every {interval} steps are printed, and {span.measured} are measured; "
                "measure more of them"
            )
        if not first or first - span.begin >= interval:
            raise BrokenContractError(
                f"the log begins too late: step {first or self.step} is the first there is of "
                f"steps {span.begin} to {span.last}, counted from 1"
            )
        if count < span.measured // interval - 1:
            raise BrokenContractError(
                f"steps are missing from the log: it has {count} records of the {span.measured} "
                f"steps that are measured, and prints every {interval} steps"
            )
        self.numbers.check_epochs(span.last, interval)

    def check_no_hole(self) -> None:
        """Check that no record of the window is missing between two others."""
        gap, before = self.widest
        # The first interval of all may be one shorter, where numbering begins with 1.
        if gap >= 2 * self.interval:
            raise BrokenContractError(
                f"steps are missing from the log: none between step {before} and step "
                f"{before + gap}, counted from 1"
            )

    def check_all_begun(self) -> None:
        """Check that every rank has printed, where several do without a name."""
        if self.printers > 1 and not self.all_begun:
            raise self._too_seldom(self._begun)

    def only_one(self, step: int) -> BrokenContractError:
        """Make the error of a single record, which says nothing of a window."""
        return BrokenContractError(
            f"step {step} is the only one printed of steps {self.span.begin} to "
            f"{self.span.last}, counted from 1; needed are two at least"
        )

    def _disorder(self, step: int, offset: int) -> BrokenContractError:
        numbers = self.numbers
        number, last = step - numbers.shift, numbers.furthest - numbers.shift
        if number == last:
            reason = (
                f"step {number} stands twice with different times; more than one process "
                "prints into the log ('ranks: local' is for all of a node, 'nodes' for one of "
                "each node), or a second run was appended"
            )
        else:
            reason = f"steps are out of order: step {number} follows step {last}"
            if number == numbers.first:
                several = "; if several processes print into it, say which by 'ranks'"
                reason += _SECOND_RUN + epoch_hint(self.log_format) + several
        return BrokenContractError(reason, offset=offset)

    def _too_often(self, record: Record) -> BrokenContractError:
        shown = record.step[:40].decode(errors="replace")
        return BrokenContractError(
            f"step {shown} stands in the log more than {self.printers} time(s); {self._expected}, "
            f"unless a second run was appended{epoch_hint(self.log_format)}",
            offset=record.offset,
        )

    def _too_seldom(self, count: int, offset: int | None = None) -> BrokenContractError:
        return BrokenContractError(
            f"a step stands in the log {count} time(s); {self._expected}", offset=offset
        )

    @property
    def _expected(self) -> str:
        return f"the case {self.case.id} has {self.printers} rank(s) that print into it, each once"


def usual_gap(gaps: Counter[int]) -> int:
    """Return the most frequent gap: holes and an epoch's last, shorter interval do not count."""
    return min(gaps, key=lambda gap: (-gaps[gap], gap), default=1)


def epoch_was_cut(last: int, number: int, offset: int) -> BrokenContractError:
    """Make the error of an epoch that goes on to a number, where one before ended sooner."""
    return BrokenContractError(
        f"steps are missing from the log: an epoch ended with step {last}, and a later one goes on "
        f"to step {number}",
        offset=offset,
    )


def epoch_hint(log_format: LogFormat) -> str:
    """Say what a declared record may lack where numbers begin again."""
    if "epoch" in log_format.record.groupindex:
        return ""
    return "; if numbering begins again with each epoch, the record needs a group 'epoch'"
