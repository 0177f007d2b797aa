"""Cases of a session that are told together: they share status, metric, age and cause.

An entry says only what all its cases share, and of what some of them have, how many.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

from msgspec import Struct

from pytest_dlperf.history.case_history import Drifting
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import (
    Difference,
    DifferenceKind,
    Explanation,
    Judgement,
    Verdict,
)
from pytest_dlperf.model.results import CaseResult, MetricResult
from pytest_dlperf.report import printing, words
from pytest_dlperf.report.columns import alike, difference_percent
from pytest_dlperf.report.facts import NUMBERS, Fact, Weight, facts, merged
from pytest_dlperf.report.families import in_short
from pytest_dlperf.report.status import decisive_metric, worst_first
from pytest_dlperf.report.text import NOTHING, Text, cases_named, join, number, phrase, strong
from pytest_dlperf.report.trends import drifts_text

CASES_NAMED: Final = 3
"""Cases that a line names; the others are counted."""
TEXTS_SHOWN: Final = 3
"""Texts of a fact that an entry tells: by so many differences without the first, cases are told
apart."""
AGES: Final = ("new", "not known since when", "since earlier sessions")
"""Ages of what is bad, in the order in which it is told."""
_NEW, UNDATED, _EARLIER = range(len(AGES))


class Entry(Struct, frozen=True, dict=True):
    """Cases with the same status for the same reason, the worst first."""

    cases: tuple[CaseResult, ...]
    now: str
    """When the session began, ISO 8601."""
    drifts: tuple[Drifting, ...] = ()
    """Slow changes of the session's metrics, of which only those of its cases are told."""

    @property
    def status(self) -> Verdict:
        """What has become of its cases."""
        return self.cases[0].status

    @cached_property
    def known(self) -> MetricResult | None:
        """The metric that is wrong, of the first case; ``None`` where it comes from no verdict."""
        return decisive_metric(self.cases[0])

    @property
    def judgement(self) -> Judgement | None:
        """What was judged of it."""
        return self.known.judgement if self.known is not None else None

    @property
    def explanation(self) -> Explanation | None:
        """Since when, and what differs."""
        return self.known.explanation if self.known is not None else None

    @property
    def case_ids(self) -> tuple[str, ...]:
        """The ids of its cases."""
        return tuple(result.case.id for result in self.cases)

    @property
    def age(self) -> int:
        """Its place in ``AGES``."""
        explanation = self.explanation
        if explanation is None or explanation.since is None:
            return UNDATED
        return _NEW if words.is_new(explanation, self.now) else _EARLIER

    @cached_property
    def subject(self) -> Text:
        """For instance ``regressed -9.9 % since Tuesday``, or ``12 cases regressed …``."""
        first, *others = self.cases
        said, _ = words.case_subject(first, self.now)
        if not others:
            return said
        if self.judgement is not None:
            more = [one.judgement for one in map(decisive_metric, others) if one and one.judgement]
            said = words.subject(self.judgement, self.explanation, self.now, others=more)
        return phrase("{}", strong(f"{len(self.cases)} cases {said}"))

    @property
    def named(self) -> Text:
        """The metric and the first cases, and how many others there are."""
        cases = cases_named(self.case_ids, CASES_NAMED)
        _, metric = words.case_subject(self.cases[0], self.now)
        if len(self.cases) > 1 and self.judgement is not None:
            metric = self.judgement.metric.name
        return phrase("{} of {}", metric, cases) if metric else cases

    @property
    def title(self) -> Text:
        """The subject and what it is about."""
        return phrase("{}: {}", self.subject, self.named)

    @property
    def differences(self) -> tuple[Difference, ...]:
        """What differs in all its cases; which hosts a case ran on is its own."""
        own = self.explanation.differences if self.explanation is not None else ()
        others = [set(map(_identity, _differences(result))) for result in self.cases[1:]]
        return tuple(one for one in own if all(_identity(one) in other for other in others))

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        """What a message says of it; what one case alone has is left out of several."""
        members = {
            result.case.id: [
                fact
                for fact in facts(known, self.now, case_id=result.case.id)
                if fact.weight < Weight.FULL
            ]
            for result in self.cases
            if (known := decisive_metric(result)) is not None
        }
        if len(members) <= 1:
            told = list(*members.values())
        else:
            told = [
                fact
                for fact in merged(members, self._of_some)
                if fact.label not in (*NUMBERS, "reason")
            ]
            told = [*self._reason(), *told]
        told.append(Fact("also", (self._also(), self._drifting())))
        short = (
            Fact(fact.label, tuple(t.cut(words.LONGEST_LINE) for t in fact.texts if t), fact.weight)
            for fact in told
        )
        return tuple(fact for fact in short if fact.texts)

    @property
    def causes(self) -> tuple[Text, ...]:
        """Why it was expected, or what `bisect` has found, or else the suspects."""
        by_label = {fact.label: fact.texts for fact in self.facts}
        for label in ("expected", "found"):
            if label in by_label:
                return by_label[label]
        return (*by_label.get("differs", ()), *by_label.get("commits", ()))

    def _of_some(self, text: Text, ids: Sequence[str]) -> Text:
        return phrase("{} ({} of {})", text, len(ids), len(self.cases)) if ids[1:] else NOTHING

    def _reason(self) -> Iterator[Fact]:
        """Tell the first case's reason: those of the others are like it, but for names."""
        judgement = self.judgement
        if judgement is not None and judgement.reason and not words.moved(judgement):
            reason = (
                printing.in_short(judgement.reason).removeprefix(self.case_ids[0]).lstrip(", :")
            )
            like_it = phrase("{}; and {} more like it", reason, len(self.cases) - 1)
            yield Fact("reason", (like_it,))

    def _also(self) -> Text:
        """Name the other metrics that are not good."""
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
                verdict = judgement.verdict.value
                moved = verdict if percent is None else numbers.signed_percent(percent)
                told.setdefault(name, []).append(moved)
        count = len(self.cases)
        return join(
            ", ",
            (
                phrase("{} {}", name, number(moved[0]))
                if count == 1
                else phrase("{} ({} of {})", name, len(moved), count)
                for name, moved in told.items()
            ),
        )

    def _drifting(self) -> Text:
        return drifts_text([one for one in self.drifts if one[0].case_id in self.case_ids])


def _differences(result: CaseResult) -> tuple[Difference, ...]:
    known = decisive_metric(result)
    return known.explanation.differences if known and known.explanation else ()


def _identity(difference: Difference) -> object:
    """Tell differences apart; which hosts a case ran on is its own."""
    return difference.kind if difference.kind is DifferenceKind.HOSTS else difference


def entries_of(
    cases: Iterable[CaseResult], now: str, drifts: Iterable[Drifting] = ()
) -> list[Entry]:
    """Put together what is told together, the worst first."""
    found: dict[tuple[object, ...], list[CaseResult]] = {}
    for result in worst_first(cases):
        found.setdefault(_cause(result, now), []).append(result)
    return [Entry(tuple(members), now, tuple(drifts)) for members in found.values()]


def _cause(result: CaseResult, now: str) -> tuple[object, ...]:
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
        None if words.moved(judgement) else alike(printing.in_short(reason), result),
        *(_onset(explanation, now) if explanation else ()),
        judgement.expected,
        explanation and explanation.found and explanation.found.said,
        explanation and tuple(one.resource for one in explanation.companions if one.is_blamed),
        _suspects(explanation),
    )


def _onset(explanation: Explanation, now: str) -> tuple[object, ...]:
    sessions = (explanation.since, explanation.red_since, explanation.last_good)
    return tuple(one and (words.dated(one.at, now), one.commit) for one in sessions)


def _suspects(explanation: Explanation | None) -> tuple[Difference, ...]:
    """Return what may be the cause; which hosts a case ran on is its own."""
    if explanation is None:
        return ()
    shared = [one for one in explanation.differences if one.kind is not DifferenceKind.HOSTS]
    return tuple(one for one in shared if one.came_with_it) or tuple(shared[:TEXTS_SHOWN])
