"""Judges a speedup by its tolerance: a loss at either end is found by that end's own throughput."""

from __future__ import annotations

import math
from typing import Final

from pytest_dlperf.gate.inputs import GateInput, MeasuredCase
from pytest_dlperf.gate.noise import (
    QUANTILE_90,
    StandardError,
    median_variance,
    pooled_noise,
    t_quantile,
)
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.judgement import Decision, Verdict
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.statistics import difference_percent

_LIMIT_DEVIATIONS: Final = 2.75
"""Normal deviations that three ratios in 1,000 exceed by the noise of runs."""


def decide_ratio(
    gate_input: GateInput, measured: float, baseline: Baseline
) -> tuple[Decision, tuple[str, ...]]:
    """Hold a ratio of medians against the accepted one, and describe both ends.

    Where the runs of both ends explain more than the tolerance, that passes.
    """
    accepted, better = baseline.accepted, baseline.better
    errors = [_error(end, gate_input.base) for end in gate_input.ends]
    known = [error for error in errors if error is not None]
    error = StandardError.combined(known) if len(known) == len(errors) else None
    allowed = gate_input.tolerance_percent / 100
    if error is not None:
        allowed = max(allowed, t_quantile(_LIMIT_DEVIATIONS, error.dof) * error.value)
    # Products, not the loss: a ratio of exactly the allowed number has to pass.
    if better.is_worse(measured, better.changed(accepted, -allowed)):
        verdict = Verdict.REGRESSED
    elif better.is_worse(better.changed(accepted, allowed), measured):
        verdict = Verdict.IMPROVED
    else:
        verdict = Verdict.PASS
    difference = measured / accepted - 1
    sees = None
    if error is not None:
        sees = 100 * min(allowed + t_quantile(QUANTILE_90, error.dof) * error.value, 1.0)
    decision = Decision(
        verdict=verdict,
        reference=accepted,
        difference_percent=100 * difference,
        tolerance_percent=100 * allowed,
        interval_percent=error.interval_percent(difference) if error else None,
        min_detectable_percent=sees,
    )
    return decision, tuple(_described(end, gate_input.base) for end in gate_input.ends)


def _error(end: MeasuredCase, base: Metric) -> StandardError | None:
    """Standard error of an end's median over the accepted one, as a part; ``None`` if unknown."""
    runs = end.measurement.samples(base.name).values
    baseline = end.baselines.get(base.name)
    noise = pooled_noise([*(baseline.rolling if baseline else ()), runs])
    if noise is None:
        return None
    accepted = len(baseline.runs) if baseline and baseline.runs else len(runs)
    variance = median_variance(accepted) + median_variance(len(runs))
    return StandardError(value=noise.deviation * math.sqrt(variance), dof=noise.dof)


def _described(end: MeasuredCase, base: Metric) -> str:
    """Write tonight's number of an end, and the accepted one."""
    median = end.measurement.samples(base.name).median
    said = f"{end.measurement.case_id}: {numbers.quantity(median, base.unit)}"
    baseline = end.baselines.get(base.name)
    if median is None or baseline is None:
        return said
    difference = numbers.signed_percent(difference_percent(median, baseline.accepted))
    return f"{said}, {difference} from the accepted {numbers.quantity(baseline.accepted)}"
