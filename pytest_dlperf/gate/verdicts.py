"""From measurements to a verdict: decide, confirm, accept, excuse.

Each step takes frozen values and returns a judgement; none changes one. ``settle`` takes a
question through the first three. To be excused waits for the end of the test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate.control import confirm
from pytest_dlperf.gate.noise import OUTLIER_RADIUS_NOISE, noise
from pytest_dlperf.gate.rules import last_decision, rule_for
from pytest_dlperf.gate.speedup import SpeedupEnd, compare_speedups
from pytest_dlperf.gate.tolerance import median_error
from pytest_dlperf.model.judgement import Judgement, Quantity, Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.model.statistics import median

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_dlperf.gate.control import ControlRuns
    from pytest_dlperf.gate.rules import Terms
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import Measurement

_LOWER: Final = (Verdict.REGRESSED, Verdict.ENVIRONMENT_SHIFT)
"""Verdicts on a number that was measured soundly, and is lower than what it was held against."""

ALL_PERCENT: Final = 100.0
"""Nobody loses more: a loss of so much is none that could be found."""

_MIN_RUNS_TO_TELL: Final = 3
"""Fewer runs do not say how far runs usually lie apart."""


@dataclass(frozen=True, slots=True)
class End:
    """A measurement, and what is accepted of its case."""

    measurement: Measurement
    baseline: Baseline | None

    @property
    def why_incomparable(self) -> str | None:
        """Why the numbers cannot be held against the baseline, if there is one."""
        return self.baseline.why_incomparable(self.measurement) if self.baseline else None


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be judged: a throughput, or a speedup over a ``single`` device; and by what."""

    case: End
    terms: Terms
    single: End | None = None

    @property
    def quantity(self) -> Quantity:
        """What is judged."""
        return Quantity.THROUGHPUT if self.single is None else Quantity.SPEEDUP

    @property
    def measured(self) -> float | None:
        """The median throughput, or the ratio of two; ``None`` without a run."""
        own = self.case.measurement
        return own.median if self.single is None else own.speedup_over(self.single.measurement)

    @property
    def tolerance_percent(self) -> float:
        """What the case tolerates."""
        return self.terms.tolerance_of(self.case.baseline)

    @property
    def ends(self) -> tuple[End, ...]:
        """The case, then its single device if that is asked about."""
        return (self.case,) if self.single is None else (self.case, self.single)


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
    """Why a lower number is accepted."""


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
    judgement, control = decide(question), None
    if judgement.verdict in asked.control_after:
        control = run_control(question)
        judgement = confirm(judgement, control, [end.baseline for end in question.ends])
    single = None
    if question.single is not None and (asked.creates or asked.updates):
        # By the rule that its baseline allows, whichever the user forces.
        terms = replace(question.terms, forced=None, repeats=None)
        single = decide(Question(question.single, terms)).verdict
    judgement = accept(judgement, question, asked, single=single)
    return Settled(question=question, judgement=judgement, control=control)


def decide(question: Question) -> Judgement:
    """Hold what was measured against what is accepted, by the rule that the baseline allows.

    One broken run is enough for the verdict of a case; for a speedup, on either end. A slower
    single device raises the speedup, so a gain counts only if the many devices account for it.
    """
    quantity = question.quantity
    for end in question.ends:
        broken = _judge_broken_runs(end.measurement, quantity)
        if broken is not None:
            return broken
    case, single = question.case, question.single
    measured, baseline = question.measured, case.baseline
    problem = next(filter(None, (end.why_incomparable for end in question.ends)), None)
    accepted = baseline.number(quantity) if baseline is not None else None
    if baseline is not None and accepted is None and problem is None:
        problem = f"{baseline.place} has no {quantity.value}"
    if baseline is None or accepted is None or problem is not None or measured is None:
        return Judgement(
            quantity=quantity,
            verdict=Verdict.NO_BASELINE,
            measured=measured,
            reason=problem if baseline is not None else None,
        )
    ends: tuple[str, ...] = ()
    if single is None:
        rule = rule_for(baseline, question.terms, available=case.measurement.available_runs)
        decision = last_decision(rule, case.measurement.throughputs)
    else:
        # Without a baseline of its own, the single device has the one that the speedup implies.
        implied = baseline.throughput / accepted
        many_end, single_end = (
            SpeedupEnd.of(end.measurement, end.baseline, question.terms, implied=implied)
            for end in (case, single)
        )
        decision = compare_speedups(
            many_end, single_end, measured, accepted, question.tolerance_percent
        )
        ends = many_end.describe(), single_end.describe()
    return Judgement(
        quantity=quantity,
        verdict=decision.verdict,
        measured=measured,
        accepted=accepted,
        decision=decision,
        reason=decision.reason,
        ends=ends,
        notes=(*decision.notes, *baseline.software_notes(case.measurement)),
    )


def accept(
    judgement: Judgement, question: Question, asked: Asked, *, single: Verdict | None
) -> Judgement:
    """Mark the judgement as recorded if the session accepts its number, else say why not.

    ``single`` is the verdict on the throughput of what a speedup is over.
    """
    if not _is_wanted(judgement, question, asked):
        return judgement
    tolerance_percent = question.tolerance_percent
    runs = question.case.measurement.throughputs
    problem = scatter_problem(runs, tolerance_percent=tolerance_percent)
    if single in (*_LOWER, Verdict.INCONCLUSIVE):
        problem = f"its single device is {single.value}"
    if problem is None and asked.reason is None and _lowers(judgement, question.case.baseline):
        problem = "a lower number needs --dlperf-reason 'TEXT'"
    if problem is not None:
        told = f"not accepted: {problem}"
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


def _judge_broken_runs(measurement: Measurement, quantity: Quantity) -> Judgement | None:
    """Judge by the worst broken run: the others are shown, but a case is measured whole or not."""
    broken = {run.status: run for run in reversed(measurement.broken_runs)}
    for status in (RunStatus.FAILED, RunStatus.HUNG, RunStatus.INVALID):
        if status in broken:
            run = broken[status]
            reason = f"{measurement.case_id}, run {run.run}: {run.reason}"
            return Judgement(quantity=quantity, verdict=Verdict(status.value), reason=reason)
    if not measurement.throughputs:
        reason = f"{measurement.case_id} has no run"
        return Judgement(quantity=quantity, verdict=Verdict.INVALID, reason=reason)
    return None


def detectable_percent(runs: Sequence[float], tolerance_percent: float) -> float:
    """Give the smallest loss that a session like this one shows against its own baseline."""
    error = median_error(runs, (), len(runs))
    return ALL_PERCENT if error is None else error.min_detectable_percent(tolerance_percent / 100)


def _is_wanted(judgement: Judgement, question: Question, asked: Asked) -> bool:
    if judgement.verdict is not Verdict.NO_BASELINE:
        return asked.updates and is_outside(judgement, question.tolerance_percent)
    baseline = question.case.baseline
    if baseline is None or baseline.number(judgement.quantity) is None:
        return asked.creates or asked.updates
    # Numbers of one kind are held against each other unless the machine is another.
    new = question.case.measurement
    return asked.updates and (new.unit, new.estimator) == (baseline.unit, baseline.estimator)


def is_outside(judgement: Judgement, tolerance_percent: float) -> bool:
    """Tell whether a number that was measured soundly lies outside what the case tolerates.

    Better than the last sessions, and no better than the number that was accepted before them, is
    inside: to write it down again and again would carry the number anywhere.
    """
    if judgement.verdict in _LOWER:
        return True
    if (
        judgement.verdict is not Verdict.IMPROVED
        or judgement.measured is None
        or judgement.accepted is None
    ):
        return False
    allowed = max(tolerance_percent, judgement.tolerance_percent or 0.0) / 100
    return judgement.measured > judgement.accepted * (1 + allowed)


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


def _lowers(judgement: Judgement, baseline: Baseline | None) -> bool:
    """Tell whether tonight is lower than the accepted number, or than the last sessions."""
    if judgement.verdict in _LOWER:
        return True
    accepted = baseline.number(judgement.quantity) if baseline is not None else None
    return accepted is not None and judgement.measured is not None and judgement.measured < accepted
