"""From measurements to a verdict: decide, confirm, accept, excuse.

Each step takes frozen values and returns a judgement; none changes one. ``run_gate`` does the
first three. Whether a failure was expected is known only when the test has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.control import confirm
from pytest_dlperf.gate.ratio import AcceptedRatio, RatioEnd, compare_ratios
from pytest_dlperf.gate.rules import last_decision, rule_for, why_unusable
from pytest_dlperf.gate.scatter import (
    is_unlikely_gain,
    notes_of_accepted,
    plausible,
    remedy_for_scatter,
    why_noisier,
    why_too_scattered,
)
from pytest_dlperf.gate.sequential import MIN_LOSS_PERCENT
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Decision, Judgement, Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.model.results import parse_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from pytest_dlperf.gate.control import ControlRuns
    from pytest_dlperf.gate.rules import Terms
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.metric import Metric

_WORSE: Final = (Verdict.REGRESSED, Verdict.ENVIRONMENT_SHIFT)
"""Verdicts on a sound number that is worse than its reference."""

_MIN_DAYS_OF_GAP: Final = 14
"""Hosts that change by 0.2 % a night at random are 0.7 % off after so many."""


class MeasuredCase(Struct, frozen=True):
    """A measurement, and the baselines of its case by metric."""

    measurement: Measurement
    baselines: Mapping[str, Baseline]

    def why_incomparable(self, metric: Metric) -> str | None:
        """Return why a metric and its baseline cannot be compared; ``None`` if they can."""
        baseline = self.baselines.get(metric.name)
        if baseline is None:
            return None
        return baseline.why_incomparable(metric, self.measurement) or why_unusable(baseline)


class GateInput(Struct, frozen=True):
    """What is to be judged: a metric of a case, its terms, and the reference of a ratio."""

    metric: Metric
    case: MeasuredCase
    terms: Terms
    reference: MeasuredCase | None = None
    base_terms: Terms | None = None
    """Terms of the metric that a ratio is taken of."""
    now: datetime | None = None
    """When it is judged; ``None`` where that is not when it was measured."""
    contradiction: str | None = None
    """What else the log says of the steps' time, where that is not what is taken of it."""

    @property
    def base(self) -> Metric:
        """The metric of single runs: the one that a ratio is taken of, else the metric itself."""
        over = self.metric.ratio_of
        return self.metric if over is None else self.case.measurement.metric(over)

    @property
    def measured(self) -> float | None:
        """The median, or the ratio of two; ``None`` without a run."""
        own = self.case.measurement
        if self.reference is None:
            return own.samples(self.metric.name).median
        return own.ratio(self.metric, self.reference.measurement)

    @property
    def baseline(self) -> Baseline | None:
        """The metric's baseline."""
        return self.case.baselines.get(self.metric.name)

    @property
    def tolerance_percent(self) -> float:
        """The metric's tolerance in percent."""
        return self.terms.tolerance_of(self.baseline, level=self.measured)

    @property
    def min_loss_percent(self) -> float:
        """The smallest loss that counts where a control arm or the sequential rule decides."""
        return self.terms.min_loss_of(self.metric, self.baseline)

    @property
    def ends(self) -> tuple[MeasuredCase, ...]:
        """The case, then the reference of a ratio."""
        return (self.case,) if self.reference is None else (self.case, self.reference)

    @property
    def without_control(self) -> GateInput:
        """The same for a gate without control arm, where a smaller loss may be the night's."""
        return replace(self, terms=replace(self.terms, min_loss_percent=MIN_LOSS_PERCENT))

    @property
    def of_reference(self) -> GateInput | None:
        """The input that judges a ratio's reference by itself."""
        if self.reference is None:
            return None
        # By the rule that its own baseline allows, even if the user forces another.
        terms = replace(self.base_terms or self.terms, forced=None, repeats=None)
        return GateInput(self.base, self.reference, terms).without_control


class GateOptions(Struct, frozen=True, kw_only=True):
    """What a session does after a verdict, for all cases alike."""

    has_control: bool = False
    """Whether the control arm runs after a regression."""
    creates: bool = False
    """Whether a number is recorded where there is none (``--dlperf-create-baselines``)."""
    updates: bool = False
    """Whether a number is recorded that is missing or outside its tolerance
    (``--dlperf-update-baselines``)."""
    reason: str | None = None
    """Why a worse number is accepted (``--dlperf-reason``)."""


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
    if not options.has_control:
        gate_input = gate_input.without_control
    judgement, control = decide(gate_input), None
    if options.has_control and judgement.verdict is Verdict.REGRESSED:
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
    """Compare a measurement with its baseline, by the rule that the baseline allows.

    One broken run decides the verdict; for a ratio, also one of the reference. A metric without
    direction has no baseline: sound runs pass.
    """
    metric, base, baseline = gate_input.metric, gate_input.base, gate_input.baseline
    terms = gate_input.terms
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
    ends: tuple[str, ...] = ()
    if gate_input.reference is None:
        samples = gate_input.case.measurement.samples(metric.name)
        available = gate_input.case.measurement.available_runs
        rule = rule_for(metric, baseline, terms, available=available)
        decision = plausible(last_decision(rule, samples.values), measured, baseline, metric)
    else:
        decision, ends = _decide_ratio(gate_input, gate_input.reference, measured, baseline)
    is_green = decision.verdict.passes
    return Judgement(
        metric=metric,
        verdict=decision.verdict,
        measured=measured,
        accepted=baseline.accepted,
        decision=decision,
        reason=decision.reason,
        ends=ends,
        standing_notes=decision.standing_notes if is_green else (),
        notes=(
            *(() if is_green else decision.standing_notes),
            *decision.notes,
            *terms.notes(metric, baseline),
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


def _decide_ratio(
    gate_input: GateInput, reference: MeasuredCase, measured: float, baseline: Baseline
) -> tuple[Decision, tuple[str, ...]]:
    """Decide about a ratio, and describe both ends."""
    base = gate_input.base
    # A reference without baseline has the number that the accepted ratio implies.
    implied = gate_input.case.baselines[base.name].accepted / baseline.accepted
    case, over = (
        RatioEnd.of(
            end.measurement,
            end.measurement.samples(base.name),
            end.baselines.get(base.name),
            gate_input.base_terms or gate_input.terms,
            implied=implied,
        )
        for end in (gate_input.case, reference)
    )
    accepted = AcceptedRatio(
        baseline=baseline,
        tolerance_percent=gate_input.tolerance_percent,
        min_loss_percent=gate_input.min_loss_percent,
    )
    return compare_ratios(case, over, measured, accepted), (case.describe(), over.describe())


def accept(
    judgement: Judgement, gate_input: GateInput, options: GateOptions, *, reference: Verdict | None
) -> Judgement:
    """Mark the judgement as recorded if the session accepts its number, else say why not.

    ``reference`` is the verdict on a ratio's reference.
    """
    if not _is_to_be_recorded(judgement, gate_input, options):
        return judgement
    tolerance_percent = gate_input.tolerance_percent
    runs = gate_input.case.measurement.samples(gate_input.base.name).values
    problem = why_too_scattered(runs, tolerance_percent=tolerance_percent)
    remedy = remedy_for_scatter(gate_input.metric, runs) if problem is not None else None
    if reference in (*_WORSE, Verdict.INCONCLUSIVE):
        problem, remedy = f"its reference is {reference.value}", None
    if problem is None and options.reason is None:
        if any(run.paused for run in gate_input.case.measurement.runs):
            problem = "most of a run's time is one pause, which needs --dlperf-reason 'TEXT'"
        elif gate_input.contradiction is not None:
            problem = gate_input.contradiction
            remedy = "declare what the number is ('covers', 'rate_scope', its group), or another"
        elif _worsens(judgement, gate_input.baseline):
            problem = "a worse number needs --dlperf-reason 'TEXT'"
    if problem is None:
        of_runs = notes_of_accepted(gate_input.metric, runs, tolerance_percent=tolerance_percent)
        judgement = replace(judgement, notes=(*judgement.notes, *of_runs))
    if problem is not None:
        refusal = "; ".join(filter(None, (f"not accepted: {problem}", remedy)))
        reason = f"{judgement.reason}; {refusal}" if judgement.reason else refusal
        return replace(judgement, reason=reason, refused=problem, remedy=remedy)
    if judgement.verdict is Verdict.NO_BASELINE:
        # The reason why nothing could be compared stays as a note.
        notes = (*judgement.notes, *filter(None, [judgement.reason]))
        return replace(judgement, verdict=Verdict.PASS, reason=None, notes=notes, recorded=True)
    return replace(judgement, recorded=True)


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


def excuse(judgement: Judgement) -> Judgement:
    """Excuse a judgement that fails a test which was expected to fail (``xfail``)."""
    return replace(judgement, excused=judgement.fails(strict=False))


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


def _is_to_be_recorded(judgement: Judgement, gate_input: GateInput, options: GateOptions) -> bool:
    """Whether the session's options ask for recording this number.

    A number of another unit, direction or estimator never replaces the accepted one, which has to
    be deleted first. A number of another machine does.
    """
    if judgement.verdict is not Verdict.NO_BASELINE:
        return options.updates and is_outside_tolerance(judgement, gate_input.tolerance_percent)
    metric, baseline = gate_input.metric, gate_input.baseline
    # A ratio needs a baseline of the metric that it is taken of, too.
    if baseline is None or gate_input.base.name not in gate_input.case.baselines:
        return options.creates or options.updates
    new = metric.unit, metric.better, gate_input.case.measurement.estimator
    return options.updates and new == (baseline.unit, baseline.better, baseline.estimator)


def is_outside_tolerance(judgement: Judgement, tolerance_percent: float) -> bool:
    """Whether a sound number lies outside the tolerance.

    A number that is better than the last sessions, but not than the number accepted before them, is
    inside: accepting it again and again would carry the accepted number anywhere.
    """
    if judgement.verdict in _WORSE:
        return True
    measured, accepted, better = judgement.measured, judgement.accepted, judgement.metric.better
    if not (measured and accepted and better):
        return False
    if judgement.verdict is not Verdict.IMPROVED:
        is_open = judgement.verdict is Verdict.INCONCLUSIVE
        return is_open and is_unlikely_gain(measured, accepted, judgement.metric)
    decision = judgement.decision
    allowed = max(tolerance_percent, decision.tolerance_percent if decision else 0.0)
    return better.is_worse(better.changed(accepted, allowed / 100), measured)


def why_not_added(judgement: Judgement, gate_input: GateInput) -> str | None:
    """Return why the runs of a night that passes do not join the baseline; ``None`` if they do."""
    baseline = gate_input.baseline
    if baseline is None:
        return "it has no baseline"
    tolerance = gate_input.tolerance_percent
    if judgement.verdict is Verdict.IMPROVED and is_outside_tolerance(judgement, tolerance):
        return "it has improved: accept the number with --dlperf-update-baselines first"
    usual = replace(gate_input, terms=replace(gate_input.terms, forced=None, repeats=None))
    if decide(usual).verdict is Verdict.REGRESSED:
        return "it is worse by the rule that its baseline allows"
    runs = gate_input.case.measurement.samples(gate_input.metric.name).values
    # The larger of what the case allows and what the rule allowed tonight.
    decision = judgement.decision
    allowed = max(tolerance, decision.tolerance_percent if decision else 0.0)
    scattered = why_too_scattered(runs, tolerance_percent=allowed)
    return scattered or why_noisier(runs, baseline.rolling)


def _worsens(judgement: Judgement, baseline: Baseline | None) -> bool:
    """Whether tonight is worse than the accepted number or the last sessions."""
    if judgement.verdict in _WORSE:
        return True
    if baseline is None or judgement.measured is None:
        return False
    return baseline.better.is_worse(judgement.measured, baseline.accepted)
