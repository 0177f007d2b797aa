"""From measurements to a verdict: decide, confirm, accept, excuse.

Each step takes frozen values and returns a judgement; none changes one. ``settle`` takes a
question through the first three. To be excused waits for the end of the test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate import wording
from pytest_dlperf.gate.control import confirm
from pytest_dlperf.gate.noise import OUTLIER_RADIUS_NOISE, noise
from pytest_dlperf.gate.ratio import AcceptedRatio, RatioEnd, compare_ratios
from pytest_dlperf.gate.rules import last_decision, rule_for, why_unusable
from pytest_dlperf.gate.sequential import MIN_LOSS_PERCENT
from pytest_dlperf.gate.tolerance import median_error
from pytest_dlperf.model.judgement import Decision, Judgement, Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.model.metric import Better
from pytest_dlperf.model.statistics import median

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_dlperf.gate.control import ControlRuns
    from pytest_dlperf.gate.rules import Terms
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.metric import Metric

_WORSE: Final = (Verdict.REGRESSED, Verdict.ENVIRONMENT_SHIFT)
"""Verdicts on a number that was measured soundly, and is worse than what it was held against."""

_ALL_PERCENT: Final = 100.0
"""Where less is worse nobody loses more: a loss of so much is none that could be found."""

_QUIETER: Final = (
    "measure when the machines are quiet, or say under 'tolerance_percent' in the system file what "
    "is usual here"
)
_MIN_RUNS_TO_TELL: Final = 3
"""Fewer runs do not say how far runs usually lie apart."""


@dataclass(frozen=True, slots=True)
class End:
    """A measurement, and what is accepted of its case, by metric."""

    measurement: Measurement
    baselines: Mapping[str, Baseline]

    def why_incomparable(self, metric: Metric) -> str | None:
        """Say why a metric cannot be held against its baseline, if there is one."""
        baseline = self.baselines.get(metric.name)
        if baseline is None:
            return None
        return baseline.why_incomparable(metric, self.measurement) or why_unusable(baseline)


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be judged: a metric of a case, by which terms; a ratio over which reference."""

    metric: Metric
    case: End
    terms: Terms
    reference: End | None = None
    base_terms: Terms | None = None
    """Those of what a ratio is taken of."""

    @property
    def base(self) -> Metric:
        """The metric of single runs that it rests on: what a ratio is taken of, or itself."""
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
        """What is accepted of the metric."""
        return self.case.baselines.get(self.metric.name)

    @property
    def tolerance_percent(self) -> float:
        """What the metric tolerates."""
        return self.terms.tolerance_of(self.baseline)

    @property
    def min_loss_percent(self) -> float:
        """The smallest loss that counts where a control arm or the sequential rule decides."""
        return self.terms.min_loss_of(self.metric, self.baseline)

    @property
    def ends(self) -> tuple[End, ...]:
        """The case, then the reference of a ratio."""
        return (self.case,) if self.reference is None else (self.case, self.reference)

    @property
    def alone(self) -> Question:
        """The same where no control arm follows: then what a night may lose is no loss."""
        return replace(self, terms=replace(self.terms, min_loss_percent=MIN_LOSS_PERCENT))

    @property
    def about_reference(self) -> Question | None:
        """What to ask about the reference of a ratio: is it what it used to be?"""
        if self.reference is None:
            return None
        # By the rule that its baseline allows, whichever the user forces.
        terms = replace(self.base_terms or self.terms, forced=None, repeats=None)
        return Question(self.base, self.reference, terms).alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a session is asked to do with its verdicts, whichever the case."""

    control_after: frozenset[Verdict] = frozenset()
    """The verdicts after which the accepted software is run beside what was judged."""
    creates: bool = False
    """Whether a number is recorded where there is none."""
    updates: bool = False
    """Whether a number is recorded that is missing, or lies outside its tolerance."""
    reason: str | None = None
    """Why a worse number is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """A judgement, and what its numbers rest on."""

    question: Question
    judgement: Judgement
    control: ControlRuns | None = None


def settle(
    question: Question, asked: Asked, run_control: Callable[[Question], ControlRuns]
) -> Settled:
    """Decide, have the control arm confirm where that is asked for, and accept.

    ``run_control`` runs what is tested and the accepted software, interleaved.
    """
    if Verdict.REGRESSED not in asked.control_after:
        question = question.alone
    judgement, control = decide(question), None
    if judgement.verdict in asked.control_after and judgement.decision is not None:
        control = run_control(question)
        judgement = confirm(
            judgement,
            control,
            [end.baselines.get(question.base.name) for end in question.ends],
            min_loss_percent=question.min_loss_percent,
            alone=decide(question.alone),
        )
    about = question.about_reference
    reference = decide(about).verdict if about and (asked.creates or asked.updates) else None
    judgement = accept(judgement, question, asked, reference=reference)
    return Settled(question=question, judgement=judgement, control=control)


def decide(question: Question) -> Judgement:
    """Hold what was measured against what is accepted, by the rule that the baseline allows.

    One broken run is enough for the verdict of a case; for a ratio, on either end. What has no
    direction is held against nothing: sound runs pass.
    """
    metric, base, baseline = question.metric, question.base, question.baseline
    for end in question.ends:
        unsound = _judge_unsound_runs(end.measurement, base, metric)
        if unsound is not None:
            return unsound
    measured = question.measured
    if metric.better is None:
        notes = ("checked in each run, and held against nothing",)
        return Judgement(metric=metric, verdict=Verdict.PASS, measured=measured, notes=notes)
    compared = [(question.case, metric), *((end, base) for end in question.ends)]
    problem = next(filter(None, (end.why_incomparable(about) for end, about in compared)), None)
    if problem is None and baseline is not None and question.reference is not None:
        problem = baseline.why_other_ratio(question.reference.measurement.case_id)
    if problem is None and baseline is not None and base.name not in question.case.baselines:
        problem = f"{baseline.place} has no {base.name}, by which its {metric.name} is judged"
    if baseline is None or problem is not None or measured is None:
        return Judgement(
            metric=metric,
            verdict=Verdict.NO_BASELINE,
            measured=measured,
            reason=problem if baseline is not None else None,
        )
    ends: tuple[str, ...] = ()
    if question.reference is None:
        samples = question.case.measurement.samples(metric.name)
        available = question.case.measurement.available_runs
        rule = rule_for(metric, baseline, question.terms, available=available)
        decision = last_decision(rule, samples.values)
    else:
        decision, ends = _decide_ratio(question, question.reference, measured, baseline)
    return Judgement(
        metric=metric,
        verdict=decision.verdict,
        measured=measured,
        accepted=baseline.accepted,
        decision=decision,
        reason=decision.reason,
        ends=ends,
        notes=(*decision.notes, *baseline.notes(question.case.measurement)),
    )


def _decide_ratio(
    question: Question, reference: End, measured: float, baseline: Baseline
) -> tuple[Decision, tuple[str, ...]]:
    """Decide about a ratio, and tell the numbers of both ends."""
    base = question.base
    # Without a baseline of its own, the reference has the one that the accepted ratio implies.
    implied = question.case.baselines[base.name].accepted / baseline.accepted
    case, over = (
        RatioEnd.of(
            end.measurement,
            end.measurement.samples(base.name),
            end.baselines.get(base.name),
            question.base_terms or question.terms,
            implied=implied,
        )
        for end in (question.case, reference)
    )
    held = AcceptedRatio(
        baseline=baseline,
        tolerance_percent=question.tolerance_percent,
        min_loss_percent=question.min_loss_percent,
    )
    return compare_ratios(case, over, measured, held), (case.describe(), over.describe())


def accept(
    judgement: Judgement, question: Question, asked: Asked, *, reference: Verdict | None
) -> Judgement:
    """Mark the judgement as recorded if the session accepts its number, else say why not.

    ``reference`` is the verdict on what a ratio is over.
    """
    if not _is_asked_for(judgement, question, asked):
        return judgement
    tolerance_percent = question.tolerance_percent
    runs = question.case.measurement.samples(question.base.name).values
    problem = scatter = scatter_problem(runs, tolerance_percent=tolerance_percent)
    if reference in (*_WORSE, Verdict.INCONCLUSIVE):
        problem = f"its reference is {reference.value}"
    if problem is None and asked.reason is None and _worsens(judgement, question.baseline):
        problem = "a worse number needs --dlperf-reason 'TEXT'"
    if problem is not None:
        told = f"not accepted: {problem}"
        if problem is scatter:
            told += f"; {_QUIETER}"
        reason = f"{judgement.reason}; {told}" if judgement.reason else told
        return replace(judgement, reason=reason, refused=problem)
    if judgement.verdict is Verdict.NO_BASELINE:
        # What stood in the way of a comparison is worth knowing still.
        notes = (*judgement.notes, *filter(None, [judgement.reason]))
        return replace(judgement, verdict=Verdict.PASS, reason=None, notes=notes, recorded=True)
    return replace(judgement, recorded=True)


def withdraw(judgement: Judgement) -> Judgement:
    """Take the acceptance back from a judgement whose number could not be recorded."""
    if not judgement.recorded:
        return judgement
    # Without a baseline the number was good only for becoming one.
    is_first = judgement.verdict is Verdict.PASS and judgement.accepted is None
    return replace(
        judgement,
        verdict=Verdict.NO_BASELINE if is_first else judgement.verdict,
        reason=judgement.reason or "its number was to be recorded, and was not",
        recorded=False,
    )


def excuse(judgement: Judgement) -> Judgement:
    """Excuse a judgement that fails a test of which that was expected; strict takes no excuse."""
    return replace(judgement, excused=judgement.fails(strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedAlarms:
    """Alarms to expect in a night in which nothing has changed."""

    number: float
    """Sum of the probabilities that judgements risk."""
    judged: int
    unknown: int
    """Further judgements of which nobody can say: their baselines have too few runs."""


def expected_false_alarms(judgements: Iterable[Judgement]) -> ExpectedAlarms:
    """Add up the false alarms that judgements risk; those without comparison risk none."""
    compared = [judgement for judgement in judgements if judgement.decision is not None]
    known = [j.false_alarm for j in compared if j.false_alarm is not None]
    return ExpectedAlarms(
        number=math.fsum(known), judged=len(known), unknown=len(compared) - len(known)
    )


def _judge_unsound_runs(measurement: Measurement, base: Metric, metric: Metric) -> Judgement | None:
    """Judge by the worst broken run: the others are shown, but a case is measured whole or not.

    A whole run that lacks what is asked for is invalid for this metric alone.
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
    lacking = measurement.missing(metric.name)
    if lacking is not None:
        why = lacking.missing.get(metric.name, "the log does not have it")
        return f", run {lacking.run} has no {metric.name}: {why}"
    values = measurement.samples(metric.name).values
    if not values:
        return " has no run"
    if metric.better is None or min(values) > 0:
        return None
    least = wording.number(min(values), metric.unit)
    return (
        f" has a {metric.name} of {least}: a loss is a part of a number, so what is held against "
        "another has to be above 0"
    )


def detectable_percent(
    runs: Sequence[float], tolerance_percent: float, better: Better
) -> float | None:
    """Give the smallest loss that a session like this one shows against its own baseline.

    ``None`` where it shows none.
    """
    error = median_error(runs, (), len(runs))
    if error is None:
        return None
    percent = error.min_detectable_percent(tolerance_percent / 100, better)
    return percent if better is Better.LOWER or percent < _ALL_PERCENT else None


def _is_asked_for(judgement: Judgement, question: Question, asked: Asked) -> bool:
    """Tell whether the session is to record a number with this verdict, if nothing speaks against.

    A number of another unit, direction or estimator than the accepted one takes no place: who
    wants that deletes the accepted one first. One of another machine does.
    """
    if judgement.verdict is not Verdict.NO_BASELINE:
        return asked.updates and is_outside(judgement, question.tolerance_percent)
    metric, baseline = question.metric, question.baseline
    # A ratio without what it is taken of is held against nothing either.
    if baseline is None or question.base.name not in question.case.baselines:
        return asked.creates or asked.updates
    new = metric.unit, metric.better, question.case.measurement.estimator
    return asked.updates and new == (baseline.unit, baseline.better, baseline.estimator)


def is_outside(judgement: Judgement, tolerance_percent: float) -> bool:
    """Tell whether a number that was measured soundly lies outside what the case tolerates.

    Better than the last sessions, and no better than the number that was accepted before them, is
    inside: to write it down again and again would carry the number anywhere.
    """
    if judgement.verdict in _WORSE:
        return True
    measured, accepted, better = judgement.measured, judgement.accepted, judgement.metric.better
    if judgement.verdict is not Verdict.IMPROVED or not (measured and accepted and better):
        return False
    allowed = max(tolerance_percent, judgement.tolerance_percent or 0.0) / 100
    return better.is_worse(better.changed(accepted, allowed), measured)


def scatter_problem(runs: Sequence[float], *, tolerance_percent: float) -> str | None:
    """Say why runs are too far apart to rest a number on, by what the case tolerates."""
    if len(runs) < _MIN_RUNS_TO_TELL:
        apart = 100 * (max(runs) / min(runs) - 1) if runs else 0.0
        is_far = apart > tolerance_percent
        return f"its {len(runs)} runs lie {apart:.1f} % apart" if is_far else None
    deviation = noise(runs)
    if 100 * deviation > tolerance_percent:
        return (
            f"its runs differ by {100 * deviation:.1f} %, which is more than the tolerance of "
            f"{tolerance_percent:g} %"
        )
    middle = median(runs)
    radius = middle * max(OUTLIER_RADIUS_NOISE * deviation, tolerance_percent / 100)
    far = sum(abs(run - middle) > radius for run in runs)
    if 3 * far > len(runs):
        return f"{far} of its {len(runs)} runs lie far from the others"
    return None


def _worsens(judgement: Judgement, baseline: Baseline | None) -> bool:
    """Tell whether tonight is worse than the accepted number, or than the last sessions."""
    if judgement.verdict in _WORSE:
        return True
    if baseline is None or judgement.measured is None:
        return False
    return baseline.better.is_worse(judgement.measured, baseline.accepted)
