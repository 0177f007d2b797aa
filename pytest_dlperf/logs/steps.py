"""Check what the records of a log make up: the window without holes, and each rank of it."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from msgspec import Struct

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.logs.numbering import epoch_hint
from pytest_dlperf.model.work import Covers, TimeKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Window

LOOK_AHEAD: Final = 256 * 1024
"""Bytes in which every rank of a node shows: output to a pipe comes in blocks of 8 KiB."""


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


class Estimate(Struct, frozen=True):
    """Samples per second over all devices, and what the number rests on."""

    throughput: float
    steps: int
    note: str | None = None


class Place(NamedTuple):
    """A record that counts: its step, numbered from 1, and where in the log it begins."""

    step: int
    offset: int


class Ends(NamedTuple):
    """The first and the last record of a window, as one rank has printed them.

    What passed between the two are the steps behind the first, up to the last.
    """

    first: Place
    last: Place
    said_s: float | None = None
    """How many seconds these steps took by what is printed of each."""
    is_sampled: bool = False
    """Whether it is printed of some only, and the others are taken for alike."""
    has_turned: bool = False
    """Whether epochs begin between the two: that time is not part of a step."""


Row: TypeAlias = "tuple[int, bytes, int, float]"
"""A time of a window: its step, what is printed, where its record stands, and what it amounts to.

Steps are numbered from 1 on, through all epochs. A time amounts to the seconds of a step, a stamp
to nanoseconds since the first.
"""


class Series(Struct, dict=True):
    """The times of a window as one rank has printed them, or several without names, by steps."""

    rows: list[Row] = []
    turns: list[int] = []
    """Which of them are the first of a further epoch, by index."""

    def __len__(self) -> int:
        """Count them."""
        return len(self.rows)

    @cached_property
    def columns(self) -> tuple[Sequence[int], Sequence[bytes], Sequence[int], Sequence[float]]:
        """What all of them hold, once the window is complete."""
        steps, texts, offsets, amounts = zip(*self.rows, strict=True) if self.rows else ((),) * 4
        return steps, texts, offsets, amounts


class NoStepTimesError(Exception):
    """A log that does not say how long its single steps took; the text says why."""


class Gaps:
    """How far the steps of records lie apart.

    ``counts`` says how often each distance was seen within an epoch. ``widest`` is the longest way
    from one record of the window to the next, with its place.
    """

    __slots__ = ("counts", "widest")

    def __init__(self) -> None:
        """Begin without a record."""
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

    def check_totals(self) -> None:
        """Check that records are evenly apart: behind a missing one, a total is of fewer steps.

        Raises:
            BrokenContractError: They are not.
        """
        least, most = self.least, max(self.counts, default=1)
        # As where steps 1, 10, 20 … are printed.
        is_first = most - least == 1 and self.counts[least] == 1
        if least < most and not is_first:
            raise BrokenContractError(
                f"records are {least} to {most} steps apart, and each prints a total: where one is "
                "missing, the next is not of all steps between"
            )


class Span(Struct, frozen=True):
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
        begin = max(after, 1) if ends else after + 1
        return cls(after, after + window.measured_steps, begin)

    @property
    def measured(self) -> int:
        """How many steps there are."""
        return self.last - self.after

    def too_few(self, found: int, offset: int | None) -> BrokenContractError:
        """Make the error of a log that ends before the window does."""
        return BrokenContractError(
            f"too few steps: found {found}, needed {self.last} "
            f"(measured are steps {self.after + 1} to {self.last}, counted from 1)",
            offset=offset,
            place="the last step is on line",
        )

    def check(self, records: Records, offset: int | None) -> None:
        """Check that the records reach the window's ends, and that none is missing between."""
        interval = records.gaps.interval
        if records.furthest < self.last and self.last - records.last >= interval:
            raise self.too_few(records.furthest, offset)
        gap, before, _ = records.gaps.widest
        # The first interval of all may be one shorter, where numbering begins with 1.
        if gap >= 2 * interval:
            raise BrokenContractError(
                f"steps are missing from the log: none between step {before} and step "
                f"{before + gap}, counted from 1"
            )
        measured = self.measured
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
        """Check that there is more than one record, where one alone tells nothing of the window."""
        if records.count < min(2, self.last - self.begin + 1):
            raise self.only_one(records.first)

    def only_one(self, step: int) -> BrokenContractError:
        """Make the error of a single record, which says nothing of a window."""
        return BrokenContractError(
            f"step {step} is the only one printed of steps {self.begin} to {self.last}, "
            "counted from 1; needed are two at least"
        )


class Records(Struct, frozen=True):
    """The records of a rank, as far as it matters for whether they make up a window.

    ``first`` and ``last`` are the steps of the first and the last record that count, ``count`` is
    how many there are, ``furthest`` the last step of all. The place of a gap is the step before it.
    """

    first: int
    last: int
    count: int
    furthest: int
    gaps: Gaps


class RankCount:
    """Counts ranks in a log that does not name them: as many as print its first step.

    Reading goes on for ``LOOK_AHEAD`` bytes after a window is complete, for ranks beyond those
    declared: their output may be held back while that of others fills the window.
    """

    def __init__(self, log_format: LogFormat, case: Case, ranks: int) -> None:
        """Expect ``ranks`` ranks."""
        self._hint = epoch_hint(log_format)
        self._case = case
        self._ranks = ranks
        self._first: tuple[bytes, bytes] | None = None
        self._count = 0

    @property
    def all_there(self) -> bool:
        """Whether every rank has printed."""
        return self._count == self._ranks

    def note(self, epoch: bytes, step: bytes, offset: int) -> None:
        """Note a record, which may be the first of another rank."""
        if self._first is None:
            self._first = epoch, step
        if (epoch, step) == self._first:
            self._count += 1
            self.check_step(step, self._count, offset)

    def check_step(self, step: bytes, count: int, offset: int) -> None:
        """Check that a step does not stand there more often than there are ranks."""
        if count > self._ranks:
            shown = step[:40].decode(errors="replace")
            raise BrokenContractError(
                f"step {shown} stands in the log more than {self._ranks} time(s); "
                f"{self._expected}, unless a second run was appended{self._hint}",
                offset=offset,
            )

    def check_all_there(self) -> None:
        """Check that every rank has printed."""
        if not self.all_there:
            raise self.too_seldom(self._count)

    def too_seldom(self, count: int, offset: int | None = None) -> BrokenContractError:
        """Make the error of a step that stands there ``count`` times only."""
        return BrokenContractError(
            f"a step stands in the log {count} time(s); {self._expected}", offset=offset
        )

    @property
    def _expected(self) -> str:
        return f"the case {self._case.id} has {self._ranks} rank(s) that print into it, each once"
