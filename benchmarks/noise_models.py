"""Models of how a case's numbers differ, drawn without any code of the gate."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence

LEVEL: Final = 1000.0
MAX_STRAYS: Final = 3
"""A session of which one run in so many or more is a stray was not accepted."""


class Noise(Struct, frozen=True, kw_only=True):
    """A model of noise: everything is a part of the level, and worse is less.

    ``deviation`` is that between runs, of normal, ``heavy`` (Student, 3 degrees of freedom) or
    ``skewed`` (lognormal) shape; ``follows`` is the autocorrelation of runs. ``strays`` is the part
    of runs that are 20 to 75 % worse. ``modes`` is the distance between two modes that runs are in
    by chance, ``night_modes`` between two that nights are in; ``worse_share`` is how many are in
    the worse one. ``nights`` is the deviation between nights, ``walk`` that of the steps of a
    random walk of nights, ``gap`` the nights between the last accepted one and tonight.
    ``slow_session`` is by how much one of the accepted sessions is worse.
    """

    deviation: float
    shape: str = "normal"
    follows: float = 0.0
    strays: float = 0.0
    modes: float = 0.0
    night_modes: float = 0.0
    worse_share: float = 0.5
    nights: float = 0.0
    walk: float = 0.0
    gap: int = 1
    slow_session: float = 0.0

    def levels(self, count: int, sign: int, choose: random.Random) -> tuple[list[float], float]:
        """Draw the levels of so many accepted nights, and tonight's; ``sign`` 1: less is worse."""
        walked, levels = 0.0, []
        for night in range(count + 1):
            steps = self.gap if night == count else 1
            walked += choose.gauss(0.0, self.walk * math.sqrt(steps)) if self.walk else 0.0
            level = 1 + walked + (choose.gauss(0.0, self.nights) if self.nights else 0.0)
            if self.night_modes and choose.random() < self.worse_share:
                level -= sign * self.night_modes
            levels.append(LEVEL * level)
        *accepted, tonight = levels
        if self.slow_session:
            accepted[choose.randrange(count)] *= 1 - sign * self.slow_session
        return accepted, tonight

    def runs(self, level: float, sign: int, choose: random.Random) -> Iterator[float]:
        """Draw the runs of a night of this level, without end."""
        for deviate in self._deviates(choose):
            value = level * (
                math.exp(self.deviation * deviate)
                if self.shape == "skewed"
                else 1 + self.deviation * deviate
            )
            if self.modes and choose.random() < self.worse_share:
                value *= 1 - sign * self.modes
            if self.strays and choose.random() < self.strays:
                value *= 1 - sign * choose.uniform(0.20, 0.75)
            yield value

    def _deviates(self, choose: random.Random) -> Iterator[float]:
        last = choose.gauss(0.0, 1.0)
        while True:
            if self.shape == "heavy":
                # Student's t has the variance 3.
                squares = sum(choose.gauss(0.0, 1.0) ** 2 for _ in range(3))
                yield choose.gauss(0.0, 1.0) / math.sqrt(squares)
            else:
                yield last
                fresh = math.sqrt(1 - self.follows**2) * choose.gauss(0.0, 1.0)
                last = self.follows * last + fresh

    def session(self, level: float, sign: int, count: int, choose: random.Random) -> list[float]:
        """Draw an accepted session: one with too many strays was none, and came again."""
        while True:
            runs = self.runs(level, sign, choose)
            drawn = [next(runs) for _ in range(count)]
            if not self.strays or MAX_STRAYS * self._strays(drawn, level) <= count:
                return drawn

    @staticmethod
    def _strays(drawn: Sequence[float], level: float) -> int:
        return sum(abs(run / level - 1) > 0.1 for run in drawn)  # noqa: PLR2004 - strays lose 20 %
