"""What all rules have in common: runs go in, a decision or the wish for one more comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.judgement import RuleName, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a rule makes of the runs of a case.

    ``difference_percent`` is how far they lie above ``reference`` (below: negative),
    ``interval_percent`` its 95 % interval; ``reference`` is in the unit of the runs.
    ``threshold_percent`` is the largest loss that passes with so many runs,
    ``min_detectable_percent`` the smallest that is found nine times out of ten. ``false_alarm``
    is the probability of an alarm when nothing has changed. What too few runs cannot tell is
    ``None``. ``reason`` is there where the numbers alone do not explain the verdict; ``notes`` are
    worth knowing and change no verdict.
    """

    verdict: Verdict
    difference_percent: float | None
    reference: float
    threshold_percent: float
    interval_percent: tuple[float, float] | None = None
    min_detectable_percent: float | None = None
    false_alarm: float | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()


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


def last_decision(rule: Rule, throughputs: Sequence[float]) -> Decision:
    """What a rule decides by all the runs that there will be.

    Raises:
        ValueError: There are no runs.
    """
    decision = rule.decide(throughputs, is_last=True)
    if decision is None:
        raise AssertionError(f"the {rule.name.value} rule did not decide by its last run")
    return decision
