"""Which rule a case is judged by, and how many runs that rule asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

from pytest_dlperf.gate.noise import median
from pytest_dlperf.gate.sequential import (
    FIRST_LOOK,
    MIN_BASELINE_RUNS,
    MIN_BASELINE_SESSIONS,
    SequentialRule,
)
from pytest_dlperf.gate.tolerance import USUAL_REPEATS, ToleranceRule
from pytest_dlperf.model.baseline import MAX_TOLERANCE_PERCENT, AcceptedSession
from pytest_dlperf.model.judgement import RuleName
from pytest_dlperf.model.measurement import PUBLISHED_DECIMALS, Estimator, FixedRepeats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_dlperf.gate.rule import Rule
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import Repeats


@final
@dataclass(frozen=True, slots=True)
class RepeatsByRule:
    """As many runs as the rule needs that will judge them, and ``at_least`` so many."""

    rule: Rule
    at_least: int = 1

    @property
    def at_most(self) -> int:
        """The largest number of runs."""
        return max(self.rule.at_most, self.at_least)

    @property
    def may_be_fewer(self) -> bool:
        """Whether the rule may decide before the largest number is reached."""
        return self.rule.name is RuleName.SEQUENTIAL

    def is_enough(self, throughputs: Sequence[float]) -> bool:
        """Whether the rule decides by these runs."""
        if len(throughputs) < max(self.at_least, 1):
            return False
        return self.rule.decide(throughputs, is_last=False) is not None


def tolerance_of(baseline: Baseline | None, tolerance_percent: float) -> float:
    """The tolerance of a case in percent: its own, else its system's."""
    own = baseline.tolerance_percent if baseline is not None else None
    return tolerance_percent if own is None else own


def rule_name(
    baseline: Baseline,
    *,
    tolerance_percent: float,
    forced: RuleName | None = None,
    repeats: int | None = None,
) -> RuleName:
    """The rule that judges a case: the forced one, else sequential as soon as it can decide.

    ``tolerance_percent`` is the system's; ``repeats`` is the number of runs that the user fixed.
    """
    if forced is not None:
        return forced
    sessions = baseline.rolling
    # A session of one run or two tells little of how nights differ.
    whole = [session for session in sessions if len(session) >= FIRST_LOOK]
    if (
        sum(map(len, sessions)) >= MIN_BASELINE_RUNS
        and len(whole) >= MIN_BASELINE_SESSIONS
        and tolerance_of(baseline, tolerance_percent) <= MAX_TOLERANCE_PERCENT
        and (repeats is None or repeats >= FIRST_LOOK)
    ):
        return RuleName.SEQUENTIAL
    return RuleName.TOLERANCE


def rule_for(  # noqa: PLR0913 - the user's wishes and the system's, by name
    baseline: Baseline,
    *,
    tolerance_percent: float,
    forced: RuleName | None = None,
    repeats: int | None = None,
    default_repeats: int | None = None,
    available: int | None = None,
) -> Rule:
    """The rule that judges a case.

    ``tolerance_percent`` and ``default_repeats`` are the system's, ``repeats`` is the number of
    runs that the user fixed, ``available`` how many there are to be had. A baseline without any
    run is judged by the tolerance, also if the sequential rule is forced: there is nothing that it
    could go by.
    """
    name = rule_name(baseline, tolerance_percent=tolerance_percent, forced=forced, repeats=repeats)
    sessions = baseline.rolling
    tolerance = tolerance_of(baseline, tolerance_percent)
    if name is RuleName.SEQUENTIAL and any(sessions):
        return SequentialRule.of(
            sessions,
            accepted=baseline.throughput,
            accepted_at=baseline.accepted.at if baseline.accepted else None,
            accepted_runs=len(baseline.runs) or USUAL_REPEATS,
            tolerance_percent=tolerance,
            min_loss_percent=baseline.tolerance_percent,
            repeats=repeats,
            available=available,
        )
    return tolerance_rule(
        baseline,
        tolerance_percent=tolerance,
        at_most=repeats or default_repeats or USUAL_REPEATS,
    )


def tolerance_rule(baseline: Baseline, *, tolerance_percent: float, at_most: int) -> ToleranceRule:
    """The rule for baselines with few runs, with this tolerance."""
    return ToleranceRule(
        accepted=baseline.throughput,
        accepted_runs=len(baseline.runs),
        sessions=baseline.rolling,
        tolerance_percent=tolerance_percent,
        at_most=at_most,
        decimals=PUBLISHED_DECIMALS if baseline.estimator is Estimator.PUBLISHED else None,
    )


def rule_maker(
    baseline: Baseline,
    *,
    tolerance_percent: float,
    forced: RuleName | None = None,
    repeats: int | None = None,
    default_repeats: int | None = None,
) -> Callable[[Sequence[Sequence[float]]], Rule]:
    """A function that makes a case's rule as if its baseline held other sessions."""
    # By the name that the real baseline has, so that a few runs less are no other rule.
    name = rule_name(baseline, tolerance_percent=tolerance_percent, forced=forced, repeats=repeats)

    def make(sessions: Sequence[Sequence[float]]) -> Rule:
        accepted, *later = sessions
        other = replace(
            baseline,
            throughput=median(accepted),
            runs=dict(enumerate(accepted, 1)),
            sessions=tuple(AcceptedSession(at="", runs=tuple(runs)) for runs in later),
        )
        return rule_for(
            other,
            tolerance_percent=tolerance_percent,
            forced=name,
            repeats=repeats,
            default_repeats=default_repeats,
        )

    return make


def repeats_for(  # noqa: PLR0913 - the user's wishes and the system's, by name
    baseline: Baseline | None,
    *,
    tolerance_percent: float,
    forced: RuleName | None,
    repeats: int | None,
    default_repeats: int | None,
    at_least: int | None = None,
) -> Repeats:
    """How many runs of a case are taken.

    ``tolerance_percent`` and ``default_repeats`` are the system's (``None``: all runs that there
    are), ``repeats`` is the number that the user fixed, which nothing changes. ``at_least`` is
    what a session needs that records baselines.
    """
    if repeats is not None:
        return FixedRepeats(repeats)
    if baseline is not None:
        rule = rule_for(baseline, tolerance_percent=tolerance_percent, forced=forced)
        if rule.name is RuleName.SEQUENTIAL:
            return RepeatsByRule(rule=rule, at_least=at_least or 1)
    if default_repeats is None:
        return FixedRepeats(None)
    return FixedRepeats(max(default_repeats, at_least or 1))
