"""The ``steady`` estimator: per rank, by step number, samples over time after the warm-up.

Steps are numbered here by how many had ended: the first is 1, whatever the log calls it, and
numbering goes on where the log begins anew with each epoch. A window leaves out the steps up to
``after`` and ends with step ``last``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from pytest_dlperf.logs.clock import Clock, StampError, parse
from pytest_dlperf.logs.contract import BrokenContractError, Estimate, positive
from pytest_dlperf.logs.formats import Ranks, RateScope, Timing
from pytest_dlperf.logs.reader import records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.cases import Case
    from pytest_dlperf.logs.formats import LogFormat
    from pytest_dlperf.logs.reader import Region
    from pytest_dlperf.measurement import Window

_NEVER: Final = 1 << 62


class Collector(Protocol):
    """Takes from a log what an estimate needs, piece by piece."""

    @property
    def steps_found(self) -> int:
        """Steps that the log shows so far, also where they are too few."""

    def feed(self, region: Region) -> int | None:
        """Take what the region holds; where in it the log has shown enough, or ``None``.

        Raises:
            BrokenContractError: The log breaks its contract.
        """

    def estimate(self) -> Estimate:
        """Compute the throughput of what was taken.

        Raises:
            BrokenContractError: Something is missing or wrong.
        """


def steady_collector(log_format: LogFormat, window: Window, case: Case) -> Collector:
    """Choose how steps are collected: rank by rank, or from ranks that look alike."""
    ranks = case.topology.devices_per_node if log_format.ranks is Ranks.LOCAL else 1
    if ranks > 1 and not log_format.labels_ranks:
        return SharedSteps(log_format, Span.of(log_format, window), case)
    return RankedSteps(log_format, Span.of(log_format, window), case, ranks=ranks)


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
            f"(measured are steps {self.after + 1} to {self.last})",
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
                f"{self.begin} to {self.last}"
            )


def _number(text: bytes, what: str, offset: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number < _NEVER:
        shown = text[:40].decode(errors="replace")
        raise BrokenContractError(f"{what} {shown!r} is no whole number", offset=offset)
    return number


def _check_no_hole(gap: int, before: int, interval: int) -> None:
    # The first interval of all may be one shorter, where numbering begins with 1.
    if gap >= 2 * interval:
        raise BrokenContractError(
            f"steps are missing from the log: none between step {before} and step {before + gap}"
        )


def _check_epochs(turned_inside: bool, interval: int) -> None:
    if turned_inside and interval > 1:
        raise BrokenContractError(
            f"an epoch ends within the window, and with only each {interval}th step printed its "
            "length is not known; print every step, or make the epoch longer"
        )


def _global_rate(log_format: LogFormat, rate: float, case: Case) -> float:
    """What all devices do together when the log prints ``rate``."""
    if log_format.rate_scope is RateScope.GLOBAL:
        return rate
    if log_format.rate_scope is RateScope.NODE:
        return rate * case.topology.nodes
    return rate * case.topology.world_size


def _seconds(log_format: LogFormat, text: bytes, step: int, offset: int) -> float:
    seconds = positive(text, what=f"the time of step {step}", offset=offset)
    return seconds / 1000 if log_format.timing is Timing.MILLISECONDS else seconds


class _Values(Protocol):
    """What the records of one rank inside the window amount to."""

    def take(self, step: int, gap: int, text: bytes, offset: int) -> None:
        """Take the time of a step that comes ``gap`` steps after the one printed before."""

    def estimate(self, rank: RankSteps) -> Estimate:
        """Compute samples per second over all devices from this rank's steps."""


class _Durations:
    """Durations of single steps: all that are printed count alike."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        self._format = log_format
        self._span = span
        self._case = case
        self._total = 0.0
        self._count = 0
        self._first = self._last = 0
        self._widest = (0, 0)

    def take(self, step: int, gap: int, text: bytes, offset: int) -> None:
        self._total += _seconds(self._format, text, step, offset)
        if self._count:
            self._widest = max(self._widest, (gap, step - gap))
        else:
            self._first = step
        self._count += 1
        self._last = step

    def estimate(self, rank: RankSteps) -> Estimate:
        rank.check_ends(self._first, self._last)
        _check_no_hole(*self._widest, rank.interval)
        return Estimate(self._case.global_batch * self._count / self._total, self._count)


class _Rates:
    """Speeds, each averaged over the steps since the record before: samples over time."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        self._format = log_format
        self._span = span
        self._case = case
        self._steps = 0
        self._time = 0.0
        self._first = self._last = 0
        self._widest = (0, 0)

    def take(self, step: int, gap: int, text: bytes, offset: int) -> None:
        rate = positive(text, what=f"the speed at step {step}", offset=offset)
        if step - gap < self._span.after:
            return
        if self._steps:
            self._widest = max(self._widest, (gap, step - gap))
        else:
            self._first = step - gap + 1
        self._steps += gap
        self._time += gap / rate
        self._last = step

    def estimate(self, rank: RankSteps) -> Estimate:
        rank.check_ends(self._first, self._last)
        _check_no_hole(*self._widest, rank.interval)
        _check_epochs(rank.turned_inside, rank.interval)
        rate = _global_rate(self._format, self._steps / self._time, self._case)
        return Estimate(rate, self._steps)


class _Stamps:
    """Times at which steps ended: only the first and the last count."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        self._span = span
        self._case = case
        self._sort = log_format.stamps_sort
        self._clock = Clock()
        self._first = self._last = 0
        self._last_text = b""
        self._last_offset = 0

    def take(self, step: int, gap: int, text: bytes, offset: int) -> None:
        del gap
        if self._first == 0:
            self._first = step
            self._read(text, offset)
        elif not self._sort or text < self._last_text:
            # Stamps that sort as text are only read here if they run backwards, which raises.
            self._read(text, offset)
        self._last = step
        self._last_text = text
        self._last_offset = offset

    def _read(self, text: bytes, offset: int) -> None:
        try:
            self._clock.read(text)
        except StampError as error:
            raise BrokenContractError(str(error), offset=offset) from None

    def estimate(self, rank: RankSteps) -> Estimate:
        rank.check_ends(self._first, self._last)
        steps = self._last - self._first
        if not steps:
            raise BrokenContractError(
                f"step {self._first} is the only one printed of steps {self._span.begin} to "
                f"{self._span.last}; needed are two at least"
            )
        _check_epochs(rank.turned_inside, rank.interval)
        if self._sort:
            self._read(self._last_text, self._last_offset)
        try:
            note = self._clock.error_note
        except StampError as error:
            raise BrokenContractError(str(error), offset=self._last_offset) from None
        return Estimate(self._case.global_batch * steps / self._clock.seconds, steps, note)


def _values(log_format: LogFormat, span: Span, case: Case) -> _Values:
    if log_format.timing is Timing.TIMESTAMP:
        return _Stamps(log_format, span, case)
    if log_format.timing is Timing.RATE:
        return _Rates(log_format, span, case)
    return _Durations(log_format, span, case)


class RankSteps:
    """The steps of one rank, in the order in which it printed them."""

    __slots__ = (
        "_epoch",
        "_epoch_number",
        "_first_step",
        "_least_gap",
        "_offset",
        "_restarts",
        "_shift",
        "_span",
        "_text",
        "_values",
        "complete",
        "step",
        "turned_inside",
    )

    def __init__(self, log_format: LogFormat, span: Span, case: Case) -> None:
        """Begin before the first step."""
        self._span = span
        self._values = _values(log_format, span, case)
        self._restarts = "epoch" in log_format.record.groupindex
        self._first_step = log_format.first_step
        self._shift = 0
        self._epoch = b""
        self._epoch_number = -1
        self._least_gap = _NEVER
        self._offset: int | None = None
        self._text = b""
        self.step = 0
        self.complete = False
        self.turned_inside = False

    @property
    def interval(self) -> int:
        """How many steps lie between two records; the least that was seen."""
        return 1 if self._least_gap == _NEVER else self._least_gap

    def take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> None:
        """Take the rank's next record, unless the window is complete already.

        Raises:
            BrokenContractError: It does not follow the one before, or its time cannot be.
        """
        if self.complete:
            return
        number = _number(printed, "step", offset)
        begins = self._offset is None
        turns = False
        if begins:
            self._begin(number)
        if self._restarts and epoch != self._epoch:
            turns = self._turn(epoch, offset) and not begins
        step = number + self._shift
        gap = step - self.step
        if gap <= 0:
            if gap == 0 and text == self._text and not begins:
                return
            self._refuse(number, gap, offset)
        if gap < self._least_gap and not (begins or turns):
            self._least_gap = gap
        span = self._span
        if span.begin <= step <= span.last:
            self._values.take(step, gap, text, offset)
        if turns and span.begin < step:
            self.turned_inside = True
        self.step = step
        self._text = text
        self._offset = offset
        if step >= span.last:
            self.complete = True

    def _begin(self, number: int) -> None:
        first = min(number, 1) if self._first_step is None else self._first_step
        self._first_step = first
        self._shift = 1 - first

    def _turn(self, epoch: bytes, offset: int) -> bool:
        """Go on counting in the next epoch; false when only its spelling is another."""
        number = _number(epoch, "epoch", offset)
        self._epoch = epoch
        if number == self._epoch_number:
            return False
        if number < self._epoch_number:
            raise BrokenContractError(
                f"steps are out of order: epoch {number} follows epoch {self._epoch_number}",
                offset=offset,
            )
        self._epoch_number = number
        if self._offset is not None:
            self._shift = self.step + 1 - (self._first_step or 0)
        return True

    def _refuse(self, number: int, gap: int, offset: int) -> None:
        if self._offset is None:
            reason = f"the log begins with step {number}, below its first, {self._first_step}"
        elif gap == 0:
            reason = (
                f"step {number} stands twice with different times; more than one process prints "
                "into the log, or a second run was appended"
            )
        else:
            reason = f"steps are out of order: step {number} follows step {self.step - self._shift}"
        raise BrokenContractError(reason, offset=offset)

    def check_ends(self, first: int, last: int) -> None:
        """Check that the records reach both ends of the window.

        Raises:
            BrokenContractError: They do not.
        """
        self._span.check_ends(first, last, self.step, self._offset, self.interval)

    def estimate(self) -> Estimate:
        """Samples per second over all devices, by this rank's steps.

        Raises:
            BrokenContractError: The window is not complete, or what it holds cannot be.
        """
        return self._values.estimate(self)


class RankedSteps:
    """A log of one rank, or of several that name themselves on each record."""

    def __init__(self, log_format: LogFormat, span: Span, case: Case, *, ranks: int) -> None:
        """Expect ``ranks`` ranks in the log."""
        self._format = log_format
        self._span = span
        self._case = case
        self._ranks = ranks
        self._labelled = log_format.labels_ranks
        self._streams: dict[bytes, RankSteps] = {}
        self._complete = 0
        self._last_offset: int | None = None

    @property
    def steps_found(self) -> int:
        """Steps of the rank that came furthest."""
        return max((stream.step for stream in self._streams.values()), default=0)

    def feed(self, region: Region) -> int | None:
        """Take the region's records; where the last rank completed its window, or ``None``.

        Raises:
            BrokenContractError: The log breaks its contract.
        """
        labelled = self._labelled
        base = region.offset
        stream = self._streams.get(b"")
        for start, end, step, epoch, rank, text in records(region, self._format):
            if labelled or stream is None:
                stream = self._stream(rank if labelled else b"", base + start)
            was_complete = stream.complete
            stream.take(step, epoch, text, base + start)
            if stream.complete and not was_complete:
                self._complete += 1
                if self._complete == self._ranks:
                    return end
        return None

    def _stream(self, rank: bytes, offset: int) -> RankSteps:
        stream = self._streams.get(rank)
        if stream is None:
            if len(self._streams) == self._ranks:
                named = ", ".join(sorted(map(_shown, (*self._streams, rank))))
                raise BrokenContractError(
                    f"the log holds steps of more ranks than {self._ranks}: {named}", offset=offset
                )
            stream = self._streams[rank] = RankSteps(self._format, self._span, self._case)
        return stream

    def estimate(self) -> Estimate:
        """The mean over the ranks.

        Raises:
            BrokenContractError: A rank is missing, or the steps of one do not make a window.
        """
        if len(self._streams) < self._ranks:
            named = ", ".join(sorted(map(_shown, self._streams)))
            raise BrokenContractError(
                f"the log holds steps of {len(self._streams)} rank(s) ({named}); the case "
                f"{self._case.id} has {self._ranks} per node"
            )
        estimates = []
        for rank, stream in self._streams.items():
            try:
                estimates.append(stream.estimate())
            except BrokenContractError as error:
                if self._labelled:
                    error.reason = f"rank {_shown(rank)}: {error.reason}"
                raise
        return Estimate(
            math.fsum(estimate.throughput for estimate in estimates) / len(estimates),
            min(estimate.steps for estimate in estimates),
            next((estimate.note for estimate in estimates if estimate.note), None),
        )


def _shown(rank: bytes) -> str:
    return rank[:20].decode(errors="replace")


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
        self._first_step = log_format.first_step
        self._shifts: dict[int, int] = {}
        self._shift = 0
        self._epoch = -1
        self._turns: set[int] = set()
        self._texts: dict[int, list[tuple[bytes, int]]] = {}
        self._before = 0
        self._first_printed = 0
        self._first_count = 0
        self._closing = _NEVER
        self._closing_count = 0
        self._step = 0
        self._offset: int | None = None

    @property
    def steps_found(self) -> int:
        """Steps of the rank that came furthest."""
        return self._step

    def feed(self, region: Region) -> int | None:
        """Take the region's records; where the last rank completed its window, or ``None``.

        Raises:
            BrokenContractError: A step stands there more often than there are ranks.
        """
        for start, end, printed, epoch, _, text in records(region, self._format):
            if self._take(printed, epoch, text, region.offset + start):
                return end
        return None

    def _take(self, printed: bytes, epoch: bytes, text: bytes, offset: int) -> bool:
        number = _number(printed, "step", offset)
        first = self._first_step
        if first is None:
            first = self._first_step = min(number, 1)
        if self._restarts:
            shift = self._shift_of(_number(epoch, "epoch", offset), first, offset)
        else:
            shift = 1 - first
        step = number + shift
        if self._offset is None:
            self._first_printed = step
        if step < 1:
            raise BrokenContractError(
                f"step {number} stands below the first step, {first}", offset=offset
            )
        self._offset = offset
        self._step = max(self._step, step)
        if step == self._first_printed:
            self._first_count += 1
            self._check_count(number, self._first_count, offset)
        span = self._span
        if step < span.begin:
            self._before = max(self._before, step)
            return False
        if step <= span.last:
            texts = self._texts.setdefault(step, [])
            texts.append((text, offset))
            self._check_count(number, len(texts), offset)
        # Ranks print the same steps, so the one that ends the window for a rank does for all.
        if span.last <= step < self._closing:
            self._closing, self._closing_count = step, 0
        if step == self._closing:
            self._closing_count += 1
        return self._closing_count == self._ranks

    def _shift_of(self, epoch: int, first: int, offset: int) -> int:
        shift = self._shifts.get(epoch)
        if shift is not None:
            return shift
        if self._offset is None:
            shift = 1 - first
        elif epoch < self._epoch:
            raise BrokenContractError(
                f"steps are out of order: epoch {epoch} follows epoch {self._epoch}", offset=offset
            )
        else:
            shift = self._step + 1 - first
            if self._step >= self._span.last:
                # Beyond the window, and not worth remembering.
                return shift
            self._turns.add(self._step + 1)
        self._epoch = epoch
        self._shifts[epoch] = shift
        return shift

    def _check_count(self, number: int, count: int, offset: int) -> None:
        if count > self._ranks:
            raise BrokenContractError(
                f"step {number} stands in the log more than {self._ranks} times; the case "
                f"{self._case.id} has {self._ranks} ranks per node, which print it once each",
                offset=offset,
            )

    def estimate(self) -> Estimate:
        """The mean over all ranks.

        Raises:
            BrokenContractError: Ranks or steps are missing, or a time cannot be.
        """
        self._check_ranks()
        steps = sorted(self._texts)
        interval = self._interval(steps)
        last = steps[-1] if steps else 0
        if self._format.timing is Timing.TIMESTAMP:
            return self._by_stamps(steps, interval)
        if self._format.timing is Timing.RATE:
            return self._by_rates(steps, interval)
        self._check_ends(steps[0] if steps else 0, last, interval)
        self._check_holes(steps, interval)
        times = [
            _seconds(self._format, text, step, offset)
            for step in steps
            for text, offset in self._texts[step]
        ]
        mean = math.fsum(times) / len(times)
        return Estimate(self._case.global_batch / mean, len(steps))

    def _check_ranks(self) -> None:
        ranks = self._ranks
        if self._first_count != ranks:
            raise BrokenContractError(
                f"each step stands in the log {self._first_count} time(s); the case "
                f"{self._case.id} has {ranks} ranks per node, which print it once each"
            )
        uneven = [step for step, texts in self._texts.items() if len(texts) != ranks]
        if uneven and self._closing_count != ranks:
            # Some rank has not come as far as others.
            found = min(uneven) - 1
            raise self._span.too_few(found, self._offset)
        if uneven:
            step = min(uneven)
            raise BrokenContractError(
                f"step {step} stands in the log {len(self._texts[step])} time(s); the case "
                f"{self._case.id} has {ranks} ranks per node, which print it once each"
            )

    def _interval(self, steps: Sequence[int]) -> int:
        known = [self._before, *steps] if self._before else steps
        gaps = (
            after - before
            for before, after in zip(known, known[1:], strict=False)
            if after not in self._turns
        )
        return min(gaps, default=1)

    def _check_ends(self, first: int, last: int, interval: int) -> None:
        self._span.check_ends(first, last, self._step, self._offset, interval)

    def _check_holes(self, steps: Sequence[int], interval: int) -> None:
        for before, after in zip(steps, steps[1:], strict=False):
            _check_no_hole(after - before, before, interval)

    def _turned_between(self, first: int, last: int) -> bool:
        return any(first <= turn <= last for turn in self._turns)

    def _by_rates(self, steps: Sequence[int], interval: int) -> Estimate:
        used = 0
        time = 0.0
        first = last = 0
        before = self._before
        for step in steps:
            gap = step - before
            if before >= self._span.after:
                rates = [
                    positive(text, what=f"the speed at step {step}", offset=offset)
                    for text, offset in self._texts[step]
                ]
                used += gap
                time += gap * len(rates) / math.fsum(rates)
                first = first or before + 1
                last = step
            before = step
        self._check_ends(first, last, interval)
        self._check_holes(steps, interval)
        _check_epochs(self._turned_between(first, last), interval)
        return Estimate(_global_rate(self._format, used / time, self._case), used)

    def _by_stamps(self, steps: Sequence[int], interval: int) -> Estimate:
        """A step has ended when the last rank says so."""
        self._check_ends(steps[0] if steps else 0, steps[-1] if steps else 0, interval)
        if len(steps) == 1:
            raise BrokenContractError(
                f"step {steps[0]} is the only one printed of steps {self._span.begin} to "
                f"{self._span.last}; needed are two at least"
            )
        _check_epochs(self._turned_between(steps[0] + 1, steps[-1]), interval)
        clock = Clock()
        offset = 0
        try:
            for step in steps:
                latest = -1
                for text, offset in self._texts[step]:
                    stamp = parse(text).nanoseconds
                    if stamp > latest:
                        latest, ended = stamp, text
                clock.read(ended)
            note = clock.error_note
        except StampError as error:
            raise BrokenContractError(str(error), offset=offset) from None
        count = steps[-1] - steps[0]
        return Estimate(self._case.global_batch * count / clock.seconds, count, note)
