"""The answers that a hunt can have, in classes that the settings that were run tell apart.

An answer gives each setting a share of the loss. Of 1,024 commits and all pairs of them, a dozen
settings leave a few hundred classes, and answers of one class differ by their prior alone.
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
"""Shares of the loss that a setting can have: 0 at the good end, a part of it after one of two
culprits, 1 at the bad end."""
_LAST: Final = len(SHARES) - 1
_PARTS: Final = range(1, _LAST)

_PRIOR_OF_PAIRS: Final = {Shape.ORDERED: 0.1, Shape.SUBSETS: 0.5}


class Classes(NamedTuple):
    """Classes of answers."""

    shares: Indices
    """Index of ``SHARES``, by class and setting."""
    prior: Array
    """Probability, by class."""


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
    """All answers of a hunt of one shape, given the settings that were run."""

    classes: Classes

    def marginals(self, masses: Array) -> tuple[Array, Array]:
        """Probability of each candidate to be at fault, and to be so alone; by class's mass."""

    def ends(self, masses: Array) -> tuple[float, float]:
        """Probability of a loss that the good end has as well, and of one that is gone."""

    def information(self, masses: Array, outcomes: Array) -> tuple[Indices, Array]:
        """List the settings that can be run, and the bits that one run of each would tell.

        ``outcomes`` has the probability of each outcome of a run, by share.
        """

    def best(self, masses: Array) -> Answer:
        """Name the most probable candidate."""

    def best_pair(self, masses: Array) -> Answer:
        """Name the two that are the most probable to act together."""


def hypotheses_of(hunt: Hunt, run: Sequence[int], broken: frozenset[int]) -> Hypotheses:
    """List the answers, given the settings that were run (rising) and that cannot be."""
    pairs = _PRIOR_OF_PAIRS[hunt.shape] if hunt.pairs is None else hunt.pairs
    weights = np.array(hunt.weights) / np.sum(hunt.weights)
    cls = _Ordered if hunt.shape is Shape.ORDERED else _Subsets
    return cls(weights, none=hunt.none, pairs=pairs, run=run, broken=broken)


class _Ordered:
    """One or two of the candidates, in the order in which they came.

    Neighbours that no setting can separate are one group. Setting ``settings[i]`` has all groups
    before ``i``. Before the first group stands the loss that is everywhere, behind the last the
    one that is gone; ``_alone`` is the prior of these and of each group.
    """

    def __init__(
        self,
        weights: Array,
        *,
        none: float,
        pairs: float,
        run: Sequence[int],
        broken: frozenset[int],
    ) -> None:
        self._weights = weights
        self.settings = np.array([s for s in range(len(weights) + 1) if s not in broken])
        self._group = np.searchsorted(self.settings, np.arange(len(weights)), side="right") - 1
        groups = self._w = np.bincount(self._group, weights, minlength=len(self.settings) - 1)
        pairs = pairs if len(groups) > 1 else 0.0
        self._alone = np.concatenate(
            ([none / 2], (1 - none) * (1 - pairs) * groups, [none / 2]),
        )
        of_pairs = (1 - none) * pairs / max((1 - float(groups @ groups)) / 2, 1e-300)
        # Of which class each of these is: how many of the settings that were run lie before it.
        places = np.searchsorted(self.settings, run)
        self._of = np.searchsorted(places, np.arange(-1, len(groups) + 1), side="right")
        self._of_group = self._of[1:-1]
        count = len(run) + 1
        self._in_class = np.bincount(self._of_group, groups, minlength=count)
        squares = np.bincount(self._of_group, groups**2, minlength=count)
        self._pair_scale = of_pairs
        within = of_pairs * np.maximum(self._in_class**2 - squares, 0.0) / 2
        self._singles = np.bincount(self._of, self._alone, minlength=count) + within
        first, second = np.triu_indices(count, 1)
        apart = of_pairs * self._in_class[first] * self._in_class[second]
        first, second = first[apart > 0], second[apart > 0]
        self._first, self._second = first, second
        self._part = np.repeat(_PARTS, len(first))
        at = np.arange(len(run))
        single = np.where(at >= np.arange(count)[:, None], _LAST, 0)
        pair = np.where(at >= second[:, None], _LAST, np.where(at >= first[:, None], 1, 0))
        parts = [np.where(pair == 1, part, pair) for part in _PARTS]
        self._count = count
        self.classes = Classes(
            np.concatenate([single, *parts]),
            np.concatenate([self._singles, *[apart[apart > 0] / len(_PARTS)] * len(_PARTS)]),
        )

    def _split(self, masses: Array) -> tuple[Array, Array, Array, Array]:
        """Masses of: each place alone; first and second of a pair by share and group."""
        per_place = masses[: self._count] / np.maximum(self._singles, 1e-300)
        alone = per_place[self._of] * self._alone
        groups, of = self._w, self._of_group
        before = np.cumsum(groups) - groups
        starts = np.concatenate(([0.0], np.cumsum(self._in_class)))
        inside = before - starts[of]
        behind = self._in_class[of] - inside - groups
        scale = per_place[of] * self._pair_scale * groups / len(_PARTS)
        first = np.tile(scale * behind, (len(_PARTS), 1))
        second = np.tile(scale * inside, (len(_PARTS), 1))
        apart = masses[self._count :].reshape(len(_PARTS), -1)
        share = groups / np.maximum(self._in_class[of], 1e-300)
        for row in range(len(_PARTS)):
            for which, classes in ((first, self._first), (second, self._second)):
                by_class = np.bincount(classes, apart[row], minlength=self._count)
                which[row] += by_class[of] * share
        return alone, first, second, apart

    def marginals(self, masses: Array) -> tuple[Array, Array]:
        """Probability of each candidate to be at fault, and to be so alone."""
        alone, first, second, _ = self._split(masses)
        within = self._weights / self._w[self._group]
        any_of = alone[1:-1] + first.sum(0) + second.sum(0)
        return any_of[self._group] * within, alone[1:-1][self._group] * within

    def ends(self, masses: Array) -> tuple[float, float]:
        """Probability of a loss that is everywhere, and of one that is gone."""
        alone = self._split(masses)[0]
        return float(alone[0]), float(alone[-1])

    def information(self, masses: Array, outcomes: Array) -> tuple[Indices, Array]:
        """List the settings that can be run, and the bits that one run of each would tell."""
        alone, first, second, _ = self._split(masses)
        zero = np.zeros((len(_PARTS), 1))
        firsts = np.concatenate((zero, np.cumsum(first, 1)), 1)
        seconds = np.concatenate((zero, np.cumsum(second, 1)), 1)
        whole = np.cumsum(alone)[:-1] + seconds.sum(0)
        parts = np.maximum(firsts - seconds, 0.0)
        none = np.maximum(1 - whole - parts.sum(0), 0.0)
        shares = np.stack((none, *parts, whole), 1)
        return self.settings, entropy(shares @ outcomes) - shares @ entropy(outcomes)

    def _members(self, group: int) -> tuple[int, ...]:
        return tuple(int(i) for i in np.flatnonzero(self._group == group))

    def best(self, masses: Array) -> Answer:
        """Name the group that is the most probable to be at fault, alone or not."""
        alone, first, second, _ = self._split(masses)
        any_of = alone[1:-1] + first.sum(0) + second.sum(0)
        group = int(np.argmax(any_of))
        of = self._of_group[group]
        # Within its class the group's part of the mass is the same whatever its share of the loss.
        part = self._w[group] / max(self._in_class[of], 1e-300)
        within, share = np.zeros(len(masses)), np.ones(len(masses))
        within[of] = part
        shares = np.repeat([SHARES[index] for index in _PARTS], len(self._first))
        as_first = np.tile(self._first == of, len(_PARTS))
        as_second = np.tile(self._second == of, len(_PARTS))
        within[self._count :] = part * (as_first | as_second)
        share[self._count :] = np.where(as_first, shares, 1 - shares)
        probability = float(any_of[group])
        return Answer(self._members(group), probability, within, share)

    def best_pair(self, masses: Array) -> Answer:
        """Name the two groups that are the most probable to share the loss."""
        apart = self._split(masses)[3].sum(0)
        if not len(apart):
            return Answer((), 0.0, np.zeros(len(masses)), np.ones(len(masses)))
        heaviest = np.zeros(self._count)
        np.maximum.at(heaviest, self._of_group, self._w)
        part = heaviest / np.maximum(self._in_class, 1e-300)
        each = apart * part[self._first] * part[self._second]
        best = int(np.argmax(each))
        culprits: tuple[int, ...] = ()
        for of in (self._first[best], self._second[best]):
            inside = np.where(self._of_group == of, self._w, -1.0)
            culprits += self._members(int(np.argmax(inside)))
        within = np.zeros(len(masses))
        within[self._count :] = np.tile(np.arange(len(apart)) == best, len(_PARTS))
        return Answer(
            culprits, float(each[best]), within, np.ones(len(masses)), together=Together.EACH
        )


class _Subsets:
    """One or two of a few candidates, each of which can be set by itself."""

    def __init__(
        self,
        weights: Array,
        *,
        none: float,
        pairs: float,
        run: Sequence[int],
        broken: frozenset[int],
    ) -> None:
        count = len(weights)
        every = np.arange(1 << count)
        bits = [(every >> i & 1).astype(bool) for i in range(count)]
        pairs = pairs if count > 1 else 0.0
        rows = [np.full(len(every), _LAST), np.full(len(every), 0)]
        prior = [none / 2, none / 2]
        for i in range(count):
            rows.append(np.where(bits[i], _LAST, 0))
            prior.append((1 - none) * (1 - pairs) * weights[i])
        all_pairs = list(combinations(range(count), 2))
        total = sum(weights[i] * weights[j] for i, j in all_pairs)
        of: list[tuple[int, ...]] = [(), (), *((i,) for i in range(count))]
        together: list[Together | None] = [None] * len(of)
        for i, j in all_pairs:
            share = (1 - none) * pairs * weights[i] * weights[j] / total / len(Together)
            both = bits[i] & bits[j]
            kinds = [(Together.BOTH, 0, 0, share), (Together.EITHER, _LAST, _LAST, share)]
            kinds += [(Together.EACH, p, _LAST - p, share / len(_PARTS)) for p in _PARTS]
            for kind, only_i, only_j, mass in kinds:
                rows.append(
                    np.where(both, _LAST, np.where(bits[i], only_i, np.where(bits[j], only_j, 0)))
                )
                prior.append(mass)
                of.append((i, j))
                together.append(kind)
        self._rows = np.array(rows)
        self._of, self._together = of, together
        self._member = np.array([[i in each for i in range(count)] for each in of], dtype=float)
        self._single = np.array([len(each) == 1 for each in of])
        self.settings = np.array([s for s in every if s not in broken])
        self.classes = Classes(self._rows[:, list(run)], np.array(prior))

    def marginals(self, masses: Array) -> tuple[Array, Array]:
        """Probability of each candidate to be at fault, and to be so alone."""
        return masses @ self._member, (masses * self._single) @ self._member

    def ends(self, masses: Array) -> tuple[float, float]:
        """Probability of a loss that is everywhere, and of one that is gone."""
        return float(masses[0]), float(masses[1])

    def information(self, masses: Array, outcomes: Array) -> tuple[Indices, Array]:
        """List the settings that can be run, and the bits that one run of each would tell."""
        rows = self._rows[:, self.settings]
        shares = np.stack([masses @ (rows == index) for index in range(len(SHARES))], 1)
        return self.settings, entropy(shares @ outcomes) - shares @ entropy(outcomes)

    def best(self, masses: Array) -> Answer:
        """Name the candidate that is the most probable to be at fault alone."""
        return self._answer(masses, 1)

    def best_pair(self, masses: Array) -> Answer:
        """Name the two that are the most probable to act together."""
        return self._answer(masses, 2)

    def _answer(self, masses: Array, size: int) -> Answer:
        by_answer: dict[tuple[int, ...], float] = {}
        for of, mass in zip(self._of, masses, strict=True):
            if len(of) == size:
                by_answer[of] = by_answer.get(of, 0.0) + float(mass)
        if not by_answer:
            return Answer((), 0.0, np.zeros(len(masses)), np.ones(len(masses)))
        culprits = max(by_answer, key=by_answer.__getitem__)
        within = np.array([float(of == culprits) for of in self._of])
        kind = self._together[int(np.argmax(masses * within))]
        return Answer(culprits, by_answer[culprits], within, np.ones(len(masses)), together=kind)


def entropy(probabilities: Array) -> Array:
    """Bits, over the last axis."""
    bits: Array = -(probabilities * np.log2(probabilities + 1e-300)).sum(-1)
    return bits
