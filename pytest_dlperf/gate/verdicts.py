"""From measurements to a verdict: decide, confirm, accept.

Each step takes frozen values and returns a judgement; none changes one. ``run_gate`` does all
three. Whether a failure was expected is known only when the test has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.accepting import UNLIKELY_GAIN, GateOptions, accept, times_as_good
from pytest_dlperf.gate.control import confirm
from pytest_dlperf.gate.inputs import GateInput
from pytest_dlperf.gate.ratio import decide_ratio
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.judgement import Decision, Judgement, Verdict
from pytest_dlperf.model.measurement import InterleavedRuns, Measurement, RunStatus
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import parse_time

_MIN_DAYS_OF_GAP: Final = 14
"""Hosts that change by 0.2 % a session at random are 0.7 % off after so many."""
_SHOWN: Final = 8


class GateResult(Struct, frozen=True, kw_only=True):
    """A judgement, with its input and the runs of a control arm."""

    input: GateInput
    judgement: Judgement
    control: InterleavedRuns | None = None


def run_gate(
    gate_input: GateInput,
    options: GateOptions,
    run_control: Callable[[Measurement], InterleavedRuns | str],
) -> GateResult:
    """Decide, let the control arm confirm a regression, and accept.

    ``run_control`` runs the tested and the accepted software, interleaved, or says why it cannot.
    """
    judgement, control = decide(gate_input), None
    if gate_input.terms.has_control and judgement.verdict is Verdict.REGRESSED:
        runs = run_control(gate_input.case.measurement)
        control = None if isinstance(runs, str) else runs
        judgement = confirm(
            judgement,
            runs,
            gate_input.case.baselines.get(gate_input.base.name),
            min_loss_percent=gate_input.terms.min_loss_of(gate_input.metric, gate_input.baseline),
            without_control=decide(gate_input.without_control),
        )
    judgement = accept(judgement, gate_input, options)
    return GateResult(input=gate_input, judgement=judgement, control=control)


def decide(gate_input: GateInput) -> Judgement:
    """Compare a measurement with its baseline, by the metric's rule.

    One broken run decides the verdict; for a ratio, also one of the reference. A metric without
    direction has no baseline: sound runs pass.
    """
    metric, baseline = gate_input.metric, gate_input.baseline
    for end in gate_input.ends:
        unsound = _judge_unsound_runs(end.measurement, gate_input.base, metric)
        if unsound is not None:
            return unsound
    measured = gate_input.measured
    if metric.better is None:
        notes = ("checked in each run; without a direction there is no baseline",)
        return Judgement(metric=metric, verdict=Verdict.PASS, measured=measured, notes=notes)
    problem = gate_input.why_incomparable if baseline is not None else None
    if baseline is None or problem is not None or measured is None:
        verdict = Verdict.NO_BASELINE
        return Judgement(metric=metric, verdict=verdict, measured=measured, reason=problem)
    rule, ends = gate_input.rule, tuple[str, ...]()
    if rule is not None:
        decision = _plausible(rule.decide(gate_input.runs), measured, baseline, metric)
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
        notes=(*decision.notes, *_notes_of_gap(decision, gate_input)),
    )


def _notes_of_gap(decision: Decision, gate_input: GateInput) -> tuple[str, ...]:
    """Note that hosts may have changed while nothing was accepted."""
    last_at = gate_input.baseline and gate_input.baseline.last_at
    if decision.verdict is not Verdict.REGRESSED or gate_input.now is None or not last_at:
        return ()
    days = (gate_input.now - parse_time(last_at)).days
    if days < _MIN_DAYS_OF_GAP:
        return ()
    note = (
        f"the last accepted session is {days} days old: hosts may have changed little by little "
        "since, which a control arm tells from slower software"
    )
    return (note,)


def _plausible(decision: Decision, measured: float, baseline: Baseline, metric: Metric) -> Decision:
    """Leave a gain open that is too large to be one: a program may print another unit since."""
    times = times_as_good(measured, baseline)
    is_gain = decision.verdict is Verdict.IMPROVED and metric.tolerance_at_least is None
    if not is_gain or times < UNLIKELY_GAIN:
        return decision
    reason = (
        f"{numbers.quantity(measured, metric.unit)} is {times:.4g} times as good as accepted: has "
        "the program begun to print another unit? --dlperf-update-baselines accepts a real gain"
    )
    return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=reason)


def _judge_unsound_runs(measurement: Measurement, base: Metric, metric: Metric) -> Judgement | None:
    """Judge by the worst broken run; ``None`` if all runs are sound.

    A sound run that lacks the metric makes this metric invalid, and no other.
    """
    case_id, verdict = measurement.case_id, Verdict.INVALID
    broken = {run.status: run for run in reversed(measurement.broken_runs)}
    worst = next(filter(None, map(broken.get, RunStatus)), None)
    if worst is not None:
        verdict = Verdict(worst.status.value)
        reason = f"{case_id}, run {worst.run}: {worst.reason}"
    elif (run := measurement.missing(base.name)) is not None:
        of_family = run.missing.get(base.family or "", "the log does not have it")
        why = run.missing.get(base.name, of_family)
        reason = f"{case_id}, run {run.run} has no {base.name}: {why}"
    elif not (values := measurement.samples(base.name).values):
        reason = f"{case_id} has no run"
    elif base.better is not None and min(values) <= 0:
        least = numbers.quantity(min(values), base.unit)
        reason = (
            f"{case_id} has a {base.name} of {least}: a loss is a part of a number, so judged "
            "numbers have to be above 0"
        )
    else:
        return None
    return Judgement(metric=metric, verdict=verdict, reason=reason)


# ------------------------------------------------------------------------------- families


def worst_first(results: Sequence[GateResult], *, strict: bool) -> list[GateResult]:
    """Sort the results of a family's members, and have the worst name all that fail."""
    found = sorted(results, key=lambda result: badness(result.judgement))
    failing = [one.judgement for one in found if one.judgement.fails(strict=strict)]
    if len(found) > 1 and failing:
        shown = numbers.named([*map(_described, failing)], _SHOWN)
        note = f"{len(failing)} of {len(found)} of {failing[0].metric.family} fail: {shown}"
        worst = found[0].judgement
        found[0] = replace(found[0], judgement=replace(worst, notes=(note, *worst.notes)))
    return found


def badness(judgement: Judgement) -> tuple[bool, int, float]:
    """Sort key, the worst first."""
    loss = judgement.loss_percent or 0.0
    return judgement.passes(strict=True), judgement.verdict.rank, -loss


def _described(judgement: Judgement) -> str:
    metric, decision = judgement.metric, judgement.decision
    name = metric.member_name or metric.name
    far = f" {numbers.signed_percent(decision.difference_percent)}" if decision else ""
    return f"{name} ({judgement.verdict.value}{far})"
