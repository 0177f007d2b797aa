"""The rule for baselines with few runs: the median against the accepted number, in percent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, final

from pytest_dlperf.gate.noise import StandardError, median_variance, pooled_noise
from pytest_dlperf.model.judgement import Decision, RuleName, Verdict
from pytest_dlperf.model.statistics import MANY_RUNS, median, rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

USUAL_REPEATS: Final = 5
"""Runs of a session where nobody says how many there are."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceRule:
    """The median may lie so many percent below the accepted number.

    ``accepted`` is in the unit of the runs and the median of ``accepted_runs`` runs (0: nobody
    knows of how many). ``sessions`` are the runs of the last accepted sessions, which tell the
    noise. ``decimals`` is what the estimator rounds medians to.
    """

    name: ClassVar[RuleName] = RuleName.TOLERANCE
    accepted: float
    accepted_runs: int
    sessions: tuple[tuple[float, ...], ...]
    tolerance_percent: float
    at_most: int
    decimals: int | None = None

    def decide(self, throughputs: Sequence[float], *, is_last: bool) -> Decision | None:
        """Decide when all runs are there."""
        if not is_last and len(throughputs) < self.at_most:
            return None
        measured = median(throughputs)
        if self.decimals is not None:
            measured = rounded(measured, self.decimals)
        return compared(
            measured,
            self.accepted,
            tolerance_percent=self.tolerance_percent,
            error=median_error(throughputs, self.sessions, self.accepted_runs),
        )


def median_error(
    throughputs: Sequence[float], sessions: Sequence[Sequence[float]], accepted_runs: int
) -> StandardError | None:
    """Give the error of tonight's median beside the accepted one; ``None`` with too few runs."""
    # A baseline with few runs does not tell their noise well enough; tonight's help.
    if sum(map(len, sessions)) < MANY_RUNS:
        sessions = (*sessions, throughputs)
    noise = pooled_noise(sessions)
    if noise is None:
        return None
    # A number without its runs is taken for the median of as many as tonight's: five at most.
    accepted = accepted_runs or min(len(throughputs), USUAL_REPEATS)
    variance = median_variance(accepted) + median_variance(len(throughputs))
    return StandardError(value=noise.deviation * math.sqrt(variance), dof=noise.dof)


def compared(
    measured: float, accepted: float, *, tolerance_percent: float, error: StandardError | None
) -> Decision:
    """Hold a number of tonight against the accepted one, with what the error of both lets see."""
    difference = measured / accepted - 1
    tolerance = tolerance_percent / 100
    # Products, not the difference: a median of exactly the allowed number has to pass.
    if measured < accepted * (1 - tolerance):
        verdict = Verdict.REGRESSED
    elif measured > accepted * (1 + tolerance):
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
        min_detectable_percent=error.min_detectable_percent(tolerance) if error else None,
        false_alarm=error.false_alarm(tolerance) if error else None,
    )
