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
    described, errors = zip(*(_end(end, gate_input.base) for end in gate_input.ends), strict=True)
    error = None if None in errors else StandardError.combined(errors)
    allowed, sees = gate_input.tolerance_percent / 100, None
    if error is not None:
        allowed = max(allowed, t_quantile(_LIMIT_DEVIATIONS, error.dof) * error.value)
        sees = 100 * min(allowed + t_quantile(QUANTILE_90, error.dof) * error.value, 1.0)
    verdict = Verdict.PASS
    # Products, not the loss: a ratio of exactly the allowed number has to pass.
    if better.is_worse(measured, better.changed(accepted, -allowed)):
        verdict = Verdict.REGRESSED
    elif better.is_worse(better.changed(accepted, allowed), measured):
        verdict = Verdict.IMPROVED
    difference = measured / accepted - 1
    decision = Decision(
        verdict=verdict,
        reference=accepted,
        difference_percent=100 * difference,
        tolerance_percent=100 * allowed,
        interval_percent=error.interval_percent(difference) if error else None,
        min_detectable_percent=sees,
    )
    return decision, described


def _end(end: MeasuredCase, base: Metric) -> tuple[str, StandardError | None]:
    """Describe an end; also return the standard error of its median over the accepted one."""
    samples, baseline = end.measurement.samples(base.name), end.baselines.get(base.name)
    said = f"{end.measurement.case_id}: {numbers.quantity(samples.median, base.unit)}"
    if samples.median is not None and baseline is not None:
        difference = difference_percent(samples.median, baseline.accepted)
        accepted = numbers.quantity(baseline.accepted)
        said += f", {numbers.signed_percent(difference)} from the accepted {accepted}"
    runs = samples.values
    noise = pooled_noise([*(baseline.rolling if baseline else ()), runs])
    if noise is None:
        return said, None
    count = len(baseline.runs) if baseline and baseline.runs else len(runs)
    variance = median_variance(count) + median_variance(len(runs))
    return said, StandardError(value=noise.deviation * math.sqrt(variance), dof=noise.dof)
