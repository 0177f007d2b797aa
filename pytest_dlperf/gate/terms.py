"""What a metric is judged by beside its baseline, and how many runs its rule needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from msgspec import Struct

from pytest_dlperf.gate.rule import LAST_LOOK, Rule
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.measurement import FixedRepeats, Repeats, Run, RunStatus
from pytest_dlperf.model.metric import Metric

_MIN_LOSS_PERCENT: Final = 2.0
"""The smallest loss that counts, unless the metric or the baseline has its own tolerance."""
_MIN_CONFIRMED_LOSS_PERCENT: Final = 1.2
"""The same where a control arm confirms it."""


class Terms(Struct, frozen=True, kw_only=True):
    """What a metric is judged by beside its baseline: its system's numbers, the user's options."""

    tolerance_percent: float
    """The metric's or its system's; the baseline's own tolerance takes precedence."""
    tolerance_at_least: float = 0.0
    """A loss of this amount in the metric's unit passes, however many percent it is."""
    has_control: bool = False
    """Whether a control arm follows an alarm."""
    default_repeats: int = 1
    """Runs that the system takes where there is no baseline."""
    repeats: int | None = None
    """Runs that the user fixed (``--dlperf-repeats``)."""
    members: int = 1
    """How many metrics are judged together, as a family: a false alarm of any is one of all."""

    def tolerance_of(self, baseline: Baseline | None, *, level: float | None = None) -> float:
        """Return the tolerance in percent: the baseline's, else the system's.

        ``level`` stands in for the accepted number where there is no baseline.
        """
        own = baseline.tolerance_percent if baseline is not None else None
        percent = self.tolerance_percent if own is None else own
        return max(percent, self._least_percent(baseline.accepted if baseline else level))

    def min_loss_of(
        self, metric: Metric, baseline: Baseline | None, *, has_control: bool | None = None
    ) -> float:
        """Return the smallest loss that counts in percent: its own tolerance, if it has one."""
        if has_control is None:
            has_control = self.has_control
        least = _MIN_CONFIRMED_LOSS_PERCENT if has_control else _MIN_LOSS_PERCENT
        own = baseline.tolerance_percent if baseline is not None else None
        own = metric.tolerance_percent if own is None else own
        percent = least if own is None else own
        return max(percent, self._least_percent(baseline.accepted if baseline else None))

    def rule(self, metric: Metric, baseline: Baseline, *, available: int | None = None) -> Rule:
        """Make the rule that judges a metric; ``available`` is how many runs can be had."""
        return Rule(
            baseline,
            tolerance_percent=self.tolerance_of(baseline),
            min_loss_percent=self.min_loss_of(metric, baseline, has_control=False),
            min_confirmed_percent=self.min_loss_of(metric, baseline, has_control=True),
            repeats=self.repeats,
            available=available,
            members=self.members,
            has_control=self.has_control,
        )

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
        return max(self.at_least, LAST_LOOK)

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
            if not rule.is_enough(values):
                return False
        return True


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
    fewest = at_least or 1
    for metric, terms in terms_by_metric.items():
        if terms.repeats is not None:
            return FixedRepeats(terms.repeats)
        if metric.ratio_of is not None:
            continue
        baseline = baselines.get(metric.name)
        if metric.better is not None and baseline is not None and why_unusable(baseline) is None:
            rules[metric.name] = terms.rule(metric, baseline)
        else:
            fewest = max(fewest, terms.default_repeats)
    return RepeatsByRule(rules, fewest) if rules else FixedRepeats(fewest)


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
