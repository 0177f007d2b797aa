"""The false alarms to expect of a case whose runs are in one of two modes by chance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, Protocol

from pytest_dlperf.gate.reference import Reference
from pytest_dlperf.model.statistics import mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.metric import Better

_MIN_CHANCE: Final = 1e-5
"""Baselines that are less likely add nothing to a stated probability."""


class Look(Protocol):
    """Looks at the runs so far beside a baseline."""

    def __call__(
        self, reference: Reference, values: Sequence[float], *, is_last: bool
    ) -> bool | None:
        """Whether they are an alarm; ``None`` if more runs are taken."""


def false_alarm_of_modes(reference: Reference, better: Better, looks: range, look: Look) -> float:
    """Probability of an alarm by chance alone, where a reference has two modes.

    It is that of all baselines of so many runs: most alarms come after one that happens to have few
    runs of the worse mode. ``looks`` are the numbers of runs after which there may be a decision.
    """
    modes, runs = reference.modes, reference.runs
    if modes is None:
        return 0.0
    middles = mean(modes.low), mean(modes.high)
    worst, best = better.worst(middles), better.best(middles)
    part = (len(modes.low if worst < best else modes.high) + 1) / (runs + 2)
    alarms = 0.0
    for worse in range(runs):
        chance = math.comb(runs, worse) * part**worse * (1 - part) ** (runs - worse)
        if chance < _MIN_CHANCE:
            continue
        drawn = Reference.pooled([[worst] * worse + [best] * (runs - worse)])
        if not look(drawn, [worst] * looks[-1], is_last=True):
            break
        alarms += chance * _alarms_by(drawn, (worst, best), part, looks, look)
    return alarms


def _alarms_by(
    reference: Reference, modes: tuple[float, float], part: float, looks: range, look: Look
) -> float:
    """Probability of an alarm by one baseline, a ``part`` of runs being in the worse mode."""
    worst, best = modes
    open_after, alarms = {0: 1.0}, 0.0
    for count in range(1, looks[-1] + 1):
        states: dict[int, float] = {}
        for worse, probability in open_after.items():
            states[worse] = states.get(worse, 0.0) + probability * (1 - part)
            states[worse + 1] = states.get(worse + 1, 0.0) + probability * part
        open_after = states
        if count not in looks:
            continue
        for worse in list(states):
            values = [worst] * worse + [best] * (count - worse)
            is_alarm = look(reference, values, is_last=count == looks[-1])
            if is_alarm is not None:
                alarms += is_alarm * states.pop(worse)
    return alarms
