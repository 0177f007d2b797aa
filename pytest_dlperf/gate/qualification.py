"""Power and false alarms of the gate for a metric, by simulation with the runs of its own case."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.gate.noise import (
    MIN_NOISE,
    is_noise_free,
    location,
    noise,
    pooled_noise,
    share_of_nights,
)
from pytest_dlperf.gate.rules import last_decision
from pytest_dlperf.gate.sequential import FIRST_LOOK, MIN_BASELINE_SESSIONS
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.statistics import median

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_dlperf.gate.rules import Rule
    from pytest_dlperf.model.metric import RuleName

    RuleMaker = Callable[[Sequence[Sequence[float]]], Rule]

MIN_RUNS: Final = 5
"""Fewer recorded runs do not show their noise, and cannot be split."""

MAX_FALSE_ALARMS: Final = 0.005
"""The largest share of nights without a change that may be alarms."""

MIN_POWER: Final = 0.5
"""Below this, a loss of two tolerances is missed more often than found."""

_LOSSES_IN_TOLERANCES: Final = (0.5, 1.0, 2.0)
_MIN_TRIALS_OF_TOLERANCE: Final = 1000
_MAX_TRIALS_OF_MIN_DETECTABLE: Final = 250
_MIN_DETECTED_SHARE: Final = 0.9
_MAX_LOSS: Final = 0.6
_SMOOTHING: Final = 0.9
"""Width of the kernel that smooths drawn runs, in deviations, for a single run (Silverman)."""

_MIN_RUN: Final = 0.001
"""The smallest run that is drawn, as a part of the level: runs are positive."""

_RESOLUTION: Final = 0.0005


class Qualification(Struct, frozen=True, kw_only=True):
    """Power and false alarms of the gate for a metric of a case.

    They rest on ``runs`` of ``sessions``; ``noise_percent`` is the deviation of these runs.
    ``false_alarms`` and ``power`` are parts of all trials: alarms after no loss, and after losses
    of 1/2, 1 and 2 tolerances. ``min_detectable_percent`` is the loss that is found nine times out
    of ten (``None``: none is), ``smallest_tolerance_percent`` the tolerance below which the noise
    alone gives more than 0.5 % of alarms. ``fault`` is why the gate cannot be trusted.
    ``has_nights`` is whether differences between nights were simulated too, which takes four
    sessions of three runs.
    """

    runs: int
    sessions: int
    rule: RuleName
    noise_percent: float
    false_alarms: float
    power: tuple[float, float, float]
    min_detectable_percent: float | None
    smallest_tolerance_percent: float
    fault: str | None
    has_nights: bool = False


def qualify(
    sessions: Sequence[Sequence[float]],
    make_rule: RuleMaker,
    tolerance_percent: float,
    *,
    trials: int = 500,
    seed: int = 0,
) -> Qualification:
    """Simulate nights of a case from its own runs, with and without a loss, and judge them.

    In each trial the runs are split at random into halves. A baseline as large as the real one is
    drawn from one half, tonight's runs from the other, and both are given to the rule that
    ``make_rule`` makes from the baseline's sessions. From four sessions of three runs on, one of
    them is held out as tonight: runs drawn for tonight have the level of that session, those of
    the baseline the levels of the others. ``tolerance_percent`` is the metric's.

    Raises:
        ValueError: There are fewer than five runs, or no trial is asked for.
    """
    runs = [run for session in sessions for run in session]
    if len(runs) < MIN_RUNS or trials < 1:
        raise ValueError(f"{len(runs)} runs and {trials} trials; it takes {MIN_RUNS} and 1")
    draw = _Draw(sessions, make_rule, random.Random(seed))  # noqa: S311 - trials, no secret
    drawn = [draw() for _ in range(trials)]
    losses = [part * tolerance_percent / 100 for part in _LOSSES_IN_TOLERANCES]
    quiet = [_night(rule, candidate, 0.0) for rule, candidate in drawn]
    lossy = [[_night(rule, candidate, loss) for rule, candidate in drawn] for loss in losses]
    more = [draw() for _ in range(max(_MIN_TRIALS_OF_TOLERANCE - trials, 0))]
    smallest = _smallest_tolerance([*drawn, *more])
    false_alarms = _share(quiet, Verdict.REGRESSED)
    half, once, twice = (_share(night, Verdict.REGRESSED) for night in lossy)
    rule = make_rule(sessions)
    return Qualification(
        runs=len(runs),
        sessions=len(sessions),
        rule=rule.name,
        noise_percent=100 * draw.noise,
        false_alarms=false_alarms,
        power=(half, once, twice),
        min_detectable_percent=_min_detectable(drawn[:_MAX_TRIALS_OF_MIN_DETECTABLE]),
        smallest_tolerance_percent=smallest,
        fault=_why_inconclusive(rule, runs)
        or _why_inverted(false_alarms, twice, _share(lossy[-1], Verdict.IMPROVED))
        or _why_too_strict(tolerance_percent, smallest)
        or _why_blind(twice, 2 * tolerance_percent),
        has_nights=draw.has_nights,
    )


class _Draw:
    """Draws baselines and nights from the halves of a case's runs, and makes their rules."""

    def __init__(
        self, sessions: Sequence[Sequence[float]], make_rule: RuleMaker, choose: random.Random
    ) -> None:
        whole = [session for session in sessions if len(session) >= FIRST_LOOK]
        self.has_nights = len(whole) >= MIN_BASELINE_SESSIONS
        runs = [run for session in sessions for run in session]
        self._sizes = [len(session) for session in sessions]
        self._at_most = make_rule(sessions).at_most
        self.noise = 0.0 if is_noise_free(sessions) else noise(runs)
        self._noise = self.noise
        self._level = location(runs, self._noise)
        self._runs, self._factors = runs, [1.0] * len(sessions)
        if self.has_nights:
            self._separate_nights(sessions)
        self._make_rule = make_rule
        self._choose = choose

    def _separate_nights(self, sessions: Sequence[Sequence[float]]) -> None:
        """Separate the levels of nights from the noise between runs of a night."""
        within = pooled_noise(sessions)
        if self._noise:
            self._noise = MIN_NOISE if within is None else within.deviation
        levels = [location(session, self._noise) for session in sessions]
        self._level = math.fsum(levels) / len(levels)
        # Around a mean of their own, n runs differ less than around the night's true level.
        self._runs = [
            self._level * (1 + math.sqrt(len(session) / (len(session) - 1)) * (run / level - 1))
            for session, level in zip(sessions, levels, strict=True)
            if len(session) > 1
            for run in session
        ]
        # The levels differ by chance too, which drawing from them adds once more.
        kept = share_of_nights(levels, self._sizes, self._noise)
        self._factors = [1 + kept * (level / self._level - 1) for level in levels]

    def __call__(self) -> tuple[Rule, list[float]]:
        """Draw a baseline, make its rule, and draw a night of as many runs as that may take."""
        runs = self._runs
        self._choose.shuffle(runs)
        middle = len(runs) // 2
        accepted, tonight = self._centred(runs[middle:]), self._centred(runs[:middle])
        factors, of_tonight = self._levels_of_nights()
        sessions = [
            self._drawn(accepted, size, factor)
            for size, factor in zip(self._sizes, factors, strict=True)
        ]
        return self._make_rule(sessions), self._drawn(tonight, self._at_most, of_tonight)

    def _levels_of_nights(self) -> tuple[list[float], float]:
        """Choose the levels of a baseline's nights and of tonight, as parts of the mean level."""
        if not self.has_nights:
            return self._factors, 1.0
        held_out = self._choose.randrange(len(self._factors))
        others = self._factors[:held_out] + self._factors[held_out + 1 :]
        # Another night takes the place of the one that is held out.
        stand_in = self._choose.choice(others)
        return [*others[:held_out], stand_in, *others[held_out:]], self._factors[held_out]

    def _centred(self, half: Sequence[float]) -> list[float]:
        # The halves differ by chance only. Left in, that would count twice: drawing from them
        # makes a baseline and a night of these sizes differ by as much again.
        middle = location(half, self._noise)
        return [run * self._level / middle for run in half]

    def _drawn(self, half: Sequence[float], size: int, factor: float) -> list[float]:
        # Runs drawn more than once are moved apart a little, and all of them together by as
        # much, so that their noise stays. Equal runs would have none.
        width = _SMOOTHING * len(half) ** -0.2
        shrunk = 1 / math.sqrt(1 + width * width)
        level, step, normal = self._level, width * self._noise * self._level, self._choose.gauss
        drawn = (
            factor * (level + shrunk * (run - level + normal(0.0, step)))
            for run in self._choose.choices(half, k=size)
        )
        # A kernel wider than a run is large could make runs below 0.
        return [max(run, _MIN_RUN * level) for run in drawn]


def _night(rule: Rule, candidate: Sequence[float], loss: float) -> Verdict:
    """Judge a night after a loss, with as many runs as the rule takes."""
    worse = [rule.better.changed(run, -loss) for run in candidate]
    for count in range(1, len(worse)):
        decision = rule.decide(worse[:count], is_last=False)
        if decision is not None:
            return decision.verdict
    return last_decision(rule, worse).verdict


def _share(verdicts: Sequence[Verdict], of: Verdict) -> float:
    return verdicts.count(of) / len(verdicts)


def _smallest_tolerance(drawn: Sequence[tuple[Rule, Sequence[float]]]) -> float:
    """Smallest tolerance in percent at which nights without loss give few enough alarms."""
    losses = sorted(
        (
            -rule.better.sign * last_decision(rule, candidate).difference_percent
            for rule, candidate in drawn
        ),
        reverse=True,
    )
    return max(losses[int(MAX_FALSE_ALARMS * len(losses))], 0.0)


def _min_detectable(drawn: Sequence[tuple[Rule, Sequence[float]]]) -> float | None:
    """The loss in percent that is found nine times out of ten, by bisection."""

    def is_found(loss: float) -> bool:
        verdicts = [_night(rule, candidate, loss) for rule, candidate in drawn]
        return _share(verdicts, Verdict.REGRESSED) >= _MIN_DETECTED_SHARE

    missed, found = 0.0, _MAX_LOSS
    if not is_found(found):
        return None
    while found - missed > _RESOLUTION:
        middle = (found + missed) / 2
        missed, found = (missed, middle) if is_found(middle) else (middle, found)
    return 100 * found


def _why_inconclusive(rule: Rule, runs: Sequence[float]) -> str | None:
    """Return why the rule cannot decide even about a night in which every run is the median."""
    decision = last_decision(rule, [median(runs)] * rule.at_most)
    return decision.reason if decision.verdict is Verdict.INCONCLUSIVE else None


def _why_inverted(false_alarms: float, alarms: float, improvements: float) -> str | None:
    if alarms >= false_alarms and improvements <= alarms:
        return None
    return (
        "the comparison is inverted: a loss of two tolerances gives "
        f"{numbers.percent(100 * alarms)} of alarms and {numbers.percent(100 * improvements)} of "
        f"improvements, no loss {numbers.percent(100 * false_alarms)} of alarms"
    )


def _why_too_strict(tolerance_percent: float, smallest: float) -> str | None:
    if tolerance_percent >= smallest:
        return None
    # Rounded up: the advised tolerance has to be enough.
    enough = math.ceil(10 * smallest) / 10
    return (
        f"the tolerance of {tolerance_percent:g} % is below what the noise allows: from "
        f"{numbers.percent(enough)} on, at most {100 * MAX_FALSE_ALARMS:g} % of nights give an "
        "alarm without a loss"
    )


def _why_blind(alarms: float, loss_percent: float) -> str | None:
    if alarms >= MIN_POWER:
        return None
    return (
        f"a loss of {loss_percent:g} %, two tolerances, is seen in {100 * alarms:.0f} % of nights"
    )
