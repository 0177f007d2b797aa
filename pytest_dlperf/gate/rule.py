"""The rule that judges every metric: a session's runs against those that its baseline keeps.

Numbers are logarithms, turned so that less is worse; a loss is a difference of two of them.

1. A session's level is the mean of its runs near the median, the baseline's level the mean of its
   sessions' levels.
2. The noise between runs is pooled within sessions, the judged one included.
3. Each session leaves its loss against the level of its time, red ones too: of a row of red
   sessions the first, once a green one has followed. The last thirty show how sessions differ, less
   the noise of runs, shrunk to a prior while they are few.
4. A session is red if its loss exceeds a floor, what runs explain, and what sessions explain.
5. It is also red if it is worse than the accepted number by more than the tolerance: a little may
   be lost every time.
6. A gain is judged by the same limits as a loss.

``benchmarks/gate_power.py`` shows the false alarms and the power that the constants give.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Final, NamedTuple, final

from msgspec.structs import replace

from pytest_dlperf.gate.noise import (
    MIN_NOISE,
    QUANTILE_90,
    QUANTILE_97_5,
    is_noise_free,
    pooled_noise,
    t_quantile,
)
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import Baseline, Loss, PooledNoise
from pytest_dlperf.model.judgement import Decision, Verdict
from pytest_dlperf.model.metric import Better, Metric

LOOKS: Final = (3, 4, 5, 7, 9)
"""Runs after which a session may end."""
LAST_LOOK: Final = LOOKS[-1]
_FIRST_ALARM: Final = 5
"""The first look that may be red."""
_FIRST_USUAL_ALARM: Final = 7
"""An earlier one is red only at twice the limit."""

_ALPHA_RUNS: Final = 0.003
"""Probability that the noise of runs alone exceeds its limit at one look."""
_ALPHA: Final = 0.005
"""The same of runs and sessions together."""

_PASSING: Final = 0.6
"""A session ends early if its loss is below this part of the limit of nine runs."""
_PASSING_DRIFT: Final = 0.8

_PRIOR_SHARE: Final = 0.15
_PRIOR_SESSIONS: Final = 4
"""Before any is known, sessions differ by 15 % of the tolerance, with the weight of four sessions
(moderated t: Smyth 2004)."""
_EVIDENCE: Final = 0.5
"""Standard errors of a variance by which losses must exceed the noise of runs."""
_ACCIDENTS: Final = 0.07
"""The part of the losses, the farthest off, that may be accidents: one of eight to twenty-two."""
_MIN_WORST_OF: Final = 20
"""From so many losses on, worse than each of them by the floor is red: one session in 21 is the
worst by chance."""

_ACCIDENT: Final = 0.03
_ACCIDENT_NOISE: Final = 4.0
"""A run is an accident if it lies four deviations, and at least 3 %, from the median."""
MAX_OWN_NOISE: Final = 2.0
"""A session over so many times as noisy as the baseline is judged by its own noise."""
_MIN_RUNS_FOR_OWN_NOISE: Final = 5
_MEDIAN: Final = 1.57
"""Variance of a median over that of the mean of as many runs; the accepted one is of five."""
_MAX_DOF: Final = 200
_ALL_PERCENT: Final = 100.0
_BLIND_PERCENT: Final = 90.0
"""Who finds only such losses, where less is worse, finds none."""
_WORTH_A_CONTROL: Final = 2.0
_MUCH_LESS: Final = 1.5
"""From so many times the usual loss on, a session says that it sees less."""


class _Seen(NamedTuple):
    """What so many runs show."""

    level: float
    near: int
    """How many of them count for it."""
    accidents: tuple[float, ...]
    noise: PooledNoise | None
    is_noisy: bool

    @property
    def is_clear(self) -> bool:
        """Whether a third of the runs at most are accidents."""
        return 2 * len(self.accidents) <= self.near


class _Reference(NamedTuple):
    """What a session is held against: the sessions of the baseline, or the accepted number."""

    level: float
    by_runs: float
    """Variance of its level, in variances of a run."""
    by_sessions: float
    """The same in variances between sessions."""
    least: float
    """A loss up to this one passes."""


class _Error(NamedTuple):
    """Variance of a difference by the noise of runs, and by that between sessions too."""

    runs: float
    runs_dof: int
    total: float
    dof: int


@final
class Rule:
    """Judges one metric: is asked after each run, and decides at the end."""

    def __init__(
        self, metric: Metric, baseline: Baseline, terms: Terms, *, available: int | None = None
    ) -> None:
        """Take all that it needs from the baseline; ``available`` is how many runs can be had."""
        self.metric, self.baseline, self.terms = metric, baseline, terms
        self.better = baseline.better
        wanted = terms.repeats or LAST_LOOK
        self.at_most = wanted if available is None else max(min(wanted, available), 1)
        self.tolerance = self._as_loss(terms.tolerance_of(baseline))
        sessions = baseline.rolling
        self.sessions = len(sessions)
        self.noise = _combined(pooled_noise(sessions), baseline.spread.noise)
        accepted = self._log(baseline.accepted)
        self._accepted = self._usual = _Reference(accepted, _MEDIAN / 5, 1.0, self.tolerance)
        if sessions:
            ends = [self._near(self._logs(runs)) for runs in sessions]
            level = math.fsum(math.fsum(near) / len(near) for near in ends) / len(ends)
            by_runs = math.fsum(1 / len(near) for near in ends) / len(ends) ** 2
            if len(ends) == 1 and baseline.runs:
                # The first session is known by the number that a person has accepted.
                level, by_runs = accepted, _MEDIAN / len(baseline.runs)
            floor = self._as_loss(terms.min_loss_of(metric, baseline))
            self._usual = _Reference(level, by_runs, 1 / len(ends), floor)
        self._between, self._between_dof = self._spread()
        self._max_own_noise = math.inf
        if self.noise is not None:
            surely = t_quantile(QUANTILE_97_5, self.noise.dof) / QUANTILE_97_5
            self._max_own_noise = MAX_OWN_NOISE * surely * self.noise.deviation
        losses = baseline.spread.losses
        self._worst = math.inf
        if len(losses) >= _MIN_WORST_OF and self.sessions:
            worst = max(loss.percent for loss in losses) / 100
            self._worst = worst * math.sqrt(1 + 1 / self.sessions)

    @property
    def min_detectable_percent(self) -> float | None:
        """The loss that a usual session finds nine times out of ten; ``None`` if it is unknown."""
        return self.detectable(self.at_most, self.noise)

    def is_enough(self, values: Sequence[float]) -> bool:
        """Whether it decides by the runs so far, in their order."""
        count = len(values)
        if count >= self.at_most:
            return True
        is_look = count in LOOKS and self.terms.repeats is None
        return is_look and self._verdict(count, self._seen(values), is_last=False) is not None

    def decide(self, values: Sequence[float]) -> Decision:
        """Decide by all runs, of which there are some."""
        seen = self._seen(values)
        verdict = self._verdict(len(values), seen, is_last=True) or Verdict.PASS
        return self._decision(verdict, seen, values)

    def _verdict(self, count: int, seen: _Seen, *, is_last: bool) -> Verdict | None:
        """Give the verdict; ``None`` asks for more runs."""
        loss, drift = self._usual.level - seen.level, self._accepted.level - seen.level
        limit = self._limit(count, seen.noise, self._usual)
        allowed = self._limit(count, seen.noise, self._accepted)
        factor = 1.0 if is_last or count >= _FIRST_USUAL_ALARM else 2.0
        may_change = is_last or count >= _FIRST_ALARM
        is_worse = _exceeds(loss, factor * limit) or _exceeds(drift, factor * allowed)
        # Among more runs the accidents may be few enough to decide.
        if is_worse and may_change and (seen.is_clear or is_last):
            return Verdict.REGRESSED if seen.is_clear else Verdict.INCONCLUSIVE
        if _exceeds(-loss, factor * limit) and may_change and seen.is_clear:
            return Verdict.IMPROVED
        if is_last and drift > self.tolerance and self._is_blind(self._sees(seen)):
            return Verdict.INCONCLUSIVE
        usual = self._limit(self.at_most, seen.noise, self._usual)
        is_near = abs(loss) <= _PASSING * usual and drift <= _PASSING_DRIFT * allowed
        return Verdict.PASS if is_last or is_near else None

    def loss_of(self, values: Sequence[float]) -> Loss | None:
        """Return what a session leaves behind of its difference; ``None`` without a level."""
        seen = self._seen(values)
        if not self.sessions or seen.noise is None:
            return None
        # A loss against a few sessions is larger by chance.
        extra = math.sqrt(1 + 1 / self.sessions)
        error = seen.noise.deviation * math.sqrt(1 / seen.near + self._usual.by_runs)
        loss = self._usual.level - seen.level
        return Loss(percent=round(100 * loss / extra, 3), error=round(100 * error / extra, 3))

    def is_noisy(self, values: Sequence[float]) -> bool:
        """Whether a session is far noisier than the baseline."""
        seen = self._seen(values)
        return seen.is_noisy or not seen.is_clear

    # ------------------------------------------------------------------------- numbers

    def _log(self, value: float) -> float:
        return self.better.sign * math.log(value)

    def _logs(self, values: Sequence[float]) -> list[float]:
        return [self._log(value) for value in values]

    def _as_loss(self, percent: float) -> float:
        if self.better is Better.LOWER:
            return math.log1p(percent / 100)
        return -math.log1p(-percent / 100) if percent < _ALL_PERCENT else math.inf

    def _percent(self, loss: float) -> float:
        """Return a loss in percent of the number that it is taken from."""
        sign = self.better.sign
        return -sign * 100 * math.expm1(-sign * loss)

    def _spread(self) -> tuple[float, int]:
        """Return the variance between sessions, and its degrees of freedom."""
        # What does not differ from run to run hardly differs between sessions.
        allowed = self.tolerance
        if is_noise_free(self.baseline.rolling):
            usual = self.terms.min_loss_of(self.metric, self.baseline, has_control=False)
            allowed = self._as_loss(usual)
        prior = _PRIOR_SESSIONS * (_PRIOR_SHARE * min(allowed, 1.0)) ** 2
        found = self.baseline.spread.losses
        if not found:
            return prior / _PRIOR_SESSIONS, _PRIOR_SESSIONS
        out = int(_ACCIDENTS * len(found) + 0.4)
        told = len(found) - out
        by_runs = math.fsum((loss.error / 100) ** 2 for loss in found) / len(found)
        by_runs *= 1 + _EVIDENCE * math.sqrt(2 / len(found))
        squares = sorted((loss.percent / 100) ** 2 for loss in found)[:told]
        seen = math.fsum(squares) / told / _variance_without(out / len(found))
        weight = _PRIOR_SESSIONS + told
        return max(prior + told * (seen - by_runs), prior / (1 + told)) / weight, weight

    def _near(self, logs: Sequence[float], deviation: float | None = None) -> list[float]:
        """Return the runs that are no accidents."""
        if deviation is None:
            deviation = self.noise.deviation if self.noise else MIN_NOISE
        middle = sorted(logs)[len(logs) // 2]  # of two in the middle the better: accidents are slow
        radius = max(_ACCIDENT_NOISE * deviation, _ACCIDENT)
        return [value for value in logs if abs(value - middle) <= radius]

    def _seen(self, values: Sequence[float]) -> _Seen:
        logs = self._logs(values)
        known = self.noise or pooled_noise([values])
        near = self._near(logs, known.deviation if known else None)
        far = tuple(value for value, log in zip(values, logs, strict=True) if log not in near)
        level, dof = math.fsum(near) / len(near), len(near) - 1
        square = math.fsum((value - level) ** 2 for value in near)
        own = PooledNoise(deviation=math.sqrt(square / dof) if dof else 0.0, dof=dof)
        is_noisy = len(near) >= _MIN_RUNS_FOR_OWN_NOISE and own.deviation > self._max_own_noise
        if is_noisy:
            known = own
        elif self.noise is not None and dof:
            known = _combined(self.noise, own)
        return _Seen(level, len(near), far, known, is_noisy)

    def _error(self, count: int, noise: PooledNoise, held: _Reference) -> _Error:
        within = noise.deviation**2 * (1 / count + held.by_runs)
        between = 0.0 if self.terms.has_control else self._between * (1 + held.by_sessions)
        total = within + between
        dof = total**2 / (within**2 / noise.dof + between**2 / self._between_dof)
        return _Error(within, noise.dof, total, min(int(dof), _MAX_DOF))

    def _limit(self, count: int, noise: PooledNoise | None, held: _Reference) -> float:
        """Return the largest loss that passes."""
        if noise is None:
            return max(held.least, self.tolerance)
        members = self.terms.members
        error = self._error(count, noise, held)
        sessions = _errors(_ALPHA, members, error.dof) * math.sqrt(error.total)
        if held is not self._accepted and members == 1:
            sessions = min(sessions, self._worst + held.least)
        runs = _errors(_ALPHA_RUNS, members, error.runs_dof) * math.sqrt(error.runs)
        return max(held.least, runs, sessions)

    def detectable(self, count: int, noise: PooledNoise | None) -> float | None:
        """Return the smallest loss that so many runs find nine times out of ten, in percent."""
        if noise is None:
            return None
        error = self._error(count, noise, self._usual)
        found = t_quantile(QUANTILE_90, error.dof) * math.sqrt(error.total)
        percent = self._percent(self._limit(count, noise, self._usual) + found)
        is_blind = self.better is Better.HIGHER and percent > _BLIND_PERCENT
        return _ALL_PERCENT if is_blind else percent

    def _sees(self, seen: _Seen) -> float | None:
        return self.detectable(self.at_most, seen.noise)

    def _is_blind(self, sees: float | None) -> bool:
        """Whether no loss would be found among so noisy runs."""
        return self.better is Better.HIGHER and sees == _ALL_PERCENT

    # ------------------------------------------------------------------------- decision

    def _decision(self, verdict: Verdict, seen: _Seen, values: Sequence[float]) -> Decision:
        count, noise, sign, held = len(values), seen.noise, self.better.sign, self._usual
        is_lost = _exceeds(held.level - seen.level, self._limit(count, noise, held))
        is_drift = verdict is Verdict.REGRESSED and not is_lost and self.sessions > 0
        held = self._accepted if is_drift else held
        loss, limit = held.level - seen.level, self._limit(count, noise, held)
        interval = None
        if noise is not None:
            error = self._error(count, noise, held)
            half = t_quantile(QUANTILE_97_5, error.dof) * math.sqrt(error.total)
            low, high = sorted(100 * math.expm1(-sign * end) for end in (loss - half, loss + half))
            interval = low, high
        whole = max(count, self.at_most) if verdict is Verdict.PASS else count
        if verdict is Verdict.PASS and not seen.is_clear:
            noise = pooled_noise([values]) or noise
        sees, controlled = self.detectable(whole, noise), None
        if sees is not None and not self.terms.has_control:
            terms = replace(self.terms, has_control=True)
            controlled = Rule(self.metric, self.baseline, terms).detectable(whole, noise)
            if controlled is not None and sees < _WORTH_A_CONTROL * controlled:
                controlled = None
        # The accepted number itself, not what its logarithm gives back.
        is_accepted = held.level == self._accepted.level
        return Decision(
            verdict=verdict,
            reference=self.baseline.accepted if is_accepted else math.exp(sign * held.level),
            difference_percent=100 * math.expm1(-sign * loss),
            tolerance_percent=self._percent(limit),
            interval_percent=interval,
            min_detectable_percent=sees,
            controlled_percent=controlled,
            reason=self._reason(verdict, seen, count, limit if is_drift else None),
            notes=tuple(self._notes(seen, count, noise, sees)),
        )

    def _reason(
        self, verdict: Verdict, seen: _Seen, count: int, allowed: float | None
    ) -> str | None:
        """Say what the numbers alone do not explain; ``allowed`` is what may drift, if it did."""
        baseline = self.baseline
        lost = numbers.percent(self._percent(self._accepted.level - seen.level))
        if allowed is not None:
            since = f" {baseline.acceptance.at}" if baseline.acceptance else ""
            where = "below" if self.better is Better.HIGHER else "above"
            return (
                f"drift: the last {numbers.counted(self.sessions, 'session')} passed, but this one "
                f"lies {lost} {where} the {baseline.metric} accepted{since}, "
                f"{numbers.quantity(baseline.accepted, baseline.unit)}; allowed are "
                f"{numbers.percent(self._percent(allowed))}"
            )
        if verdict is not Verdict.INCONCLUSIVE:
            return None
        why = (
            f"it lies {lost} below the accepted number, and runs differ so much that no loss can "
            "be told from chance"
        )
        if not seen.is_clear:
            why = (
                f"{len(seen.accidents)} of {numbers.counted(count, 'run')} lie far from the "
                "others, too many to call the rest worse"
            )
        return f"{why}; look at the hosts, and measure the case again when they are quiet"

    def _notes(
        self, seen: _Seen, count: int, noise: PooledNoise | None, sees: float | None
    ) -> Iterator[str]:
        """Note the runs that do not count, and that the session sees less than usual."""
        if seen.accidents:
            shown = ", ".join(map(numbers.number, seen.accidents))
            runs = numbers.counted(count, "run")
            yield f"{len(seen.accidents)} of {runs} do not count: {shown}"
        if noise is None or sees is None:
            return
        is_blind = self._is_blind(sees)
        found = "no loss" if is_blind else f"losses from {numbers.percent(sees)} on"
        differ = f"runs differ by {numbers.variation(noise.deviation)} now"
        usual = self.min_detectable_percent
        if usual is not None and self.noise is not None and sees >= _MUCH_LESS * usual:
            before = numbers.variation(self.noise.deviation)
            yield (
                f"{differ}, {before} in the baseline: the gate sees {found} instead of "
                f"{numbers.percent(usual)}"
            )
        elif is_blind:
            yield f"{differ}: the gate sees {found}"


def _exceeds(loss: float, limit: float) -> bool:
    """Whether a loss is beyond a limit: one of exactly the allowed percent is not."""
    return loss > limit + 1e-9


def _combined(one: PooledNoise | None, other: PooledNoise | None) -> PooledNoise | None:
    if one is None or other is None:
        return one or other
    dof = one.dof + other.dof
    square = (one.deviation**2 * one.dof + other.deviation**2 * other.dof) / dof
    return PooledNoise(deviation=math.sqrt(square), dof=dof)


@lru_cache(maxsize=4096)
def _errors(alpha: float, members: int, dof: int) -> float:
    """Estimated errors that are exceeded with this probability, shared by the members."""
    return t_quantile(-NormalDist().inv_cdf(alpha / members), max(min(dof, _MAX_DOF), 1))


@lru_cache
def _variance_without(share: float) -> float:
    """Variance of a normal value without the share of the farthest ones."""
    if not share:
        return 1.0
    z = NormalDist().inv_cdf(1 - share / 2)
    return 1 - 2 * z * NormalDist().pdf(z) / (1 - share)
