"""Verdicts, the decisions of rules that they rest on, and the numbers that led to them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pytest_dlperf.model.metric import Metric, RuleName


class Verdict(str, Enum):
    """What the gate says of one metric of one case.

    The first two pass a test. The third passes it too, but not in a strict session.
    """

    PASS = "pass"  # noqa: S105 - a verdict, no password
    IMPROVED = "improved"
    ENVIRONMENT_SHIFT = "environment_shift"
    """Worse than the baseline, but not than the accepted software tonight on the same hosts."""
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
    def is_of_change(self) -> bool:
        """Whether a number was compared, and did not simply pass."""
        return self in {
            Verdict.IMPROVED,
            Verdict.ENVIRONMENT_SHIFT,
            Verdict.REGRESSED,
            Verdict.INCONCLUSIVE,
        }

    @property
    def is_of_nothing(self) -> bool:
        """Whether there was no number that could be compared."""
        return self in {Verdict.FAILED, Verdict.HUNG, Verdict.INVALID, Verdict.SKIPPED}

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a rule makes of tonight's runs, and how well it can see."""

    rule: RuleName
    verdict: Verdict
    reference: float
    """What tonight is held against: the accepted number, or the last accepted sessions pooled; in
    the metric's unit."""
    difference_percent: float
    """How far tonight lies above the reference, as the rule sees it; negative: below. Which of
    them is worse says the metric's direction."""
    tolerance_percent: float
    """The largest loss that passes with so many runs."""
    interval_percent: tuple[float, float] | None = None
    """The 95 % interval of the difference; ``None``, like the next two, with too few runs."""
    min_detectable_percent: float | None = None
    """The smallest loss that the rule finds nine times out of ten."""
    false_alarm: float | None = None
    """Probability of an alarm when nothing has changed."""
    reason: str | None = None
    """Why, where the numbers alone do not explain the verdict."""
    notes: tuple[str, ...] = ()
    """Worth knowing; they change no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on one metric of one case, with the numbers that led to it."""

    metric: Metric
    verdict: Verdict
    """The decision's, unless a later step (the control arm, an acceptance) settled another."""
    measured: float | None = None
    """Tonight's median in the metric's unit; for a ratio, that of two medians."""
    accepted: float | None = None
    """The number that a person agreed to."""
    decision: Decision | None = None
    """What the rule made of the runs; ``None`` where nothing was compared."""
    reason: str | None = None
    ends: tuple[str, ...] = ()
    """The numbers of both ends of a ratio, for the reader."""
    notes: tuple[str, ...] = ()
    """Worth knowing; they change no verdict."""
    recorded: bool = False
    """Whether tonight's number becomes the accepted one."""
    refused: str | None = None
    """Why a number that was to be accepted is not."""
    excused: bool = False
    """Whether the test was expected to fail, and did."""

    @property
    def loss_percent(self) -> float | None:
        """By how much tonight is worse than the reference; negative: better."""
        difference, better = self.difference_percent, self.metric.better
        return None if difference is None or better is None else -better.sign * difference

    @property
    def rule(self) -> RuleName | None:
        """The rule that decided; this and the next ones are ``None`` without a decision."""
        return self.decision.rule if self.decision else None

    @property
    def reference(self) -> float | None:
        """What tonight is held against."""
        return self.decision.reference if self.decision else None

    @property
    def difference_percent(self) -> float | None:
        """How far tonight lies above the reference."""
        return self.decision.difference_percent if self.decision else None

    @property
    def interval_percent(self) -> tuple[float, float] | None:
        """The 95 % interval of the difference."""
        return self.decision.interval_percent if self.decision else None

    @property
    def tolerance_percent(self) -> float | None:
        """The largest loss that passes."""
        return self.decision.tolerance_percent if self.decision else None

    @property
    def min_detectable_percent(self) -> float | None:
        """The smallest loss that the rule finds nine times out of ten."""
        return self.decision.min_detectable_percent if self.decision else None

    @property
    def false_alarm(self) -> float | None:
        """Probability of an alarm when nothing has changed."""
        return self.decision.false_alarm if self.decision else None

    def passes(self, *, strict: bool) -> bool:
        """Tell whether the test passes. What is accepted does, and is no shift any more."""
        if self.recorded:
            return True
        return self.verdict.passes and not (strict and self.verdict is Verdict.ENVIRONMENT_SHIFT)

    def fails(self, *, strict: bool) -> bool:
        """Tell whether the test fails: it does not pass, and is not skipped."""
        return self.verdict is not Verdict.SKIPPED and not self.passes(strict=strict)
