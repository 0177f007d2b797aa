"""What a night of 310 metrics in five families finds, and how often it gives a false alarm.

Baselines and nights are drawn here and judged by the gate's own rules, once as families and once as
if each metric were alone. In percent of nights.

    python benchmarks/family_power.py [--nights 300]
"""

from __future__ import annotations

import argparse
import random
from typing import Final

from pytest_dlperf.gate.rules import Terms, last_decision, rule_for
from pytest_dlperf.model.baseline import AcceptedSession, Baseline
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.metric import Better, Metric, Source
from pytest_dlperf.model.statistics import median

FAMILIES: Final = 5
MEMBERS: Final = 62
METRIC: Final = Metric(name="busbw", unit="GB/s", better=Better.HIGHER, source=Source.LOG)
SESSIONS: Final = 6
RUNS: Final = 5


def baseline(noise: float, sessions: int) -> Baseline:
    """Draw the accepted number of a member, and the sessions added since."""
    first, *later = [[random.gauss(100, 100 * noise) for _ in range(RUNS)] for _ in range(sessions)]
    return Baseline(
        metric=METRIC.name,
        unit=METRIC.unit,
        better=Better.HIGHER,
        estimator=Estimator.STEADY,
        accepted=median(first),
        runs=dict(enumerate(first, 1)),
        sessions=tuple(AcceptedSession(at="", runs=tuple(runs)) for runs in later),
    )


def alarms(noise: float, sessions: int, losses: list[float], members: int) -> int:
    """Judge a family in one night; return how many of its members are red."""
    terms = Terms(tolerance_percent=5, default_repeats=RUNS, members=members)
    rules = [rule_for(METRIC, baseline(noise, sessions), terms) for _ in losses]
    runs: list[list[float]] = [[] for _ in losses]
    for count in range(1, max(rule.at_most for rule in rules) + 1):
        for values, loss in zip(runs, losses, strict=True):
            values.append(random.gauss(100 * (1 - loss), 100 * noise))
        if all(
            count >= rule.at_most or rule.decide(values, is_last=False) is not None
            for rule, values in zip(rules, runs, strict=True)
        ):
            break
    verdicts = [last_decision(rule, one).verdict for rule, one in zip(rules, runs, strict=True)]
    return verdicts.count(Verdict.REGRESSED)


def main() -> None:
    """Print a row for each noise and number of sessions."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=300)
    nights = parser.parse_args().nights
    random.seed(20261124)
    print("noise, sessions | no loss: alone | families | one of 62 by 3 % | 5 % | 7 % | all by 3 %")
    sound = [0.0] * MEMBERS
    for noise, sessions in ((0.01, SESSIONS), (0.025, SESSIONS), (0.01, 1), (0.025, 1)):
        nights_red = [
            sum(
                any(alarms(noise, sessions, sound, members) for _ in range(FAMILIES))
                for _ in range(nights)
            )
            for members in (1, MEMBERS)
        ]
        found = [
            sum(alarms(noise, sessions, [loss, *sound[1:]], MEMBERS) > 0 for _ in range(nights))
            for loss in (0.03, 0.05, 0.07)
        ]
        common = sum(alarms(noise, sessions, [0.03] * MEMBERS, MEMBERS) > 0 for _ in range(nights))
        shown = [f"{100 * red / nights:5.1f}" for red in (*nights_red, *found, common)]
        print(f"{noise:.1%}, {sessions} | {' | '.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
