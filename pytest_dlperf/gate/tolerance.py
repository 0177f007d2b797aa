"""The rule for baselines with few runs: the median against the accepted number, in percent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf import numeric
from pytest_dlperf.gate.noise import median, median_variance, noise, tail
from pytest_dlperf.gate.rule import Decision
from pytest_dlperf.gate.verdict import RuleName, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

# Fewer runs do not tell how much they differ. A baseline of one session is asked for more than
# tonight's runs, for it is asked every night.
_LEAST_BASELINE_RUNS: Final = 5
_LEAST_CANDIDATE_RUNS: Final = 3

_NINE_OF_TEN: Final = 1.2816
"""Deviations that nine normal values of ten stay above on one side."""

_INTERVAL: Final = 1.96
"""Deviations that 95 normal values of 100 stay within."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ToleranceRule:
    """The median may lie so many percent below the accepted number.

    ``accepted`` is in the unit of the runs and the median of ``accepted_runs``, as far as they are
    known. ``decimals`` is what the estimator rounds medians to.
    """

    accepted: float
    accepted_runs: tuple[float, ...]
    tolerance_percent: float
    at_most: int
    decimals: int | None = None

    @property
    def name(self) -> RuleName:
        """Which rule it is."""
        return RuleName.TOLERANCE

    def decide(self, throughputs: Sequence[float], *, is_last: bool) -> Decision | None:
        """Decide when all runs are there.

        Raises:
            ValueError: There are no runs.
        """
        if not is_last and len(throughputs) < self.at_most:
            return None
        measured = median(throughputs)
        if self.decimals is not None:
            measured = numeric.rounded(measured, self.decimals)
        difference = measured / self.accepted - 1
        tolerance = self.tolerance_percent / 100
        # Products, not the difference: a median of exactly the allowed number has to pass.
        if measured < self.accepted * (1 - tolerance):
            verdict = Verdict.REGRESSED
        elif measured > self.accepted * (1 + tolerance):
            verdict = Verdict.IMPROVED
        else:
            verdict = Verdict.PASS
        error = self.standard_error(throughputs)
        known = error is not None
        radius = _INTERVAL * error if error is not None else 0.0
        return Decision(
            verdict=verdict,
            difference_percent=100 * difference,
            reference=self.accepted,
            threshold_percent=self.tolerance_percent,
            interval_percent=(100 * (difference - radius), 100 * (difference + radius))
            if known
            else None,
            smallest_visible_percent=self.tolerance_percent + 100 * _NINE_OF_TEN * error
            if error is not None
            else None,
            false_alarm=tail(tolerance / error) if error is not None else None,
        )

    def standard_error(self, throughputs: Sequence[float]) -> float | None:
        """Relative standard error of the difference; ``None`` with too few runs on both sides."""
        if len(self.accepted_runs) >= _LEAST_BASELINE_RUNS:
            deviation = noise(self.accepted_runs)
        elif len(throughputs) >= _LEAST_CANDIDATE_RUNS:
            deviation = noise(throughputs)
        else:
            return None
        # An accepted number without its runs is taken for the median of as many as tonight's.
        accepted = len(self.accepted_runs) or len(throughputs)
        variance = median_variance(accepted) + median_variance(len(throughputs))
        return deviation * math.sqrt(variance)
