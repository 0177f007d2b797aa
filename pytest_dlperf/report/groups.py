"""Cases of a session that are told together: they share status, metric, age and cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import DifferenceKind, Verdict
from pytest_dlperf.report import explanation_words as words
from pytest_dlperf.report import texts
from pytest_dlperf.report.case_status import decisive_metric, worst_first
from pytest_dlperf.report.families import in_short
from pytest_dlperf.report.figures import alike, difference_percent
from pytest_dlperf.report.pieces import Text, phrase, strong

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_dlperf.model.baseline import Acceptance
    from pytest_dlperf.model.judgement import Difference, Explanation, Judgement
    from pytest_dlperf.model.results import CaseResult, MetricResult, Results

DIFFERENCES_SHOWN: Final = 3
"""Differences that a group tells: by so many without the first, cases are told apart."""


class Group(Struct, frozen=True, kw_only=True):
    """Cases with the same status for the same reason, the worst first."""

    status: Verdict
    cases: tuple[CaseResult, ...]
    subject: Text
    """For instance ``regressed -9.9 % since Tuesday``, or ``12 cases regressed …``."""
    metric: str
    """The metric that is wrong; of a single case empty where that is its first one."""
    known: MetricResult | None
    """What is known of that metric of the first case; ``None`` where it comes from no verdict."""

    @property
    def judgement(self) -> Judgement | None:
        """What was judged of the metric of the first case."""
        return self.known.judgement if self.known is not None else None

    @property
    def explanation(self) -> Explanation | None:
        """Since when, and what differs, alike for all of them."""
        return self.known.explanation if self.known is not None else None

    @property
    def acceptance(self) -> Acceptance | None:
        """The last acceptance of the numbers that they were held against."""
        if self.known is None:
            return None
        held = [result.accepted.get(self.known.metric.name) for result in self.cases]
        found = [one.acceptance for one in held if one is not None and one.acceptance is not None]
        return max(found, key=lambda acceptance: acceptance.at, default=None)

    @property
    def differences(self) -> tuple[Difference, ...]:
        """What differs in all cases: other hosts are no reason where one lost as much without."""
        found = self.explanation.differences if self.explanation is not None else ()
        kept = all(map(_has_other_hosts, self.cases))
        return tuple(one for one in found if kept or one.kind is not DifferenceKind.HOSTS)

    @property
    def suspects(self) -> tuple[Difference, ...]:
        """Of these, what was not there on a night that was good."""
        return tuple(one for one in self.differences if one.came_with_it or _may_explain(one))

    def accepted(self, tonight: str) -> str:
        """Name the person who accepted the reference number; empty if unknown."""
        said = words.accepted_by(self.acceptance, tonight)
        return f"reference accepted {said}" if said else ""

    def measured(self) -> str:
        """Say what was measured, of a single case, and which other metrics are not good."""
        told, judgement = [], self.judgement
        if judgement is not None and judgement.measured is not None and len(self.cases) == 1:
            metric, decision = judgement.metric, judgement.decision
            held = decision and numbers.number(decision.reference, metric.unit)
            reference = f", reference {held}" if held else ""
            amount = numbers.quantity(judgement.measured, metric.unit)
            told.append(f"{texts.printable(metric.name)} {amount}{reference}")
        if also := self._also():
            told.append(f"also {also}")
        return "; ".join(told)

    def _also(self) -> str:
        told: dict[str, list[str]] = {}
        for result in self.cases:
            for known in in_short(result.metrics().values()):
                name, judgement = known.metric.name, known.judgement
                is_told = self.known is not None and name == self.known.metric.name
                if is_told or judgement is None or not judgement.status.is_alarm:
                    continue
                percent = difference_percent(judgement)
                if percent is None and judgement.status is self.status:
                    continue  # one fault is told once
                word = judgement.verdict.value
                moved = word if percent is None else numbers.signed_percent(percent)
                told.setdefault(name, []).append(moved)
        single = len(self.cases) == 1
        return ", ".join(
            f"{texts.printable(name)} {moved[0] if single else f'of {len(moved)}'}"
            for name, moved in told.items()
        )

    def reason(self) -> str:
        """Say the reason of what has no number to tell it by."""
        judgement = self.judgement
        if judgement is None or not judgement.reason or words.moved(judgement):
            return ""
        more = len(self.cases) - 1
        like_it = f"; and {more} more like it" if more else ""
        reason = judgement.reason.removeprefix(self.cases[0].case.id).lstrip(", ")
        return f"{texts.cut(texts.in_short(reason), words.LONGEST_LINE)}{like_it}"


def _has_other_hosts(result: CaseResult) -> bool:
    known = decisive_metric(result)
    found = known.explanation.differences if known and known.explanation else ()
    return any(one.kind is DifferenceKind.HOSTS for one in found)


def _may_explain(difference: Difference) -> bool:
    """Whether tonight is neither as the last good night nor as when the number was accepted."""
    tonight = difference.tonight
    return tonight not in (difference.last_good, difference.accepted)


def bad_groups(results: Results) -> list[Group]:
    """Put together the cases that make a session red, the worst first."""
    bad = [result for result in results.cases if result.status.fails(strict=results.strict)]
    return groups_of(bad, results.started)


def groups_of(cases: Iterable[CaseResult], tonight: str) -> list[Group]:
    """Put together what is told together, the worst first; ``tonight`` as in the words."""
    found: dict[tuple[object, ...], list[CaseResult]] = {}
    for result in worst_first(cases):
        found.setdefault(_cause(result, tonight), []).append(result)
    return [_group(members, tonight) for members in found.values()]


def _cause(result: CaseResult, tonight: str) -> tuple[object, ...]:
    status, known = result.status, decisive_metric(result)
    judgement = known.judgement if known else None
    if known is None or judgement is None:
        return (status,)
    explanation, reason = known.explanation, judgement.reason or ""
    return (
        status,
        judgement.verdict,
        known.metric.name,
        # How far a number has moved is told; what has not has its reason.
        None if words.moved(judgement) else alike(texts.in_short(reason), result),
        *(_nights(explanation, tonight) if explanation else ()),
        explanation and explanation.note,
        explanation and explanation.found and explanation.found.said,
        explanation and tuple(one.resource for one in explanation.companions if one.is_blamed),
        _suspects(explanation),
    )


def _nights(explanation: Explanation, tonight: str) -> tuple[object, ...]:
    nights = (explanation.since, explanation.red_since, explanation.last_good)
    return tuple(night and (words.dated(night.at, tonight), night.commit) for night in nights)


def _suspects(explanation: Explanation | None) -> tuple[Difference, ...]:
    """Return what may be the cause; which hosts a case ran on is its own."""
    if explanation is None:
        return ()
    shared = [one for one in explanation.differences if one.kind is not DifferenceKind.HOSTS]
    return tuple(one for one in shared if one.came_with_it) or tuple(shared[:DIFFERENCES_SHOWN])


def _group(members: Sequence[CaseResult], tonight: str) -> Group:
    first, *others = members
    status, known = first.status, decisive_metric(first)
    subject, metric = words.case_subject(first, tonight)
    if others:
        if known is not None and known.judgement is not None:
            more = [
                each.judgement for each in map(decisive_metric, others) if each and each.judgement
            ]
            subject = words.subject(known.judgement, known.explanation, tonight, others=more)
            metric = texts.printable(known.metric.name)
        subject = phrase("{}", strong(f"{len(members)} cases {subject}"))
    return Group(status=status, cases=tuple(members), subject=subject, metric=metric, known=known)
