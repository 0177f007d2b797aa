"""Compares the ratio of two measurements with the accepted one, by the noise of both ends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.noise import StandardError
from pytest_dlperf.gate.rules import last_decision, rule_for
from pytest_dlperf.gate.sequential import SequentialRule
from pytest_dlperf.gate.tolerance import Drift, compare, median_error
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Decision, Verdict
from pytest_dlperf.model.metric import RuleName
from pytest_dlperf.model.statistics import difference_percent

if TYPE_CHECKING:
    from pytest_dlperf.gate.rules import Rule, Terms
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import Measurement, Samples


class RatioEnd(Struct, frozen=True, kw_only=True):
    """One end of a ratio, whose runs are whole, and the decision by its own baseline."""

    name: str
    """The id of its case."""
    samples: Samples
    median: float
    accepted: float
    """The number of its baseline, or the one that the other end's baseline implies."""
    baseline: Baseline | None
    rule: Rule | None
    """``None``, like the decision, without a baseline."""
    decision: Decision | None

    @classmethod
    def of(
        cls,
        measurement: Measurement,
        samples: Samples,
        baseline: Baseline | None,
        terms: Terms,
        *,
        implied: float,
    ) -> RatioEnd:
        """Decide about an end by its own rule; ``implied`` is accepted if it has no baseline."""
        if samples.median is None:
            raise AssertionError("broken runs are judged before any comparison")
        rule = None
        if baseline is not None:
            available = measurement.available_runs
            rule = rule_for(samples.metric, baseline, terms, available=available)
        return cls(
            name=measurement.case_id,
            samples=samples,
            median=samples.median,
            accepted=implied if baseline is None else baseline.accepted,
            baseline=baseline,
            rule=rule,
            decision=last_decision(rule, samples.values) if rule is not None else None,
        )

    @property
    def change(self) -> float:
        """How many times its reference this end is."""
        if self.decision is not None:
            return 1 + self.decision.difference_percent / 100
        return self.median / self.accepted

    @property
    def median_error(self) -> StandardError | None:
        """Standard error of the median's difference from the accepted one, if runs suffice."""
        if self.baseline is None:
            return median_error(self.samples.values, (), 0)
        return median_error(self.samples.values, self.baseline.rolling, len(self.baseline.runs))

    def describe(self) -> str:
        """Write tonight's number and the one that it is held against."""
        reference = self.decision.reference if self.decision is not None else self.accepted
        difference = numbers.signed_percent(difference_percent(self.median, reference))
        of = "its reference" if self.rule is not None else "the number that its ratio implies,"
        return (
            f"{self.name}: {numbers.quantity(self.median, self.samples.metric.unit)}, {difference} "
            f"from {of} {numbers.quantity(reference)}"
        )


class AcceptedRatio(Struct, frozen=True, kw_only=True):
    """What is accepted of a ratio, and by how much it may be worse, in percent."""

    baseline: Baseline
    tolerance_percent: float
    min_loss_percent: float


def compare_ratios(
    case: RatioEnd, over: RatioEnd, measured: float, accepted: AcceptedRatio
) -> Decision:
    """Decide about tonight's ratio by the rule that both ends allow."""
    if isinstance(case.rule, SequentialRule) and isinstance(over.rule, SequentialRule):
        decision = _sequential((case, over), (case.rule, over.rule), accepted)
    else:
        decision = _by_tolerance((case, over), measured, accepted)
    if decision.verdict is Verdict.IMPROVED:
        decision = _whose_gain(decision, case, over, accepted.baseline)
    return decision


def _sequential(
    ends: tuple[RatioEnd, RatioEnd],
    rules: tuple[SequentialRule, SequentialRule],
    accepted: AcceptedRatio,
) -> Decision:
    """Compare the ratio of tonight's locations with the ratio of the last sessions'."""
    rules = rules[0].for_ratio, rules[1].for_ratio
    nights = [rule.night(end.samples.values) for end, rule in zip(ends, rules, strict=True)]
    sensitivities = [night.sensitivity for night in nights]
    measured = nights[0].measured / nights[1].measured
    reference = rules[0].reference.level / rules[1].reference.level
    error = StandardError.combined(each.error for each in sensitivities)
    errors = max(each.errors for each in sensitivities)
    least = accepted.min_loss_percent / 100
    threshold = max(least, errors * error.value)
    accepted_error = StandardError.combined(
        rule.accepted_error(night, night.count) for rule, night in zip(rules, nights, strict=True)
    )
    better = accepted.baseline.better
    drift = Drift(
        baseline=accepted.baseline,
        sessions=rules[0].reference.sessions,
        allowed=max(accepted.tolerance_percent / 100, least, errors * accepted_error.value),
        error=accepted_error,
    )
    difference = measured / reference - 1
    loss = better.loss(measured, reference)
    decision = Decision(
        rule=RuleName.SEQUENTIAL,
        verdict=Verdict.IMPROVED if -loss > threshold else Verdict.PASS,
        reference=reference,
        difference_percent=100 * difference,
        tolerance_percent=100 * threshold,
        interval_percent=error.interval_percent(difference),
        min_detectable_percent=error.min_detectable_percent(threshold, better),
        false_alarm=min(error.false_alarm(threshold) + drift.false_alarm, 1.0),
    )
    faults = [
        f"{end.name}: {end.decision.reason}"
        for end in ends
        if end.decision is not None and end.decision.verdict is Verdict.INCONCLUSIVE
    ]
    if faults:
        return replace(decision, verdict=Verdict.INCONCLUSIVE, reason="; ".join(faults))
    if loss > threshold:
        return replace(decision, verdict=Verdict.REGRESSED)
    return drift.fail(decision, measured) if drift.is_exceeded_by(measured) else decision


def _by_tolerance(
    ends: tuple[RatioEnd, RatioEnd], measured: float, accepted: AcceptedRatio
) -> Decision:
    """Compare the ratio of the medians with the accepted one."""
    errors = [end.median_error for end in ends]
    known = [error for error in errors if error is not None]
    return compare(
        measured,
        accepted.baseline.accepted,
        accepted.baseline.better,
        tolerance_percent=accepted.tolerance_percent,
        error=StandardError.combined(known) if len(known) == len(errors) else None,
    )


def _whose_gain(decision: Decision, case: RatioEnd, over: RatioEnd, baseline: Baseline) -> Decision:
    """Call a better ratio an improvement only if the case is better, not its reference worse.

    The gain is shared out by logarithms: the parts of both ends add up to it.
    """
    gain = 1 + decision.difference_percent / 100
    if math.log(case.change) / math.log(gain) >= 1 / 2:
        return decision
    both = " and ".join(
        f"{end.name} is {numbers.signed_percent(100 * (end.change - 1))} from its reference with "
        f"{numbers.quantity(end.median, end.samples.metric.unit)}"
        for end in (case, over)
    )
    limit = (over.decision or decision).tolerance_percent
    if 100 * baseline.better.loss(over.change, 1.0) > limit:
        return replace(
            decision,
            verdict=Verdict.INCONCLUSIVE,
            reason=f"the {baseline.metric} is better because {over.name} is worse: {both}; "
            f"it can be judged when {over.name} passes again",
        )
    note = (
        f"the {baseline.metric} is better, but {case.name} accounts for less than half of it: "
        f"{both}"
    )
    return replace(decision, verdict=Verdict.PASS, notes=(*decision.notes, note))
