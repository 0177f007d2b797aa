"""The answers that a hunt can have, in classes that the settings that were run tell apart.

An answer gives each setting a share of the loss. Of 1,024 commits and all pairs of them, a dozen
settings leave some hundred classes, and answers of one class differ by their prior alone.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from pytest_dlperf.culprit.hunt import Shape, Together

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_dlperf.culprit.hunt import Hunt

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

SHARES: Final = (0.0, 0.4, 0.6, 1.0)
"""Shares of the loss that a setting can have: of the good end, after one of two culprits, of the
bad end."""
_LAST: Final = len(SHARES) - 1
_PARTS: Final = range(1, _LAST)

_PRIOR_OF_NONE: Final = 0.3
"""Of no candidate being at fault: half for a loss that the good end has as well, half for one that
is gone."""
_PRIOR_OF_PAIRS: Final = {Shape.ORDERED: 0.1, Shape.SUBSETS: 0.45}
"""Of two at fault, where one is."""

_WAYS: Final = (
    (Together.BOTH, (0, 0), 1 / len(Together)),
    (Together.EITHER, (_LAST, _LAST), 1 / len(Together)),
    *((Together.EACH, (n, _LAST - n), 1 / len(Together) / len(_PARTS)) for n in _PARTS),
)
"""How two can act, the share of the loss with the first and the second alone, and the prior."""


class Classes(NamedTuple):
    """Classes of answers: the index of each one's share by setting, and its prior."""

    shares: Indices
    prior: Array


class Answer(NamedTuple):
    """Candidates at fault, and how probable that is.

    ``within`` is the part of each class's mass that agrees, ``share`` the part of the loss that
    these candidates have in it.
    """

    culprits: tuple[int, ...]
    probability: float
    within: Array
    share: Array
    together: Together | None = None


class Hypotheses(Protocol):
    """All answers of a hunt of one shape; ``masses`` are the probabilities of their classes."""

    classes: Classes
    settings: Indices
    """Those that can be run."""

    def marginals(self, masses: Array) -> tuple[Array, Array]:
        """Probability of each candidate to be at fault, and to be so alone."""

    def ends(self, masses: Array) -> tuple[float, float]:
        """Probability of a loss that the good end has as well, and of one that is gone."""

    def predicted(self, masses: Array) -> Array:
        """Probability of each share, by setting that can be run."""

    def split(self, setting: int) -> tuple[Indices, Indices, Array]:
        """Divide classes by the share that a setting has: class, share, and part of the class."""

    def best(self, masses: Array) -> Answer:
        """Name the most probable candidate."""

    def best_pair(self, masses: Array) -> Answer:
        """Name the two that are the most probable to act together."""


def hypotheses_of(hunt: Hunt, run: Sequence[int], broken: set[int]) -> Hypotheses:
    """List the answers, given the settings that were run, in rising order, and that cannot be."""
    pairs = (1 - _PRIOR_OF_NONE) * _PRIOR_OF_PAIRS[hunt.shape]
    settings = np.array([each for each in range(hunt.bad_end + 1) if each not in broken])
    cls = _Ordered if hunt.shape is Shape.ORDERED else _Subsets
    return cls(hunt, pairs, settings, np.array(run, dtype=np.intp))


class _Ordered:
    """One or two of the candidates, in their order; the second is drawn as the first one is.

    The weights of the candidates lie on a line from 0 to 1. The settings that were run cut it into
    classes, those that can be run into groups that can be told apart.
    """

    def __init__(self, hunt: Hunt, pairs: float, settings: Indices, run: Indices) -> None:
        self.settings = settings
        line = np.concatenate(([0.0], np.cumsum(hunt.weights)))
        self._line = line / line[-1]
        self._edges = np.concatenate(([0.0], self._line[run], [1.0]))
        self._width = np.diff(self._edges)
        self._count = len(self._width)
        alone = (1 - _PRIOR_OF_NONE - pairs) * self._width + pairs * self._width**2
        ends = np.zeros((2, self._count))
        ends[0, 0] = ends[1, -1] = _PRIOR_OF_NONE / 2
        self._ends = ends / (alone + ends.sum(0))
        self._first, self._second = np.triu_indices(self._count, 1)
        apart = 2 * pairs * self._width[self._first] * self._width[self._second] / len(_PARTS)
        at = np.arange(len(run))
        is_bad = at >= np.arange(self._count)[:, None]
        between = is_bad[self._first] & ~is_bad[self._second]
        shares = [np.where(is_bad[self._second], _LAST, between * part) for part in _PARTS]
        self.classes = Classes(
            np.concatenate([is_bad * _LAST, *shares]),
            np.concatenate([alone + ends.sum(0), *[apart] * len(_PARTS)]),
        )

    def _split(self, masses: Array) -> tuple[Array, Array, Array]:
        """Masses by class: of one alone, and by share of the first and the second of two."""
        alone = masses[: self._count] * (1 - self._ends.sum(0))
        apart = masses[self._count :].reshape(len(_PARTS), -1)
        first, second = (
            np.array([np.bincount(of, each, self._count) for each in apart], dtype=np.float64)
            for of in (self._first, self._second)
        )
        return alone, first, second

    def _before(self, masses: Array, at: Array) -> Array:
        """Mass of what lies before points of the line."""
        rows = np.cumsum(np.concatenate((np.zeros((len(masses), 1)), masses), 1), 1)
        return np.stack([np.interp(at, self._edges, row) for row in rows])

    def marginals(self, masses: Array) -> tuple[Array, Array]:
        alone, first, second = self._split(masses)
        both = np.stack((alone + first.sum(0) + second.sum(0), alone))
        any_of, alone = np.diff(self._before(both, self._line))
        return any_of, alone

    def ends(self, masses: Array) -> tuple[float, float]:
        everywhere, gone = self._ends @ masses[: self._count]
        return float(everywhere), float(gone)

    def predicted(self, masses: Array) -> Array:
        alone, first, second = self._split(masses)
        at = self._line[self.settings]
        seconds = self._before(second, at)
        parts = np.maximum(self._before(first, at) - seconds, 0.0)
        whole = self.ends(masses)[0] + self._before(alone[None], at)[0] + seconds.sum(0)
        return np.stack((np.maximum(1 - whole - parts.sum(0), 0.0), *parts, whole), 1)

    def split(self, setting: int) -> tuple[Indices, Indices, Array]:
        inside = self._line[setting] - self._edges[:-1]
        before = np.clip(inside / np.maximum(self._width, 1e-300), 0.0, 1.0)
        first, second = before[self._first], before[self._second]
        bad = (1 - self._ends.sum(0)) * before + self._ends[0]
        none = [1 - bad, *[1 - first] * len(_PARTS)]
        whole = [bad, *[second] * len(_PARTS)]
        between = [
            [0 * bad, *((first - second) * (part == one) for one in _PARTS)] for part in _PARTS
        ]
        parts = np.stack([np.concatenate(row) for row in (none, *between, whole)])
        share, of = np.nonzero(parts > 0)
        return of, share, parts[share, of]

    def _groups(self) -> tuple[Array, Indices]:
        """Width of each group, and of which class it is."""
        of = np.searchsorted(self._edges[1:-1], self._line[self.settings[:-1]], side="right")
        return np.diff(self._line[self.settings]), of

    def _members(self, group: int) -> tuple[int, ...]:
        return tuple(range(int(self.settings[group]), int(self.settings[group + 1])))

    def best(self, masses: Array) -> Answer:
        alone, first, second = self._split(masses)
        width, of = self._groups()
        part = width / self._width[of]
        any_of = part * (alone + first.sum(0) + second.sum(0))[of]
        group = int(np.argmax(any_of))
        is_first, is_second = (each == of[group] for each in (self._first, self._second))
        within = (1 - self._ends.sum(0)) * (np.arange(self._count) == of[group])
        parts = [np.where(is_first, SHARES[each], 1 - SHARES[each]) for each in _PARTS]
        return Answer(
            self._members(group),
            float(any_of[group]),
            part[group] * np.concatenate([within, *[is_first | is_second] * len(_PARTS)]),
            np.concatenate([np.ones(self._count), *parts]),
        )

    def best_pair(self, masses: Array) -> Answer:
        width, of = self._groups()
        heaviest = np.zeros(self._count)
        np.maximum.at(heaviest, of, width)
        part = np.divide(heaviest, self._width, out=np.zeros(self._count), where=self._width > 0)
        parts = part[self._first] * part[self._second]
        each = masses[self._count :].reshape(len(_PARTS), -1).sum(0) * parts
        if not len(each):
            return _no_answer(masses)
        best = int(np.argmax(each))
        groups = [
            int(np.argmax(np.where(of == one, width, -1.0)))
            for one in (self._first[best], self._second[best])
        ]
        is_best = parts * (np.arange(len(each)) == best)
        return Answer(
            self._members(groups[0]) + self._members(groups[1]),
            float(each[best]),
            np.concatenate([np.zeros(self._count), *[is_best] * len(_PARTS)]),
            np.ones(len(masses)),
            Together.EACH,
        )


class _Subsets:
    """One or two of a few candidates, each of which can be set by itself."""

    def __init__(self, hunt: Hunt, pairs: float, settings: Indices, run: Indices) -> None:
        weights = np.array(hunt.weights) / sum(hunt.weights)
        two = list(combinations(range(len(weights)), 2))
        scale = pairs / sum(weights[i] * weights[j] for i, j in two) if two else 0.0
        alone = (1 - _PRIOR_OF_NONE - pairs * bool(two)) * weights
        # Who, how, the share with none of two, the first, the second, both; and the prior.
        rows: list[tuple[tuple[int, ...], Together | None, tuple[int, ...], float]] = [
            ((), None, (_LAST,) * 4, _PRIOR_OF_NONE / 2),
            ((), None, (0,) * 4, _PRIOR_OF_NONE / 2),
            *(((one,), None, (0, 0, 0, _LAST), mass) for one, mass in enumerate(alone)),
            *(
                ((i, j), kind, (0, *shares, _LAST), scale * weights[i] * weights[j] * part)
                for i, j in two
                for kind, shares, part in _WAYS
            ),
        ]
        self._of, self._together, ways, prior = zip(*rows, strict=True)
        every = np.arange(1 << len(weights))
        first, second = (
            every >> np.array([of[at] if of else 0 for of in self._of])[:, None] & 1
            for at in (0, -1)
        )
        self._shares = np.take_along_axis(np.array(ways), first + 2 * second, 1)
        self._members = np.array([[one in of for one in range(len(weights))] for of in self._of])
        self.settings = settings
        self.classes = Classes(self._shares[:, run], np.array(prior))

    def marginals(self, masses: Array) -> tuple[Array, Array]:
        is_alone = self._members.sum(1) == 1
        return masses @ self._members, (masses * is_alone) @ self._members

    def ends(self, masses: Array) -> tuple[float, float]:
        return float(masses[0]), float(masses[1])

    def predicted(self, masses: Array) -> Array:
        shares = self._shares[:, self.settings]
        return np.stack([masses @ (shares == index) for index in range(len(SHARES))], 1)

    def split(self, setting: int) -> tuple[Indices, Indices, Array]:
        share = self._shares[:, setting]
        return np.arange(len(share)), share, np.ones(len(share))

    def best(self, masses: Array) -> Answer:
        return self._best(masses, 1)

    def best_pair(self, masses: Array) -> Answer:
        return self._best(masses, 2)

    def _best(self, masses: Array, size: int) -> Answer:
        answers = {of for of in self._of if len(of) == size}
        within = {of: np.array([each == of for each in self._of], dtype=float) for of in answers}
        if not within:
            return _no_answer(masses)
        best = max(sorted(within), key=lambda of: float(masses @ within[of]))
        kind = self._together[int(np.argmax(masses * within[best]))]
        probability = float(masses @ within[best])
        return Answer(best, probability, within[best], np.ones(len(masses)), kind)


def _no_answer(masses: Array) -> Answer:
    return Answer((), 0.0, np.zeros(len(masses)), np.ones(len(masses)))
