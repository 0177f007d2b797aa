"""Follow the steps of a process through a log: in order, without holes, up to the window's end.

Steps are numbered from 1 on, by how many had ended, whatever the log calls them. Numbering goes on
where the log begins anew with each epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
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

Text: TypeAlias = tuple[bytes, int]
"""What is printed of a time, and its place in the log."""
_SECOND_RUN: Final = "; a second run begins there, in the same file"


class StepProgress(Struct, frozen=True, kw_only=True):
    """How far a log has come, in steps numbered from 1 on through all epochs.

    Where ranks do not name themselves, ``last`` and ``awaited`` have one entry under the name "".
    """

    found: int = 0
    """Steps of the rank that came furthest; for ``published``, lines that count."""
    warmup: int = 0
    """Steps that a rank shows before the measured ones, settling included."""
    window: int = 0
    """Steps that a rank has to show: settling, warm-up and measured ones."""
    slowest: int = 0
    """The last step that all ranks have reached, as far as they are told apart."""
    last: Mapping[str, int] = {}
    """The last step of each rank such as ``rank 3``, at most the one that completed its window."""
    awaited: Mapping[str, int] = {}
    """The last step of each rank from which more is needed; 0 under "" while a rank is missing."""


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
    """A step as each rank has printed it, ``gap`` steps behind the one before."""

    number: int
    gap: int
    texts: Sequence[Text]
    turned: bool
    """Whether it is the first of a further epoch."""

    @property
    def offset(self) -> int:
        """Where its last record stands."""
        return self.texts[-1][1]


class Track:
    """The steps of one process, or of several that print the same without a name.

    In what order several print, whole blocks of one or turn by turn, does not matter: a step is
    over when all have printed it, and that happens in the steps' order. An epoch's length is what
    the log prints of it, at least as many steps as were seen when a further one begins.
    """

    def __init__(self, log_format: LogFormat, span: Span, case: Case, printers: int) -> None:
        """Expect each step as often as there are ``printers``."""
        self.log_format = log_format
        self.span = span
        self.case = case
        self.printers = printers
        self.first = log_format.first_step
        """What the log calls its first step; its first record may decide."""
        self.shift = 0
        """What is added to a number of the current epoch."""
        self.latest = 0
        """The step of the latest record."""
        self.step = 0
        """The last that all have shown, at most the one that completed the window."""
        self.furthest = 0
        """The last that any has shown."""
        self.complete = False
        self._rows: dict[int, tuple[Text, ...]] = {}
        self._time: bytes | None = None
        self._begin: tuple[bytes, bytes] | None = None
        self._begun = 0
        self._epoch = -1
        self._shifts: dict[int, int] = {}
        self._lengths: dict[bytes, int] = {}
        self._ends: list[int] = []
        self._guessed = NEVER
        self._last_of_epoch: int | None = None

    # ------------------------------------------------------------------- while the log is read

    def take(self, record: Record) -> bool:
        """Take the next record; false of an identical copy of the one before.

        Behind the window only the order counts, and how many print.
        """
        self._begin = self._begin or (record.epoch, record.step)
        if self.printers == 1:
            step = self._place(record)
            if self._time is not None and step <= self.furthest:
                if step == self.furthest and record.time == self._time:
                    return False
                raise self._disorder(step, record.offset)
            self._time = record.time
        else:
            self._begun += (record.epoch, record.step) == self._begin
            if self._begun > self.printers:
                raise self._too_often(record)
            step = self.latest if self.complete else self._place(record)
        self.furthest = max(self.furthest, step)
        if not self.complete:
            self._add(step, record)
        return True

    def _add(self, step: int, record: Record) -> None:
        if step > self.step:
            texts = (*self._rows.get(step, ()), (record.time, record.offset))
            self._rows[step] = texts
            if len(texts) == self.printers:
                self.step, self.complete = step, step >= self.span.last
        elif step >= self.span.begin:
            raise self._too_often(record)

    def _place(self, record: Record) -> int:
        """Number the step of a record from 1 on, through all epochs."""
        offset = record.offset
        number = whole_number(record.step, what="step", offset=offset)
        if self.first is None:
            self.first = min(number, 1)
        if not self._shifts:
            self.shift = 1 - self.first
        if record.epoch:
            epoch = whole_number(record.epoch, what="epoch", offset=offset)
            self._lengths.setdefault(record.epoch, record.epoch_length)
            if epoch != self._epoch:
                self._enter(epoch, number, offset)
        if self._last_of_epoch is not None and number > self._last_of_epoch:
            raise epoch_was_cut(self._last_of_epoch, number, offset)
        if self._ends and number < self.first:
            raise BrokenContractError(
                f"the log's begin is missing: it counts from step {number}, as a later epoch shows",
                offset=offset,
            )
        self.latest = number + self.shift
        if self.latest < 1:
            raise BrokenContractError(
                f"step {number} stands below the log's first step, {self.first}", offset=offset
            )
        return self.latest

    def _enter(self, epoch: int, number: int, offset: int) -> None:
        """Go on in an epoch, which may be a further one, behind all steps so far."""
        newest, first = max(self._shifts, default=-1), self.first or 0
        if epoch < newest and (self.printers == 1 or epoch not in self._shifts):
            begins = _SECOND_RUN * (number == first)
            raise BrokenContractError(
                f"steps are out of order: epoch {epoch} follows epoch {newest}{begins}",
                offset=offset,
            )
        if not self._shifts:
            self._shifts[epoch] = 1 - first
        elif epoch not in self._shifts:
            shift, before, last = self._shifts[newest], self._last_of_epoch, self.furthest
            if self.log_format.even_epochs:
                self._last_of_epoch = last - shift
                if before is not None and last - shift < before:
                    raise BrokenContractError(
                        f"steps are missing from the log: an epoch ended with step {last - shift}, "
                        f"and one before it with step {before}",
                        offset=offset,
                    )
            # All epochs have the same data: of lengths that differ, one is damaged.
            lengths = {*self._lengths.values()}
            if len(lengths) > 1 or lengths == {0}:
                self._guessed = min(self._guessed, last)
            else:
                last = max(last, shift - 1 + first + lengths.pop())
            self._ends.append(last)
            self._shifts[epoch] = last + 1 - first
        self._epoch, self.shift = epoch, self._shifts[epoch]

    @property
    def all_begun(self) -> bool:
        """Whether each of them has printed the step that the log begins with."""
        return self.printers in {1, self._begun}

    def mark(self, offset: int) -> Mark:
        """Name the step of the latest record as the log does."""
        return Mark(offset, max(self._epoch, 0), self.latest - self.shift, self._last_of_epoch)

    # ------------------------------------------------------------------- what has been read

    def every_step(self) -> Iterator[Step]:
        """Give the steps that all have printed, from the first of the log on."""
        before = 0
        for number in sorted(self._rows):
            texts = self._rows[number]
            if number <= self.step and len(texts) == self.printers:
                turned = any(before <= end < number for end in self._ends)
                yield Step(number, number - before, texts, turned)
                before = number

    def gaps(self) -> Counter[int]:
        """Count how often records of an epoch are so many steps apart."""
        return Counter(step.gap for step in islice(self.every_step(), 1, None) if not step.turned)

    def window(self) -> list[Step]:
        """List the steps of the window."""
        begin, last = self.span.begin, self.span.last
        return [step for step in self.every_step() if begin <= step.number <= last]

    def check(self, first: int, last: int) -> None:
        """Check that the steps from ``first`` to ``last`` make up the window, without holes.

        Raises:
            BrokenContractError: They do not.
        """
        span, interval = self.span, usual_gap(self.gaps())
        self.check_whole()
        if self.step < span.last and span.last - last >= interval:
            shown = self._rows.get(self.step)
            raise BrokenContractError(
                f"too few steps: found {self.step}, needed {span.last} "
                f"(measured are steps {span.after + 1} to {span.last}, counted from 1)",
                offset=shown[-1][1] if shown else None,
                place="the last step is on line",
            )
        self.check_no_hole(interval)
        problem, count = None, len(self.window())
        begun = int(self._begin[1]) - (self.first or 0) if self._begin else 0
        if interval > span.measured:
            problem = (
                f"only every {interval} steps are printed, and {span.measured} are measured; "
                "measure more of them"
            )
        elif not first or first - span.begin >= interval:
            problem = (
                f"the log begins too late: step {first or self.step} is the first there is of "
                f"steps {span.begin} to {span.last}, counted from 1"
            )
        elif count < span.measured // interval - 1:
            problem = (
                f"steps are missing from the log: it has {count} records of the "
                f"{span.measured} steps that are measured, and prints every {interval} steps"
            )
        elif min(self._shifts, default=0) > self.log_format.first_epoch and begun >= interval:
            problem = (
                "the log's begin is missing: it begins within an epoch that is not the first, so "
                "it is not known which steps these are"
            )
        elif self._guessed < span.last and interval > 1:
            problem = (
                f"an epoch ends before the window does, and with only every {interval} steps "
                "printed its length is not known; print every step, or make the epoch longer"
            )
        if problem is not None:
            raise BrokenContractError(problem)

    def check_whole(self) -> None:
        """Check that each of several ranks has printed each step."""
        rows = self._rows.items()
        of_window = [texts for step, texts in rows if self.span.begin <= step <= self.step]
        counts = [(len(texts), texts[-1][1]) for texts in of_window if len(texts) < self.printers]
        if not self.all_begun or counts:
            count, offset = counts[0] if counts else (self._begun, None)
            raise BrokenContractError(
                f"a step stands in the log {count} time(s); {self._expected}", offset=offset
            )

    def check_no_hole(self, interval: int) -> None:
        """Check that no record of the window is missing between two others of an interval."""
        begin, steps = self.span.begin, islice(self.every_step(), 1, None)
        gaps = ((step.gap, step.number - step.gap) for step in steps if step.number >= begin)
        gap, before = max(gaps, default=(0, 0))
        # The first interval of all may be one shorter, where numbering begins with 1.
        if gap >= 2 * interval:
            raise BrokenContractError(
                f"steps are missing from the log: none between step {before} and step "
                f"{before + gap}, counted from 1"
            )

    def _disorder(self, step: int, offset: int) -> BrokenContractError:
        number, last = step - self.shift, self.furthest - self.shift
        if number == last:
            reason = (
                f"step {number} stands twice with different times; more than one process "
                "prints into the log ('ranks: local' is for all of a node, 'nodes' for one of "
                "each node), or a second run was appended"
            )
        else:
            reason = f"steps are out of order: step {number} follows step {last}"
            if number == self.first:
                several = "; if several processes print into it, say which by 'ranks'"
                reason += _SECOND_RUN + epoch_hint(self.log_format) + several
        return BrokenContractError(reason, offset=offset)

    def _too_often(self, record: Record) -> BrokenContractError:
        return BrokenContractError(
            f"step {record.step[:40].decode(errors='replace')} stands in the log more than "
            f"{self.printers} time(s), or behind later ones; {self._expected}, unless a second run "
            f"was appended{epoch_hint(self.log_format)}",
            offset=record.offset,
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
