"""Measurements and baselines that a test of the gate makes from a few numbers."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from msgspec.structs import replace

from pytest_dlperf.gate.inputs import GateInput, MeasuredCase
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.gate.verdicts import decide
from pytest_dlperf.model.baseline import AcceptedSession, Baseline
from pytest_dlperf.model.judgement import Judgement
from pytest_dlperf.model.measurement import Estimator, InterleavedRuns, Measurement, Run, RunStatus
from pytest_dlperf.model.metric import SPEEDUP_METRIC, Better, Metric, Source, throughput

CASE = "paddle-resnet50-fp32-b128-1n8g"
SINGLE = "paddle-resnet50-fp32-b128-1n1g"
METRIC = throughput("images/s")
TIME = Metric(name="step_time", unit="ms", better=Better.LOWER, source=Source.STEPS)
"""A metric that is better the lower it is."""
PLACE = "baselines/x/y.yaml:7"
EVEN = (985.0, 992.0, 1000.0, 1008.0, 1015.0)
"""Five runs that differ by 1 %."""


def measured(*values: float, name: str = CASE, metric: Metric = METRIC) -> Measurement:
    """Sound runs with these numbers."""
    return Measurement(
        case_id=name,
        metrics=(metric,),
        estimator=Estimator.STEADY,
        runs=tuple(sound_run(number, value, metric) for number, value in enumerate(values, 1)),
    )


def sound_run(number: int, value: float, metric: Metric = METRIC) -> Run:
    """One run with this number."""
    return Run(run=number, metrics={metric.name: value}, status=RunStatus.OK)


def end(measurement: Measurement, *baselines: Baseline | None) -> MeasuredCase:
    """A measurement, and what is accepted of its case."""
    return MeasuredCase(
        measurement, {known.metric: known for known in baselines if known is not None}
    )


def judge(measurement: Measurement, baseline: Baseline | None, **terms: Any) -> Judgement:
    """The verdict on what was measured by these terms."""
    (metric,) = measurement.metrics
    return decide(GateInput(metric, end(measurement, baseline), Terms(**terms)))


def judge_speedup(
    measurement: Measurement,
    reference: Measurement,
    baseline: Baseline | None,
    reference_baseline: Baseline | None = None,
    *,
    speedup: Baseline | float | None = 8.0,
    **terms: Any,
) -> Judgement:
    """The verdict on a speedup by these terms."""
    if isinstance(speedup, float):
        speedup = accepted_speedup(speedup)
    case = end(measurement, baseline, speedup)
    over = end(replace(reference, case_id=SINGLE), reference_baseline)
    return decide(GateInput(SPEEDUP_METRIC, case, Terms(**terms), over))


def interleaved(
    candidate: float, control: float, *, runs: int = 7, metric: Metric = METRIC
) -> InterleavedRuns:
    """So many runs of either arm, all of an arm equal."""
    return InterleavedRuns(
        candidate=measured(*[candidate] * runs, metric=metric),
        control=measured(*[control] * runs, metric=metric),
    )


def accepted(
    *sessions: Sequence[float],
    number: float | None = None,
    own: float | None = None,
    metric: Metric = METRIC,
) -> Baseline:
    """A baseline that was accepted from the first session, and to which the others were added.

    ``number`` is the accepted one if it is not the median of the first session, ``own`` the
    tolerance in percent that the entry has itself.
    """
    accepted, *later = sessions
    return Baseline(
        metric=metric.name,
        unit=metric.unit,
        better=metric.better or Better.HIGHER,
        estimator=Estimator.STEADY,
        accepted=median(accepted) if number is None else number,
        tolerance_percent=own,
        runs=dict(enumerate(accepted, 1)),
        place=PLACE,
        sessions=tuple(AcceptedSession(at="", runs=tuple(runs)) for runs in later),
    )


def accepted_speedup(number: float, *, own: float | None = None) -> Baseline:
    """What is accepted of a speedup."""
    return accepted((), number=number, own=own, metric=SPEEDUP_METRIC)


def mirrored(values: Sequence[float]) -> list[float]:
    """The numbers of a metric that is better the lower it is, and as much better or worse."""
    return [2000.0 - value for value in values]
