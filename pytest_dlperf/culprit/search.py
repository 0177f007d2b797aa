"""The search: what the runs so far say, which run would tell most, and what a hunt will cost.

Runs are noisy looks at levels. Likelihoods are integrated over what is not known but not asked for
either, the loss, the noise and the level of each sitting; and no single run is believed entirely.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import Struct

from pytest_dlperf.culprit.hunt import GOOD_END, Finding, Observation, Outcome, Posterior, Shape
from pytest_dlperf.culprit.hypotheses import SHARES, hypotheses_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_dlperf.culprit.hunt import Hunt
    from pytest_dlperf.culprit.hypotheses import Answer, Array

_OUTLIERS: Final = 0.05
"""Part of the runs that tell nothing of their setting."""
_OUTLIER_WIDTH: Final = 4.0
"""Half of them are expected within so many deviations around the levels."""

_STEP: Final = 0.4
_REACH: Final = 3.0
_MAX_POINTS: Final = 100
"""Grids have a point every so many deviations between runs, as far as so many standard errors: at
most so many on each side."""

_MIN_SPREAD: Final = 0.5
"""Sittings that differ by so many deviations between runs each begin with a run of the good end."""

_AS_GOOD: Final = 0.95
"""A setting that was run before is run again if it tells so much of what the best one would."""

_WEIGHED: Final = 4
"""So many settings of each kind are weighed with what is not known of the levels."""

_EXPECTED: Final = 0.5
"""A second culprit of this probability is looked for."""

_WASTE: Final = 1.15
"""Runs that a hunt takes, in those that its information would take."""

_GIVEN_UP: Final = 5
_MIN_RUNS_GIVEN_UP: Final = 100
"""A hunt is given up after so many times the runs that were expected at first, and so many."""

_MAX_FORECAST_RUNS: Final = 200
"""Runs after which a forecast plays a hunt no further."""

_TAIL: Final = 3.5
_POINTS: Final = 3
"""Outcomes are expected within so many deviations of the levels, with so many points in each."""


class _Points(NamedTuple):
    """Points of a quantity that is not known, and the logarithm of each one's prior."""

    at: Array
    log_prior: Array

    @classmethod
    def normal(cls, mean: float, error: float, step: float, least: float = -math.inf) -> _Points:
        half = min(max(math.ceil(_REACH * error / step), 2), _MAX_POINTS) if error else 0
        deviations = np.linspace(-_REACH, _REACH, 2 * half + 1) if error else np.zeros(1)
        at, log = mean + error * deviations, -(deviations**2) / 2
        at, log = at[at > least], log[at > least]
        return cls(at, log - np.log(np.exp(log).sum()))


class Search:
    """A hunt and all of its runs so far: a value, made anew by each run.

    ``Search(hunt, observations)`` is the same as ``Search(hunt)`` after each of them in turn.
    """

    def __init__(
        self,
        hunt: Hunt,
        observations: Iterable[Observation] = (),
        *,
        likelihoods: Sequence[Array] = (),
    ) -> None:
        """Replay a hunt; ``likelihoods`` are those of the first runs, if a search has them.

        Raises:
            ValueError: A run is of no setting of the hunt.
        """
        self.hunt = hunt
        self.observations = tuple(observations)
        step = _STEP * hunt.noise
        self._loss = _Points.normal(hunt.loss, hunt.loss_error, step, least=0.0)
        error = math.hypot(hunt.level_error, hunt.spread)
        self._level = _Points.normal(0.0, error, step)
        self._measured_level = _Points.normal(0.0, hunt.level_error, step)
        self._noise = _Points(np.array([hunt.noise]), np.zeros(1))
        if hunt.noise_dof is not None:
            # Three points of Gauss and Hermite, in the logarithm.
            nodes = np.array([-1.0, 0.0, 1.0]) * math.sqrt(3 / 2 / hunt.noise_dof)
            self._noise = _Points(hunt.noise * np.exp(nodes), np.log([1 / 6, 2 / 3, 1 / 6]))
        new = [self._log_likelihood(one) for one in self.observations[len(likelihoods) :]]
        self._likelihoods = (*likelihoods, *new)
        self._infer()

    def after(self, observation: Observation) -> Search:
        """Return the search after one more run.

        Raises:
            ValueError: It is of no setting of the hunt.
        """
        observations = (*self.observations, observation)
        return Search(self.hunt, observations, likelihoods=self._likelihoods)

    # -------------------------------------------------------------------- probabilities

    def _levels(self, sitting: int) -> _Points:
        return self._measured_level if sitting == self.hunt.measured_in else self._level

    def _log_likelihood(self, one: Observation) -> Array:
        """Of a run, by share, loss, noise and level of its sitting."""
        hunt, noise = self.hunt, self._noise.at[:, None]
        if not 0 <= one.setting <= hunt.bad_end:
            raise ValueError(f"setting {one.setting} is not one of 0 to {hunt.bad_end}")
        if one.worse is None:
            if one.setting in (GOOD_END, hunt.bad_end):
                raise ValueError(f"setting {one.setting} is an end, which has to run")
            return np.zeros(())
        if not math.isfinite(one.worse):
            raise ValueError(f"a run of setting {one.setting} is worse by {one.worse}")
        shares = np.array(SHARES)[:, None, None, None]
        levels = shares * self._loss.at[:, None, None] + self._levels(one.sitting).at
        believed = (1 - _OUTLIERS) * np.exp(-(((one.worse - levels) / noise) ** 2) / 2) / noise
        # A Cauchy distribution, whatever the setting.
        width = _OUTLIER_WIDTH * hunt.noise + hunt.loss / 2
        far = (one.worse - hunt.loss / 2) / width
        return np.log(believed + _OUTLIERS * math.sqrt(2 / math.pi) / width / (1 + far**2))

    def _infer(self) -> None:
        """Find the probability of each class of answers, with each loss and noise."""
        self._run = sorted({one.setting for one in self.observations if one.worse is not None})
        self._broken = {one.setting for one in self.observations if one.worse is None}
        self._hypotheses = hypotheses_of(self.hunt, self._run, self._broken.difference(self._run))
        shares, prior = self._hypotheses.classes
        by_sitting: dict[int, dict[int, Array]] = {}
        for one, likelihood in zip(self.observations, self._likelihoods, strict=True):
            if one.worse is not None:
                tables = by_sitting.setdefault(one.sitting, {})
                tables[one.setting] = tables.get(one.setting, 0.0) + likelihood
        joint = np.log(prior + 1e-300)[:, None, None] + self._loss.log_prior[:, None]
        joint = joint + self._noise.log_prior
        self._by_sitting: dict[int, Array] = {}
        for sitting, tables in by_sitting.items():
            each = self._levels(sitting).log_prior
            for setting, table in tables.items():
                each = each + table[shares[:, self._run.index(setting)]]
            self._by_sitting[sitting] = each
            most = each.max(-1, keepdims=True)
            joint += np.log(np.exp(each - most).sum(-1)) + most[..., 0]
        joint = np.exp(joint - joint.max())
        self._joint = joint / joint.sum()
        self._masses = self._joint.sum((1, 2))

    def posterior(self) -> Posterior:
        """How probable each answer is by now."""
        candidates, _ = self._hypotheses.marginals(self._masses)
        everywhere, gone = self._hypotheses.ends(self._masses)
        return Posterior(candidates=tuple(candidates.tolist()), everywhere=everywhere, gone=gone)

    def finding(self) -> Finding:
        """Say what is found, and how surely."""
        best, pair = self._hypotheses.best(self._masses), self._hypotheses.best_pair(self._masses)
        none, sure = math.fsum(self._hypotheses.ends(self._masses)), 1 - self.hunt.error
        if none >= sure:
            return Finding(outcome=Outcome.NONE, certainty=none)
        if pair.probability >= sure:
            return self._found(Outcome.PAIR, pair)
        if best.probability >= sure:
            return self._found(Outcome.FOUND, best)
        certainty = max(none, pair.probability, best.probability)
        left = self._runs_left(certainty)
        return Finding(outcome=Outcome.UNDECIDED, certainty=certainty, runs_left=left)

    def _found(self, outcome: Outcome, answer: Answer) -> Finding:
        weights = answer.within[:, None] * self._joint.sum(2)
        losses = answer.share[:, None] * self._loss.at
        loss = float(np.average(losses, weights=weights))
        error = math.sqrt(float(np.average((losses - loss) ** 2, weights=weights)))
        second = 0.0
        if outcome is Outcome.FOUND and self.hunt.shape is Shape.ORDERED:
            alone = self._hypotheses.marginals(self._masses)[1][list(answer.culprits)]
            second = max(1 - float(alone.sum()) / answer.probability, 0.0)
        return Finding(
            outcome=outcome,
            culprits=answer.culprits,
            certainty=answer.probability,
            loss=loss,
            interval=(loss - 1.96 * error, loss + 1.96 * error),
            together=answer.together,
            second=second,
        )

    # ------------------------------------------------------------------- the next run

    @property
    def is_given_up(self) -> bool:
        """Whether it took so many runs that levels or noise cannot be what they seemed."""
        runs = sum(one.worse is not None for one in self.observations)
        if runs < _MIN_RUNS_GIVEN_UP:
            return False
        return runs >= _GIVEN_UP * Search(self.hunt).finding().runs_left

    def next_query(self, sitting: int) -> int | None:
        """Return the setting to run next in this sitting; ``None`` when decided or given up.

        A hunt that has found one and rather expects a second one goes on.
        """
        finding, hunt = self.finding(), self.hunt
        if finding.outcome is not Outcome.UNDECIDED and finding.second < _EXPECTED:
            return None
        if self.is_given_up:
            return None
        differs = hunt.spread >= _MIN_SPREAD * hunt.noise and sitting != hunt.measured_in
        run = {one.setting for one in self.observations if one.sitting == sitting}
        if differs and GOOD_END not in run:
            return GOOD_END
        settings, outcomes = self._hypotheses.settings, self._outcomes()
        shares = self._hypotheses.predicted(self._masses)
        told = _entropy(shares @ outcomes) - shares @ _entropy(outcomes)
        told[np.isin(settings, list(self._broken))] = 0.0
        if len(self._levels(sitting).at) > 1 or len(self._loss.at) > 1:
            told = self._told_by_levels(told, sitting)
        again = np.isin(settings, self._run) & (told >= _AS_GOOD * told.max())
        return int(settings[np.argmax(np.where(again, told, 0.0) if again.any() else told)])

    def _told_by_levels(self, told: Array, sitting: int) -> Array:
        """Bits that one more run tells of the settings that tell most if levels were known.

        Where they are not, each answer goes with levels that fit the runs so far. One more run of
        an end may tell which of them it is, and one of another setting little beside them.
        """
        settings = self._hypotheses.settings
        is_row = self.hunt.shape is Shape.ORDERED
        between = np.searchsorted(self._run, settings) if is_row else settings
        places = {0, len(settings) - 1}
        for those in (np.isin(settings, self._run), ~np.isin(settings, self._run)):
            ranked = sorted(
                map(int, np.flatnonzero(those & (told > 0))), key=lambda one: -told[one]
            )
            # Those between the same two that were run tell much the same.
            best = {between[one]: one for one in reversed(ranked)}
            places.update(sorted(best.values(), key=lambda one: -told[one])[:_WEIGHED])
        each, loss = self._by_sitting.get(sitting), self._loss.at
        level = self._levels(sitting)
        weights = np.exp(level.log_prior if each is None else each - each.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True) * self._joint[..., None]
        masses = self._masses + 1e-300
        # Moments of the level, by class and loss.
        moments = (weights @ level.at**power for power in range(3))
        none, first, second = (moment.sum(-1) / masses[:, None] for moment in moments)
        found = np.zeros(len(settings))
        for place in places:
            of, share, part = self._hypotheses.split(int(settings[place]))
            at = np.array(SHARES)[share][:, None] * loss
            means = (at * none[of] + first[of]).sum(1)
            spread = (at**2 * none[of] + 2 * at * first[of] + second[of]).sum(1) - means**2
            widths = np.sqrt(np.maximum(spread, 0.0) + self.hunt.noise**2)
            low, high = (means - _TAIL * widths).min(), (means + _TAIL * widths).max()
            values = np.linspace(low, high, math.ceil((high - low) / self.hunt.noise * _POINTS))
            outcomes = np.exp(-(((values - means[:, None]) / widths[:, None]) ** 2) / 2)
            outcomes /= outcomes.sum(1, keepdims=True)
            mass = masses[of] * part
            found[place] = float(_entropy(mass @ outcomes) - mass @ _entropy(outcomes))
        return found

    def _outcomes(self, part: float = 1.0) -> Array:
        """Probability of each outcome of a run, by share of this part of the loss."""
        loss = part * self._deviations()
        at = np.linspace(-_TAIL, loss + _TAIL, math.ceil((loss + 2 * _TAIL) * _POINTS))
        outcomes = np.exp(-((at - np.array(SHARES)[:, None] * loss) ** 2) / 2)
        return np.asarray(outcomes / outcomes.sum(1, keepdims=True))

    def _deviations(self) -> float:
        """By how many deviations between runs the ends differ."""
        weights = self._joint.sum(0)
        return float(weights.sum(1) @ self._loss.at / (weights.sum(0) @ self._noise.at))

    def _runs_left(self, certainty: float) -> float:
        """Runs to expect: what is open by what a run can tell, and the odds that are missing.

        Burnashev, "Data transmission over a discrete channel with feedback" (1976).
        """
        hunt, answers = self.hunt, self._masses
        if hunt.shape is Shape.ORDERED:
            answers = np.append(
                self._hypotheses.marginals(answers)[1], self._hypotheses.ends(answers)
            )
            answers = np.append(answers, max(1 - answers.sum(), 0.0))
        # Where levels are not known a part of the runs goes to them.
        levels = math.hypot(hunt.spread, hunt.level_error, hunt.loss_error / 2) / hunt.noise
        part = 1 / math.sqrt(1 + levels**2 / 2)
        outcomes = self._outcomes(part)
        capacity = float(_entropy((outcomes[0] + outcomes[-1]) / 2) - _entropy(outcomes[0]))
        missing = math.log2(1 / hunt.error - 1) - max(math.log2(certainty / (1 - certainty)), 0.0)
        proof = max(missing, 0.0) * 2 * math.log(2) / (part * self._deviations()) ** 2
        return _WASTE * (float(_entropy(answers)) / capacity + proof)


def _entropy(probabilities: Array) -> Array:
    """Bits, over the last axis."""
    return np.asarray(-(probabilities * np.log2(probabilities + 1e-300)).sum(-1))


class Forecast(Struct, frozen=True, kw_only=True):
    """What hunts like this one come to, by simulation of the search itself."""

    runs: float
    """Runs to expect."""
    certainty: float
    """Mean probability of their answers."""


def forecast(hunt: Hunt, *, trials: int = 100) -> Forecast:
    """Play hunts with one culprit drawn from the prior; the same answer every time.

    Each is in one sitting: that of the ends if it is known.
    """
    draw = np.random.default_rng(0)
    weights = np.array(hunt.weights) / np.sum(hunt.weights)
    start = Search(hunt)
    runs, certainties = [], []
    sitting = hunt.measured_in or 0
    spread = 0.0 if hunt.measured_in is not None else hunt.spread
    for _ in range(trials):
        at_fault = set(hunt.settings_with(int(draw.choice(len(weights), p=weights))))
        loss = max(draw.normal(hunt.loss, hunt.loss_error), 0.0)
        level = draw.normal(0.0, math.hypot(hunt.level_error, spread))
        search, count = start, 0
        while count < _MAX_FORECAST_RUNS and (setting := search.next_query(sitting)) is not None:
            worse = level + loss * (setting in at_fault) + draw.normal(0.0, hunt.noise)
            search = search.after(Observation(setting=setting, sitting=sitting, worse=worse))
            count += 1
        runs.append(count)
        certainties.append(search.finding().certainty)
    return Forecast(runs=float(np.mean(runs)), certainty=float(np.mean(certainties)))
