"""What a hunt will cost, and how sure it can be: told before it begins, and while it runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from pytest_dlperf.culprit.hunt import Observation, Outcome
from pytest_dlperf.culprit.search import Search

if TYPE_CHECKING:
    from pytest_dlperf.culprit.hunt import Hunt


class Forecast(Struct, frozen=True, kw_only=True):
    """What hunts like this one come to, by simulation of the search itself."""

    runs: float
    """Runs to expect."""
    most_runs: int
    """Runs that nine hunts in ten do with."""
    certainty: float
    """Mean probability of their answers."""
    decided: float
    """Part of the hunts that come to an answer within the runs allowed."""


def forecast(
    hunt: Hunt, *, most_runs: int = 200, runs_per_sitting: int = 1000, trials: int = 100
) -> Forecast:
    """Play hunts with one culprit drawn from the prior; the same answer every time.

    Each takes ``most_runs`` runs at most.
    """
    draw = np.random.default_rng(0)
    weights = np.array(hunt.weights) / np.sum(hunt.weights)
    start = Search(hunt)
    runs, certainties, decided = [], [], 0
    for _ in range(trials):
        at_fault = set(hunt.settings_with(int(draw.choice(len(weights), p=weights))))
        loss = max(draw.normal(hunt.loss, hunt.loss_error), 0.0)
        search, level, count = start, 0.0, 0
        while count < most_runs:
            sitting = (hunt.measured_in or 0) + count // runs_per_sitting
            if count % runs_per_sitting == 0:
                spread = 0.0 if sitting == hunt.measured_in else hunt.spread
                level = draw.normal(0.0, math.hypot(hunt.level_error, spread))
            setting = search.next_query(sitting)
            if setting is None:
                break
            worse = level + loss * (setting in at_fault) + draw.normal(0.0, hunt.noise)
            search = search.after(Observation(setting=setting, sitting=sitting, worse=worse))
            count += 1
        finding = search.finding()
        runs.append(count)
        certainties.append(finding.certainty)
        decided += finding.outcome is not Outcome.UNDECIDED
    return Forecast(
        runs=float(np.mean(runs)),
        most_runs=int(np.quantile(runs, 0.9, method="higher")),
        certainty=float(np.mean(certainties)),
        decided=decided / trials,
    )
