"""What the gate sees of a metric, tried out on the recorded runs of its own case."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate.noise import MIN_NOISE, is_noise_free, location, noise, pooled_noise
from pytest_dlperf.gate.rules import last_decision
from pytest_dlperf.gate.sequential import FIRST_LOOK, MIN_BASELINE_SESSIONS
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.statistics import median

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_dlperf.gate.rules import Rule
    from pytest_dlperf.model.metric import RuleName

    RuleMaker = Callable[[Sequence[Sequence[float]]], Rule]

MIN_RUNS: Final = 5
"""Fewer recorded runs do not tell their noise, and cannot be split."""

MAX_FALSE_ALARMS: Final = 0.005
"""What a gate may give when nothing has changed, of all nights."""

MIN_POWER: Final = 0.5
"""Below this, a loss of two tolerances is more often missed than seen."""

_TOLERANCES: Final = (0.5, 1.0, 2.0)
_MIN_TRIALS_OF_TOLERANCE: Final = 1000
_MAX_TRIALS_OF_VISIBLE: Final = 250
_SEEN_SHARE: Final = 0.9
_LARGEST_LOSS: Final = 0.6
_SMOOTHING: Final = 0.9
"""Width of the kernel that smooths drawn runs, in deviations, for a single run (Silverman)."""

_MIN_PART: Final = 0.001
"""The smallest run that is drawn, as a part of the level: runs are positive."""

_RESOLUTION: Final = 0.0005

_MIN_EVIDENCE: Final = 3.0
"""Levels of nights that vary more than so many times what chance does, differ by themselves.

Where nights do not differ, 3 % of all cases reach that (F test, six sessions of five runs).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Qualification:
    """What the gate sees of a metric of a case.

    ``runs`` of ``sessions`` were there to try it on; ``noise_percent`` is their deviation.
    ``false_alarms`` and ``power`` are parts of all trials: alarms when nothing was lost, and when
    1/2, 1 and 2 tolerances were. ``min_detectable_percent`` is the loss that is seen nine times
    out of ten (``None``: none is), ``smallest_tolerance_percent`` the tolerance below which the
    noise alone gives more than 0.5 % of alarms. ``fault`` is why the gate is not to be trusted.
    ``nights`` says whether differences between nights were tried too: fewer than four sessions of
    three runs do not tell them.
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
    nights: bool = False


def qualify(
    sessions: Sequence[Sequence[float]],
    make_rule: RuleMaker,
    tolerance_percent: float,
    *,
    trials: int = 500,
    seed: int = 0,
) -> Qualification:
    """Try the rule of a metric on its case's own runs, with and without a loss.

    In each trial the runs are split at random into halves. A baseline as large as the real one is
    drawn from one half, tonight's runs from the other, and both are given to the rule that
    ``make_rule`` makes from the baseline's sessions. From four sessions of three runs on, one of
    them is held out as tonight: what is drawn for it has the level of that session, and the
    baseline has the levels of the others. ``tolerance_percent`` is the metric's.

    Raises:
        ValueError: There are fewer than five runs, or no trial is asked for.
    """
    runs = [run for session in sessions for run in session]
    if len(runs) < MIN_RUNS or trials < 1:
        raise ValueError(f"{len(runs)} runs and {trials} trials; it takes {MIN_RUNS} and 1")
    draw = _Draw(sessions, make_rule, random.Random(seed))  # noqa: S311 - trials, no secret
    drawn = [draw() for _ in range(trials)]
    losses = [part * tolerance_percent / 100 for part in _TOLERANCES]
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
        min_detectable_percent=_min_detectable(drawn[:_MAX_TRIALS_OF_VISIBLE]),
        smallest_tolerance_percent=smallest,
        fault=_inconclusive(rule, runs)
        or _turned_round(false_alarms, twice, _share(lossy[-1], Verdict.IMPROVED))
        or _too_strict(tolerance_percent, smallest)
        or _blind(twice, 2 * tolerance_percent),
        nights=draw.nights,
    )


class _Draw:
    """Draws baselines and nights from the halves of a case's runs, and makes the rules."""

    def __init__(
        self, sessions: Sequence[Sequence[float]], make_rule: RuleMaker, choose: random.Random
    ) -> None:
        whole = [session for session in sessions if len(session) >= FIRST_LOOK]
        self.nights = len(whole) >= MIN_BASELINE_SESSIONS
        runs = [run for session in sessions for run in session]
        self._sizes = [len(session) for session in sessions]
        self._at_most = make_rule(sessions).at_most
        self.noise = 0.0 if is_noise_free(sessions) else noise(runs)
        self._noise = self.noise
        self._level = location(runs, self._noise)
        self._runs, self._factors = runs, [1.0] * len(sessions)
        if self.nights:
            self._tell_nights_apart(sessions)
        self._make_rule = make_rule
        self._choose = choose

    def _tell_nights_apart(self, sessions: Sequence[Sequence[float]]) -> None:
        """Part the runs into the levels of their nights and the noise between runs of a night."""
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
        # The levels differ by chance too, and what is drawn brings that chance anew.
        differences = [level / self._level - 1 for level in levels]
        found = math.fsum(difference**2 for difference in differences) / (len(levels) - 1)
        chance = self._noise**2 * math.fsum(1 / size for size in self._sizes) / len(self._sizes)
        kept = math.sqrt(1 - chance / found) if found > _MIN_EVIDENCE * chance else 0.0
        self._factors = [1 + kept * difference for difference in differences]

    def __call__(self) -> tuple[Rule, list[float]]:
        """A rule made from a drawn baseline, and a night as long as it may become."""
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
        """Choose the levels of a baseline's nights and of tonight, over the level of all."""
        if not self.nights:
            return self._factors, 1.0
        held_out = self._choose.randrange(len(self._factors))
        others = self._factors[:held_out] + self._factors[held_out + 1 :]
        # As many nights as there are: another one stands in for the one that is held out.
        stand_in = self._choose.choice(others)
        return [*others[:held_out], stand_in, *others[held_out:]], self._factors[held_out]

    def _centred(self, half: Sequence[float]) -> list[float]:
        # Nothing differs between the halves but chance. Left in, it would count twice: drawing
        # from them brings as much of it as a baseline and a night of these sizes have.
        middle = location(half, self._noise)
        return [run * self._level / middle for run in half]

    def _drawn(self, half: Sequence[float], size: int, factor: float) -> list[float]:
        # Runs drawn more than once are moved apart a little, and all of them together by as
        # much, so that they differ as before. Equal runs would have a noise of nothing.
        width = _SMOOTHING * len(half) ** -0.2
        shrunk = 1 / math.sqrt(1 + width * width)
        level, step, normal = self._level, width * self._noise * self._level, self._choose.gauss
        drawn = (
            factor * (level + shrunk * (run - level + normal(0.0, step)))
            for run in self._choose.choices(half, k=size)
        )
        # A kernel wider than a run is large would make runs that there are not.
        return [max(run, _MIN_PART * level) for run in drawn]


def _night(rule: Rule, candidate: Sequence[float], loss: float) -> Verdict:
    """Judge a night that lost so much, with as many runs as the rule asks for."""
    worse = [rule.better.changed(run, -loss) for run in candidate]
    for count in range(1, len(worse)):
        decision = rule.decide(worse[:count], is_last=False)
        if decision is not None:
            return decision.verdict
    return last_decision(rule, worse).verdict


def _share(verdicts: Sequence[Verdict], of: Verdict) -> float:
    return verdicts.count(of) / len(verdicts)


def _smallest_tolerance(drawn: Sequence[tuple[Rule, Sequence[float]]]) -> float:
    """Find the tolerance in percent at which nights without loss give few enough alarms."""
    losses = sorted(
        (
            -rule.better.sign * last_decision(rule, candidate).difference_percent
            for rule, candidate in drawn
        ),
        reverse=True,
    )
    return max(losses[int(MAX_FALSE_ALARMS * len(losses))], 0.0)


def _min_detectable(drawn: Sequence[tuple[Rule, Sequence[float]]]) -> float | None:
    """Find the loss in percent that is seen nine times out of ten, by halving the range."""

    def is_seen(loss: float) -> bool:
        verdicts = [_night(rule, candidate, loss) for rule, candidate in drawn]
        return _share(verdicts, Verdict.REGRESSED) >= _SEEN_SHARE

    unseen, seen = 0.0, _LARGEST_LOSS
    if not is_seen(seen):
        return None
    while seen - unseen > _RESOLUTION:
        middle = (seen + unseen) / 2
        unseen, seen = (unseen, middle) if is_seen(middle) else (middle, seen)
    return 100 * seen


def _inconclusive(rule: Rule, runs: Sequence[float]) -> str | None:
    """Say why the rule decides nothing even about a night in which every run is as usual."""
    decision = last_decision(rule, [median(runs)] * rule.at_most)
    return decision.reason if decision.verdict is Verdict.INCONCLUSIVE else None


def _turned_round(false_alarms: float, alarms: float, improvements: float) -> str | None:
    if alarms >= false_alarms and improvements <= alarms:
        return None
    return (
        "the comparison is turned round: a loss of two tolerances gives "
        f"{100 * alarms:.1f} % of alarms and {100 * improvements:.1f} % of improvements, no loss "
        f"{100 * false_alarms:.1f} % of alarms"
    )


def _too_strict(tolerance_percent: float, smallest: float) -> str | None:
    if tolerance_percent >= smallest:
        return None
    # Rounded up: what is advised has to be enough.
    enough = math.ceil(10 * smallest) / 10
    return (
        f"the tolerance of {tolerance_percent:g} % is below what the noise allows: from "
        f"{enough:.1f} % on, at most {100 * MAX_FALSE_ALARMS:g} % of nights give an alarm "
        "without a loss"
    )


def _blind(alarms: float, loss_percent: float) -> str | None:
    if alarms >= MIN_POWER:
        return None
    return (
        f"a loss of {loss_percent:g} %, two tolerances, is seen in {100 * alarms:.0f} % of nights"
    )
