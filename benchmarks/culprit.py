"""How often a search for a culprit is right, and after how many runs, by simulation.

The table is printed, and the exit code is 1 if a bar is missed.

    python benchmarks/culprit.py [--searches 400] [--processes 1]
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from statistics import NormalDist, mean
from typing import Final, NamedTuple

from msgspec import Struct

from pytest_dlperf.culprit.search import Levels, Search, Seen, levels_of, worse_by
from pytest_dlperf.model.metric import Better

LEVEL: Final = 1000.0
CV: Final = 0.01
SHAPES: Final = ("normal", "heavy", "skewed")
"""Of the noise between runs. Searches take them in turn, and both directions of the metric."""
MAX_RUNS: Final = 300
WRONG: Final = 0.03
"""At most, in each cell."""
SEARCHES: Final = 400
"""Of each cell; fewer leave room for chance."""
LEAST_LOSS: Final = 3.0
"""In CV: with smaller ones a search need not be right so often."""
PAIRS: Final = ((0.0, 0.0, 1.0), (1.0, 1.0, 1.0), (0.6, 0.4, 1.0))
"""The share of the loss of two at fault: with the first, with the second, with both."""


class Condition(NamedTuple):
    """What searches have to do with, and in which part they have to be right."""

    title: str
    sizes: tuple[int, ...] = (16, 64)
    losses: tuple[float, ...] = (1.5, 2.0, 3.0, 5.0)
    right: float = 0.0
    """With a loss of 3 CV or more."""
    at_fault: tuple[int, ...] = (1,)
    strays: float = 0.0
    broken: float = 0.0
    is_measured: bool = False
    """Whether levels and noise come from 3 to 20 runs of each end."""
    sittings: float = 0.0
    """Deviation between the levels of sittings, each of which measures both ends anew, in CV."""


CONDITIONS: Final = {
    "known": Condition("levels and noise known", (16, 64, 256, 1024), right=0.95),
    "measured": Condition("levels and noise measured at both ends", right=0.95, is_measured=True),
    "sittings": Condition(
        "sittings of 6 or 12 runs whose levels differ by 1 CV",
        right=0.90,
        is_measured=True,
        sittings=1.0,
    ),
    "strays": Condition("every tenth run 20 to 75 % slow", right=0.95, strays=0.1),
    "broken": Condition("5 % of the commits do not build", right=0.95, broken=0.05),
    "two": Condition("two commits at fault, of 3 and 2 CV", losses=(5.0,), at_fault=(2,)),
    "few": Condition("few differences, one or two at fault", (2, 4, 8), at_fault=(1, 2)),
}


class World:
    """What is true of a search, and its runs."""

    def __init__(self, condition: Condition, size: int, loss: float, number: int) -> None:
        """Draw who is at fault, and what cannot be run."""
        self.choose = random.Random(f"{condition.title} {size} {loss} {number}")  # noqa: S311
        self.condition, self.size, self.loss = condition, size, loss * CV
        self.better = Better.HIGHER if number % 2 else Better.LOWER
        self.shape = SHAPES[number // 2 % len(SHAPES)]
        count = condition.at_fault[number // 6 % len(condition.at_fault)]
        self.at_fault = sorted(self.choose.sample(range(size), count))
        # Of commits, the second adds to the first.
        adds_up = self.choose.choice(((0.6, 0.4, 1.0), (0.4, 0.6, 1.0)))
        self.shares = self.choose.choice(PAIRS) if size <= 8 else adds_up  # noqa: PLR2004
        self.broken = {k for k in range(1, size) if self.choose.random() < condition.broken}
        self.levels = {0: LEVEL}
        self.per_sitting = (6, 12)[number % 2] if condition.sittings else MAX_RUNS

    def value(self, setting: int, sitting: int) -> float:
        """Run a setting."""
        first, *second = (setting > one for one in self.at_fault)
        share = float(first)
        if second:
            ways = {(False, False): 0.0, (True, False): self.shares[0], (True, True): 1.0}
            share = ways[first, second[0]]
        if sitting not in self.levels:
            spread = CV * self.condition.sittings
            self.levels[sitting] = LEVEL * math.exp(self.choose.gauss(0.0, spread))
        level = self.levels[sitting] * math.exp(-self.better.sign * share * self.loss)
        while True:
            deviate = self.choose.gauss(0.0, 1.0)
            if self.shape == "heavy":
                # Student's t with three degrees of freedom has the variance 3.
                squares = sum(self.choose.gauss(0.0, 1.0) ** 2 for _ in range(3))
                deviate /= math.sqrt(squares)
            value = level * (math.exp(CV * deviate) if self.shape == "skewed" else 1 + CV * deviate)
            if self.condition.strays and self.choose.random() < self.condition.strays:
                value *= 1 - self.better.sign * self.choose.uniform(0.20, 0.75)
            if value > 0:
                return value

    def known(self, sitting: int) -> Levels | None:
        """Return what is known of both ends; ``None`` if they do not differ."""
        if not self.condition.is_measured:
            return Levels(good=LEVEL, bad=LEVEL, loss=self.loss, noise=CV)
        good: list[float] = []
        bad: list[float] = []
        for _ in range(20):
            good.append(self.value(0, sitting))
            bad.append(self.value(self.size, sitting))
            if len(good) < 3:  # noqa: PLR2004
                continue
            levels = levels_of(good, bad, self.better)
            if levels is not None and levels.is_loss:
                return levels
        return None


class Played(NamedTuple):
    """How a search ended; ``is_right`` is ``None`` where it came to no answer."""

    is_right: bool | None
    runs: int
    certainty: float


def play(condition: Condition, size: int, loss: float, number: int) -> Played:
    """Search until there is an answer."""
    world = World(condition, size, loss, number)
    levels = world.known(0)
    if levels is None:
        return Played(None, 0, 0.0)
    seen: list[Seen] = []
    runs = 0
    search = Search(size, levels)
    while runs < MAX_RUNS and (setting := search.next_setting()) is not None:
        if setting in world.broken:
            seen.append(Seen(setting, None))
        else:
            sitting, is_over = divmod(runs, world.per_sitting)
            if sitting and not is_over:
                levels = world.known(sitting) or levels
            worse = worse_by(world.value(setting, sitting), levels.good, world.better)
            seen.append(Seen(setting, worse, sitting))
            runs += 1
        search = Search(size, levels, seen)
    found = search.found()
    is_right = None if found is None else any(one in found.changes for one in world.at_fault)
    return Played(is_right, runs, search.best()[1])


class Cell(Struct, frozen=True):
    """A field of the table."""

    condition: str
    size: int
    loss: float

    def bisection(self) -> int:
        """Runs of a bisection that is wrong in as few: each step measures often enough."""
        steps = math.ceil(math.log2(self.size))
        deviations = NormalDist().inv_cdf((1 - WRONG) ** (1 / steps))
        return steps * math.ceil((2 * deviations / self.loss) ** 2)


def play_all(cell: Cell, searches: int) -> list[Played]:
    """Play the searches of a cell, the same ones every time."""
    condition = CONDITIONS[cell.condition]
    return [play(condition, cell.size, cell.loss, number) for number in range(searches)]


def main() -> int:
    """Simulate and print; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--searches", type=int, default=SEARCHES, help="of each cell (default: %(default)s)"
    )
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", choices=CONDITIONS, action="append", help="this condition")
    options = parser.parse_args()
    started, searches = time.perf_counter(), options.searches
    cells = [
        Cell(name, size, loss)
        for name, condition in CONDITIONS.items()
        if not options.only or name in options.only
        for size in condition.sizes
        for loss in condition.losses
    ]
    missed, runs, of_bisection = [], 0.0, 0.0
    with ProcessPoolExecutor(options.processes) as pool:
        for cell, played in zip(
            cells, pool.map(play_all, cells, [searches] * len(cells)), strict=True
        ):
            condition = CONDITIONS[cell.condition]
            right, wrong = (mean(one.is_right is so for one in played) for so in (True, False))
            spent = mean(one.runs for one in played)
            line = (
                f"{condition.title}, {cell.size}, {cell.loss:g} CV: right {100 * right:.1f} %, "
                f"wrong {100 * wrong:.1f} %, {spent:.1f} runs, bisection {cell.bisection()}"
            )
            print(line, flush=True)
            if condition.at_fault == (1,):  # else a bisection does not end at one of them
                runs, of_bisection = runs + spent, of_bisection + cell.bisection()
            errors = 0.0 if searches >= SEARCHES else 3.0
            chance = [errors * math.sqrt(p * (1 - p) / searches) for p in (condition.right, WRONG)]
            is_right = cell.loss < LEAST_LOSS or right >= condition.right - chance[0]
            if not is_right or wrong > WRONG + chance[1]:
                missed.append(line)
    print(f"{runs:.0f} runs in sum with one at fault, bisection {of_bisection:.0f}")
    if 2 * runs > of_bisection:
        missed.append("more than half of bisection's runs")
    print(*(f"missed  {line}" for line in missed), sep="\n")
    print(f"{searches} searches a cell, {time.perf_counter() - started:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
