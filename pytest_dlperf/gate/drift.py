"""What the last sessions pass, and the accepted number does not: losses of a little every night."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_dlperf.gate import wording
from pytest_dlperf.model.judgement import Verdict

if TYPE_CHECKING:
    from pytest_dlperf.gate.noise import StandardError
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.judgement import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How much worse than the accepted number tonight may be.

    ``sessions`` is how many were accepted last. ``allowed`` is a part of the accepted number,
    ``error`` that of tonight's difference from it.
    """

    baseline: Baseline
    sessions: int
    allowed: float
    error: StandardError

    @property
    def false_alarm(self) -> float:
        """Probability that one look calls it drift when nothing has changed."""
        return self.error.false_alarm(self.allowed)

    def is_seen(self, measured: float) -> bool:
        """Tell whether tonight is too much worse than the accepted number."""
        return self.baseline.better.loss(measured, self.baseline.accepted) > self.allowed

    def describe(self, decision: Decision, measured: float) -> Decision:
        """Give the decision the numbers that drift rests on: those against the accepted number."""
        baseline = self.baseline
        difference = measured / baseline.accepted - 1
        since = f" {baseline.acceptance.at}" if baseline.acceptance else ""
        where = "below" if difference < 0 else "above"
        return replace(
            decision,
            verdict=Verdict.REGRESSED,
            difference_percent=100 * difference,
            reference=baseline.accepted,
            tolerance_percent=100 * self.allowed,
            min_detectable_percent=self.error.min_detectable_percent(self.allowed, baseline.better),
            interval_percent=self.error.interval_percent(difference),
            reason=(
                f"drift: the last {self.sessions} sessions pass, but the {baseline.metric} "
                f"accepted{since}, {wording.number(baseline.accepted)}, does not: tonight lies "
                f"{100 * abs(difference):.1f} % {where} it, allowed are {100 * self.allowed:.1f} %"
            ),
        )
