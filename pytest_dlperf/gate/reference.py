"""What the last accepted sessions show: their level, the noise between their runs, two groups.

``benchmarks/gate_power.py`` shows the false alarms and the power that its constants give.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.noise import (
    MAX_MODE_DISTANCE,
    are_alike,
    gross_outliers,
    location,
    noise,
    pooled_noise,
    share_of_nights,
)
from pytest_dlperf.model import numbers
from pytest_dlperf.model.statistics import mean, sample_standard_deviation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.gate.noise import StandardError
    from pytest_dlperf.model.metric import Better

    Session = Sequence[float]

MIN_SESSIONS: Final = 4
"""Fewer sessions do not show how nights differ."""

_MAX_OUTLIERS: Final = 0.25

_MIN_GAP: Final = 0.015
"""Groups that lie nearer to each other, as a part of their level, hide no loss that counts."""

_MIN_GAP_IN_RANGES: Final = 1.5
"""The gap between two groups over the wider of their ranges, at least."""

_MIN_GAP_OF_FEW_IN_RANGES: Final = 4.0
"""The same for the runs of one session: five of them show a smaller gap by chance."""

_MIN_GAP_IN_ERRORS: Final = 3.25
"""The same over the standard error of the difference of two sessions, where sessions are split.

Where nights vary by as much as runs, 4 % of cases show such a gap by chance.
"""

_MIN_RUNS_OF_MODE: Final = 2
_MIN_SHARE_OF_MODE: Final = 0.1
_MIN_RUNS_OF_VALUES: Final = 3
"""Two runs always show two values."""

_MAX_DISTANCE_OF_ONE: Final = 0.04
"""A single session that lies further from all others is an accident, and does not count."""

_ERRORS_WITHIN_GROUP: Final = 2.5
"""Standard errors by which tonight may differ from the group that it lies in."""

_MIN_CHANCE: Final = 1e-5
"""Baselines that are less likely add nothing to a stated probability."""


class Groups(Struct, frozen=True):
    """Numbers that lie in two groups with a gap between them."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def apart(self) -> float:
        """Their distance, as a part of the higher one."""
        return 1 - mean(self.low) / mean(self.high)

    def note(self, what: str) -> str:
        """Tell the reader that ``what`` lies in them, and what to look for."""
        apart = numbers.percent(100 * self.apart)
        return (
            f"{what} of this case lie in two groups {apart} apart; see which, and what they share: "
            "host, clocks, NUMA binding"
        )

    @classmethod
    def of(cls, values: Sequence[float], *, min_gap: float = _MIN_GAP) -> Groups | None:
        """Split numbers at their largest gap; ``None`` if that is not large enough.

        ``min_gap`` is a part of the level.
        """
        ordered = sorted(values)
        gaps = [after - before for before, after in pairwise(ordered)]
        if not gaps:
            return None
        split = gaps.index(max(gaps)) + 1
        low, high = tuple(ordered[:split]), tuple(ordered[split:])
        widest = max(low[-1] - low[0], high[-1] - high[0])
        least = max(_MIN_GAP_IN_RANGES * widest, min_gap * high[0])
        return cls(low, high) if max(gaps) > least else None

    @classmethod
    def of_runs(cls, runs: Sequence[float]) -> Groups | None:
        """Split runs into two modes; a few runs, or runs far away, are accidents and no mode."""
        groups = cls.of(runs)
        if groups is None or groups.apart > MAX_MODE_DISTANCE:
            return None
        rarer = min(len(groups.low), len(groups.high))
        return groups if rarer >= max(_MIN_RUNS_OF_MODE, _MIN_SHARE_OF_MODE * len(runs)) else None

    @classmethod
    def of_values(cls, runs: Sequence[float]) -> Groups | None:
        """Split runs that show two values and nothing between; one run may show the rarer."""
        groups = cls.of(runs)
        if groups is None or groups.apart > MAX_MODE_DISTANCE or len(runs) < _MIN_RUNS_OF_VALUES:
            return None
        return groups if are_alike(groups.low) and are_alike(groups.high) else None


class _Look(Protocol):
    """Looks at the runs so far beside a baseline."""

    def __call__(
        self, reference: Reference, values: Sequence[float], *, is_last: bool
    ) -> bool | None:
        """Whether they are an alarm; ``None`` if more runs are taken."""


class Reference(Struct, frozen=True, kw_only=True):
    """What tonight is held against: ``level`` is the location of ``runs`` of so many ``sessions``.

    ``deviation`` is the relative standard deviation between runs, ``nights`` that between nights as
    far as it is more than chance, ``gross`` the number of gross outliers. ``modes`` are the two
    groups that runs lie in, if they do. Where sessions lie in two groups, this is the larger one,
    and ``other`` the other; ``false_alarm`` is then the probability of an alarm for the groups,
    over all baselines of so many sessions: some have nights of one group alone. ``notes`` tell of
    groups, and of a session that does not count.
    """

    level: float
    deviation: float
    runs: int
    sessions: int
    nights: float = 0.0
    gross: int = 0
    modes: Groups | None = None
    other: Reference | None = None
    false_alarm: float = 0.0
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, sessions: Sequence[Session], better: Better) -> Reference:
        """Summarize the runs of accepted sessions."""
        pooled = cls.pooled(sessions)
        within = pooled_noise(sessions)
        if within is None or len(sessions) < MIN_SESSIONS:
            return pooled
        levels = [location(session, within.deviation) for session in sessions]
        sizes = [len(session) for session in sessions]
        error = within.deviation * math.sqrt(2 / min(sizes))
        groups = Groups.of(levels, min_gap=max(_MIN_GAP, _MIN_GAP_IN_ERRORS * error))
        if groups is None:
            share = share_of_nights(levels, sizes, within.deviation)
            nights = share * sample_standard_deviation(levels) / mean(levels)
            return replace(pooled, nights=nights)
        low: list[Session] = []
        high: list[Session] = []
        for session, level in zip(sessions, levels, strict=True):
            (low if level <= groups.low[-1] else high).append(session)
        return cls._of_groups((low, high), better)

    @classmethod
    def _of_groups(cls, groups: Sequence[Sequence[Session]], better: Better) -> Reference:
        found = [cls.pooled(group) for group in groups]
        # Of two groups of one size, tonight is held against the better one.
        usual, other = sorted(
            found, key=lambda group: (group.sessions, better.sign * group.level), reverse=True
        )
        apart = other.level / usual.level - 1
        if other.sessions == 1 and abs(apart) > _MAX_DISTANCE_OF_ONE:
            distance = numbers.signed_percent(100 * apart)
            note = f"an accepted session lies {distance} from the others, and does not count"
            return replace(usual, notes=(note,))
        centred = [
            run / of_group.level
            for group, of_group in zip(groups, found, strict=True)
            for session in group
            for run in session
        ]
        deviation = noise(centred)
        sessions = usual.sessions + other.sessions
        is_worse = better.is_worse(other.level, usual.level)
        part = ((other if is_worse else usual).sessions + 1) / (sessions + 2)
        # A night too far from its group, or one whose group the accepted sessions do not have.
        false_alarm = is_worse * part * math.erfc(_ERRORS_WITHIN_GROUP / math.sqrt(2))
        false_alarm += part * (1 - part) ** sessions
        low, high = sorted((usual.level, other.level))
        note = Groups((low,), (high,)).note("nights")
        usual, other = (
            replace(
                group,
                deviation=deviation,
                gross=len(gross_outliers(centred, deviation)),
                modes=None,
                false_alarm=false_alarm,
                notes=(note,),
            )
            for group in (usual, other)
        )
        note += f"; tonight is like {other.sessions} of the {sessions} accepted sessions"
        return replace(usual, other=replace(other, notes=(note,)))

    @classmethod
    def pooled(cls, sessions: Sequence[Session]) -> Reference:
        """Summarize the runs as one group, whatever the differences between nights."""
        runs = [run for session in sessions for run in session]
        deviation, modes = noise(runs), Groups.of_runs(runs)
        return cls(
            level=location(runs, deviation),
            deviation=deviation,
            runs=len(runs),
            sessions=len(sessions),
            gross=len(gross_outliers(runs, deviation)),
            modes=modes,
            notes=(modes.note("runs"),) if modes is not None else (),
        )

    @property
    def counted(self) -> int:
        """The runs of all sessions that count, whichever group they lie in."""
        return self.runs + (self.other.runs if self.other else 0)

    @property
    def is_uncertain(self) -> bool:
        """Whether so many runs are gross outliers that the level is uncertain."""
        return self.gross > _MAX_OUTLIERS * self.counted

    @property
    def distance_of_groups(self) -> float:
        """As a part of the level: a loss of that size looks like a night of the other group."""
        return abs(self.other.level / self.level - 1) if self.other else 0.0

    def chance_beyond(self, worst: float, better: Better, error: StandardError) -> float:
        """Probability that a night of one of two groups is worse than this number."""
        if self.other is None:
            return 0.0
        groups = (self, self.other)
        nights = sum(group.sessions + 1 for group in groups)
        return math.fsum(
            (group.sessions + 1) / nights * error.false_alarm(better.loss(worst, group.level))
            for group in groups
        )

    def false_alarm_of_modes(self, better: Better, looks: range, look: _Look) -> float:
        """Probability of an alarm by chance alone, where runs lie in two modes.

        It is that of all baselines of so many runs: most alarms come after one that happens to have
        few runs of the worse mode. ``looks`` are the numbers of runs after which there may be a
        decision.
        """
        modes, runs = self.modes, self.runs
        if modes is None:
            return 0.0
        middles = mean(modes.low), mean(modes.high)
        worst, best = better.worst(middles), better.best(middles)
        part = (len(modes.low if worst < best else modes.high) + 1) / (runs + 2)
        alarms = 0.0
        for worse in range(runs):
            chance = math.comb(runs, worse) * part**worse * (1 - part) ** (runs - worse)
            if chance < _MIN_CHANCE:
                continue
            drawn = self.pooled([[worst] * worse + [best] * (runs - worse)])
            if not look(drawn, [worst] * looks[-1], is_last=True):
                break
            alarms += chance * _alarms_by(drawn, (worst, best), part, looks, look)
        return alarms

    def group_of(self, measured: float, count: int) -> Reference:
        """Return the group that a night of ``count`` runs lies in: the other one, or this."""
        if self.other is None:
            return self
        error = self.deviation * math.sqrt(1 / count + 1 / self.other.runs)
        is_near = abs(measured / self.other.level - 1) <= _ERRORS_WITHIN_GROUP * error
        return self.other if is_near else self


def groups_of_few(runs: Sequence[float]) -> Groups | None:
    """Split the runs of one session into two modes, where the gap is too wide for chance."""
    groups = Groups.of_runs(runs)
    if groups is None:
        return None
    widest = max(groups.low[-1] - groups.low[0], groups.high[-1] - groups.high[0])
    return groups if groups.high[0] - groups.low[-1] > _MIN_GAP_OF_FEW_IN_RANGES * widest else None


def counted_sessions(sessions: Sequence[Session]) -> Sequence[Session]:
    """Return the sessions that tonight is judged by: noisy ones only where all are noisy."""
    if not any(sessions) or not Reference.pooled(sessions).is_uncertain:
        return sessions
    deviation = noise([run for session in sessions for run in session])
    return [session for session in sessions if not gross_outliers(session, deviation)] or sessions


def _alarms_by(
    reference: Reference, modes: tuple[float, float], part: float, looks: range, look: _Look
) -> float:
    """Probability of an alarm by one baseline, a ``part`` of runs being in the worse mode."""
    worst, best = modes
    open_after, alarms = {0: 1.0}, 0.0
    for count in range(1, looks[-1] + 1):
        states: dict[int, float] = {}
        for worse, probability in open_after.items():
            states[worse] = states.get(worse, 0.0) + probability * (1 - part)
            states[worse + 1] = states.get(worse + 1, 0.0) + probability * part
        open_after = states
        if count not in looks:
            continue
        for worse in list(states):
            values = [worst] * worse + [best] * (count - worse)
            is_alarm = look(reference, values, is_last=count == looks[-1])
            if is_alarm is not None:
                alarms += is_alarm * states.pop(worse)
    return alarms
