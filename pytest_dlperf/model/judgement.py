"""Verdicts, the decisions of rules that they rest on, and why a number moved."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from msgspec import Struct

from pytest_dlperf.model.commits import SUITE, CommitRange
from pytest_dlperf.model.metric import Metric


class Verdict(StrEnum):
    """What becomes of a metric of a case, and of the case, in one word; the worst first.

    The gate gives most of them. Of a case, reports may also say that it is lost, not judged, not
    measured, expected, accepted or recorded.
    """

    _value_: str

    FAILED = "failed", "alarm", "no number"
    HUNG = "hung", "alarm", "no number"
    INVALID = "invalid", "alarm", "no number"
    REGRESSED = "regressed", "alarm", "change"
    INCONCLUSIVE = "inconclusive", "alarm", "change"
    NO_BASELINE = "no_baseline", "alarm"
    LOST = "lost", "alarm"
    """A test of the case was lost with its worker."""
    NOT_STARTED = "not_started", "alarm", "no number"
    """A probe that the case needs broke on its hosts."""
    ENVIRONMENT_SHIFT = "environment_shift", "change"
    """Worse than the baseline, but not than the accepted software now on the same hosts."""
    NOT_JUDGED = "not judged"
    NOT_MEASURED = "not measured"
    SKIPPED = "skipped", "no number"
    EXPECTED = "expected"
    """It failed, as its test or the cluster's file had announced."""
    ACCEPTED = "accepted", "good"
    """Its new number takes the place of the old one."""
    RECORDED = "recorded", "good"
    """Its number is its first baseline."""
    IMPROVED = "improved", "good", "change"
    PASS = "pass", "good"

    def __new__(cls, word: str, *facts: str) -> Self:
        """Make a row of the table above."""
        verdict = str.__new__(cls, word)
        verdict._value_ = word
        verdict.rank = len(cls.__members__)
        verdict.is_good = "good" in facts
        verdict.is_alarm = "alarm" in facts
        verdict.is_change = "change" in facts
        verdict.has_no_number = "no number" in facts
        return verdict

    rank: int
    """Its place among all, 0 being the worst."""
    is_good: bool
    """It was measured, and all that was judged of it is in order."""
    is_alarm: bool
    """Its test failed and needs action."""
    is_change: bool
    """A number was compared, and did not simply pass."""
    has_no_number: bool
    """There was no number that could be compared."""

    @property
    def passes(self) -> bool:
        """Whether a test with this verdict passes, in a session that is not strict."""
        return self.is_good or self is Verdict.ENVIRONMENT_SHIFT

    def fails(self, *, strict: bool) -> bool:
        """Whether a test of the case failed; in a ``strict`` session more do."""
        return self.is_alarm or self.fails_by_option(strict=strict)

    def fails_by_option(self, *, strict: bool) -> bool:
        """Whether a test of the case failed only because the session is ``strict``."""
        return strict and self in (Verdict.ENVIRONMENT_SHIFT, Verdict.SKIPPED)


class Decision(Struct, frozen=True, kw_only=True):
    """What the rule makes of a session's runs, and how well it can see."""

    verdict: Verdict
    """What it says of the runs."""
    reference: float
    """What they are held against: the accepted number, or the last accepted sessions pooled."""
    difference_percent: float
    """How far the runs that count lie above the reference; negative: below."""
    tolerance_percent: float
    """The largest loss that passes with so many runs."""
    interval_percent: tuple[float, float] | None = None
    """The 95 % interval of the difference; ``None``, like the next one, with too few runs."""
    min_detectable_percent: float | None = None
    """The smallest loss that the rule finds nine times out of ten."""
    controlled_percent: float | None = None
    """The same with a control arm, where that is half of it or less."""
    reason: str | None = None
    """Why, where the numbers alone do not explain the verdict."""
    notes: tuple[str, ...] = ()
    """Worth knowing; they change no verdict."""


class Judgement(Struct, frozen=True, kw_only=True):
    """The verdict on one metric of one case, with the numbers that led to it."""

    metric: Metric
    verdict: Verdict
    """The decision's, unless a later step (the control arm, an acceptance) settled another."""
    measured: float | None = None
    """The median in the metric's unit; for a ratio, that of two medians."""
    accepted: float | None = None
    decision: Decision | None = None
    """What the rule made of the runs; ``None`` where nothing was compared."""
    reason: str | None = None
    ends: tuple[str, ...] = ()
    """The numbers of both ends of a ratio, for the reader."""
    notes: tuple[str, ...] = ()
    """Worth knowing; they change no verdict."""
    recorded: bool = False
    refused: str | None = None
    """Why a number that was to be accepted is not."""
    remedy: str | None = None
    """What it takes to accept it."""
    expected: str | None = None
    """Why it was expected to fail as it did; ``None`` where it was not."""

    @property
    def difference_percent(self) -> float | None:
        """How far the runs that count lie above the reference; the median may lie elsewhere."""
        return self.decision.difference_percent if self.decision is not None else None

    @property
    def loss_percent(self) -> float | None:
        """By how much it is worse than the reference; negative: better."""
        difference, better = self.difference_percent, self.metric.better
        return None if difference is None or better is None else -better.sign * difference

    @property
    def status(self) -> Verdict:
        """What became of it: what is accepted is nothing to worry about any more."""
        if self.recorded:
            return Verdict.RECORDED if self.verdict is Verdict.PASS else Verdict.ACCEPTED
        return Verdict.EXPECTED if self.expected is not None else self.verdict

    def passes(self, *, strict: bool) -> bool:
        """Whether the test passes. A number that becomes the accepted one does."""
        is_good = self.verdict.passes and not self.verdict.fails_by_option(strict=strict)
        return self.recorded or is_good

    def fails(self, *, strict: bool) -> bool:
        """Whether the test fails: it neither passes nor is skipped."""
        return self.verdict is not Verdict.SKIPPED and not self.passes(strict=strict)


# --------------------------------------------------------------------------- explanations


class DifferenceKind(StrEnum):
    """What may differ between two sessions."""

    COMMAND = "command"
    ENVIRONMENT = "environment"
    LAUNCH = "launch"
    """Another part of the launch: launcher, working directory, options of srun or a container."""
    COMMIT = "commit"
    """Of a checkout that the trainer runs from, or that the system files lie in."""
    SOFTWARE = "software"
    """A version: packages, runtime, driver, firmware."""
    MACHINE = "machine"
    HOSTS = "hosts"


class PastSession(Struct, frozen=True, kw_only=True):
    """An earlier session of the case's metric, or this one."""

    at: str
    """When it began, ISO 8601 with its zone."""
    commit: str | None = None
    ci_run: str | None = None
    median: float | None = None
    """In the metric's unit; ``None`` where nothing was measured."""


class Difference(Struct, frozen=True, kw_only=True):
    """One thing that is not the same on all sides.

    A side is ``None`` where it is unknown, and ``-`` (``ABSENT``) where it is known to lack the
    thing.
    """

    kind: DifferenceKind
    name: str
    checkout: str = ""
    """Of a commit, the name of the checkout's folder, if that is known."""
    accepted: str | None = None
    last_good: str | None = None
    now: str | None = None
    came_with_it: bool = False
    """Whether it changed after the last good session, when the number came to its level."""

    @property
    def is_suite(self) -> bool:
        """Whether it is the commit of the system files, from which the trainer does not run."""
        return self.kind is DifferenceKind.COMMIT and self.name == SUITE


class FoundCulprit(Struct, frozen=True):
    """What `bisect` has found of a number that changed, in words."""

    said: str
    """For instance ``3f2a91c04d5e, 99 % sure, 11 runs``."""
    facts: Mapping[str, str] = {}
    """Title and author of a commit, the loss with its interval, what it took: each by its name."""


class Companion(Struct, frozen=True, kw_only=True):
    """A probe that ran on the hosts of a red case, by the worst of its metrics."""

    case_id: str
    resource: str
    """What of the hosts it measures, as in ``network``."""
    metric: str | None = None
    """The worst of its metrics; ``None``, as the verdict, where it could not be run."""
    verdict: Verdict | None = None
    difference_percent: float | None = None
    loss_percent: float | None = None
    reason: str | None = None
    """Why there is no number, or none to compare with."""
    is_blamed: bool = False
    """Whether its loss explains that of the case."""


class Explanation(Struct, frozen=True, kw_only=True):
    """Since when a number that did not simply pass is as it is, and what differs.

    Sessions are those of its machine since the number was accepted. Of a number that passes after
    red sessions only ``red_since`` is told.
    """

    since: PastSession | None = None
    """The first session at the level of now; this one where that is new; ``None`` where unknown."""
    red_since: PastSession | None = None
    """The first of the red sessions right before ``since``, or before now if it passes again."""
    last_good: PastSession | None = None
    """The last session before these that was not red, else that of the accepted number."""
    days: int | None = None
    """Calendar days from the last good session to now."""
    days_at_level: int = 1
    """On how many days there were sessions at this level, now included."""
    differences: tuple[Difference, ...] = ()
    commits: tuple[CommitRange, ...] = ()
    """The commits that came with it, of each checkout whose commit did."""
    found: FoundCulprit | None = None
    """What `pytest-dlperf bisect` has found since then."""
    companions: tuple[Companion, ...] = ()
    """Probes that ran on the same hosts once the number was red."""

    @property
    def began(self) -> PastSession | None:
        """The first session that was red."""
        return self.red_since or self.since
