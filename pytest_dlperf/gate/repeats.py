"""How many runs of a case are taken: until the rules of all its metrics have decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from msgspec import Struct

from pytest_dlperf.gate.rule import LAST_LOOK, Rule
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.measurement import FixedRepeats, Repeats, Run, RunStatus
from pytest_dlperf.model.metric import Metric

ADDED_RUNS: Final = 4
"""Runs of a session that is added to a baseline."""
_MAX_TOLERANCE_PERCENT: Final = 10.0
"""Sessions take no more runs for being added where the tolerance is larger."""


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
        values = {name: [run.metrics.get(name, 0.0) for run in whole] for name in self.rules}
        # A missing or unusable number is invalid, however many runs follow.
        return all(
            min(values[name]) <= 0 or rule.is_enough(values[name])
            for name, rule in self.rules.items()
        )


def repeats_for(
    baselines: Mapping[str, Baseline],
    terms_by_metric: Mapping[Metric, Terms],
    *,
    records: bool = False,
) -> Repeats:
    """Choose how many runs of a case are taken: until each metric's rule has decided.

    ``terms_by_metric`` has the judged metrics; those that a ratio is taken of are among them. A
    metric without baseline takes the system's usual runs, a session that ``records`` baselines as
    many as may be added.
    """
    rules: dict[str, Rule] = {}
    fewest = 1
    for metric, terms in terms_by_metric.items():
        if terms.repeats is not None:
            return FixedRepeats(terms.repeats)
        baseline = baselines.get(metric.name)
        # Where so much passes anyhow, runs that could be added would be for nothing.
        if records and terms.tolerance_of(baseline) <= _MAX_TOLERANCE_PERCENT:
            fewest = max(fewest, ADDED_RUNS)
        if metric.ratio_of is None and metric.better is not None and baseline is not None:
            rules[metric.name] = Rule(metric, baseline, terms)
        elif metric.ratio_of is None:
            fewest = max(fewest, terms.default_repeats)
    return RepeatsByRule(rules, fewest) if rules else FixedRepeats(fewest)
