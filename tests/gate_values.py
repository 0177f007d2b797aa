"""Measurements and baselines that a test of the gate makes from a few numbers."""

from __future__ import annotations

import random
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_dlperf.gate.rules import Terms
from pytest_dlperf.gate.verdicts import End, Question, decide
from pytest_dlperf.model.baseline import AcceptedSession, Baseline
from pytest_dlperf.model.measurement import Estimator, InterleavedRuns, Measurement, Run, RunStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.judgement import Judgement

CASE = "paddle-resnet50-fp32-b128-1n8g"
SINGLE = "paddle-resnet50-fp32-b128-1n1g"
UNIT = "images/s"
PLACE = "baselines/x/y.yaml:7"
EVEN = (985.0, 992.0, 1000.0, 1008.0, 1015.0)
"""Five runs that differ by 1 %."""


def measured(*throughputs: float, name: str = CASE) -> Measurement:
    """Sound runs of these throughputs."""
    return Measurement(
        case_id=name,
        unit=UNIT,
        estimator=Estimator.STEADY,
        runs=tuple(
            Run(run=number, throughput=throughput, status=RunStatus.OK)
            for number, throughput in enumerate(throughputs, 1)
        ),
    )


def judge_throughput(
    measurement: Measurement, baseline: Baseline | None, **terms: Any
) -> Judgement:
    """The verdict on a throughput by these terms."""
    return decide(Question(End(measurement, baseline), Terms(**terms)))


def judge_speedup(
    measurement: Measurement,
    single_device: Measurement,
    baseline: Baseline | None,
    single_baseline: Baseline | None = None,
    **terms: Any,
) -> Judgement:
    """The verdict on a speedup by these terms."""
    single = End(single_device, single_baseline)
    return decide(Question(End(measurement, baseline), Terms(**terms), single))


def interleaved(
    candidate: float, control: float, *, runs: int = 7, name: str = CASE
) -> InterleavedRuns:
    """So many runs of either arm, all of an arm equal."""
    return InterleavedRuns(
        candidate=measured(*[candidate] * runs, name=name),
        control=measured(*[control] * runs, name=name),
    )


def accepted(
    *sessions: Sequence[float],
    throughput: float | None = None,
    speedup: float | None = None,
    own: float | None = None,
) -> Baseline:
    """A baseline that was accepted from the first session, and to which the others were added.

    ``throughput`` is the accepted number if it is not the median of the first session, ``own`` the
    tolerance in percent that the entry has itself.
    """
    accepted, *later = sessions
    return Baseline(
        throughput=median(accepted) if throughput is None else throughput,
        speedup=speedup,
        unit=UNIT,
        estimator=Estimator.STEADY,
        tolerance_percent=own,
        mean=None,
        runs=dict(enumerate(accepted, 1)),
        strays={},
        note=None,
        place=PLACE,
        sessions=tuple(AcceptedSession(at="", runs=tuple(runs)) for runs in later),
    )


def drawn(
    deviation: float, sessions: int = 6, *, nights: float = 0.0, runs: int = 5, seed: int = 7
) -> list[tuple[float, ...]]:
    """Sessions of runs about 1000 with this relative deviation, and with that between nights."""
    choose = random.Random(seed)  # noqa: S311 - noise
    levels = [choose.gauss(1000, 1000 * nights) if nights else 1000.0 for _ in range(sessions)]
    return [tuple(choose.gauss(level, level * deviation) for _ in range(runs)) for level in levels]
