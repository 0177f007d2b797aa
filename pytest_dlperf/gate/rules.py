"""The rules that decide about runs: which of them judges a case, and how many runs it asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, final

from pytest_dlperf.gate.noise import is_noise_free
from pytest_dlperf.gate.sequential import (
    FIRST_LOOK,
    MIN_BASELINE_RUNS,
    MIN_BASELINE_SESSIONS,
    MIN_LOSS_PERCENT,
    SequentialRule,
)
from pytest_dlperf.gate.tolerance import USUAL_REPEATS, ToleranceRule
from pytest_dlperf.model.baseline import MAX_TOLERANCE_PERCENT, AcceptedSession
from pytest_dlperf.model.measurement import (
    FixedRepeats,
    RunStatus,
)
from pytest_dlperf.model.metric import RuleName, Source
from pytest_dlperf.model.statistics import median

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.judgement import Decision
    from pytest_dlperf.model.measurement import Repeats, Run
    from pytest_dlperf.model.metric import Better, Metric


class Rule(Protocol):
    """Decides about one metric of a case; made from its baseline, and without memory."""

    @property
    def name(self) -> RuleName:
        """Which rule it is."""

    @property
    def better(self) -> Better:
        """In which direction the metric improves."""

    @property
    def at_most(self) -> int:
        """The number of runs after which it always decides."""

    def decide(self, values: Sequence[float], *, is_last: bool) -> Decision | None:
        """Decide by the runs so far, in their order; ``None`` asks for one more.

        With ``is_last`` there will be no more, and there is always a decision.

        Raises:
            ValueError: There are no runs.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a metric is judged by beside its baseline: its system's numbers, the user's wishes."""

    tolerance_percent: float
    """The metric's or its system's; a tolerance of the baseline goes before it."""
    min_loss_percent: float = MIN_LOSS_PERCENT
    """The smallest loss that counts by the sequential rule, unless a tolerance of the metric or
    of the baseline says it; smaller where a control arm will confirm it."""
    default_repeats: int | None = None
    """Runs that the system takes; ``None`` for all that there are."""
    repeats: int | None = None
    """Runs that the user fixed."""
    forced: RuleName | None = None
    """The rule that the user wants."""

    def tolerance_of(self, baseline: Baseline | None) -> float:
        """Return the tolerance in percent: the baseline's, else the system's."""
        own = baseline.tolerance_percent if baseline is not None else None
        return self.tolerance_percent if own is None else own

    def min_loss_of(self, metric: Metric, baseline: Baseline | None) -> float:
        """Return the smallest loss that counts in percent: a tolerance of its own is one."""
        own = baseline.tolerance_percent if baseline is not None else None
        own = metric.tolerance_percent if own is None else own
        return self.min_loss_percent if own is None else own


@final
@dataclass(frozen=True, slots=True)
class RepeatsByRule:
    """As many runs as the rules of all metrics need, by name, and ``at_least`` so many."""

    rules: Mapping[str, Rule]
    at_least: int = 1

    @property
    def at_most(self) -> int:
        """The largest number of runs."""
        return max(self.at_least, *(rule.at_most for rule in self.rules.values()))

    @property
    def may_be_fewer(self) -> bool:
        """Whether a rule may decide before that."""
        return self.at_least < self.at_most

    def is_enough(self, runs: Sequence[Run]) -> bool:
        """Tell whether every rule decides by these runs."""
        whole = [run for run in runs if run.status is RunStatus.OK]
        if len(whole) < max(self.at_least, 1):
            return False
        for name, rule in self.rules.items():
            values = [run.metrics[name] for run in whole if name in run.metrics]
            # What is missing or unfit is told whatever else is run.
            is_judged = len(values) == len(whole) and min(values) > 0
            if is_judged and rule.decide(values, is_last=False) is None:
                return False
        return True


def last_decision(rule: Rule, values: Sequence[float]) -> Decision:
    """Decide by all the runs that there will be."""
    decision = rule.decide(values, is_last=True)
    if decision is None:
        raise AssertionError(f"the {rule.name.value} rule did not decide by its last run")
    return decision


def rule_for(
    metric: Metric, baseline: Baseline, terms: Terms, *, available: int | None = None
) -> Rule:
    """Make the rule that judges a metric of a case; ``available`` are the runs that can be had.

    A baseline without any run is judged by the tolerance, also if the sequential rule is forced:
    there is nothing that it could go by.
    """
    sessions = baseline.rolling
    tolerance_percent = terms.tolerance_of(baseline)
    if _rule_name(metric, baseline, terms) is RuleName.SEQUENTIAL and any(sessions):
        return SequentialRule.of(
            baseline,
            tolerance_percent=tolerance_percent,
            min_loss_percent=terms.min_loss_of(metric, baseline),
            repeats=terms.repeats,
            available=available,
        )
    is_quiet = _is_quiet(metric, sessions)
    repeats = 1 if is_quiet else terms.default_repeats or USUAL_REPEATS
    return ToleranceRule(
        baseline=baseline,
        tolerance_percent=tolerance_percent,
        at_most=terms.repeats or repeats,
        is_noise_free=is_quiet,
    )


def rule_maker(
    metric: Metric, baseline: Baseline, terms: Terms
) -> Callable[[Sequence[Sequence[float]]], Rule]:
    """Return a function that makes a metric's rule as if its baseline held other sessions."""
    # By the name that the real baseline has, so that a few runs less are no other rule.
    terms = replace(terms, forced=_rule_name(metric, baseline, terms))

    def make(sessions: Sequence[Sequence[float]]) -> Rule:
        accepted, *later = sessions
        other = replace(
            baseline,
            accepted=median(accepted),
            runs=dict(enumerate(accepted, 1)),
            sessions=tuple(AcceptedSession(at="", runs=tuple(runs)) for runs in later),
        )
        return rule_for(metric, other, terms)

    return make


def repeats_for(
    baselines: Mapping[str, Baseline],
    terms_by_metric: Mapping[Metric, Terms],
    *,
    at_least: int | None = None,
) -> Repeats:
    """Say how many runs of a case are taken: until each metric's rule has decided.

    What the user fixed is changed by nothing. ``terms_by_metric`` has what is judged; a ratio asks
    for what it is over. A metric without baseline takes the system's usual runs. ``at_least`` is
    what a session needs that records baselines.
    """
    rules: dict[str, Rule] = {}
    fewest: int | None = at_least or 1
    for metric, terms in terms_by_metric.items():
        if terms.repeats is not None:
            return FixedRepeats(terms.repeats)
        if metric.ratio_of is not None:
            continue
        baseline = baselines.get(metric.name)
        rule = None
        if metric.better is not None and baseline is not None and why_unusable(baseline) is None:
            rule = rule_for(metric, baseline, terms)
        if rule is not None and (rule.name is RuleName.SEQUENTIAL or rule.at_most == 1):
            rules[metric.name] = rule
        elif fewest is not None:
            usual = terms.default_repeats
            fewest = None if usual is None else max(fewest, usual)
    return RepeatsByRule(rules, fewest) if rules and fewest is not None else FixedRepeats(fewest)


def why_unusable(baseline: Baseline) -> str | None:
    """Say why nothing can be held against a baseline; ``None`` if it can: a loss is a part of it.

    So numbers have to be above 0.
    """
    values = (baseline.accepted, *(run for session in baseline.rolling for run in session))
    if min(values) > 0:
        return None
    return (
        f"{baseline.place} accepts {min(values):g} as {baseline.metric}: a loss is a part of the "
        "accepted number, which has to be above 0"
    )


def _rule_name(metric: Metric, baseline: Baseline, terms: Terms) -> RuleName:
    """Choose the rule: the user's, the metric's own, else sequential as soon as it can decide.

    What does not differ from run to run has no noise that the sequential rule could go by.
    """
    wanted = terms.forced or metric.rule
    if wanted is not None:
        return wanted
    sessions = baseline.rolling
    # A session of one run or two tells little of how nights differ.
    whole = [session for session in sessions if len(session) >= FIRST_LOOK]
    if (
        sum(map(len, sessions)) >= MIN_BASELINE_RUNS
        and len(whole) >= MIN_BASELINE_SESSIONS
        and terms.tolerance_of(baseline) <= MAX_TOLERANCE_PERCENT
        and (terms.repeats is None or terms.repeats >= FIRST_LOOK)
        and not _is_quiet(metric, sessions)
    ):
        return RuleName.SEQUENTIAL
    return RuleName.TOLERANCE


def _is_quiet(metric: Metric, sessions: Sequence[Sequence[float]]) -> bool:
    """Tell whether a metric does not differ from run to run: times that agree do so by chance."""
    return metric.source is Source.LOG and is_noise_free(sessions)
