"""The search: which of a row of changes has the loss, by noisy runs; nothing here runs any.

Setting ``k`` of a row has its first ``k`` changes: setting 0 is the good end, the last one the bad
end. Each run updates the probability of each change to be the first with the loss. Losses and noise
are natural logarithms of ratios, so that they are the same whatever direction is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise, product
from typing import Final, NamedTuple

from msgspec import Struct

from pytest_dlperf.gate.noise import location, pooled_noise, t_quantile
from pytest_dlperf.model.metric import Better
from pytest_dlperf.model.statistics import median

SURE: Final = 0.95
"""A change of this probability is checked by more runs, and then named."""
CLAIMED: Final = 0.97
"""No answer is claimed to be surer: with noise of many kinds up to 3 % were wrong."""
_MIN_CHECKS: Final = 2
_CHECK_ERRORS: Final = 3.5
"""An answer is checked by so many runs of each side, and by so many that a loss is 3.5 deviations
of them; it is given up after three times as many."""
_MAX_CHECKS: Final = 3
_MIN_PART: Final = 0.6
"""The part of the loss that these have to show."""
_MIN_ERRORS: Final = 3.0
"""A loss of fewer standard errors is not taken for one."""
_DOUBT: Final = 3.0
"""A noise that few runs have shown is taken to be larger."""
_MIN_NOISE: Final = 1 / 15
"""In losses: nothing is gained by telling apart what lies so far apart."""
_OUTLIERS: Final = 0.05
"""The part of the runs that say nothing of their setting."""
_OUTLIER_WIDTH: Final = 4.0
"""Half of them lie within so many deviations around the levels."""
_STEP: Final = 0.5
_REACH: Final = 2.5
"""What is not known has a grid: a point every so many deviations, as far as so many errors."""
_MAX_POINTS: Final = 10
_AS_GOOD: Final = 0.95
"""A setting that is built already is run again if it tells so much of what the best one would."""
_MIN_DOUBT: Final = 0.5
"""A level in doubt by so many deviations is told by more runs of the ends."""
_GIVEN_UP: Final = 5
_MIN_RUNS_GIVEN_UP: Final = 40
"""A search is given up after so many times the runs that were expected at first, and so many."""


class Levels(Struct, frozen=True, kw_only=True):
    """Both ends of a row, by their runs."""

    good: float
    """In the metric's unit, as ``bad``."""
    bad: float
    loss: float
    """By how much the bad end is worse."""
    loss_error: float = 0.0
    level_error: float = 0.0
    """Standard error of the good end."""
    noise: float
    """Standard deviation between runs."""
    dof: int = 100
    """Degrees of freedom of ``noise``."""

    @property
    def is_loss(self) -> bool:
        """Whether the bad end is worse beyond doubt."""
        return self.loss > t_quantile(_MIN_ERRORS, self.dof) * self.loss_error


def worse_by(value: float, good: float, better: Better) -> float:
    """By how much a number above 0 is worse than another."""
    return better.sign * math.log(good / value)


def as_part(worse: float, better: Better) -> float:
    """Turn a logarithm from ``worse_by`` into a loss as a part of the good end's number."""
    return better.loss(math.exp(-better.sign * worse), 1.0)


def levels_of(
    good: Sequence[float],
    bad: Sequence[float],
    better: Better,
    sessions: Iterable[Sequence[float]] = (),
) -> Levels | None:
    """Measure both ends by their runs, all above 0; ``None`` if too few to know their noise.

    Runs of earlier ``sessions`` show the noise alone.
    """
    noise = pooled_noise([good, bad, *sessions])
    if noise is None:
        return None
    levels = [location(runs, noise.deviation) for runs in (good, bad)]
    errors = [noise.deviation / math.sqrt(len(runs)) for runs in (good, bad)]
    return Levels(
        good=levels[0],
        bad=levels[1],
        loss=worse_by(levels[1], levels[0], better),
        loss_error=math.hypot(*errors),
        level_error=errors[0],
        noise=noise.deviation,
        dof=noise.dof,
    )


class Seen(NamedTuple):
    """One run: by how much it was worse than the good end; ``None``: the setting does not run."""

    setting: int
    worse: float | None
    sitting: int = 0
    """Runs of one sitting have the same level."""


class Found(Struct, frozen=True, kw_only=True):
    """The changes at fault: one, or neighbours with only settings between that do not run."""

    changes: range
    loss: float
    loss_error: float


class Search:
    """What the runs so far say of a row of ``count`` changes: a value, made anew by each run."""

    def __init__(self, count: int, levels: Levels, seen: Iterable[Seen] = ()) -> None:
        self.levels, self.count = levels, count
        self._noise = max(levels.noise * (1 + _DOUBT / levels.dof), _MIN_NOISE * levels.loss)
        self._checks = max(_MIN_CHECKS, math.ceil((_CHECK_ERRORS * self._noise / levels.loss) ** 2))
        self._runs: dict[int, list[tuple[int, float]]] = {}
        broken = set()
        for setting, worse, sitting in seen:
            if worse is None:
                broken.add(setting)
            else:
                self._runs.setdefault(setting, []).append((sitting, worse))
        self._settings = [k for k in range(count + 1) if k not in broken or k in self._runs]
        self.probabilities = self._posterior()

    def _posterior(self) -> list[float]:
        """Probability of each change; those between the same two settings that ran share one."""
        cuts = sorted({0, *self._runs, self.count})
        points = []
        level_errors = self._grid(0.0, self.levels.level_error)
        losses = self._grid(self.levels.loss, self.levels.loss_error)
        for (level, prior), (loss, of_loss) in product(level_errors, losses):
            if loss > 0:
                good, bad = (
                    [math.fsum(self._log_density(one - at) for _, one in self._of(k)) for k in cuts]
                    for at in (level, level + loss)
                )
                before, after = accumulate(good[:-1]), [*accumulate(bad[:0:-1])][::-1]
                points.append([prior + of_loss + a + b for a, b in zip(before, after, strict=True)])
        sizes = [b - a for a, b in pairwise(cuts)]
        logs = [_log_sum(column) for column in zip(*points, strict=True)]
        whole = _log_sum([log + math.log(size) for log, size in zip(logs, sizes, strict=True)])
        parts = zip(logs, sizes, strict=True)
        return [math.exp(log - whole) for log, size in parts for _ in range(size)]

    def _grid(self, mean: float, error: float) -> list[tuple[float, float]]:
        """List points around a mean, with the logarithm of each one's prior."""
        half = min(math.ceil(_REACH * error / (_STEP * self._noise)), _MAX_POINTS)
        points = [_REACH * at / half for at in range(-half, half + 1)] if half else [0.0]
        return [(mean + error * at, -(at**2) / 2) for at in points]

    def _log_density(self, away: float) -> float:
        """Of a run so far from its level: normal, or an outlier by a Cauchy distribution."""
        noise = self._noise
        width = _OUTLIER_WIDTH * noise + self.levels.loss / 2
        usual = math.exp(-((away / noise) ** 2) / 2) / noise
        far = math.sqrt(2 / math.pi) / width / (1 + (away / width) ** 2)
        return math.log((1 - _OUTLIERS) * usual + _OUTLIERS * far)

    def _of(self, setting: int) -> list[tuple[int, float]]:
        return self._runs.get(setting, [])

    def best(self) -> tuple[range, float]:
        """Return the most probable changes that can be told from all others, and how probable."""
        groups = (range(a, b) for a, b in pairwise(self._settings))
        shares = [(one, math.fsum(self.probabilities[one.start : one.stop])) for one in groups]
        return max(shares, key=lambda one: one[1])

    def found(self) -> Found | None:
        """Name the changes at fault, if enough runs of both sides, in one sitting, confirm them."""
        changes, share = self.best()
        sides = [self._of(side) for side in (changes.start, changes.stop)]
        shown = []
        for sitting in {sitting for sitting, _ in sides[0]}:
            good, bad = ([worse for at, worse in side if at == sitting] for side in sides)
            if bad:
                shown.append((min(len(good), len(bad)), median(bad) - median(good)))
        pairs = sum(count for count, _ in shown)
        if share < SURE or pairs < self._checks:
            return None
        loss = math.fsum(count * loss for count, loss in shown) / pairs
        if loss <= _MIN_PART * self.levels.loss:
            return None
        return Found(changes=changes, loss=loss, loss_error=self._noise * math.sqrt(2 / pairs))

    def next_setting(self) -> int | None:
        """Return the setting to run next; ``None`` at the end."""
        if self.found() is not None or self._is_given_up():
            return None
        changes, share = self.best()
        if share >= SURE:
            side = min(changes.start, changes.stop, key=lambda side: len(self._of(side)))
            return side if len(self._of(side)) < _MAX_CHECKS * self._checks else None
        bad = list(accumulate(self.probabilities, initial=0.0))
        told = {k: _bits(bad[k]) for k in self._settings[1:-1]}
        best = max(told, key=told.__getitem__)
        again = [k for k in told if k in self._runs and told[k] >= _AS_GOOD * told[best]]
        best = max(again, key=told.__getitem__, default=best)
        # The level is a part of what a second run of the same setting tells.
        if self.levels.level_error >= _MIN_DOUBT * self._noise:
            for end in (0, self.count):
                if len(self._of(end)) < len(self._of(best)):
                    return end
        return best

    def _is_given_up(self) -> bool:
        runs = sum(map(len, self._runs.values()))
        expected = Search(self.count, self.levels).runs_left() if runs >= _MIN_RUNS_GIVEN_UP else 0
        return runs >= max(_MIN_RUNS_GIVEN_UP, _GIVEN_UP * expected)

    def runs_left(self) -> float:
        """Runs to expect: what is open by what a run tells, and those that check the answer."""
        if self.found() is not None:
            return 0.0
        # Bits of a run of two levels so many deviations apart, within a tenth.
        capacity = 1 - math.exp(-((self.levels.loss / self._noise) ** 2) / 6)
        return math.fsum(map(_term, self.probabilities)) / capacity + 2 * self._checks


def _term(part: float) -> float:
    return -part * math.log2(part) if part > 0 else 0.0


def _bits(part: float) -> float:
    return _term(part) + _term(max(1 - part, 0.0))


def _log_sum(logs: Sequence[float]) -> float:
    most = max(logs)
    return most + math.log(math.fsum(math.exp(log - most) for log in logs))
