"""From measurements to a verdict: decide, confirm, accept, excuse.

Each step takes frozen values and returns a judgement; none changes one. ``settle`` takes a
question through the first three. To be excused waits for the end of the test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_dlperf.gate.acceptance import accept
from pytest_dlperf.gate.control import confirm
from pytest_dlperf.gate.rules import last_decision, rule_for
from pytest_dlperf.gate.speedup import SpeedupEnd, compare_speedups
from pytest_dlperf.model.judgement import Judgement, Quantity, Verdict
from pytest_dlperf.model.measurement import RunStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_dlperf.gate.acceptance import Asked
    from pytest_dlperf.gate.control import ControlRuns
    from pytest_dlperf.gate.rules import Terms
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import Measurement


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
    judgement = accept(
        judgement,
        question.case.measurement,
        question.case.baseline,
        asked,
        tolerance_percent=question.tolerance_percent,
        single_device=single,
    )
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
