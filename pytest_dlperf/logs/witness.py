"""The second witness: what a log says of its speed, held against when its lines were written.

A printed time may be that of a micro-batch, leave out the data loader, or be read in the wrong
unit; each looks sound by itself. When the lines came (``arrivals``), or else the time stamps that
they begin with, says how long the steps really took. A witness never raises a false alarm: how
late a line may be seen is bounded, and where the bound is too wide, nothing is said.
"""

from __future__ import annotations

import heapq
import math
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, final

from pytest_dlperf.formats.contract import BrokenContractError
from pytest_dlperf.formats.log_format import Ranks
from pytest_dlperf.logs.clock import NANOSECONDS, parse
from pytest_dlperf.logs.tracks import LOOK_AHEAD
from pytest_dlperf.model.measurement import WitnessKind
from pytest_dlperf.model.work import TimeKind, Timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.logs.arrivals import Burst
    from pytest_dlperf.logs.evidence import Evidence
    from pytest_dlperf.logs.track_times import Ends, Series

TOLERANCE: Final = 0.10
"""What a log prints and what was observed may differ by this part of what was observed."""
_SAMPLED_TOLERANCE: Final = 0.5
"""The same where single steps are printed and others are not, which may be slower."""
MIN_WINDOW_S: Final = 1.0
"""A shorter window is too short for what passes between a line and who sees it."""

_LATE_S: Final = 0.025
"""A supervisor may be woken so late by a busy machine."""
_NEAR_BYTES: Final = 64 * 1024
_STAMPED: Final = 80
_FINE: Final = 20
_FEW: Final = 8
_AGREED: Final = 3
_FEW_PAUSES: Final = 2
_PAUSE_EVERY: Final = 50
"""So many steps of a window may have a pause for each, and a few may in any."""
_PIECES: Final = 8
"""With fewer pieces of output, a pause does not stand out where records are held back."""
_LINE_ENDS: Final = b"\r\n"
_STAMPS: Final = re.compile(
    rb"(?:.*?(?<![0-9])(?P<dated>[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}[ T]+"
    rb"[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?)"
    rb"|\W{0,3}[A-Z]?(?P<other>(?:[0-9]{4} +)?[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?))(?![0-9<])"
)
_LONG_BEFORE_NS: Final = -(10**18)
_HOW: Final = {
    WitnessKind.ARRIVALS: "by when its lines came",
    WitnessKind.STAMPS: "by the time stamps that its lines begin with",
}


class Observation(NamedTuple):
    """How long some steps took, as was seen from outside: the best guess and its bounds."""

    steps: int
    seconds: float
    least_s: float
    most_s: float
    kind: WitnessKind
    near: tuple[Observation, ...] = ()
    """The same of a few steps at each end, where they are seen apart."""

    def contradicts(self, rate: float, tolerance: float) -> bool:
        """Say whether so many steps per second cannot be right."""
        above = rate * self.least_s > (1 + tolerance) * self.steps
        return above or rate * self.most_s * (1 + tolerance) < self.steps


def ask_witness(evidence: Evidence) -> None:
    """Compare a throughput with what was observed of the window, by each rank's ends of it.

    Raises:
        BrokenContractError: They differ by more than ``TOLERANCE``, whichever rank is asked.
    """
    if evidence.log_format.timing is not Timing.ARRIVAL:
        evidence.arrivals.refresh()
        evidence.seen_by = _Witness(evidence).check()


@final
class _Witness:
    """Who has seen the lines come, or else their time stamps."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._log_format = evidence.log_format

    def check(self) -> WitnessKind | None:
        """Return who has confirmed the throughput."""
        evidence = self._evidence
        unit, ends = evidence.unit, evidence.ends
        work = evidence.case.work_of_step(unit)
        observed = []
        for rank, each in ends.items():
            seen = self._observed(each, evidence.series[rank])
            if seen is not None:
                # The window's first step ended where these steps begin.
                rate = seen.steps / each.said_s if each.said_s else evidence.throughput / work
                tolerance = _SAMPLED_TOLERANCE if each.is_sampled else TOLERANCE
                if not seen.contradicts(rate, tolerance):
                    return seen.kind
                apart = self._without_pauses(seen, each)
                if any(not part.contradicts(rate, tolerance) for part in apart):
                    return seen.kind
                observed.append((seen, rate, tolerance))
        if not observed:
            needs_none = not ends or self._log_format.timing.kind is TimeKind.MOMENT
            return None if needs_none else WitnessKind.NONE
        seen, rate, tolerance = observed[0]
        by_eye = work * seen.steps / seen.seconds
        raise BrokenContractError(
            f"the log says {work * rate:.6g} {unit}, and {_HOW[seen.kind]}, {seen.steps} steps "
            f"took {seen.seconds:.4g} s, which is {by_eye:.6g} {unit}: they differ by more than "
            f"{tolerance:.0%}. Look at what the printed time covers (a micro-batch, some steps of "
            "many, the step without its data), and at what else takes time between the steps; "
            "most robust is a record with a time stamp"
        )

    def _observed(self, ends: Ends, series: Series) -> Observation | None:
        if ends.has_turned:
            return None
        return self._by_arrivals(ends) or self._by_stamps(ends, series)

    # ------------------------------------------------------------------ arrivals

    def _by_arrivals(self, ends: Ends) -> Observation | None:
        first, last = (self._printed(place.offset) for place in (ends.first, ends.last))
        if first is None or last is None:
            return None
        seconds = (last[1] - first[1]) / NANOSECONDS
        if seconds < MIN_WINDOW_S:
            return None
        least, most = (last[0] - first[1]) / NANOSECONDS, (last[1] - first[0]) / NANOSECONDS
        steps = ends.last.step - ends.first.step
        return Observation(steps, seconds, least, most, WitnessKind.ARRIVALS)

    def _without_pauses(self, seen: Observation, ends: Ends) -> Sequence[Observation]:
        """Leave out what a few steps take longer than all others: a checkpoint does not count.

        Which of them did is not known where many come at once, so this moves one bound only.
        """
        if seen.kind is not WitnessKind.ARRIVALS:
            return seen.near
        gaps = self._evidence.arrivals.gaps(ends.first.offset, ends.last.offset)
        burst = self._evidence.arrivals.burst(ends.last.offset)
        if len(gaps) < _PIECES and burst is not None and not self._came_alone(burst):
            return [seen._replace(least_s=0.0)]
        few = _FEW_PAUSES + seen.steps // _PAUSE_EVERY
        *longer, usual = heapq.nlargest(few + 1, gaps) or [0]
        paused = sum(each - usual for each in longer) / NANOSECONDS
        return [seen._replace(least_s=seen.least_s - paused)]

    def _printed(self, offset: int) -> tuple[int, int] | None:
        """Give the earliest and the latest time at which a record may have been printed.

        A line that came alone came at once. Others may have been held back, though not longer than
        since the output before them.
        """
        burst = self._evidence.arrivals.burst(offset)
        if burst is None:
            return None
        late = int(_LATE_S * NANOSECONDS)
        before = self._before(burst, offset)
        if self._came_alone(burst) and (before is None or self._came_alone(before)):
            return burst.earliest - late, burst.latest
        # What came first may have been printed at any time before.
        return (_LONG_BEFORE_NS if before is None else before.latest - late), burst.latest

    def _came_alone(self, burst: Burst) -> bool:
        """Say whether these are whole lines, with records of one step at most."""
        if burst.end - burst.begin > _NEAR_BYTES:
            return False
        text = self._evidence.file.part(burst.begin - 1, burst.end + 1)
        before = _is_cut(text[:2]) if burst.begin else False
        if before or _is_cut(text[-2:]):
            return False
        records = self._evidence.records(burst.begin, burst.end)
        return len({(each.step, each.epoch) for each in records}) <= 1

    def _before(self, burst: Burst, offset: int) -> Burst | None:
        """Find what had come when nothing of a record's output was printed yet.

        That is the record before of the same rank, since other output may come through another
        buffer. Where ranks have no names, it is the first of any rank.
        """
        near = self._evidence.records(max(burst.flush - LOOK_AHEAD, 0), burst.end)
        own = next((each for each in near if each.offset == offset), None)
        if own is None:
            return None
        near = [each for each in near if each.rank == own.rank]
        earlier = [each for each in near if each.offset < burst.flush]
        if self._log_format.ranks is not Ranks.ONE and not self._log_format.labels_ranks:
            if not all(each.step.isdigit() and each.epoch == own.epoch for each in near):
                return None
            begin = min(int(each.step) for each in near if each.offset >= burst.flush)
            steps = [step for each in earlier if (step := int(each.step)) < begin]
            earlier = [each for each in earlier if steps and int(each.step) == max(steps)][:1]
        return self._evidence.arrivals.burst(earlier[-1].offset) if earlier else None

    # ------------------------------------------------------------------ stamps

    def _by_stamps(self, ends: Ends, series: Series) -> Observation | None:
        if self._log_format.timing.kind is TimeKind.MOMENT:
            return None
        first, last = ends.first.step, ends.last.step
        places = {step: at for step, _, at, _ in series.rows if first <= step <= last}
        stamps = [self._stamp_near(places[step]) for step in (first, last)]
        if stamps[0] is None or stamps[1] is None:
            return None
        passed = stamps[1].at - stamps[0].at
        grain = max(stamps[0].grain, stamps[1].grain)
        if passed < max(MIN_WINDOW_S * NANOSECONDS, _FINE * grain):
            return None
        steps = list(places.items())
        near = [self._at_pace(each, passed, grain) for each in (steps, steps[::-1])]
        if near[0] is None or near[1] is None:
            return None
        return _between(last - first, passed, grain)._replace(near=(near[0], near[1]))

    def _at_pace(
        self, places: Sequence[tuple[int, int]], passed: int, grain: int
    ) -> Observation | None:
        """Look at a few records next to each other: do they come at the pace of the window?

        A program that stamps buffered output stamps many lines at once.
        """
        pace = passed / (len(places) - 1)
        needed = max(_FEW, math.ceil(2 * _AGREED * grain / pace))
        few = [stamp for _, at in places[: needed + 1] if (stamp := self._stamp_near(at))]
        if len(few) <= needed:
            return None
        gaps = [abs(after.at - before.at) for before, after in pairwise(few)]
        took, expected = abs(few[-1].at - few[0].at), needed * pace
        if took + grain < expected / _AGREED or took - grain > expected * _AGREED:
            return None
        if pace > 2 * grain and 4 * sum(gap < pace / 4 for gap in gaps) > len(gaps):
            return None
        return _between(abs(places[needed][0] - places[0][0]), took, grain)

    def _stamp_near(self, offset: int) -> _Stamp | None:
        """Read the stamp that the line around a place begins with."""
        found = _STAMPS.match(self._evidence.line(offset)[:_STAMPED])
        if found is None:
            return None
        try:
            stamp = parse(found["dated"] or found["other"])
        except BrokenContractError:
            return None
        return _Stamp(stamp.nanoseconds, NANOSECONDS // 10 ** min(stamp.decimals, 9))


class _Stamp(NamedTuple):
    """When a line says that it was written, and how finely; in nanoseconds."""

    at: int
    grain: int


def _between(steps: int, passed: int, grain: int) -> Observation:
    """Say what two stamps tell of the steps between them."""
    bounds = (passed / NANOSECONDS, (passed - grain) / NANOSECONDS, (passed + grain) / NANOSECONDS)
    return Observation(steps, *bounds, WitnessKind.STAMPS)


def _is_cut(text: bytes) -> bool:
    """Say whether a line goes on from one byte to the next."""
    return not any(each in _LINE_ENDS for each in text)
