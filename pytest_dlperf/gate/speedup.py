"""Holds the ratio of two measurements, a speedup, against the accepted one: by both ends' noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_dlperf.gate import wording
from pytest_dlperf.gate.drift import Drift
from pytest_dlperf.gate.noise import StandardError
from pytest_dlperf.gate.rule import Decision, last_decision
from pytest_dlperf.gate.rules import rule_for, tolerance_of, tolerance_rule
from pytest_dlperf.gate.sequential import MIN_LOSS_PERCENT, SequentialRule
from pytest_dlperf.gate.tolerance import ToleranceRule, compared
from pytest_dlperf.model.judgement import RuleName, Verdict

if TYPE_CHECKING:
    from pytest_dlperf.gate.rule import Rule
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of a speedup, and what its own baseline says of it.

    ``accepted`` is the number of its baseline, or what the other end's baseline implies; then
    ``baseline``, ``rule`` and ``decision`` are ``None``.
    """

    case_id: str
    unit: str
    throughputs: tuple[float, ...]
    median: float
    accepted: float
    baseline: Baseline | None
    rule: Rule | None
    decision: Decision | None

    @classmethod
    def of(  # noqa: PLR0913 - a measurement, its baseline and the user's wishes
        cls,
        measurement: Measurement,
        accepted: float,
        baseline: Baseline | None,
        *,
        tolerance_percent: float,
        forced: RuleName | None,
        repeats: int | None,
    ) -> End:
        """An end that was measured whole."""
        if measurement.median is None:
            raise AssertionError("broken runs are judged before any comparison")
        rule = None
        if baseline is not None:
            rule = rule_for(
                baseline,
                tolerance_percent=tolerance_percent,
                forced=forced,
                repeats=repeats,
                available=measurement.available_runs,
            )
        return cls(
            case_id=measurement.case_id,
            unit=measurement.unit,
            throughputs=measurement.throughputs,
            median=measurement.median,
            accepted=accepted,
            baseline=baseline,
            rule=rule,
            decision=last_decision(rule, measurement.throughputs) if rule is not None else None,
        )

    @property
    def change(self) -> float:
        """How many times its reference this end is."""
        if self.decision is not None and self.decision.difference_percent is not None:
            return 1 + self.decision.difference_percent / 100
        return self.median / self.accepted

    @property
    def median_error(self) -> StandardError | None:
        """That of its median beside the accepted one; ``None`` where too few runs tell."""
        count = len(self.throughputs)
        rule = (
            tolerance_rule(self.baseline, tolerance_percent=0.0, at_most=count)
            if self.baseline is not None
            else ToleranceRule(
                accepted=self.accepted,
                accepted_runs=0,
                sessions=(),
                tolerance_percent=0.0,
                at_most=count,
            )
        )
        return rule.standard_error(self.throughputs)

    def told(self) -> str:
        """Both numbers of this end, for the reader."""
        held = self.decision.reference if self.decision is not None else self.accepted
        difference = wording.signed_percent(100 * (self.median / held - 1))
        of = "its baseline" if self.rule is not None else "what the accepted speedup says"
        return (
            f"{self.case_id}: {wording.number(self.median, self.unit)}, {difference} from "
            f"{of} {wording.number(held)}"
        )


def compare_speedups(  # noqa: PLR0913 - both ends, both speedups and the tolerance
    many: End,
    single: End,
    speedup: float,
    baseline: Baseline,
    *,
    accepted: float,
    tolerance_percent: float,
) -> tuple[RuleName, Decision]:
    """The rule that both ends allow, and what it says of tonight's speedup.

    ``accepted`` is the speedup of the ``baseline``, ``tolerance_percent`` the system's.
    """
    tolerance = tolerance_of(baseline, tolerance_percent)
    if isinstance(many.rule, SequentialRule) and isinstance(single.rule, SequentialRule):
        name = RuleName.SEQUENTIAL
        decision = _sequential(
            (many, many.rule), (single, single.rule), baseline, accepted, tolerance
        )
    else:
        name = RuleName.TOLERANCE
        decision = _by_tolerance(many, single, speedup, accepted, tolerance)
    if decision.verdict is Verdict.IMPROVED:
        decision = _whose_gain(decision, many, single)
    return name, decision


def _sequential(
    many_end: tuple[End, SequentialRule],
    single_end: tuple[End, SequentialRule],
    baseline: Baseline,
    accepted: float,
    tolerance_percent: float,
) -> Decision:
    """The ratio of tonight's locations against the ratio of the last sessions'."""
    (many, many_rule), (single, single_rule) = many_end, single_end
    nights = many_rule.night(many.throughputs), single_rule.night(single.throughputs)
    looks = [night.look for night in nights]
    measured = nights[0].measured / nights[1].measured
    reference = many_rule.reference / single_rule.reference
    error = StandardError.of_both(look.error for look in looks)
    errors = max(look.errors for look in looks)
    own = baseline.tolerance_percent
    least = (MIN_LOSS_PERCENT if own is None else own) / 100
    threshold = max(least, errors * error.value)
    accepted_error = StandardError.of_both(
        rule.accepted_error(night.look, night, night.count)
        for rule, night in zip((many_rule, single_rule), nights, strict=True)
    )
    drift = Drift(
        what="speedup",
        accepted=accepted,
        accepted_at=baseline.accepted.at if baseline.accepted else None,
        sessions=many_rule.baseline_sessions,
        allowed=max(tolerance_percent / 100, least, errors * accepted_error.value),
        error=accepted_error,
    )
    difference = measured / reference - 1
    decision = Decision(
        verdict=Verdict.IMPROVED if difference > threshold else Verdict.PASS,
        difference_percent=100 * difference,
        reference=reference,
        threshold_percent=100 * threshold,
        interval_percent=(
            100 * (difference - error.interval),
            100 * (difference + error.interval),
        ),
        min_detectable_percent=100 * (threshold + error.seen),
        false_alarm=min(error.false_alarm(threshold) + drift.false_alarm, 1.0),
    )
    faults = [
        f"{end.case_id}: {end.decision.reason}"
        for end in (many, single)
        if end.decision is not None and end.decision.verdict is Verdict.INCONCLUSIVE
    ]
    if faults:
        return replace(decision, verdict=Verdict.INCONCLUSIVE, reason="; ".join(faults))
    if difference < -threshold:
        return replace(decision, verdict=Verdict.REGRESSED)
    return drift.told(decision, measured) if drift.is_seen(measured) else decision


def _by_tolerance(
    many: End, single: End, speedup: float, accepted: float, tolerance_percent: float
) -> Decision:
    """The ratio of the medians against the accepted speedup."""
    errors = [end.median_error for end in (many, single)]
    known = [error for error in errors if error is not None]
    return compared(
        speedup,
        accepted,
        tolerance_percent=tolerance_percent,
        error=StandardError.of_both(known) if len(known) == len(errors) else None,
    )


def _whose_gain(decision: Decision, many: End, single: End) -> Decision:
    """A larger speedup is an improvement only if the many devices are faster.

    The gain is shared out by logarithms: the two ends' parts add up to it.
    """
    gain = 1 + (decision.difference_percent or 0.0) / 100
    if math.log(many.change) >= math.log(gain) / 2:
        return decision
    both = " and ".join(
        f"{end.case_id} is {wording.signed_percent(100 * (end.change - 1))} from its baseline with "
        f"{wording.number(end.median, end.unit)}"
        for end in (many, single)
    )
    limit = single.decision.threshold_percent if single.decision else decision.threshold_percent
    if 100 * (1 - single.change) > limit:
        return replace(
            decision,
            verdict=Verdict.INCONCLUSIVE,
            reason=f"the speedup is larger because the single device is slower: {both}; "
            f"it can be judged when {single.case_id} passes again",
        )
    note = f"the speedup is larger, but the many devices account for less than half of it: {both}"
    return replace(decision, verdict=Verdict.PASS, notes=(*decision.notes, note))
