"""From measurements to a verdict: decide, confirm, accept.

Each step takes frozen values and returns a judgement; none changes one. ``run_gate`` does the
first three. Whether a failure was expected is known only when the test has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.accepting import GateOptions, accept, is_unlikely_gain
from pytest_dlperf.gate.control import ControlRuns, confirm
from pytest_dlperf.gate.inputs import GateInput
from pytest_dlperf.gate.ratio import decide_ratio
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.judgement import Decision, Judgement, Verdict
from pytest_dlperf.model.measurement import Measurement, RunStatus
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import parse_time

_MIN_DAYS_OF_GAP: Final = 14
"""Hosts that change by 0.2 % a night at random are 0.7 % off after so many."""


class GateResult(Struct, frozen=True, kw_only=True):
    """A judgement, with its input and the runs of a control arm."""

    input: GateInput
    judgement: Judgement
    control: ControlRuns | None = None


def run_gate(
    gate_input: GateInput, options: GateOptions, run_control: Callable[[GateInput], ControlRuns]
) -> GateResult:
    """Decide, let the control arm confirm a regression, and accept.

    ``run_control`` runs the tested and the accepted software, interleaved.
    """
    judgement, control = decide(gate_input), None
    if gate_input.terms.has_control and judgement.verdict is Verdict.REGRESSED:
        control = run_control(gate_input)
        judgement = confirm(
            judgement,
            control,
            gate_input.case.baselines.get(gate_input.base.name),
            min_loss_percent=gate_input.min_loss_percent,
            without_control=decide(gate_input.without_control),
        )
    of_reference = gate_input.of_reference
    reference = None
    if of_reference is not None and (options.creates or options.updates):
        reference = decide(of_reference).verdict
    judgement = accept(judgement, gate_input, options, reference=reference)
    return GateResult(input=gate_input, judgement=judgement, control=control)


def decide(gate_input: GateInput) -> Judgement:
    """Compare a measurement with its baseline, by the metric's rule.

    One broken run decides the verdict; for a ratio, also one of the reference. A metric without
    direction has no baseline: sound runs pass.
    """
    metric, base, baseline = gate_input.metric, gate_input.base, gate_input.baseline
    for end in gate_input.ends:
        unsound = _judge_unsound_runs(end.measurement, base, metric)
        if unsound is not None:
            return unsound
    measured = gate_input.measured
    if metric.better is None:
        notes = ("checked in each run; without a direction there is no baseline",)
        return Judgement(metric=metric, verdict=Verdict.PASS, measured=measured, notes=notes)
    compared = [(gate_input.case, metric), *((end, base) for end in gate_input.ends)]
    problem = next(filter(None, (end.why_incomparable(about) for end, about in compared)), None)
    if problem is None and baseline is not None and gate_input.reference is not None:
        problem = baseline.why_other_ratio(gate_input.reference.measurement.case_id)
    if problem is None and baseline is not None and base.name not in gate_input.case.baselines:
        problem = f"{baseline.place} has no {base.name}, by which its {metric.name} is judged"
    if baseline is None or problem is not None or measured is None:
        return Judgement(
            metric=metric,
            verdict=Verdict.NO_BASELINE,
            measured=measured,
            reason=problem if baseline is not None else None,
        )
    rule, ends = gate_input.rule, tuple[str, ...]()
    if rule is not None:
        values = gate_input.case.measurement.samples(metric.name).values
        decision = plausible(rule.decide(values), measured, baseline, metric)
    else:
        decision, ends = decide_ratio(gate_input, measured, baseline)
    return Judgement(
        metric=metric,
        verdict=decision.verdict,
        measured=measured,
        accepted=baseline.accepted,
        decision=decision,
        reason=decision.reason,
        ends=ends,
        notes=(
            *decision.notes,
            *gate_input.terms.notes(metric, baseline),
            *_notes_of_gap(decision, baseline, gate_input.now),
            *baseline.notes(gate_input.case.measurement),
        ),
    )


def _notes_of_gap(decision: Decision, baseline: Baseline, now: datetime | None) -> tuple[str, ...]:
    """Note that hosts may have changed while nothing was accepted."""
    if decision.verdict is not Verdict.REGRESSED or now is None or baseline.last_at is None:
        return ()
    days = (now - parse_time(baseline.last_at)).days
    if days < _MIN_DAYS_OF_GAP:
        return ()
    note = (
        f"the last accepted session is {days} days old: hosts may have changed little by little "
        "since, which a control arm tells from slower software"
    )
    return (note,)


def plausible(decision: Decision, measured: float, baseline: Baseline, metric: Metric) -> Decision:
    """Leave a gain open that is too large to be one: a program may print another unit since.

    A loss stands, whatever it is of.
    """
    accepted = baseline.accepted
    is_gain = decision.verdict is Verdict.IMPROVED and metric.tolerance_at_least is None
    if not is_gain or not is_unlikely_gain(measured, accepted, metric):
        return decision
    times = max(measured / accepted, accepted / measured)
    reason = (
        f"{numbers.quantity(measured, metric.unit)} is {times:.4g} times as good as accepted: has "
        "the program begun to print another unit? --dlperf-update-baselines accepts a real gain"
    )
    return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=reason)


def _judge_unsound_runs(measurement: Measurement, base: Metric, metric: Metric) -> Judgement | None:
    """Judge by the worst broken run; ``None`` if all runs are sound.

    A sound run that lacks the metric makes this metric invalid, and no other.
    """
    broken = {run.status: run for run in reversed(measurement.broken_runs)}
    for status in (RunStatus.FAILED, RunStatus.HUNG, RunStatus.INVALID):
        if status in broken:
            run = broken[status]
            reason = f"{measurement.case_id}, run {run.run}: {run.reason}"
            return Judgement(metric=metric, verdict=Verdict(status.value), reason=reason)
    problem = _why_not_measured(measurement, base)
    if problem is None:
        return None
    reason = f"{measurement.case_id}{problem}"
    return Judgement(metric=metric, verdict=Verdict.INVALID, reason=reason)


def _why_not_measured(measurement: Measurement, metric: Metric) -> str | None:
    run = measurement.missing(metric.name)
    if run is not None:
        of_family = run.missing.get(metric.family or "", "the log does not have it")
        why = run.missing.get(metric.name, of_family)
        return f", run {run.run} has no {metric.name}: {why}"
    values = measurement.samples(metric.name).values
    if not values:
        return " has no run"
    if metric.better is None or min(values) > 0:
        return None
    least = numbers.quantity(min(values), metric.unit)
    return (
        f" has a {metric.name} of {least}: a loss is a part of a number, so judged "
        "numbers have to be above 0"
    )
