"""What the last sessions pass, and the accepted number does not: losses of a little every night."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_dlperf.gate import wording
from pytest_dlperf.model.judgement import Verdict

if TYPE_CHECKING:
    from pytest_dlperf.gate.noise import StandardError
    from pytest_dlperf.model.judgement import Decision
    from pytest_dlperf.model.metric import Better


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How much worse than the accepted number tonight may be.

    ``accepted`` was the ``metric`` at ``accepted_at``; ``sessions`` is how many were accepted last.
    ``allowed`` is a part of the accepted number, ``error`` that of tonight's difference from it.
    """

    metric: str
    better: Better
    accepted: float
    accepted_at: str | None
    sessions: int
    allowed: float
    error: StandardError

    @property
    def false_alarm(self) -> float:
        """Probability that one look calls it drift when nothing has changed."""
        return self.error.false_alarm(self.allowed)

    def is_seen(self, measured: float) -> bool:
        """Tell whether tonight is too much worse than the accepted number."""
        return self.better.loss(measured, self.accepted) > self.allowed

    def describe(self, decision: Decision, measured: float) -> Decision:
        """Give the decision the numbers that drift rests on: those against the accepted number."""
        difference = measured / self.accepted - 1
        since = f" {self.accepted_at}" if self.accepted_at else ""
        where = "below" if difference < 0 else "above"
        return replace(
            decision,
            verdict=Verdict.REGRESSED,
            difference_percent=100 * difference,
            reference=self.accepted,
            tolerance_percent=100 * self.allowed,
            min_detectable_percent=self.error.min_detectable_percent(self.allowed, self.better),
            interval_percent=self.error.interval_percent(difference),
            reason=(
                f"drift: the last {self.sessions} sessions pass, but the {self.metric} accepted"
                f"{since}, {wording.number(self.accepted)}, does not: tonight lies "
                f"{100 * abs(difference):.1f} % {where} it, allowed are {100 * self.allowed:.1f} %"
            ),
        )
