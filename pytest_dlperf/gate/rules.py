"""The rules that decide about runs: which of them judges a case, and how many runs it asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol, final

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
from pytest_dlperf.model.statistics import median

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.judgement import Decision
    from pytest_dlperf.model.measurement import Repeats


class Rule(Protocol):
    """Decides about the throughput of one case; made from its baseline, and without memory."""

    @property
    def name(self) -> RuleName:
        """Which rule it is."""

    @property
    def at_most(self) -> int:
        """The number of runs after which it always decides."""

    def decide(self, throughputs: Sequence[float], *, is_last: bool) -> Decision | None:
        """Decide by the runs so far, in their order; ``None`` asks for one more.

        With ``is_last`` there will be no more, and there is always a decision.

        Raises:
            ValueError: There are no runs.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a case is judged by beside its baseline: its system's numbers and the user's wishes."""

    tolerance_percent: float
    """The system's; a tolerance of the baseline goes before it."""
    default_repeats: int | None = None
    """Runs that the system takes; ``None`` for all that there are."""
    repeats: int | None = None
    """Runs that the user fixed."""
    forced: RuleName | None = None
    """The rule that the user wants."""

    def tolerance_of(self, baseline: Baseline | None) -> float:
        """Return the tolerance of a case in percent: its own, else its system's."""
        own = baseline.tolerance_percent if baseline is not None else None
        return self.tolerance_percent if own is None else own


@final
@dataclass(frozen=True, slots=True)
class RepeatsByRule:
    """As many runs as the rule needs that will judge them, and ``at_least`` so many."""

    rule: Rule
    at_least: int = 1
    may_be_fewer: ClassVar[bool] = True

    @property
    def at_most(self) -> int:
        """The largest number of runs."""
        return max(self.rule.at_most, self.at_least)

    def is_enough(self, throughputs: Sequence[float]) -> bool:
        """Tell whether the rule decides by these runs."""
        if len(throughputs) < max(self.at_least, 1):
            return False
        return self.rule.decide(throughputs, is_last=False) is not None


def last_decision(rule: Rule, throughputs: Sequence[float]) -> Decision:
    """Decide by all the runs that there will be."""
    decision = rule.decide(throughputs, is_last=True)
    if decision is None:
        raise AssertionError(f"the {rule.name.value} rule did not decide by its last run")
    return decision


def rule_for(baseline: Baseline, terms: Terms, *, available: int | None = None) -> Rule:
    """Make the rule that judges a case; ``available`` is how many runs there are to be had.

    A baseline without any run is judged by the tolerance, also if the sequential rule is forced:
    there is nothing that it could go by.
    """
    sessions = baseline.rolling
    if _rule_name(baseline, terms) is RuleName.SEQUENTIAL and any(sessions):
        return SequentialRule.of(
            baseline,
            tolerance_percent=terms.tolerance_of(baseline),
            repeats=terms.repeats,
            available=available,
        )
    return ToleranceRule(
        accepted=baseline.throughput,
        accepted_runs=len(baseline.runs),
        sessions=sessions,
        tolerance_percent=terms.tolerance_of(baseline),
        at_most=terms.repeats or terms.default_repeats or USUAL_REPEATS,
        decimals=PUBLISHED_DECIMALS if baseline.estimator is Estimator.PUBLISHED else None,
    )


def rule_maker(baseline: Baseline, terms: Terms) -> Callable[[Sequence[Sequence[float]]], Rule]:
    """Return a function that makes a case's rule as if its baseline held other sessions."""
    # By the name that the real baseline has, so that a few runs less are no other rule.
    terms = replace(terms, forced=_rule_name(baseline, terms))

    def make(sessions: Sequence[Sequence[float]]) -> Rule:
        accepted, *later = sessions
        other = replace(
            baseline,
            throughput=median(accepted),
            runs=dict(enumerate(accepted, 1)),
            sessions=tuple(AcceptedSession(at="", runs=tuple(runs)) for runs in later),
        )
        return rule_for(other, terms)

    return make


def repeats_for(baseline: Baseline | None, terms: Terms, *, at_least: int | None = None) -> Repeats:
    """Say how many runs of a case are taken: as many as the rule asks for that will judge them.

    What the user fixed is changed by nothing. ``at_least`` is what a session needs that records
    baselines.
    """
    if terms.repeats is not None:
        return FixedRepeats(terms.repeats)
    if baseline is not None:
        rule = rule_for(baseline, terms)
        if rule.name is RuleName.SEQUENTIAL:
            return RepeatsByRule(rule=rule, at_least=at_least or 1)
    if terms.default_repeats is None:
        return FixedRepeats(None)
    return FixedRepeats(max(terms.default_repeats, at_least or 1))


def _rule_name(baseline: Baseline, terms: Terms) -> RuleName:
    """Choose the rule of a case: the forced one, else sequential as soon as it can decide."""
    if terms.forced is not None:
        return terms.forced
    sessions = baseline.rolling
    # A session of one run or two tells little of how nights differ.
    whole = [session for session in sessions if len(session) >= FIRST_LOOK]
    if (
        sum(map(len, sessions)) >= MIN_BASELINE_RUNS
        and len(whole) >= MIN_BASELINE_SESSIONS
        and terms.tolerance_of(baseline) <= MAX_TOLERANCE_PERCENT
        and (terms.repeats is None or terms.repeats >= FIRST_LOOK)
    ):
        return RuleName.SEQUENTIAL
    return RuleName.TOLERANCE
