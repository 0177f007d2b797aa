"""Which rule judges a metric, and how many runs that takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from msgspec import Struct

from pytest_dlperf.gate.noise import is_noise_free
from pytest_dlperf.gate.reference import Reference, counted_sessions
from pytest_dlperf.gate.sequential import (
    FIRST_LOOK,
    MIN_BASELINE_RUNS,
    MIN_BASELINE_SESSIONS,
    MIN_LOSS_PERCENT,
    SequentialRule,
)
from pytest_dlperf.gate.tolerance import USUAL_REPEATS, ToleranceRule
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import MAX_TOLERANCE_PERCENT
from pytest_dlperf.model.measurement import FixedRepeats, RunStatus
from pytest_dlperf.model.metric import RuleName, Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.judgement import Decision
    from pytest_dlperf.model.measurement import Repeats, Run
    from pytest_dlperf.model.metric import Better, Metric


class Rule(Protocol):
    """Decides about one metric of a case. It is made from a baseline and keeps no state."""

    @property
    def name(self) -> RuleName:
        """Which rule it is."""

    @property
    def better(self) -> Better:
        """In which direction the metric improves."""

    @property
    def at_most(self) -> int:
        """The number of runs after which it always decides."""

    @property
    def may_be_fewer(self) -> bool:
        """Whether it may decide before ``at_most`` runs."""

    @property
    def min_detectable_percent(self) -> float | None:
        """The loss that a usual night finds nine times out of ten; ``None`` if that is unknown."""

    def decide(self, values: Sequence[float], *, is_last: bool) -> Decision | None:
        """Decide by the runs so far, in their order; ``None`` asks for one more.

        With ``is_last`` there will be no more, and there is always a decision.

        Raises:
            ValueError: There are no runs.
        """


class Terms(Struct, frozen=True, kw_only=True):
    """What a metric is judged by beside its baseline: its system's numbers, the user's options."""

    tolerance_percent: float
    """The metric's or its system's; the baseline's own tolerance takes precedence."""
    tolerance_at_least: float = 0.0
    """A loss of this amount in the metric's unit passes, however many percent it is."""
    min_loss_percent: float = MIN_LOSS_PERCENT
    """The smallest loss that counts by the sequential rule, unless the metric or the baseline has
    its own tolerance; smaller where a control arm follows."""
    default_repeats: int | None = None
    """Runs that the system takes; ``None``: all there are."""
    repeats: int | None = None
    """Runs that the user fixed (``--dlperf-repeats``)."""
    forced: RuleName | None = None
    """The rule that the user forces (``--dlperf-gate``)."""
    members: int = 1
    """How many metrics are judged together, as a family: a false alarm of any is one of all."""

    def tolerance_of(self, baseline: Baseline | None, *, level: float | None = None) -> float:
        """Return the tolerance in percent: the baseline's, else the system's.

        ``level`` stands in for the accepted number where there is no baseline.
        """
        own = baseline.tolerance_percent if baseline is not None else None
        percent = self.tolerance_percent if own is None else own
        return max(percent, self._least_percent(baseline.accepted if baseline else level))

    def min_loss_of(self, metric: Metric, baseline: Baseline | None) -> float:
        """Return the smallest loss that counts in percent: its own tolerance, if it has one."""
        own = baseline.tolerance_percent if baseline is not None else None
        own = metric.tolerance_percent if own is None else own
        percent = self.min_loss_percent if own is None else own
        return max(percent, self._least_percent(baseline.accepted if baseline else None))

    def notes(self, metric: Metric, baseline: Baseline) -> tuple[str, ...]:
        """Note the amount that passes where it exceeds the tolerance in percent."""
        least = self._least_percent(baseline.accepted)
        if not least or least < self.tolerance_of(baseline):
            return ()
        return (f"a loss of up to {numbers.quantity(self.tolerance_at_least, metric.unit)} passes",)

    def _least_percent(self, level: float | None) -> float:
        return 100 * self.tolerance_at_least / level if level else 0.0


@final
class RepeatsByRule(Struct, frozen=True):
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
        """Whether every rule decides by these runs."""
        whole = [run for run in runs if run.status is RunStatus.OK]
        if len(whole) < max(self.at_least, 1):
            return False
        for name, rule in self.rules.items():
            values = [run.metrics[name] for run in whole if name in run.metrics]
            # A missing or unusable number is invalid, however many runs follow.
            if len(values) < len(whole) or min(values) <= 0:
                continue
            if rule.decide(values, is_last=False) is None:
                return False
        return True


def last_decision(rule: Rule, values: Sequence[float]) -> Decision:
    """Decide by the last run."""
    decision = rule.decide(values, is_last=True)
    if decision is None:
        raise AssertionError(f"the {rule.name.value} rule did not decide by its last run")
    return decision


def rule_for(
    metric: Metric, baseline: Baseline, terms: Terms, *, available: int | None = None
) -> Rule:
    """Make the rule that judges a metric of a case; ``available`` is how many runs can be had.

    Without a run in the baseline it is the tolerance, also if the sequential rule is forced: that
    has no noise to go by.
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
            members=terms.members,
        )
    return ToleranceRule(
        baseline=baseline,
        tolerance_percent=tolerance_percent,
        at_most=terms.repeats or terms.default_repeats or USUAL_REPEATS,
        is_printed=metric.source is Source.LOG,
        is_noise_free=_is_quiet(metric, sessions),
        members=terms.members,
    )


def repeats_for(
    baselines: Mapping[str, Baseline],
    terms_by_metric: Mapping[Metric, Terms],
    *,
    at_least: int | None = None,
) -> Repeats:
    """Choose how many runs of a case are taken: until each metric's rule has decided.

    A number that the user fixed stands. ``terms_by_metric`` has the judged metrics; those that a
    ratio is taken of are among them. A metric without baseline takes the system's usual runs.
    ``at_least`` is the number that a session needs that records baselines.
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
        if rule is not None and rule.may_be_fewer:
            rules[metric.name] = rule
        elif fewest is not None:
            usual = terms.default_repeats
            fewest = None if usual is None else max(fewest, usual)
    if not rules or fewest is None:
        return FixedRepeats(fewest)
    return RepeatsByRule(rules, fewest)


def why_unusable(baseline: Baseline) -> str | None:
    """Return why a baseline cannot be compared with; ``None`` if it can.

    A loss is a part of a number, so all numbers have to be above 0.
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

    A metric that does not differ from run to run has no noise for the sequential rule.
    """
    wanted = terms.forced or metric.rule
    if wanted is not None:
        return wanted
    sessions = counted_sessions(baseline.rolling)
    # Sessions of one run or two show little of how nights differ.
    whole = [session for session in sessions if len(session) >= FIRST_LOOK]
    if (
        len(whole) >= MIN_BASELINE_SESSIONS
        and Reference.of(sessions, baseline.better).counted >= MIN_BASELINE_RUNS
        and terms.tolerance_of(baseline) <= MAX_TOLERANCE_PERCENT
        and (terms.repeats is None or terms.repeats >= FIRST_LOOK)
        and not _is_quiet(metric, sessions)
    ):
        return RuleName.SEQUENTIAL
    return RuleName.TOLERANCE


def _is_quiet(metric: Metric, sessions: Sequence[Sequence[float]]) -> bool:
    """Whether a metric never differs from run to run; equal times are equal by chance."""
    return metric.source is Source.LOG and is_noise_free(sessions)
