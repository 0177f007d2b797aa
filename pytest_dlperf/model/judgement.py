"""What the gate says of one quantity of one case, with the numbers that led to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Verdict(str, Enum):
    """What the gate says of one quantity of one case.

    The first two pass a test. The third passes it too, but not in a strict session.
    """

    PASS = "pass"  # noqa: S105 - a verdict, no password
    IMPROVED = "improved"
    ENVIRONMENT_SHIFT = "environment_shift"
    """Slower than the baseline, but not than the accepted software tonight on the same hosts."""
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no_baseline"
    FAILED = "failed"
    HUNG = "hung"
    INVALID = "invalid"
    SKIPPED = "skipped"

    @property
    def passes(self) -> bool:
        """Whether a test with this verdict passes, in a session that is not strict."""
        return self in {Verdict.PASS, Verdict.IMPROVED, Verdict.ENVIRONMENT_SHIFT}

    @property
    def gravity(self) -> int:
        """Where the verdict stands among all of them, 0 being the worst."""
        return _WORST_FIRST.index(self)


_WORST_FIRST: Final = (
    Verdict.FAILED,
    Verdict.HUNG,
    Verdict.INVALID,
    Verdict.REGRESSED,
    Verdict.INCONCLUSIVE,
    Verdict.NO_BASELINE,
    Verdict.ENVIRONMENT_SHIFT,
    Verdict.SKIPPED,
    Verdict.IMPROVED,
    Verdict.PASS,
)


class Quantity(str, Enum):
    """What is judged."""

    THROUGHPUT = "throughput"
    SPEEDUP = "speedup"


class RuleName(str, Enum):
    """The rules that a gate can decide by."""

    TOLERANCE = "tolerance"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on one quantity, with the numbers that led to it.

    ``measured``, ``accepted`` and ``reference`` are in the unit per second for throughput and a
    plain ratio for speedup. ``measured`` is the median, ``accepted`` the number that a person
    agreed to, ``reference`` what tonight is held against: the accepted number, or the last
    accepted sessions pooled. ``difference_percent`` is how far tonight lies above the reference
    (below: negative) as the rule saw it, ``interval_percent`` its 95 % interval.
    ``tolerance_percent`` is the largest loss that passes, ``min_detectable_percent`` the smallest
    loss that the rule finds in nine nights of ten; ``None`` where there are too few runs to say.
    ``false_alarm`` is the probability that the rule gives an alarm when nothing has changed.
    ``ends`` tell the throughputs of both ends of a speedup. ``notes`` are worth knowing and change
    no verdict.
    ``recorded`` says that tonight's numbers become the baseline, ``excused`` that the test was
    expected to fail and did: for what the verdict is, nothing else changes.
    """

    quantity: Quantity
    verdict: Verdict
    measured: float | None = None
    accepted: float | None = None
    reference: float | None = None
    difference_percent: float | None = None
    interval_percent: tuple[float, float] | None = None
    tolerance_percent: float | None = None
    min_detectable_percent: float | None = None
    false_alarm: float | None = None
    rule: RuleName | None = None
    reason: str | None = None
    ends: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    recorded: bool = False
    excused: bool = False

    def passes(self, *, strict: bool) -> bool:
        """Whether the test passes. What is accepted does, and is no shift any more."""
        if self.recorded:
            return True
        return self.verdict.passes and not (strict and self.verdict is Verdict.ENVIRONMENT_SHIFT)
