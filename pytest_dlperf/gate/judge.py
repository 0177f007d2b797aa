"""Holds a measurement against a baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from pytest_dlperf.fingerprint import MACHINE_FACTS, differences
from pytest_dlperf.gate.noise import location, tail
from pytest_dlperf.gate.rule import Decision
from pytest_dlperf.gate.rules import rule_for, tolerance_of
from pytest_dlperf.gate.sequential import LEAST_LOSS_PERCENT, THRESHOLD_ERRORS, SequentialRule
from pytest_dlperf.gate.tolerance import ToleranceRule
from pytest_dlperf.gate.verdict import Judgement, Quantity, RuleName, Verdict
from pytest_dlperf.measurement import RunStatus

if TYPE_CHECKING:
    from pytest_dlperf.baselines.entry import Baseline
    from pytest_dlperf.gate.rule import Rule
    from pytest_dlperf.measurement import Measurement

_NINE_OF_TEN: Final = 1.2816
_INTERVAL: Final = 1.96


def judge_throughput(
    measurement: Measurement,
    baseline: Baseline | None,
    *,
    tolerance_percent: float,
    forced: RuleName | None = None,
    repeats: int | None = None,
) -> Judgement:
    """Hold the throughput against the baseline's, by the rule that the baseline allows.

    ``tolerance_percent`` is the system's, used where the baseline has none of its own; ``forced``
    is the rule that the user wants, ``repeats`` the number of runs that the user fixed.
    """
    quantity = Quantity.THROUGHPUT
    broken = _verdict_of_broken_runs(measurement, quantity)
    if broken is not None:
        return broken
    incomparable = why_incomparable(measurement, baseline)
    if baseline is None or incomparable is not None:
        return _without_baseline(quantity, measurement.median, incomparable)
    rule = rule_for(baseline, tolerance_percent=tolerance_percent, forced=forced, repeats=repeats)
    decision = _decide(rule, measurement)
    return _judgement(
        quantity,
        rule.name,
        decision,
        measured=measurement.median,
        accepted=baseline.throughput,
        notes=(*decision.notes, *software_notes(measurement, baseline)),
    )


def judge_speedup(  # noqa: PLR0913 - both ends with both baselines, and the user's wishes
    measurement: Measurement,
    single_device: Measurement,
    baseline: Baseline | None,
    single_baseline: Baseline | None = None,
    *,
    tolerance_percent: float,
    forced: RuleName | None = None,
    repeats: int | None = None,
) -> Judgement:
    """Hold the speedup over one device against the baseline's.

    A speedup needs both ends: with a broken run on either it is not measured. A slower single
    device raises the speedup, so a gain counts as one only if the many devices account for it.
    """
    quantity = Quantity.SPEEDUP
    for end in (measurement, single_device):
        broken = _verdict_of_broken_runs(end, quantity)
        if broken is not None:
            return broken
    speedup = measurement.speedup_over(single_device)
    incomparable = why_incomparable(measurement, baseline)
    if incomparable is None and baseline is not None:
        incomparable = why_incomparable(single_device, single_baseline)
    if incomparable is None and baseline is not None and baseline.speedup is None:
        incomparable = f"{baseline.place} has no speedup"
    if baseline is None or baseline.speedup is None or incomparable is not None:
        return _without_baseline(quantity, speedup, incomparable)
    if speedup is None:
        raise AssertionError("broken runs are judged before any comparison")
    make_rule = partial(
        rule_for, tolerance_percent=tolerance_percent, forced=forced, repeats=repeats
    )
    many = _End.of(measurement, baseline.throughput, make_rule(baseline))
    single = (
        _End.of(single_device, single_baseline.throughput, make_rule(single_baseline))
        if single_baseline is not None
        else _End.of(single_device, baseline.throughput / baseline.speedup, None)
    )
    if isinstance(many.rule, SequentialRule) and isinstance(single.rule, SequentialRule):
        name = RuleName.SEQUENTIAL
        decision = _sequential_speedup(
            (many, many.rule), (single, single.rule), baseline, tolerance_percent
        )
    else:
        name = RuleName.TOLERANCE
        decision = _tolerance_speedup(
            many, single, speedup, baseline, tolerance_of(baseline, tolerance_percent)
        )
    if decision.verdict is Verdict.IMPROVED:
        decision = _whose_gain(decision, many, single)
    notes = (*decision.notes, *software_notes(measurement, baseline))
    judgement = _judgement(
        quantity, name, decision, measured=speedup, accepted=baseline.speedup, notes=notes
    )
    return replace(judgement, ends=(many.told(), single.told()))


def why_incomparable(measurement: Measurement, baseline: Baseline | None) -> str | None:
    """Why a number cannot be held against a baseline: another estimator, unit or machine.

    The machines are compared by what both sides know of them.
    """
    if baseline is None:
        return None
    for what, measured, accepted in (
        ("unit", measurement.unit, baseline.unit),
        ("estimator", measurement.estimator.value, baseline.estimator.value),
    ):
        if measured != accepted:
            return f"{baseline.place} has the {what} {accepted!r}, measured was {measured!r}"
    if measurement.fingerprint is None:
        return None
    others = differences(measurement.fingerprint.machine, baseline.machine)
    if not others:
        return None
    shown = "; ".join(
        f"{name} ({MACHINE_FACTS.get(name, 'a fact of the machine')}): measured on "
        f"{measured!r}, accepted on {accepted!r}"
        for name, (measured, accepted) in others.items()
    )
    return f"{baseline.place} is of another machine: {shown}"


def software_notes(measurement: Measurement, baseline: Baseline) -> tuple[str, ...]:
    """What ran with another version than when the baseline was accepted: shown, no verdict."""
    if measurement.fingerprint is None or baseline.accepted is None:
        return ()
    others = differences(measurement.fingerprint.software, baseline.accepted.software)
    return tuple(
        f"{name} {measured}, accepted with {accepted}"
        for name, (measured, accepted) in others.items()
    )


def _verdict_of_broken_runs(measurement: Measurement, quantity: Quantity) -> Judgement | None:
    """One broken run is enough: the others are shown, but a case is measured whole or not."""
    broken = {run.status: run for run in reversed(measurement.broken_runs)}
    for status in (RunStatus.FAILED, RunStatus.HUNG, RunStatus.INVALID):
        if status in broken:
            run = broken[status]
            return Judgement(
                quantity=quantity,
                verdict=Verdict(status.value),
                reason=f"{measurement.case_id}, run {run.run}: {run.reason}",
            )
    if not measurement.throughputs:
        reason = f"{measurement.case_id} has no run"
        return Judgement(quantity=quantity, verdict=Verdict.INVALID, reason=reason)
    return None


def _without_baseline(quantity: Quantity, measured: float | None, reason: str | None) -> Judgement:
    return Judgement(
        quantity=quantity, verdict=Verdict.NO_BASELINE, measured=measured, reason=reason
    )


def _decide(rule: Rule, measurement: Measurement) -> Decision:
    decision = rule.decide(measurement.throughputs, is_last=True)
    if decision is None:
        raise AssertionError(f"the {rule.name.value} rule did not decide by its last run")
    return decision


def _judgement(  # noqa: PLR0913 - a decision and the two numbers that a reader looks for
    quantity: Quantity,
    rule: RuleName,
    decision: Decision,
    *,
    measured: float | None,
    accepted: float,
    notes: tuple[str, ...],
) -> Judgement:
    return Judgement(
        quantity=quantity,
        verdict=decision.verdict,
        measured=measured,
        baseline=accepted,
        reference=decision.reference if decision.reference != accepted else None,
        difference_percent=decision.difference_percent,
        interval_percent=decision.interval_percent,
        tolerance_percent=decision.threshold_percent,
        smallest_visible_percent=decision.smallest_visible_percent,
        false_alarm=decision.false_alarm,
        rule=rule,
        reason=decision.reason,
        notes=notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """One end of a speedup, and what its own baseline says of it.

    ``accepted`` is the number of its baseline, or what the other end's baseline implies; then
    ``rule`` and ``decision`` are ``None``.
    """

    case_id: str
    unit: str
    throughputs: tuple[float, ...]
    median: float
    accepted: float
    rule: Rule | None
    decision: Decision | None

    @classmethod
    def of(cls, measurement: Measurement, accepted: float, rule: Rule | None) -> _End:
        if measurement.median is None:
            raise AssertionError("broken runs are judged before any comparison")
        return cls(
            case_id=measurement.case_id,
            unit=measurement.unit,
            throughputs=measurement.throughputs,
            median=measurement.median,
            accepted=accepted,
            rule=rule,
            decision=_decide(rule, measurement) if rule is not None else None,
        )

    @property
    def change(self) -> float:
        """How many times its reference this end is."""
        if self.decision is not None and self.decision.difference_percent is not None:
            return 1 + self.decision.difference_percent / 100
        return self.median / self.accepted

    def told(self) -> str:
        """Both numbers of this end, for the reader."""
        difference = 100 * (self.median / self.accepted - 1)
        of = "its baseline" if self.rule is not None else "what the accepted speedup says"
        return (
            f"{self.case_id}: {self.median:.6g} {self.unit}, {difference:+.1f} % from {of} "
            f"{self.accepted:.6g}"
        )


def _sequential_speedup(
    many_end: tuple[_End, SequentialRule],
    single_end: tuple[_End, SequentialRule],
    baseline: Baseline,
    tolerance_percent: float,
) -> Decision:
    """The ratio of tonight's locations against the ratio of the last sessions'."""
    many, many_rule = many_end
    single, single_rule = single_end
    faults = [
        f"{end.case_id}: {end.decision.reason}"
        for end in (many, single)
        if end.decision is not None and end.decision.verdict is Verdict.INCONCLUSIVE
    ]
    measured = location(many.throughputs, many_rule.noise) / location(
        single.throughputs, single_rule.noise
    )
    reference = many_rule.reference / single_rule.reference
    error = math.hypot(
        many_rule.standard_error(len(many.throughputs)),
        single_rule.standard_error(len(single.throughputs)),
    )
    least = baseline.tolerance_percent
    threshold = max(
        (LEAST_LOSS_PERCENT if least is None else least) / 100, THRESHOLD_ERRORS * error
    )
    difference = measured / reference - 1
    pinned = baseline.speedup or reference
    allowed = max(tolerance_of(baseline, tolerance_percent) / 100, threshold)
    reason = "; ".join(faults) or None
    if faults:
        verdict = Verdict.INCONCLUSIVE
    elif difference < -threshold:
        verdict = Verdict.REGRESSED
    elif measured < pinned * (1 - allowed):
        verdict = Verdict.REGRESSED
        # The numbers that are told are those that the verdict rests on.
        reference, threshold, difference = pinned, allowed, measured / pinned - 1
        since = f" {baseline.accepted.at}" if baseline.accepted else ""
        reason = (
            f"creep: the last {many_rule.baseline_sessions} sessions pass, but the speedup "
            f"accepted{since}, {pinned:g}, does not: tonight lies "
            f"{100 * (1 - measured / pinned):.1f} % below it, allowed are {100 * allowed:.1f} %"
        )
    else:
        verdict = Verdict.IMPROVED if difference > threshold else Verdict.PASS
    return Decision(
        verdict=verdict,
        difference_percent=100 * difference,
        reference=reference,
        threshold_percent=100 * threshold,
        interval_percent=(
            100 * (difference - _INTERVAL * error),
            100 * (difference + _INTERVAL * error),
        ),
        smallest_visible_percent=100 * (threshold + _NINE_OF_TEN * error),
        false_alarm=tail(threshold / error),
        reason=reason,
    )


def _tolerance_speedup(
    many: _End, single: _End, speedup: float, baseline: Baseline, tolerance_percent: float
) -> Decision:
    """The ratio of the medians against the accepted speedup."""
    accepted = baseline.speedup or speedup
    errors = [_error(many), _error(single)]
    known = [error for error in errors if error is not None]
    error = math.hypot(*known) if len(known) == len(errors) else None
    rule = ToleranceRule(
        accepted=accepted, accepted_runs=(), tolerance_percent=tolerance_percent, at_most=1
    )
    decision = rule.decide((speedup,), is_last=True)
    if decision is None:
        raise AssertionError("a last run is always decided by")
    if error is None or decision.difference_percent is None:
        return decision
    difference = decision.difference_percent
    return replace(
        decision,
        interval_percent=(
            difference - 100 * _INTERVAL * error,
            difference + 100 * _INTERVAL * error,
        ),
        smallest_visible_percent=tolerance_percent + 100 * _NINE_OF_TEN * error,
        false_alarm=tail(tolerance_percent / 100 / error),
    )


def _error(end: _End) -> float | None:
    """Relative standard error of an end's difference; ``None`` where too few runs tell."""
    if isinstance(end.rule, SequentialRule):
        return end.rule.standard_error(len(end.throughputs))
    if isinstance(end.rule, ToleranceRule):
        return end.rule.standard_error(end.throughputs)
    rule = ToleranceRule(accepted=end.accepted, accepted_runs=(), tolerance_percent=0.0, at_most=1)
    return rule.standard_error(end.throughputs)


def _whose_gain(decision: Decision, many: _End, single: _End) -> Decision:
    """A larger speedup is an improvement only if the many devices are faster.

    The gain is shared out by logarithms: the two ends' parts add up to it.
    """
    gain = 1 + (decision.difference_percent or 0.0) / 100
    if math.log(many.change) >= math.log(gain) / 2:
        return decision
    both = (
        f"{many.case_id} is {100 * (many.change - 1):+.1f} % from its baseline with "
        f"{many.median:.6g} {many.unit}, {single.case_id} {100 * (single.change - 1):+.1f} % "
        f"with {single.median:.6g}"
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
