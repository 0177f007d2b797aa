"""The rule for baselines with few runs: the median against the accepted number, in percent."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, final

from pytest_dlperf.gate.noise import StandardError, are_alike, median_variance, pooled_noise
from pytest_dlperf.model.judgement import Decision, Verdict
from pytest_dlperf.model.metric import Better, RuleName
from pytest_dlperf.model.statistics import MANY_RUNS, median, rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.baseline import Baseline

USUAL_REPEATS: Final = 5
"""Runs of a session where nobody says how many there are."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceRule:
    """The median may be so many percent worse than the accepted number.

    The last accepted sessions tell the noise; where their runs have none, ``is_noise_free``.
    """

    name: ClassVar[RuleName] = RuleName.TOLERANCE
    baseline: Baseline
    tolerance_percent: float
    at_most: int
    is_noise_free: bool = False

    @property
    def better(self) -> Better:
        """In which direction the metric improves."""
        return self.baseline.better

    def decide(self, values: Sequence[float], *, is_last: bool) -> Decision | None:
        """Decide when all runs are there."""
        if not is_last and len(values) < self.at_most:
            return None
        baseline = self.baseline
        measured = rounded(median(values), baseline.estimator.decimals_of(baseline.metric))
        # Tonight alone tells the noise of what had none.
        sessions = () if self.is_noise_free else baseline.rolling
        decision = compared(
            measured,
            baseline.accepted,
            baseline.better,
            tolerance_percent=self.tolerance_percent,
            error=median_error(values, sessions, len(baseline.runs)),
        )
        return self._without_noise(decision, values) if self.is_noise_free else decision

    def _without_noise(self, decision: Decision, values: Sequence[float]) -> Decision:
        """Say that the accepted runs do not differ, and what follows if tonight's do."""
        if not are_alike(values):
            apart = 100 * (max(values) / min(values) - 1)
            note = f"tonight's runs lie {apart:.2f} % apart, the accepted ones do not differ"
            return replace(decision, notes=(note,))
        return replace(
            decision,
            interval_percent=None,
            min_detectable_percent=self.tolerance_percent,
            false_alarm=0.0,
            notes=("the accepted runs do not differ: one run is enough, judged by its tolerance",),
        )


def median_error(
    values: Sequence[float], sessions: Sequence[Sequence[float]], accepted_runs: int
) -> StandardError | None:
    """Give the error of tonight's median beside the accepted one; ``None`` with too few runs.

    The accepted one is the median of ``accepted_runs`` runs; 0: nobody knows of how many.
    """
    # A baseline with few runs does not tell their noise well enough; tonight's help.
    if sum(map(len, sessions)) < MANY_RUNS:
        sessions = (*sessions, values)
    noise = pooled_noise(sessions)
    if noise is None:
        return None
    # A number without its runs is taken for the median of as many as tonight's: five at most.
    accepted = accepted_runs or min(len(values), USUAL_REPEATS)
    variance = median_variance(accepted) + median_variance(len(values))
    return StandardError(value=noise.deviation * math.sqrt(variance), dof=noise.dof)


def compared(
    measured: float,
    accepted: float,
    better: Better,
    *,
    tolerance_percent: float,
    error: StandardError | None,
) -> Decision:
    """Hold a number of tonight against the accepted one, with what the error of both lets see."""
    difference = measured / accepted - 1
    tolerance = tolerance_percent / 100
    # Products, not the loss: a median of exactly the allowed number has to pass.
    if better.is_worse(measured, better.changed(accepted, -tolerance)):
        verdict = Verdict.REGRESSED
    elif better.is_worse(better.changed(accepted, tolerance), measured):
        verdict = Verdict.IMPROVED
    else:
        verdict = Verdict.PASS
    return Decision(
        rule=RuleName.TOLERANCE,
        verdict=verdict,
        reference=accepted,
        difference_percent=100 * difference,
        tolerance_percent=tolerance_percent,
        interval_percent=error.interval_percent(difference) if error else None,
        min_detectable_percent=error.min_detectable_percent(tolerance, better) if error else None,
        false_alarm=error.false_alarm(tolerance) if error else None,
    )
