"""Holds the ratio of two measurements, a speedup, against the accepted one: by both ends' noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_dlperf.gate import wording
from pytest_dlperf.gate.drift import Drift
from pytest_dlperf.gate.noise import StandardError
from pytest_dlperf.gate.rules import last_decision, rule_for
from pytest_dlperf.gate.sequential import SequentialRule
from pytest_dlperf.gate.tolerance import compared, median_error
from pytest_dlperf.model.judgement import Decision, RuleName, Verdict

if TYPE_CHECKING:
    from pytest_dlperf.gate.rules import Rule, Terms
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupEnd:
    """One end of a speedup, measured whole, and what its own baseline says of it."""

    measurement: Measurement
    median: float
    accepted: float
    """The number of its baseline, or what the other end's baseline implies."""
    baseline: Baseline | None
    rule: Rule | None
    """``None``, like the decision, without a baseline."""
    decision: Decision | None

    @classmethod
    def of(
        cls,
        measurement: Measurement,
        baseline: Baseline | None,
        terms: Terms,
        *,
        implied: float,
    ) -> SpeedupEnd:
        """Ask the rule of an end about its throughput; ``implied`` is for want of a baseline."""
        if measurement.median is None:
            raise AssertionError("broken runs are judged before any comparison")
        rule = None
        if baseline is not None:
            rule = rule_for(baseline, terms, available=measurement.available_runs)
        return cls(
            measurement=measurement,
            median=measurement.median,
            accepted=implied if baseline is None else baseline.throughput,
            baseline=baseline,
            rule=rule,
            decision=last_decision(rule, measurement.throughputs) if rule is not None else None,
        )

    @property
    def name(self) -> str:
        """The id of its case."""
        return self.measurement.case_id

    @property
    def change(self) -> float:
        """How many times its reference this end is."""
        if self.decision is not None:
            return 1 + self.decision.difference_percent / 100
        return self.median / self.accepted

    @property
    def median_error(self) -> StandardError | None:
        """That of its median beside the accepted one; ``None`` where too few runs tell."""
        throughputs = self.measurement.throughputs
        if self.baseline is None:
            return median_error(throughputs, (), 0)
        return median_error(throughputs, self.baseline.rolling, len(self.baseline.runs))

    def describe(self) -> str:
        """Tell both numbers of this end."""
        held = self.decision.reference if self.decision is not None else self.accepted
        difference = wording.signed_percent(100 * (self.median / held - 1))
        of = "its reference" if self.rule is not None else "what the accepted speedup says"
        return (
            f"{self.name}: {wording.number(self.median, self.measurement.unit)}, {difference} from "
            f"{of} {wording.number(held)}"
        )


def compare_speedups(
    many: SpeedupEnd, single: SpeedupEnd, speedup: float, accepted: float, tolerance: float
) -> Decision:
    """Decide about tonight's speedup by the rule that both ends allow.

    ``accepted`` is the speedup of the baseline of the many devices, ``tolerance`` that of the case
    in percent.
    """
    if isinstance(many.rule, SequentialRule) and isinstance(single.rule, SequentialRule):
        decision = _sequential(many, single, (many.rule, single.rule), accepted, tolerance)
    else:
        decision = _by_tolerance(many, single, speedup, accepted, tolerance)
    if decision.verdict is Verdict.IMPROVED:
        decision = _whose_gain(decision, many, single)
    return decision


def _sequential(
    many: SpeedupEnd,
    single: SpeedupEnd,
    rules: tuple[SequentialRule, SequentialRule],
    accepted: float,
    tolerance_percent: float,
) -> Decision:
    """Hold the ratio of tonight's locations against the ratio of the last sessions'."""
    many_rule, single_rule = rules
    nights = (
        many_rule.night(many.measurement.throughputs),
        single_rule.night(single.measurement.throughputs),
    )
    looks = [night.look for night in nights]
    measured = nights[0].measured / nights[1].measured
    reference = many_rule.reference / single_rule.reference
    error = StandardError.of_both(look.error for look in looks)
    errors = max(look.errors for look in looks)
    least = many_rule.min_loss_percent / 100
    threshold = max(least, errors * error.value)
    accepted_error = StandardError.of_both(
        rule.accepted_error(night.look, night, night.count)
        for rule, night in zip(rules, nights, strict=True)
    )
    drift = Drift(
        what="speedup",
        accepted=accepted,
        accepted_at=many_rule.accepted_at,
        sessions=many_rule.baseline_sessions,
        allowed=max(tolerance_percent / 100, least, errors * accepted_error.value),
        error=accepted_error,
    )
    difference = measured / reference - 1
    decision = Decision(
        rule=RuleName.SEQUENTIAL,
        verdict=Verdict.IMPROVED if difference > threshold else Verdict.PASS,
        reference=reference,
        difference_percent=100 * difference,
        tolerance_percent=100 * threshold,
        interval_percent=error.interval_percent(difference),
        min_detectable_percent=error.min_detectable_percent(threshold),
        false_alarm=min(error.false_alarm(threshold) + drift.false_alarm, 1.0),
    )
    faults = [
        f"{end.name}: {end.decision.reason}"
        for end in (many, single)
        if end.decision is not None and end.decision.verdict is Verdict.INCONCLUSIVE
    ]
    if faults:
        return replace(decision, verdict=Verdict.INCONCLUSIVE, reason="; ".join(faults))
    if difference < -threshold:
        return replace(decision, verdict=Verdict.REGRESSED)
    return drift.describe(decision, measured) if drift.is_seen(measured) else decision


def _by_tolerance(
    many: SpeedupEnd, single: SpeedupEnd, speedup: float, accepted: float, tolerance_percent: float
) -> Decision:
    """Hold the ratio of the medians against the accepted speedup."""
    errors = [end.median_error for end in (many, single)]
    known = [error for error in errors if error is not None]
    return compared(
        speedup,
        accepted,
        tolerance_percent=tolerance_percent,
        error=StandardError.of_both(known) if len(known) == len(errors) else None,
    )


def _whose_gain(decision: Decision, many: SpeedupEnd, single: SpeedupEnd) -> Decision:
    """A larger speedup is an improvement only if the many devices are faster.

    The gain is shared out by logarithms: the two ends' parts add up to it.
    """
    gain = 1 + decision.difference_percent / 100
    if math.log(many.change) >= math.log(gain) / 2:
        return decision
    both = " and ".join(
        f"{end.name} is {wording.signed_percent(100 * (end.change - 1))} from its reference with "
        f"{wording.number(end.median, end.measurement.unit)}"
        for end in (many, single)
    )
    limit = (single.decision or decision).tolerance_percent
    if 100 * (1 - single.change) > limit:
        return replace(
            decision,
            verdict=Verdict.INCONCLUSIVE,
            reason=f"the speedup is larger because the single device is slower: {both}; "
            f"it can be judged when {single.name} passes again",
        )
    note = f"the speedup is larger, but the many devices account for less than half of it: {both}"
    return replace(decision, verdict=Verdict.PASS, notes=(*decision.notes, note))
