"""What a hunt will cost, and how sure it can be: told before it begins, and while it runs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from pytest_dlperf.culprit.hunt import Observation
from pytest_dlperf.culprit.search import Search

if TYPE_CHECKING:
    from pytest_dlperf.culprit.hunt import Hunt


class Forecast(Struct, frozen=True, kw_only=True):
    """What hunts like this one come to, by simulation of the search itself."""

    runs: float
    """Runs to expect."""
    certainty: float
    """Mean probability of their answers."""


def forecast(hunt: Hunt, *, most_runs: int = 200, trials: int = 100) -> Forecast:
    """Play hunts with one culprit drawn from the prior; the same answer every time.

    Each takes ``most_runs`` runs at most, in one sitting: that of the ends if it is known.
    """
    draw = np.random.default_rng(0)
    weights = np.array(hunt.weights) / np.sum(hunt.weights)
    start = Search(hunt)
    runs, certainties = [], []
    sitting = hunt.measured_in or 0
    spread = 0.0 if hunt.measured_in is not None else hunt.spread
    for _ in range(trials):
        at_fault = set(hunt.settings_with(int(draw.choice(len(weights), p=weights))))
        loss = max(draw.normal(hunt.loss, hunt.loss_error), 0.0)
        level = draw.normal(0.0, math.hypot(hunt.level_error, spread))
        search, count = start, 0
        while count < most_runs and (setting := search.next_query(sitting)) is not None:
            worse = level + loss * (setting in at_fault) + draw.normal(0.0, hunt.noise)
            search = search.after(Observation(setting=setting, sitting=sitting, worse=worse))
            count += 1
        runs.append(count)
        certainties.append(search.finding().certainty)
    return Forecast(runs=float(np.mean(runs)), certainty=float(np.mean(certainties)))
