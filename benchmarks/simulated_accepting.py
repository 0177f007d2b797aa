"""Simulated nights that are to join a baseline."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from statistics import stdev

from msgspec import Struct
from msgspec.structs import replace
from noise_models import LEVEL
from simulated_gate import (
    ITSELF,
    NOISES,
    SESSIONS,
    baseline_of,
    end,
    series,
    sessions_of,
)

from pytest_dlperf.baselines.accepting import ADDED_RUNS
from pytest_dlperf.gate.rules import rule_for
from pytest_dlperf.gate.verdicts import (
    GateInput,
    decide,
    why_not_added,
)
from pytest_dlperf.model.baseline import AcceptedSession
from pytest_dlperf.model.judgement import Verdict

QUIET_NIGHTS = 4
"""So many follow the noisy ones."""


class Extension(Struct, frozen=True):
    """What became of nights whose runs were to join the baseline, as parts of them.

    ``scattered`` are those that joined although their runs differ by more than twice the quiet
    noise. ``stuck`` is the part of cases of which a quiet night is ``inconclusive`` at the end.
    ``quiet_runs`` are the runs that a quiet night took.
    """

    noisy_joined: float
    scattered: float
    quiet_joined: float
    stuck: float
    quiet_runs: float


def extended(
    noise: str,
    trials: int,
    *,
    sessions: int = SESSIONS,
    noisy_nights: int = 7,
) -> Extension:
    """Add nights to a quiet baseline by --dlperf-extend-baselines: noisy ones, then quiet ones."""
    choose = random.Random(zlib.crc32(noise.encode()))  # noqa: S311 - a simulation
    gate = replace(ITSELF, at_least=ADDED_RUNS)
    quiet, metric = NOISES["cv 1"], gate.metric
    joined: Counter[str] = Counter()
    scattered = stuck = taken = 0
    for _ in range(trials):
        baseline = baseline_of(metric, sessions_of(gate, quiet, [LEVEL] * sessions, choose))
        for tonight in [noise] * noisy_nights + ["cv 1"] * QUIET_NIGHTS:
            rule = rule_for(metric, baseline, gate.terms)
            runs, _ = series(rule, NOISES[tonight], LEVEL, choose, at_least=ADDED_RUNS)
            taken += len(runs) * (tonight == "cv 1")
            gate_input = GateInput(metric, end(gate, runs, baseline), gate.terms)
            judgement = decide(gate_input)
            if judgement.verdict.passes and why_not_added(judgement, gate_input) is None:
                joined[tonight] += 1
                scattered += stdev(runs) > 2 * quiet.deviation * LEVEL
                session = AcceptedSession(at="", runs=tuple(runs))
                baseline = replace(baseline, sessions=(*baseline.sessions, session)[-SESSIONS:])
        stuck += judgement.verdict is Verdict.INCONCLUSIVE
    return Extension(
        noisy_joined=joined[noise] / trials / noisy_nights,
        scattered=scattered / trials / noisy_nights,
        quiet_joined=joined["cv 1"] / trials / QUIET_NIGHTS,
        stuck=stuck / trials,
        quiet_runs=taken / trials / QUIET_NIGHTS,
    )
