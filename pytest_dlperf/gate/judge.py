"""Holds a measurement against a baseline."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_dlperf.gate.rule import last_decision
from pytest_dlperf.gate.rules import rule_for
from pytest_dlperf.gate.speedup import End, compare_speedups
from pytest_dlperf.model.judgement import Judgement, Quantity, RuleName, Verdict
from pytest_dlperf.model.measurement import MACHINE_FACTS, RunStatus, differences

if TYPE_CHECKING:
    from pytest_dlperf.gate.rule import Decision
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import Measurement


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
    rule = rule_for(
        baseline,
        tolerance_percent=tolerance_percent,
        forced=forced,
        repeats=repeats,
        available=measurement.available_runs,
    )
    decision = last_decision(rule, measurement.throughputs)
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
    many, single = (
        End.of(
            end,
            accepted,
            of_end,
            tolerance_percent=tolerance_percent,
            forced=forced,
            repeats=repeats,
        )
        for end, of_end, accepted in (
            (measurement, baseline, baseline.throughput),
            (
                single_device,
                single_baseline,
                single_baseline.throughput
                if single_baseline is not None
                else baseline.throughput / baseline.speedup,
            ),
        )
    )
    name, decision = compare_speedups(
        many,
        single,
        speedup,
        baseline,
        accepted=baseline.speedup,
        tolerance_percent=tolerance_percent,
    )
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
    return (
        f"{baseline.place} is of another machine: {shown}; name another --dlperf-cluster, or "
        "accept the number of this one with --dlperf-update-baselines"
    )


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
        accepted=accepted,
        reference=decision.reference,
        difference_percent=decision.difference_percent,
        interval_percent=_possible(decision.interval_percent),
        tolerance_percent=decision.threshold_percent,
        min_detectable_percent=decision.min_detectable_percent,
        false_alarm=decision.false_alarm,
        rule=rule,
        reason=decision.reason,
        notes=notes,
    )


def _possible(ends: tuple[float, float] | None) -> tuple[float, float] | None:
    """An interval in percent without what cannot be: nobody loses more than all."""
    if ends is None:
        return None
    low, high = (max(end, -100.0) for end in ends)
    return low, high
