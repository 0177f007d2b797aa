"""Simulated numbers that are to be accepted, and nights that are to join them."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from statistics import median, stdev

from msgspec import Struct
from msgspec.structs import replace
from noise_models import LEVEL
from simulated_gate import (
    ITSELF,
    METRICS,
    NOISES,
    RUNS_PER_SESSION,
    SESSIONS,
    TOLERANCE_PERCENT,
    baseline_of,
    end,
    measurement,
    series,
    sessions_of,
)

from pytest_dlperf.baselines.accepting import ADDED_RUNS
from pytest_dlperf.gate.rules import Terms, rule_for
from pytest_dlperf.gate.scatter import needed_tolerance
from pytest_dlperf.gate.verdicts import (
    GateInput,
    GateOptions,
    MeasuredCase,
    accept,
    decide,
    why_not_added,
)
from pytest_dlperf.model.baseline import AcceptedSession
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Better


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
    quiet_nights: int = 3,
) -> Extension:
    """Add nights to a quiet baseline by --dlperf-extend-baselines: noisy ones, then quiet ones."""
    choose = random.Random(zlib.crc32(noise.encode()))  # noqa: S311 - a simulation
    gate = replace(ITSELF, at_least=ADDED_RUNS)
    quiet, metric = NOISES["cv 1"], gate.metric
    joined: Counter[str] = Counter()
    scattered = stuck = taken = 0
    for _ in range(trials):
        baseline = baseline_of(metric, sessions_of(gate, quiet, [LEVEL] * sessions, choose))
        for tonight in [noise] * noisy_nights + ["cv 1"] * (quiet_nights + 1):
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
        quiet_joined=joined["cv 1"] / trials / (quiet_nights + 1),
        stuck=stuck / trials,
        quiet_runs=taken / trials / (quiet_nights + 1),
    )


class Recording(Struct, frozen=True):
    """What became of numbers that differ too much for the usual tolerance, as parts of them.

    ``refused`` were not accepted, and ``noted`` are told to need a wider tolerance: both are told
    which. ``alarms`` are the false ones by the usual tolerance of nights beside accepted numbers,
    ``untold`` beside those without the note, as parts of all numbers. By the tolerance that is
    told, ``alarms_then`` are false, and losses of twice it are ``found``.
    """

    refused: float
    noted: float
    alarms: float
    untold: float
    alarms_then: float
    found: float

    @property
    def told(self) -> float:
        """Part of the numbers of which what they take was told."""
        return self.refused + self.noted


def recorded(noise: str, trials: int) -> Recording:
    """Record a time, and judge a night of it by the usual tolerance and by the one that is told."""
    choose = random.Random(zlib.crc32(noise.encode()))  # noqa: S311 - a simulation
    metric = replace(METRICS[Better.LOWER], unit="s")
    usual = Terms(tolerance_percent=TOLERANCE_PERCENT)
    found: Counter[str] = Counter()
    for _ in range(trials):
        known, tonight = (
            NOISES[noise].session(LEVEL, -1, RUNS_PER_SESSION, choose) for _ in range(2)
        )
        gate_input = GateInput(metric, MeasuredCase(measurement(metric, known), {}), usual)
        options = GateOptions(creates=True)
        first = accept(decide(gate_input), gate_input, options, reference=None)
        told = "refused" if first.refused else "noted" if first.notes else "untold"
        found[told] += 1
        baseline = baseline_of(metric, [known])

        def is_alarm(terms: Terms, lost: float = 0.0) -> bool:
            rule = rule_for(metric, baseline, terms)  # noqa: B023 - called in this turn
            decision = rule.decide([run + lost for run in tonight], is_last=True)  # noqa: B023
            return decision is not None and decision.verdict is Verdict.REGRESSED

        found[f"alarms, {told}"] += is_alarm(usual)
        floor = (needed_tolerance(known, Better.LOWER) or 0.0) * median(known)
        wider = replace(usual, tolerance_at_least=floor)
        found["alarms then"] += is_alarm(wider)
        found["found"] += is_alarm(wider, 2 * floor)
    return Recording(
        refused=found["refused"] / trials,
        noted=found["noted"] / trials,
        alarms=(found["alarms, noted"] + found["alarms, untold"])
        / max(found["noted"] + found["untold"], 1),
        untold=found["alarms, untold"] / trials,
        alarms_then=found["alarms then"] / trials,
        found=found["found"] / trials,
    )
