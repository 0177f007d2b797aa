"""Verdicts, the decisions of rules that they rest on, and why a number moved."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from enum import StrEnum
from typing import Final

from msgspec import Struct

from pytest_dlperf.model.commits import SUITE, CommitRange
from pytest_dlperf.model.metric import Metric, RuleName


class Verdict(StrEnum):
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
    def is_change(self) -> bool:
        """Whether a number was compared, and did not simply pass."""
        return self in {
            Verdict.IMPROVED,
            Verdict.ENVIRONMENT_SHIFT,
            Verdict.REGRESSED,
            Verdict.INCONCLUSIVE,
        }

    @property
    def has_no_number(self) -> bool:
        """Whether there was no number that could be compared."""
        return self in {Verdict.FAILED, Verdict.HUNG, Verdict.INVALID, Verdict.SKIPPED}

    @property
    def severity_rank(self) -> int:
        """The verdict's place among all of them, the worst being 0."""
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


class Decision(Struct, frozen=True, kw_only=True):
    """What a rule makes of tonight's runs, and how well it can see."""

    rule: RuleName
    """The rule that decided."""
    verdict: Verdict
    """What it says of the runs."""
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
    standing_notes: tuple[str, ...] = ()
    """The same of the accepted sessions: so it was last night, too."""


class JudgementDetails(Struct, frozen=True, kw_only=True):
    """A verdict, and how it came about."""

    verdict: Verdict
    """The decision's, unless a later step (the control arm, an acceptance) settled another."""
    measured: float | None = None
    """Tonight's median in the metric's unit; for a ratio, that of two medians."""
    accepted: float | None = None
    """The number that a person agreed to."""
    decision: Decision | None = None
    """What the rule made of the runs; ``None`` where nothing was compared."""
    reason: str | None = None
    """What led to the verdict, in words."""
    ends: tuple[str, ...] = ()
    """The numbers of both ends of a ratio, for the reader."""
    notes: tuple[str, ...] = ()
    """Worth knowing; they change no verdict."""
    standing_notes: tuple[str, ...] = ()
    """What a green night need not repeat; otherwise it is among ``notes``."""
    recorded: bool = False
    """Whether tonight's number becomes the accepted one."""
    refused: str | None = None
    """Why a number that was to be accepted is not."""
    remedy: str | None = None
    """What it takes to accept it."""
    excused: bool = False
    """Whether the test was expected to fail, and did."""


class Judgement(JudgementDetails, frozen=True, kw_only=True):
    """The verdict on one metric of one case, with the numbers that led to it."""

    metric: Metric
    """What is judged."""

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
        """Whether the test passes. A number that becomes the accepted one does."""
        if self.recorded:
            return True
        is_shift = self.verdict is Verdict.ENVIRONMENT_SHIFT
        # A case that was not started has this verdict too, and nothing was measured.
        return self.verdict.passes and not (is_shift and (strict or self.measured is None))

    def fails(self, *, strict: bool) -> bool:
        """Whether the test fails: it neither passes nor is skipped."""
        return self.verdict is not Verdict.SKIPPED and not self.passes(strict=strict)


# --------------------------------------------------------------------------- explanations


class DifferenceKind(StrEnum):
    """What may differ between two nights."""

    COMMAND = "command"
    """An argument of the trainer's command line."""
    ENVIRONMENT = "environment"
    """A variable that the launch sets."""
    LAUNCH = "launch"
    """Another part of the launch: launcher, working directory, options of srun or a container."""
    COMMIT = "commit"
    """Of a checkout that the trainer runs from, or that the system files lie in."""
    SOFTWARE = "software"
    """A version: packages, runtime, driver, firmware."""
    MACHINE = "machine"
    HOSTS = "hosts"


class PastNight(Struct, frozen=True, kw_only=True):
    """An earlier session of the case's metric, or tonight's."""

    at: str
    """When it began, ISO 8601 with its zone."""
    commit: str | None = None
    """The suite's commit, if known."""
    ci_run: str | None = None
    """The address of the CI's run, if known."""
    median: float | None = None
    """In the metric's unit; ``None`` where nothing was measured."""


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that is not the same on all sides.

    A side is ``None`` where it is unknown, and ``-`` (``ABSENT``) where it is known to lack the
    thing.
    """

    kind: DifferenceKind
    """What differs."""
    name: str
    """Its name."""
    checkout: str = ""
    """Of a commit, the name of the checkout's folder tonight, if that is known."""
    accepted: str | None = None
    """How it was when the number was accepted."""
    last_good: str | None = None
    """How it was in the last good night."""
    tonight: str | None = None
    """How it is."""
    came_with_it: bool = False
    """Whether it changed after the last good night, when the number came to tonight's level."""

    @property
    def is_suite(self) -> bool:
        """Whether it is the commit of the system files, from which the trainer does not run."""
        return self.kind is DifferenceKind.COMMIT and self.name == SUITE


class Note(Struct, frozen=True, kw_only=True):
    """What a person has noted of a fault that is known. It changes no verdict."""

    text: str
    """In the person's words."""
    until: date
    """From this day on it holds no longer."""
    at: str
    """When it was made, ISO 8601 with its zone."""
    by: str | None = None
    """Who made it, if known."""

    def holds(self, day: date) -> bool:
        """Whether it holds on a day."""
        return day < self.until


class FoundCulprit(Struct, frozen=True):
    """What a hunt has found of a number that changed, in words."""

    said: str
    """For instance ``3f2a91c04d5e, 99 % sure, 11 runs``."""
    facts: Mapping[str, str] = {}
    """Title and author of a commit, the loss with its interval, what it took: each by its name."""


class Companion(Struct, frozen=True, kw_only=True):
    """A probe that ran on the hosts of a red case, by the worst of its metrics."""

    case_id: str
    """The probe's case."""
    resource: str
    """What of the hosts it measures, as in ``network``."""
    metric: str | None = None
    """The worst of its metrics; ``None``, as the verdict, where it could not be run."""
    verdict: Verdict | None = None
    """What the gate says of that metric."""
    difference_percent: float | None = None
    """How far the metric lies above its reference."""
    loss_percent: float | None = None
    """By how much it is worse."""
    reason: str | None = None
    """Why there is no number, or none to compare with."""
    is_blamed: bool = False
    """Whether its loss explains that of the case."""


class Companions(Struct, frozen=True):
    """The companions of one case, in the order in which they are declared."""

    found: tuple[Companion, ...]


class Explanation(Struct, frozen=True, kw_only=True):
    """Since when a number that did not simply pass is as it is, and what differs.

    Nights are those of its machine since the number was accepted. Of a number that passes after
    red nights only ``red_since`` is told.
    """

    since: PastNight | None = None
    """The first night at tonight's level; tonight itself where that is new; ``None`` where
    unknown."""
    red_since: PastNight | None = None
    """The first of the red nights right before ``since``; of a number that passes again, of those
    before tonight. ``None`` without any."""
    last_good: PastNight | None = None
    """The last night before all of these, which was not red; where the history has none, that of
    the accepted number."""
    nights: int | None = None
    """Calendar nights from the last good one to tonight."""
    nights_at_level: int = 1
    """How many nights there were at this level, tonight included."""
    differences: tuple[Difference, ...] = ()
    """What differs, the most suspicious first."""
    commits: tuple[CommitRange, ...] = ()
    """The commits that came with it, of each checkout whose commit did."""
    note: Note | None = None
    """The last note on the fault, also where it holds no longer."""
    found: FoundCulprit | None = None
    """What `pytest-dlperf why` or `bisect` has found since then."""
    companions: tuple[Companion, ...] = ()
    """Probes that ran on the same hosts once the number was red."""

    @property
    def began(self) -> PastNight | None:
        """The first night that was red."""
        return self.red_since or self.since
