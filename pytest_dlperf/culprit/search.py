"""The search: what the runs so far say, and which run would tell most.

Runs are noisy looks at levels that are known about. Likelihoods are integrated over the loss, the
noise and the level of each sitting on grids; of a part of the runs nothing is believed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from pytest_dlperf.culprit.hunt import GOOD_END, Finding, Observation, Outcome, Posterior, Shape
from pytest_dlperf.culprit.hypotheses import SHARES, entropy, hypotheses_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from pytest_dlperf.culprit.hunt import Hunt
    from pytest_dlperf.culprit.hypotheses import Answer

    Array = NDArray[np.float64]

STRAYS: Final = 0.05
"""Part of the runs that tell nothing of their setting."""
_STRAY_WIDTH: Final = 4.0
"""Where they lie: half of them within so many deviations around the levels, the others beyond."""

_STEP: Final = 0.4
_REACH: Final = 3.0
"""Grids have a point every so many deviations between runs, as far as so many standard errors."""

_MIN_SPREAD: Final = 0.5
"""Sittings that differ by so many deviations between runs each begin with a run of the good end."""

_AS_GOOD: Final = 0.95
"""A setting that was run before is run again if it tells so much of what the best one would."""

_EXPECTED: Final = 0.5
"""A second culprit of this probability is looked for."""

_WASTE: Final = 1.15
"""Runs that a hunt takes, in those that its information would take."""

_TAIL: Final = 3.5
_POINTS: Final = 3
"""Outcomes that are expected of a run: so many deviations around the levels, in so many steps each.
"""
_REPORTED: Final = 1.96


class _Levels(NamedTuple):
    """Points of the level of a sitting, and their prior."""

    at: Array
    log_prior: Array

    @classmethod
    def of(cls, hunt: Hunt, error: float) -> _Levels:
        at, prior = _normal(0.0, error, _STEP * hunt.noise)
        return cls(at, np.log(prior))


class _Grid(NamedTuple):
    """Points of what is not known but is not asked for either, and their prior."""

    loss: Array
    noise: Array
    log_prior: Array
    """By loss and noise."""
    measured: _Levels
    other: _Levels

    @classmethod
    def of(cls, hunt: Hunt) -> _Grid:
        loss, of_losses = _normal(hunt.loss, hunt.loss_error, _STEP * hunt.noise)
        is_loss = loss > 0
        loss, of_losses = loss[is_loss], of_losses[is_loss]
        noise, of_noise = np.array([hunt.noise]), np.ones(1)
        if hunt.noise_dof is not None:
            # Three points of Gauss and Hermite, in the logarithm.
            nodes, of_noise = np.array([-1.0, 0.0, 1.0]) * math.sqrt(3), np.array([1, 4, 1]) / 6
            noise = hunt.noise * np.exp(nodes / math.sqrt(2 * hunt.noise_dof))
        prior = (of_losses / of_losses.sum())[:, None] * of_noise
        measured = _Levels.of(hunt, hunt.level_error)
        other = _Levels.of(hunt, math.hypot(hunt.level_error, hunt.spread))
        return cls(loss, noise, np.log(prior), measured, other)


def _normal(mean: float, error: float, step: float) -> tuple[Array, Array]:
    """Points of a normal distribution, and the probability of each."""
    if error == 0:
        return np.array([mean]), np.ones(1)
    half = max(math.ceil(_REACH * error / step), 2)
    at = np.linspace(-_REACH, _REACH, 2 * half + 1)
    density = np.exp(-(at**2) / 2)
    return mean + error * at, density / density.sum()


class Search:
    """A hunt and all of its runs so far: a value, made anew by each run.

    ``Search(hunt, observations)`` is the same as ``Search(hunt)`` after each of them in turn.
    """

    def __init__(self, hunt: Hunt, observations: Iterable[Observation] = ()) -> None:
        """Replay a hunt.

        Raises:
            ValueError: A hunt or a run that cannot be.
        """
        self.hunt = hunt
        self.observations: tuple[Observation, ...] = ()
        self._grid = _Grid.of(hunt)
        self._tables: dict[int, dict[int, Array]] = {}
        self._broken: frozenset[int] = frozenset()
        for one in observations:
            self._add(one)
        self._infer()

    def after(self, observation: Observation) -> Search:
        """Return the search after one more run.

        Raises:
            ValueError: It is of no setting of the hunt.
        """
        new = object.__new__(Search)
        new.hunt, new.observations, new._grid = self.hunt, self.observations, self._grid
        new._tables = {sitting: dict(tables) for sitting, tables in self._tables.items()}
        new._broken = self._broken
        new._add(observation)
        new._infer()
        return new

    def _add(self, one: Observation) -> None:
        hunt = self.hunt
        if not 0 <= one.setting <= hunt.bad_end:
            raise ValueError(f"setting {one.setting} is not one of 0 to {hunt.bad_end}")
        self.observations += (one,)
        if one.worse is None:
            if one.setting in (GOOD_END, hunt.bad_end):
                raise ValueError(f"setting {one.setting} is an end, which has to run")
            self._broken |= {one.setting}
            return
        tables = self._tables.setdefault(one.sitting, {})
        tables[one.setting] = tables.get(one.setting, 0.0) + self._log_likelihood(
            one.worse, self._levels(one.sitting)
        )

    def _levels(self, sitting: int) -> _Levels:
        grid = self._grid
        return grid.measured if sitting == self.hunt.measured_in else grid.other

    def _log_likelihood(self, worse: float, levels: _Levels) -> Array:
        """Of a run, by share, loss, noise and level of its sitting."""
        hunt, grid = self.hunt, self._grid
        noise = grid.noise[:, None]
        shares = np.array(SHARES)[:, None, None, None]
        away = (worse - shares * grid.loss[:, None, None] - levels.at) / noise
        believed = (1 - STRAYS) * np.exp(-(away**2) / 2) / noise
        width = _STRAY_WIDTH * hunt.noise + hunt.loss / 2
        stray = (
            STRAYS * math.sqrt(2 / math.pi) / width / (1 + ((worse - hunt.loss / 2) / width) ** 2)
        )
        return np.log(believed + stray)

    def _infer(self) -> None:
        hunt, grid = self.hunt, self._grid
        run = sorted({setting for tables in self._tables.values() for setting in tables})
        self._hypotheses = hypotheses_of(hunt, run, self._broken)
        shares, prior = self._hypotheses.classes
        column = {setting: index for index, setting in enumerate(run)}
        joint = np.log(prior + 1e-300)[:, None, None] + grid.log_prior
        for sitting, tables in self._tables.items():
            levels = self._levels(sitting)
            each = np.zeros((len(prior), *grid.log_prior.shape, len(levels.at)))
            for setting, table in tables.items():
                each += table[shares[:, column[setting]]]
            joint = joint + _log_sum(each + levels.log_prior, -1)
        joint = np.exp(joint - joint.max())
        joint /= joint.sum()
        self._joint = joint
        self._masses = joint.sum((1, 2))

    @property
    def runs(self) -> int:
        """How many runs have a number."""
        return sum(one.worse is not None for one in self.observations)

    def posterior(self) -> Posterior:
        """How probable each answer is by now."""
        candidates, alone = self._hypotheses.marginals(self._masses)
        everywhere, gone = self._hypotheses.ends(self._masses)
        return Posterior(
            candidates=tuple(candidates.tolist()),
            alone=tuple(alone.tolist()),
            everywhere=everywhere,
            gone=gone,
        )

    def finding(self) -> Finding:
        """Say what is found, and how surely."""
        best, pair = self._hypotheses.best(self._masses), self._hypotheses.best_pair(self._masses)
        none = math.fsum(self._hypotheses.ends(self._masses))
        sure = 1 - self.hunt.error
        if none >= sure:
            return Finding(outcome=Outcome.NONE, certainty=none)
        if pair.probability >= sure:
            return self._found(Outcome.PAIR, pair)
        if best.probability >= sure:
            return self._found(Outcome.FOUND, best)
        certainty = max(none, pair.probability, best.probability)
        return Finding(
            outcome=Outcome.UNDECIDED, certainty=certainty, runs_left=self._runs_left(certainty)
        )

    def _runs_left(self, certainty: float) -> float:
        """Runs to expect: what is open by what a run can tell, and the odds that are missing.

        Burnashev, "Data transmission over a discrete channel with feedback" (1976).
        """
        hunt = self.hunt
        answers = self._masses
        if hunt.shape is Shape.ORDERED:
            _, alone = self._hypotheses.marginals(self._masses)
            answers = np.array([*alone, *self._hypotheses.ends(self._masses)])
            answers = np.append(answers, max(1 - answers.sum(), 0.0))
        # Where levels are not known a part of the runs goes to them.
        levels = math.hypot(hunt.spread, hunt.level_error, hunt.loss_error / 2) / hunt.noise
        outcomes, deviations = self._outcomes(1 / math.sqrt(1 + levels**2 / 2))
        capacity = float(entropy((outcomes[0] + outcomes[-1]) / 2) - entropy(outcomes[0]))
        missing = math.log2(1 / hunt.error - 1) - max(math.log2(certainty / (1 - certainty)), 0.0)
        divergence = deviations**2 / 2 / math.log(2)
        return _WASTE * (float(entropy(answers)) / capacity + max(missing, 0.0) / divergence)

    def _found(self, outcome: Outcome, answer: Answer) -> Finding:
        weights = (self._masses * answer.within)[:, None] * (
            self._joint.sum(2) / np.maximum(self._masses, 1e-300)[:, None]
        )
        weights /= weights.sum()
        losses = answer.share[:, None] * self._grid.loss
        loss = float((weights * losses).sum())
        error = math.sqrt(max(float((weights * (losses - loss) ** 2).sum()), 0.0))
        second = 0.0
        if outcome is Outcome.FOUND and self.hunt.shape is Shape.ORDERED:
            alone = self._hypotheses.marginals(self._masses)[1]
            second = 1 - math.fsum(alone[list(answer.culprits)]) / answer.probability
        return Finding(
            outcome=outcome,
            culprits=answer.culprits,
            certainty=answer.probability,
            loss=loss,
            interval=(loss - _REPORTED * error, loss + _REPORTED * error),
            together=answer.together,
            second=max(second, 0.0),
        )

    def next_query(self, sitting: int) -> int | None:
        """Return the setting to run next in this sitting; ``None`` when all is decided.

        A hunt that has found one and rather expects a second one goes on.
        """
        finding = self.finding()
        if finding.outcome is not Outcome.UNDECIDED and finding.second < _EXPECTED:
            return None
        hunt = self.hunt
        tables = self._tables.get(sitting, {})
        differs = hunt.spread >= _MIN_SPREAD * hunt.noise and sitting != hunt.measured_in
        if differs and GOOD_END not in tables:
            return GOOD_END
        settings, told = self._information()
        best = int(np.argmax(told))
        before = [
            index
            for index, setting in enumerate(settings)
            if told[index] >= _AS_GOOD * told[best]
            and any(setting in t for t in self._tables.values())
        ]
        return int(settings[max(before, key=lambda index: told[index]) if before else best])

    def _information(self) -> tuple[NDArray[np.intp], Array]:
        """Bits that one run of each setting would tell of the answer, the levels taken as known."""
        return self._hypotheses.information(self._masses, self._outcomes()[0])

    def _outcomes(self, part: float = 1.0) -> tuple[Array, float]:
        """Probability of each outcome of a run, by share; and the loss in deviations.

        Of the loss, or of a part of it.
        """
        weights = self._joint.sum(0)
        noise = float(weights.sum(0) @ self._grid.noise)
        loss = part * float(weights.sum(1) @ self._grid.loss) / noise
        at = np.linspace(-_TAIL, loss + _TAIL, math.ceil((loss + 2 * _TAIL) * _POINTS))
        outcomes = np.exp(-((at - np.array(SHARES)[:, None] * loss) ** 2) / 2)
        return outcomes / outcomes.sum(1, keepdims=True), loss


def _log_sum(logs: Array, axis: int) -> Array:
    most = logs.max(axis, keepdims=True)
    total: Array = np.log(np.exp(logs - most).sum(axis)) + most.squeeze(axis)
    return total
