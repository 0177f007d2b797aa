"""How many runs a hunt takes and how often it is right, by simulation of the search itself.

The tables are printed, and the exit code is 1 if a goal below them is missed.

    python benchmarks/culprit.py [--hunts 400] [--processes 2] [--quick]

All fields take some twenty minutes on two idle cores; the quick form, fewer hunts in a few of them,
some seconds.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from noise_models import LEVEL, Noise

from pytest_dlperf.culprit.hunt import Hunt, Observation, Outcome, Shape, ends_of, worse_by
from pytest_dlperf.culprit.search import Search
from pytest_dlperf.model.metric import Better
from pytest_dlperf.model.statistics import mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

CV: Final = 0.01
ERROR: Final = 0.05
SIZES: Final = (16, 64, 256, 1024)
LOSSES: Final = (1.5, 2.0, 3.0, 5.0)
"""In units of the CV."""
SHAPES: Final = ("normal", "heavy", "skewed")
"""Of the noise between runs. Hunts take them in turn, and both directions of the metric."""
MAX_RUNS: Final = 300
RUNS_OF_A_SITTING: Final = (6, 12)
RUNS_OF_AN_END: Final = range(5, 16)
TWO: Final = (0.6, 0.4)
"""The parts of two culprits that add up."""


class Condition(Struct, frozen=True, kw_only=True):
    """What hunts have to do with, and what has to come of them.

    ``ratios`` are the most runs in those of the bound, by the loss; ``right`` is the least part
    that is right, ``wrong`` the most that is wrong.
    """

    title: str
    sizes: tuple[int, ...] = SIZES
    losses: tuple[float, ...] = LOSSES
    shape: Shape = Shape.ORDERED
    times: int = 1
    """Hunts of a field in those that were asked for: few candidates take less time."""
    at_fault: tuple[int, ...] = (1,)
    """How many are, in turn."""
    is_everywhere: bool = False
    """Where none is at fault: whether all settings have the loss."""
    strays: float = 0.0
    broken: float = 0.0
    """The part of the settings that cannot be run."""
    sittings: float | None = None
    """Deviation between the levels of sittings, in units of the CV. The ends were measured in the
    first one."""
    is_measured: bool = False
    """Whether levels and noise come from runs of both ends, as many as it takes."""
    ratios: Mapping[float, float] = {}
    right: float = 0.95
    wrong: float | None = None


_LOOSER: Final = {1.5: 1.5, 2.0: 1.3, 3.0: 1.3, 5.0: 1.3}
CONDITIONS: Final = {
    "known": Condition(title="Levels and noise known", ratios=_LOOSER),
    "strays": Condition(
        title="Every tenth run an outlier, 20 to 75 % slow",
        strays=0.1,
        ratios=dict.fromkeys(LOSSES, 1.4),
    ),
    "sittings": Condition(
        title="Sittings of 6 or 12 runs that differ by 1 CV",
        sittings=1.0,
        ratios={2.0: 2.0, 3.0: 1.6},
    ),
    "measured": Condition(
        title="Levels and noise from 5 to 15 runs of each end", is_measured=True, right=0.0
    ),
    "everywhere": Condition(
        title="No culprit, the loss is everywhere", at_fault=(0,), is_everywhere=True, right=0.98
    ),
    "gone": Condition(title="No culprit, the loss is gone", at_fault=(0,), right=0.98),
    "broken": Condition(title="5 % of the commits do not build", broken=0.05, wrong=0.05),
    "two": Condition(
        title="Two culprits, of 3 and 2 CV", at_fault=(2,), losses=(5.0,), right=0.0, wrong=0.05
    ),
    "few": Condition(
        title="2 to 8 differences, one or two at fault",
        sizes=(2, 3, 4, 6, 8),
        shape=Shape.SUBSETS,
        times=4,
        at_fault=(1, 2),
        ratios=_LOOSER,
    ),
}
STATED: Final = (0.95, 0.96)
"""Hunts that say they are so sure …"""
MIN_RIGHT: Final = 0.93
"""… are right in this part at least."""


class Cell(Struct, frozen=True):
    """A field of a table."""

    condition: str
    candidates: int
    loss: float

    def bound(self, at_fault: int) -> float:
        """Fewest runs that a search takes, but for lower-order terms.

        What tells the answers apart, and what makes the last step sure (Burnashev). Of differences
        the answers are each, each pair in three ways, and none. Pairs that add up, one in three,
        are told from one alone by what the smaller part costs.
        """
        first = capacity(self.loss)
        if CONDITIONS[self.condition].shape is Shape.ORDERED:
            return math.log2(self.candidates) / first + proof(self.loss)
        answers = self.candidates + 3 * math.comb(self.candidates, 2) + 1
        adds_up = 1 / 3 if at_fault == 2 else 0.0  # noqa: PLR2004 - a pair
        last = (1 - adds_up) * proof(self.loss) + adds_up * proof(min(TWO) * self.loss)
        return math.log2(answers) / first + last


@cache
def capacity(loss: float) -> float:
    """Bits that a run can tell of two levels so many deviations apart."""
    step = 0.001
    entropy = 0.0
    for number in range(round((loss + 16) / step)):
        at = -8 + number * step
        mixed = (normal(at) + normal(at - loss)) / 2
        entropy -= mixed * math.log2(mixed) * step
    return entropy - math.log2(2 * math.pi * math.e) / 2


def normal(at: float) -> float:
    """Density of the normal distribution."""
    return math.exp(-at * at / 2) / math.sqrt(2 * math.pi)


def proof(loss: float) -> float:
    """Runs that make sure which of two levels so many deviations apart it is."""
    return math.log2(1 / ERROR) / (loss**2 / 2 / math.log(2))


# ---------------------------------------------------------------------------- one hunt


class World:
    """What is true of a hunt, and its runs: by no code of the search."""

    def __init__(self, cell: Cell, number: int) -> None:
        """Draw who is at fault, and what cannot be run."""
        self.condition = condition = CONDITIONS[cell.condition]
        self.choose = random.Random(f"{cell} {number}")  # noqa: S311 - noise, no secret
        self.better = Better.HIGHER if number % 2 else Better.LOWER
        shape = SHAPES[number // 2 % len(SHAPES)]
        self.noise = Noise(deviation=CV, shape=shape, strays=condition.strays)
        self.candidates, self.loss, self.good = cell.candidates, cell.loss * CV, LEVEL
        count = condition.at_fault[number % len(condition.at_fault)]
        self.at_fault = sorted(self.choose.sample(range(self.candidates), count))
        parts = self.choose.sample(TWO, 2)
        ways = [(0.0, *parts, 1.0)]
        if condition.shape is Shape.SUBSETS:
            ways += [(0.0, 0.0, 0.0, 1.0), (0.0, 1.0, 1.0, 1.0)]
        self.shares = self.choose.choice(ways)
        """The share of the loss of a pair: with none of it, with the first, the second, both."""
        self.broken = {
            setting
            for setting in range(1, self.candidates)
            if self.choose.random() < condition.broken
        }
        self.levels = {0: LEVEL}

    def hunt(self) -> Hunt | None:
        """Return what is known at the start; ``None`` if the ends show no loss."""
        condition = self.condition
        known = Hunt(
            weights=(1.0,) * self.candidates,
            shape=condition.shape,
            loss=self.loss,
            noise=CV,
            spread=CV * (condition.sittings or 0.0),
            measured_in=None if condition.sittings is None else 0,
        )
        if not condition.is_measured:
            return known
        good: list[float] = []
        bad: list[float] = []
        for count in RUNS_OF_AN_END:
            for share, runs in enumerate((good, bad)):
                runs += [self.value(share, LEVEL) for _ in range(count - len(runs))]
            ends = ends_of(good, bad, self.better)
            if ends is not None and ends.is_loss:
                self.good = ends.good
                return replace(
                    known,
                    loss=ends.loss,
                    loss_error=ends.loss_error,
                    noise=ends.noise,
                    noise_dof=ends.noise_dof,
                    level_error=ends.level_error,
                )
        return None

    def value(self, share: float, level: float) -> float:
        """Run a setting that has this share of the loss."""
        worse = level * math.exp(-self.better.sign * share * self.loss)
        # The tails of noise that is not Gaussian reach below 0, once in millions of runs.
        return next(
            value for value in self.noise.runs(worse, self.better.sign, self.choose) if value > 0
        )

    def share(self, setting: int) -> float:
        """Return the share of the loss that a setting has."""
        is_ordered = self.condition.shape is Shape.ORDERED
        inside = [setting > one if is_ordered else setting >> one & 1 for one in self.at_fault]
        if not inside:
            return float(self.condition.is_everywhere)
        if len(inside) == 1:
            return float(inside[0])
        return self.shares[bool(inside[0]) + 2 * bool(inside[1])]

    def run(self, setting: int, sitting: int) -> Observation:
        """Run a setting, if it can be."""
        if setting in self.broken:
            return Observation(setting=setting, sitting=sitting, worse=None)
        if sitting not in self.levels:
            spread = CV * (self.condition.sittings or 0.0)
            self.levels[sitting] = LEVEL * math.exp(self.choose.gauss(0.0, spread))
        value = self.value(self.share(setting), self.levels[sitting])
        worse = worse_by(value, self.good, self.better)
        return Observation(setting=setting, sitting=sitting, worse=worse)


class Played(NamedTuple):
    """How a hunt ended: ``is_right`` is ``None`` where it came to no answer."""

    is_right: bool | None
    runs: int
    bound: float
    certainty: float
    named: int


def play(cell: Cell, number: int) -> Played:
    """Hunt until there is an answer."""
    world = World(cell, number)
    condition, at_fault = world.condition, set(world.at_fault)
    bound = cell.bound(len(at_fault))
    hunt = world.hunt()
    if hunt is None:
        return Played(None, 0, bound, 0.0, 0)
    search, runs = Search(hunt), 0
    per_sitting = MAX_RUNS if condition.sittings is None else RUNS_OF_A_SITTING[number % 2]
    while runs < MAX_RUNS:
        sitting = runs // per_sitting
        setting = search.next_query(sitting)
        if setting is None:
            break
        observation = world.run(setting, sitting)
        search = search.after(observation)
        runs += observation.worse is not None
    finding = search.finding()
    named = set(finding.culprits)
    is_right: bool | None = None
    if finding.outcome is Outcome.NONE:
        is_right = not at_fault
    elif finding.outcome is Outcome.PAIR:
        is_right = bool(at_fault) and at_fault <= named
    elif finding.outcome is Outcome.FOUND:
        # Of commits one of two is right; of differences, which may act only together, it is not.
        is_right = at_fault == named if condition.shape is Shape.SUBSETS else bool(at_fault & named)
    found = len(at_fault & named)
    return Played(is_right, runs, bound, finding.certainty, found)


def play_all(cell: Cell, hunts: int) -> list[Played]:
    """Play the hunts of a field, the same ones every time."""
    return [play(cell, number) for number in range(hunts * CONDITIONS[cell.condition].times)]


# ------------------------------------------------------------------------------ goals


class Field(Struct, frozen=True):
    """What came of the hunts of a cell."""

    cell: Cell
    played: list[Played]

    @property
    def right(self) -> float:
        """Part of the hunts that were right."""
        return mean([one.is_right is True for one in self.played])

    @property
    def wrong(self) -> float:
        """Part of the hunts that said what is not so."""
        return mean([one.is_right is False for one in self.played])

    @property
    def runs(self) -> float:
        """Mean of the runs."""
        return mean([one.runs for one in self.played])

    @property
    def ratio(self) -> float:
        """Runs in those of the bound."""
        return self.runs / mean([one.bound for one in self.played])

    def missed(self, errors: float) -> Iterator[str]:
        """Yield what is missed by more than so many standard errors."""
        condition = CONDITIONS[self.cell.condition]
        where = f"{condition.title}, {self.cell.candidates}, {self.cell.loss:g} CV"

        def chance(part: float) -> float:
            return errors * math.sqrt(part * (1 - part) / len(self.played))

        if self.right < condition.right - chance(condition.right):
            yield f"{where}: right in {100 * self.right:.1f} %, not {100 * condition.right:g} %"
        if condition.wrong is not None and self.wrong > condition.wrong + chance(condition.wrong):
            yield f"{where}: wrong in {100 * self.wrong:.1f} %"
        most = condition.ratios.get(self.cell.loss)
        # Runs of one hunt differ by less than half of their number.
        if most is not None and self.ratio > most * (1 + errors / 2 / math.sqrt(len(self.played))):
            yield f"{where}: {self.ratio:.2f} times the bound, not {most:g}"


def stated(fields: Sequence[Field]) -> tuple[int, float]:
    """Count the hunts that say they are 95 % sure, and the part of them that is right."""
    low, high = STATED
    said = [
        one.is_right is True
        for field in fields
        for one in field.played
        if low <= one.certainty < high and one.is_right is not None
    ]
    return len(said), mean(said) if said else 1.0


def table(name: str, fields: Sequence[Field]) -> Iterator[str]:
    """One condition: right in percent, runs, and these in those of the bound."""
    condition = CONDITIONS[name]
    yield condition.title
    losses = sorted({field.cell.loss for field in fields})
    yield f"{'candidates':<12}" + "".join(f"{f'{loss:g} CV':>26}" for loss in losses)
    by_size: dict[int, list[Field]] = {}
    for field in fields:
        by_size.setdefault(field.cell.candidates, []).append(field)
    for size, row in by_size.items():
        shown = "".join(
            f"{f'{100 * one.right:.1f} %, {one.runs:.1f} runs, {one.ratio:.2f} x':>26}"
            for one in row
        )
        yield f"{size:<12}{shown}"
    if condition.at_fault == (2,):
        both = mean([one.named == 2 for field in fields for one in field.played])  # noqa: PLR2004
        yield f"both are named in {100 * both:.0f} %"
    said, right = stated(fields)
    yield f"said to be 95 % sure: {said}, of which {100 * right:.1f} % are right"
    yield ""


def main() -> int:
    """Simulate and print; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hunts", type=int, help="of each field: 400, or 40 in the quick form")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", choices=CONDITIONS, action="append", help="this condition")
    parser.add_argument("--quick", action="store_true", help="few fields, with room for chance")
    options = parser.parse_args()
    hunts = options.hunts or (40 if options.quick else 400)
    errors = 3.0 if options.quick else 0.0
    started = time.perf_counter()
    cells = [
        Cell(name, size, loss)
        for name, condition in CONDITIONS.items()
        if not options.only or name in options.only
        for size in (condition.sizes[:1] if options.quick else condition.sizes)
        for loss in (condition.losses[-2:] if options.quick else condition.losses)
    ]
    missed: list[str] = []
    with ProcessPoolExecutor(options.processes) as pool:
        fields = map(Field, cells, pool.map(play_all, cells, [hunts] * len(cells)))
        for name, group in groupby(fields, key=lambda field: field.cell.condition):
            own = list(group)
            print(*table(name, own), sep="\n", flush=True)
            missed += [line for field in own for line in field.missed(errors)]
            said, right = stated(own)
            chance = errors * math.sqrt(0.05 / max(said, 1))
            if right < MIN_RIGHT - chance:
                missed.append(f"{CONDITIONS[name].title}: right in {right:.3f} where 95 % are said")
    print(*(f"missed  {line}" for line in missed), sep="\n")
    print(f"{hunts} hunts a field, {time.perf_counter() - started:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
