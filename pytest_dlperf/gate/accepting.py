"""What may be accepted, and what it takes if it may not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.inputs import GateInput
from pytest_dlperf.gate.noise import OUTLIER_RADIUS_NOISE, median_variance, noise, t_quantile
from pytest_dlperf.gate.rule import Rule
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.metric import Better, Metric, Source
from pytest_dlperf.model.statistics import (
    difference_percent,
    mean,
    median,
    sample_standard_deviation,
)

_WORSE: Final = (Verdict.REGRESSED, Verdict.ENVIRONMENT_SHIFT)
"""Verdicts on a sound number that is worse than its reference."""
_MIN_RUNS_FOR_DEVIATION: Final = 3
"""Fewer runs do not show how far runs usually lie apart."""
_SURE_DEVIATIONS: Final = 2.576
"""Normal deviations that one session in 200 exceeds."""
UNLIKELY_GAIN: Final = 10.0
"""From so many times the accepted number on, a unit has changed rather than the software."""
_MIN_GAP: Final = 0.015
_MIN_GAP_IN_RANGES: Final = 4.0
"""Runs lie in two groups if a gap between them is so many times as wide as the wider group."""
_MIN_RUNS_OF_GROUP: Final = 2


class GateOptions(Struct, frozen=True, kw_only=True):
    """What a session does after a verdict, for all cases alike."""

    creates: bool = False
    """Whether a number is recorded where there is none (``--dlperf-create-baselines``)."""
    updates: bool = False
    """Whether a number is recorded that is missing or outside its tolerance
    (``--dlperf-update-baselines``)."""
    reason: str | None = None
    """Why a worse number is accepted (``--dlperf-reason``)."""


def accept(judgement: Judgement, gate_input: GateInput, options: GateOptions) -> Judgement:
    """Mark the judgement as recorded if the session accepts its number, else say why not."""
    if not _is_to_be_recorded(judgement, gate_input, options):
        return judgement
    problem, remedy = _why_refused(judgement, gate_input, options)
    if problem is not None:
        refusal = "; ".join(filter(None, (f"not accepted: {problem}", remedy)))
        reason = f"{judgement.reason}; {refusal}" if judgement.reason else refusal
        return replace(judgement, reason=reason, refused=problem, remedy=remedy)
    notes = (*judgement.notes, *_note_of_groups(gate_input.runs))
    if judgement.verdict is Verdict.NO_BASELINE:
        # The reason why nothing could be compared stays as a note.
        notes = (*notes, *filter(None, [judgement.reason]))
        judgement = replace(judgement, verdict=Verdict.PASS, reason=None)
    return replace(judgement, notes=notes, recorded=True)


def withdraw(judgement: Judgement) -> Judgement:
    """Undo the acceptance of a number that could not be recorded."""
    if not judgement.recorded:
        return judgement
    # Without a baseline it passed only because it was to become one.
    is_first = judgement.verdict is Verdict.PASS and judgement.accepted is None
    return replace(
        judgement,
        verdict=Verdict.NO_BASELINE if is_first else judgement.verdict,
        reason=judgement.reason or "its number could not be recorded",
        recorded=False,
    )


def _is_to_be_recorded(judgement: Judgement, gate_input: GateInput, options: GateOptions) -> bool:
    """Whether the session's options ask for recording this number.

    A number of another unit, direction or estimator never replaces the accepted one, which has to
    be deleted first. A number of another machine does.
    """
    metric, baseline = gate_input.metric, gate_input.baseline
    if judgement.verdict is Verdict.NO_BASELINE:
        # A ratio needs a baseline of the metric that it is taken of, too.
        if baseline is None or gate_input.base.name not in gate_input.case.baselines:
            return options.creates or options.updates
        new = metric.unit, metric.better, gate_input.case.measurement.estimator
        return options.updates and new == (baseline.unit, baseline.better, baseline.estimator)
    if judgement.verdict is Verdict.INCONCLUSIVE:
        return options.updates and times_as_good(judgement.measured, baseline) >= UNLIKELY_GAIN
    return options.updates and judgement.verdict in (*_WORSE, Verdict.IMPROVED)


def times_as_good(measured: float | None, baseline: Baseline | None) -> float:
    """Return how many times as good as accepted a number is; 0 where that is not known."""
    if baseline is None or not measured:
        return 0.0
    ratio = measured / baseline.accepted
    return ratio if baseline.better is Better.HIGHER else 1 / ratio


def _why_refused(
    judgement: Judgement, gate_input: GateInput, options: GateOptions
) -> tuple[str | None, str | None]:
    """Return why a number is not accepted, and what it takes, as far as there is something."""
    baseline, runs = gate_input.baseline, gate_input.runs
    problem = why_too_scattered(runs, tolerance_percent=gate_input.tolerance_percent)
    if problem is not None:
        return problem, remedy_for_scatter(gate_input.metric, runs)
    over, base = gate_input.reference, gate_input.base
    known = over.baselines.get(base.name) if over is not None else None
    if over is not None and known is not None:
        terms = replace(gate_input.terms, repeats=None, has_control=False)
        verdict = (
            Rule(base, known, terms).decide(over.measurement.samples(base.name).values).verdict
        )
        if verdict in (Verdict.REGRESSED, Verdict.INCONCLUSIVE):
            return f"its reference is {verdict.value}", None
    if options.reason is not None:
        return None, None
    if any(run.paused for run in gate_input.case.measurement.runs):
        return "most of a run's time is one pause, which needs --dlperf-reason 'TEXT'", None
    if gate_input.contradiction is not None:
        remedy = "declare what the number is ('covers', 'rate_scope', its group), or another"
        return gate_input.contradiction, remedy
    is_worse = judgement.verdict in _WORSE
    if baseline is not None and judgement.measured is not None:
        is_worse |= baseline.better.is_worse(judgement.measured, baseline.accepted)
    return "a worse number needs --dlperf-reason 'TEXT'" if is_worse else None, None


def why_too_scattered(runs: Sequence[float], *, tolerance_percent: float) -> str | None:
    """Return why runs scatter too much for a baseline; ``None`` if they do not."""
    if len(runs) < _MIN_RUNS_FOR_DEVIATION:
        apart = difference_percent(max(runs), min(runs)) if runs else 0.0
        is_far = apart > tolerance_percent
        return f"its {len(runs)} runs lie {numbers.percent(apart)} apart" if is_far else None
    deviation = noise(runs)
    if 100 * deviation > tolerance_percent:
        return (
            f"its runs differ by {numbers.variation(deviation)}, which is more than the tolerance "
            f"of {tolerance_percent:g} %"
        )
    middle = median(runs)
    radius = middle * max(OUTLIER_RADIUS_NOISE * deviation, tolerance_percent / 100)
    far = sum(abs(run - middle) > radius for run in runs)
    is_far = 3 * far > len(runs)
    return f"{far} of its {len(runs)} runs lie far from the others" if is_far else None


def _note_of_groups(runs: Sequence[float]) -> tuple[str, ...]:
    """Note that runs to accept lie in two groups."""
    ordered = sorted(runs)
    gaps = [after - before for before, after in pairwise(ordered)] or [0.0]
    split = gaps.index(max(gaps)) + 1
    low, high = ordered[:split], ordered[split:]
    if min(len(low), len(high)) < _MIN_RUNS_OF_GROUP:
        return ()
    widest = max(low[-1] - low[0], high[-1] - high[0], _MIN_GAP * high[0] / _MIN_GAP_IN_RANGES)
    if max(gaps) <= _MIN_GAP_IN_RANGES * widest:
        return ()
    apart = numbers.percent(100 * (1 - mean(low) / mean(high)))
    note = (
        f"runs of this case lie in two groups {apart} apart; see which, and what they share: host, "
        "clocks, NUMA binding"
    )
    return (note,)


def needed_tolerance(runs: Sequence[float], better: Better) -> float | None:
    """Return the tolerance that runs with this scatter need, as a part; ``None`` with too few.

    With it, the median of as many runs is a false alarm in one session of 200 at most. The scatter
    is that of logarithms, since times near zero are skewed.
    """
    if len(runs) < _MIN_RUNS_FOR_DEVIATION:
        return None
    deviation = sample_standard_deviation([math.log(run) for run in runs])
    error = deviation * math.sqrt(2 * median_variance(len(runs)))
    most = t_quantile(_SURE_DEVIATIONS, len(runs) - 1) * error
    return math.expm1(most) if better is Better.LOWER else -math.expm1(-most)


def remedy_for_scatter(metric: Metric, runs: Sequence[float]) -> str:
    """Say what it takes to accept runs that scatter too much."""
    remedy = "measure when the machines are quiet, or set a wider tolerance in the system file"
    needed = needed_tolerance(runs, metric.better) if metric.better is not None else None
    if not needed:
        return remedy
    if metric.better is Better.LOWER and metric.source is not Source.RATIO:
        amount = f"{_rounded_up(needed * median(runs)):g} {metric.unit}".rstrip()
        return f"{remedy}, such as 'tolerance_at_least: {amount}'"
    return f"{remedy}, such as 'tolerance_percent: {_rounded_up(100 * needed):g}'"


def _rounded_up(value: float) -> float:
    """Round to the next number of two digits."""
    digit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / digit) * digit
