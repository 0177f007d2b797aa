"""Follow the steps of a process through a log: in order, without holes, up to the window's end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.logs.numbering import StepOrder, epoch_hint
from pytest_dlperf.logs.records import LONGEST_STEP, Record
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Window
from pytest_dlperf.model.work import Covers, TimeKind

LOOK_AHEAD: Final = 256 * 1024
"""Bytes in which every rank of a node shows: output to a pipe comes in blocks of 8 KiB."""

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


class Gaps:
    """How far the steps of records lie apart.

    ``counts`` says how often each distance was seen within an epoch. ``widest`` is the longest way
    from one record of the window to the next, with its place.
    """

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.widest: tuple[int, int, int] = (0, 0, 0)

    def note(
        self, gap: int, step: int, offset: int = 0, *, in_epoch: bool, in_window: bool
    ) -> None:
        """Note that a record follows ``gap`` steps after the one before, at such a place."""
        if in_epoch:
            self.counts[gap] += 1
        if in_window and gap >= self.widest[0]:
            self.widest = gap, step, offset

    @property
    def least(self) -> int:
        """The shortest way from one record to the next."""
        return min(self.counts, default=1)

    @property
    def interval(self) -> int:
        """The most frequent gap: holes and an epoch's last, shorter interval do not count."""
        return min(self.counts, key=lambda gap: (-self.counts[gap], gap), default=1)


class RankCount:
    """Counts ranks in a log that does not name them: as many as print its first step.

    Reading goes on for ``LOOK_AHEAD`` bytes after a window is complete, for ranks beyond those
    declared: their output may be held back while that of others fills the window.
    """

    def __init__(self, log_format: LogFormat, case: Case, ranks: int) -> None:
        self._hint = epoch_hint(log_format)
        self._case = case
        self._ranks = ranks
        self._first: tuple[bytes, bytes] | None = None
        self._count = 0

    @property
    def all_there(self) -> bool:
        """Whether every rank has printed."""
        return self._count == self._ranks

    def note(self, record: Record) -> None:
        """Note a record, which may be the first of another rank."""
        if self._first is None:
            self._first = record.epoch, record.step
        if (record.epoch, record.step) == self._first:
            self._count += 1
            if self._count > self._ranks:
                raise self.too_often(record)

    def check_all_there(self) -> None:
        """Check that every rank has printed."""
        if not self.all_there:
            raise self.too_seldom(self._count)

    def too_often(self, record: Record) -> BrokenContractError:
        """Make the error of a step that more ranks print than there are."""
        shown = record.step[:40].decode(errors="replace")
        return BrokenContractError(
            f"step {shown} stands in the log more than {self._ranks} time(s); "
            f"{self._expected}, unless a second run was appended{self._hint}",
            offset=record.offset,
        )

    def too_seldom(self, count: int, offset: int | None = None) -> BrokenContractError:
        """Make the error of a step that stands there ``count`` times only."""
        return BrokenContractError(
            f"a step stands in the log {count} time(s); {self._expected}", offset=offset
        )

    @property
    def _expected(self) -> str:
        return f"the case {self._case.id} has {self._ranks} rank(s) that print into it, each once"


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


class Track:
    """The steps of one process, or of several that print the same without a name.

    In what order several print, whole blocks of one or turn by turn, does not matter: a step is
    over when all have printed it, and that happens in the steps' order. An epoch's length is known
    as soon as its successor shows: the process that printed that has printed all of the epoch.

    Where nothing says what the first step is called, records are held until two numbers tell.
    """

    def __init__(self, log_format: LogFormat, span: Span, case: Case, printers: int) -> None:
        self._format = log_format
        self._span = span
        self.printers = printers
        self._order = StepOrder(log_format)
        self.numbers = self._order.numbers
        self.steps: list[Step] = []
        """Those of the window."""
        self.gaps = Gaps()
        self.step = 0
        """The last that all have shown, at most the one that completed the window."""
        self.complete = False
        self._offset: int | None = None
        self._count = RankCount(log_format, case, printers)
        self._pending: dict[int, list[Text]] = {}
        self._held: list[Record] | None = [] if log_format.first_step is None else None

    @property
    def reached(self) -> int:
        """The last step that all have shown, also where it is held."""
        return int(self._held[-1].step) if self._held else self.step

    @property
    def furthest(self) -> int:
        """The last step that any of them has shown."""
        return self.reached if self.printers == 1 else max(self.reached, self.numbers.furthest)

    def take(self, record: Record) -> int:
        """Take the next record; return its step. Behind the window only the order counts."""
        if self.printers > 1:
            self._count.note(record)
            if self.complete:
                return self.step
        if self._held is None:
            return self._take(record)
        is_number = record.step.isdigit() and len(record.step) <= LONGEST_STEP
        if not self._held and not (is_number and int(record.step) > 1):
            self._held = None
            return self._take(record)
        if self._held and (record.step, record.epoch) != self._held[0][2:4]:
            first = self._held[0]
            if record.epoch == first.epoch and is_number:
                self.numbers.tell_first(int(first.step), int(record.step))
            self.settle()
            return self._take(record)
        self._held.append(record)
        return int(record.step)

    def settle(self) -> None:
        """Take what has been held."""
        held, self._held = self._held, None
        for record in held or ():
            self._take(record)

    def _take(self, record: Record) -> int:
        if self.printers == 1:
            if self._order.follow(record) and not self.complete:
                self._add(self.numbers.furthest, ((record.time, record.offset),))
            return self.step
        step = self.numbers.place(record)
        self.numbers.furthest = max(self.numbers.furthest, step)
        if step <= self.step:
            if step >= self._span.begin:
                raise self._count.too_often(record)
            return step
        texts = self._pending.setdefault(step, [])
        texts.append((record.time, record.offset))
        if len(texts) == self.printers:
            self._end_step(step)
        return step

    def _end_step(self, step: int) -> None:
        """Go on to a step that all have printed."""
        for before in sorted(each for each in self._pending if each < step):
            texts = self._pending.pop(before)
            if before >= self._span.begin:
                raise self._count.too_seldom(len(texts), texts[-1][1])
        self._add(step, self._pending.pop(step))

    def _add(self, number: int, texts: Sequence[Text]) -> None:
        span, gap = self._span, number - self.step
        turned = self.numbers.has_turned(self.step, number)
        if self._offset is not None:
            inside = number >= span.begin
            self.gaps.note(gap, self.step, in_epoch=not turned, in_window=inside)
        if span.begin <= number <= span.last:
            self.steps.append(Step(number, gap, texts, turned))
        self.step, self._offset = number, texts[-1][1]
        self.complete = number >= span.last

    def check(self, first: int, last: int) -> None:
        """Check that the steps from ``first`` to ``last`` make up the window, without holes.

        Raises:
            BrokenContractError: They do not.
        """
        if self.printers > 1:
            self._count.check_all_there()
        span, interval, count = self._span, self.gaps.interval, len(self.steps)
        if self.step < span.last and span.last - last >= interval:
            raise BrokenContractError(
                f"too few steps: found {self.step}, needed {span.last} "
                f"(measured are steps {span.after + 1} to {span.last}, counted from 1)",
                offset=self._offset,
                place="the last step is on line",
            )
        gap, before, _ = self.gaps.widest
        # The first interval of all may be one shorter, where numbering begins with 1.
        if gap >= 2 * interval:
            raise BrokenContractError(
                f"steps are missing from the log: none between step {before} and step "
                f"{before + gap}, counted from 1"
            )
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
        self.numbers.check_epochs(self._format, span.last, interval)

    def only_one(self, step: int) -> BrokenContractError:
        """Make the error of a single record, which says nothing of a window."""
        return BrokenContractError(
            f"step {step} is the only one printed of steps {self._span.begin} to "
            f"{self._span.last}, counted from 1; needed are two at least"
        )
