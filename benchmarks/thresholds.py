"""Nights that the gate finds red beside thresholds that other projects hold their nights against.

Each night is drawn from a model of noise. Theirs take one run of a night; ours takes 3 to 9 and
judges by six accepted sessions of five. The rules, as the projects' pull requests have them:

- vLLM's dashboard: a number 20 % below the median of earlier ones (pytorch/test-infra, 7684);
- SGLang: 15 % below the median of 11 runs, which differed by 7 % at most (sgl-project/sglang,
  34640);
- Helion: two nights in a row 15 % below the median of five, the last of them four nights ago
  (pytorch/test-infra, 7473).

    python benchmarks/thresholds.py [--nights 400]
"""

from __future__ import annotations

import argparse
import random
from statistics import median
from typing import TYPE_CHECKING, Final

from simulated_gate import ITSELF, NOISES, Cell, nights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from noise_models import Noise

LOSSES: Final = (0.0, 0.03, 0.05, 0.08, 0.12, 0.16, 0.2, 0.25)
MODELS: Final = {
    "runs differ by 1 %, nights by 0.5 %": "cv 1, nights .5",
    "runs differ by 4 %": "cv 4",
}
THEIRS: Final = {
    "vLLM, 20 % below the median": (11, 1, 0.20),
    "SGLang, 15 % below the median": (11, 1, 0.15),
    "Helion, 15 % below, twice": (5, 2, 0.15),
}
"""Earlier nights, nights that have to be below, and how far."""


def one_run(noise: Noise, level: float, choose: random.Random) -> float:
    """The number of a night of this level."""
    return next(noise.runs(level, 1, choose))


def found(noise: Noise, loss: float, rule: Sequence[float], count: int) -> float:
    """Part of the nights that are red by a fixed threshold."""
    earlier, needed, below = int(rule[0]), int(rule[1]), rule[2]
    choose = random.Random(f"{noise}{loss}{rule}")  # noqa: S311 - a simulation
    red = 0
    for _ in range(count):
        levels, tonight = noise.levels(earlier + needed - 1, 1, choose)
        before, last = levels[:earlier], [*levels[earlier:], tonight]
        reference = median(one_run(noise, level, choose) for level in before)
        numbers = [one_run(noise, level * (1 - loss), choose) for level in last]
        red += all(number < reference * (1 - below) for number in numbers)
    return red / count


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=400)
    count = parser.parse_args().nights
    for title, name in MODELS.items():
        print(f"\n{title}; red nights in percent, by what was lost")
        print(f"{'':31}" + "".join(f"{loss:>7.0%}" for loss in LOSSES))
        rows = {"the gate": [ours(name, loss, count) for loss in LOSSES]}
        for who, rule in THEIRS.items():
            rows[who] = [found(NOISES[name], loss, rule, 10 * count) for loss in LOSSES]
        for who, parts in rows.items():
            print(f"{who:31}" + "".join(f"{100 * part:>7.1f}" for part in parts))


def ours(name: str, loss: float, count: int) -> float:
    """Part of the nights that the gate calls regressed; ten times as many where nothing is lost."""
    trials = count if loss else 10 * count
    return nights(Cell(ITSELF, name, loss), trials, "thresholds").alarms()


if __name__ == "__main__":
    main()
