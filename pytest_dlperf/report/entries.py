"""Cases of a session that are told together, and what to do: the one thing that helps most.

They share status, metric, age and cause. An entry says only what all its cases share, and of what
some of them have, how many.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from operator import itemgetter
from shlex import quote
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.history.case_history import Drifting
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import (
    Difference,
    DifferenceKind,
    Explanation,
    Judgement,
    Verdict,
)
from pytest_dlperf.model.metric import MEMBER
from pytest_dlperf.model.results import CaseResult, MetricResult, Results
from pytest_dlperf.report import printing, words
from pytest_dlperf.report.facts import ACCEPT, Fact, Weight, facts, merged, reason_beside
from pytest_dlperf.report.status import (
    decisive_metric,
    reason_without_names,
    worst_first,
    worst_of_families,
)
from pytest_dlperf.report.text import (
    NOTHING,
    Text,
    cases_named,
    code,
    join,
    number,
    phrase,
    strong,
    word,
)
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
        if self.explanation is None or self.explanation.since is None:
            return UNDATED
        return _NEW if words.is_new(self.explanation, self.now) else _EARLIER

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
        known = map(decisive_metric, self.cases)
        every = [one.explanation.differences if one and one.explanation else () for one in known]
        others = [set(map(_identity, differences)) for differences in every[1:]]
        return tuple(one for one in every[0] if all(_identity(one) in other for other in others))

    @cached_property
    def facts(self) -> tuple[Fact, ...]:
        """What a message says of it; what one case alone has is left out of several."""
        count = len(self.cases)

        def of_some(text: Text, ids: Sequence[str]) -> Text:
            return phrase("{} ({} of {})", text, len(ids), count) if ids[1:] else NOTHING

        members = {
            result.case.id: [
                fact
                for fact in facts(known, self.now, case_id=result.case.id)
                if fact.weight < Weight.FULL
            ]
            for result in self.cases
            if (known := decisive_metric(result)) is not None
        }
        told = next(iter(members.values()), [])
        if len(members) > 1:
            # Numbers and reasons are a case's own; reasons are alike but for names.
            own = ("measured", "reference", "reason")
            told = [fact for fact in merged(members, of_some) if fact.label not in own]
            judgement = self.judgement
            if judgement and judgement.reason and not words.moved(judgement):
                reason = reason_beside(judgement, self.case_ids[0])
                like_it = phrase("{}; and {} more like it", reason, count - 1)
                told.insert(0, Fact("reason", (like_it,)))
        drifting = [one for one in self.drifts if one[0].case_id in self.case_ids]
        told = [*told, Fact("also", (self._also(), drifts_text(drifting)))]
        short = (
            replace(fact, texts=tuple(it.cut(words.LONGEST_LINE) for it in fact.texts if it))
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

    def _also(self) -> Text:
        told: dict[str, list[str]] = {}
        own = self.known.metric.name if self.known is not None else ""
        for result in self.cases:
            for known in worst_of_families(result.metrics().values()):
                name, judgement = known.metric.name, known.judgement
                if name == own or judgement is None or not judgement.status.is_alarm:
                    continue
                percent = judgement.difference_percent
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


def entries_of(
    cases: Iterable[CaseResult], now: str, drifts: Iterable[Drifting] = ()
) -> list[Entry]:
    """Put together what is told together, the worst first."""
    found: dict[tuple[object, ...], list[CaseResult]] = {}
    for result in worst_first(cases):
        found.setdefault(_cause(result, now), []).append(result)
    return [Entry(tuple(members), now, tuple(drifts)) for members in found.values()]


def _identity(difference: Difference) -> object:
    """Tell differences apart; which hosts a case ran on is its own."""
    return difference.kind if difference.kind is DifferenceKind.HOSTS else difference


def _cause(result: CaseResult, now: str) -> tuple[object, ...]:
    status, known = result.status, decisive_metric(result)
    judgement = known.judgement if known else None
    if known is None or judgement is None:
        return (status,)
    explanation = known.explanation or Explanation()
    sessions = (explanation.since, explanation.red_since, explanation.last_good)
    shared = [one for one in explanation.differences if one.kind is not DifferenceKind.HOSTS]
    reason = printing.in_short(judgement.reason or "")
    return (
        status,
        judgement.verdict,
        known.metric.name,
        # How far a number has moved is told; what has not has its reason.
        None if words.moved(judgement) else reason_without_names(reason, result),
        *(one and (words.dated(one.at, now), one.commit) for one in sessions),
        judgement.expected,
        explanation.found and explanation.found.said,
        tuple(one.resource for one in explanation.companions if one.is_blamed),
        tuple(one for one in shared if one.came_with_it) or tuple(shared[:TEXTS_SHOWN]),
    )


_OF_LAUNCH: Final = (DifferenceKind.COMMAND, DifferenceKind.ENVIRONMENT, DifferenceKind.LAUNCH)
_NOT_SETTABLE: Final = (DifferenceKind.MACHINE, DifferenceKind.HOSTS)
_UNRECORDED: Final = (
    "look at what is not recorded, such as data and inherited variables: "
    "nothing recorded came with it"
)
_BY_STATUS: Final = {
    Verdict.LOST: phrase("run it again: a worker was lost"),
    Verdict.NO_BASELINE: phrase("record the first number: {}", code("--dlperf-create-baselines")),
    Verdict.INCONCLUSIVE: phrase("measure it again with more runs: {}", code("--dlperf-repeats N")),
    Verdict.NOT_STARTED: phrase("look at its hosts: a probe that it needs broke there"),
    Verdict.ENVIRONMENT_SHIFT: phrase(
        "look at hosts and drivers: the accepted software is slower too"
    ),
}


def advice_of(results: Results, bad: Sequence[Entry], gains: Sequence[Entry]) -> Text:
    """Say what to do first; ``bad`` entries have the most urgent one first."""
    found = NOTHING
    if hosts := sorted(results.unfit_hosts):
        # No host that is out of use makes the others slower.
        losses = [entry for entry in bad if entry.status is Verdict.REGRESSED]
        loss = _of_entries(losses, more=len(bad) > 1)
        others = phrase(" and {} more", len(hosts) - 1) if len(hosts) > 1 else NOTHING
        then = phrase("; then {}", loss) if loss else NOTHING
        found = phrase("look first at host {}{}{}", code(hosts[0]), others, then)
    elif bad:
        found = _of_entries(bad)
    elif gains:
        found = phrase("accept the gain, or a later loss of as much passes: {}", code(ACCEPT))
    return phrase("{}: {}", strong("to do"), found) if found else NOTHING


def _of_entries(entries: Sequence[Entry], *, more: bool = False) -> Text:
    """Say what to do of the first of which that can be said, and which it is of several."""
    told = ((_of_entry(entry), entry) for entry in entries)
    found, entry = next(filter(itemgetter(0), told), (NOTHING, None))
    if entry is None or not (more or len(entries) > 1):
        return found
    return phrase("{} (in {})", found, cases_named(entry.case_ids, 1))


def _of_entry(entry: Entry) -> Text:
    explanation, judgement = entry.explanation, entry.judgement
    if entry.status in _BY_STATUS:
        refused = judgement and judgement.refused and (judgement.remedy or judgement.refused)
        return phrase("{}", refused or _BY_STATUS[entry.status])
    return _of_explanation(explanation, entry) if explanation is not None else NOTHING


def _of_explanation(explanation: Explanation, entry: Entry) -> Text:
    if explanation.found is not None:
        return phrase("act on what bisect has found")
    blamed = dict.fromkeys(one.resource for one in explanation.companions if one.is_blamed)
    if blamed:
        resources = word(" and ".join(blamed))
        return phrase("look first at the {} of its hosts: probes found it worse", resources)
    came = [it for it in entry.differences if it.came_with_it]
    if came:
        return _of_suspects(came, explanation, entry)
    if entry.status is Verdict.REGRESSED:
        return phrase(_UNRECORDED)
    measurement = entry.cases[0].measurement
    has_log = measurement is not None and any(run.log for run in measurement.broken_runs)
    return phrase("read how the log ends") if has_log else NOTHING


def _of_suspects(came: Sequence[Difference], explanation: Explanation, entry: Entry) -> Text:
    is_launch = any(one.kind in _OF_LAUNCH for one in came)
    # A commit that brought an argument is the same suspect.
    first, *others = (one for one in came if not (is_launch and one.is_suite))
    what, it = phrase("{}", code(words.difference_name(first))), "it"
    is_loss = entry.status is Verdict.REGRESSED
    if others:
        if is_loss and any(one.kind not in _NOT_SETTABLE for one in (first, *others)):
            search = _about(entry, "pytest-dlperf bisect --case")
            return phrase("find out which change it was: {}", search)
        return phrase("look first at {}", what)
    if first.kind is DifferenceKind.COMMIT:
        among = next(iter(explanation.commits), None)
        changed = (first.now or "").partition("+")[2]
        if among is not None and among.count != 1 and is_loss:
            repository = f" --repository {quote(among.folder)}" if among.folder else ""
            command = f"pytest-dlperf bisect {among.first}..{among.last}{repository} --case"
            search = phrase("find the commit: {}", _about(entry, command))
            # It searches commits alone.
            aside = "put the uncommitted changes in {} aside; then {}"
            return phrase(aside, changed, search) if changed else search
        if changed:
            what, it = phrase("{}", words.news(first)), "they"
        elif among is not None and among.count == 1:
            what = phrase("commit {}", next(words.commit_texts(explanation)))
    said = phrase("look first at {}: {} {}", what, it, word(words.came_with(entry.judgement)))
    return phrase("{}, nothing else", said) if len(came) == 1 else said


def _about(entry: Entry, command: str) -> Text:
    """Have a command ask about the case and its metric; a ratio has none of its own."""
    result, known = entry.cases[0], entry.known
    command = f"{command} {result.case.id}"
    name = (known.metric.ratio_of or known.metric.name) if known is not None else ""
    is_main = name in ("", next(iter(result.metrics()))) and MEMBER not in name
    return phrase("{}", code(command if is_main else f"{command} --metric {name}"))
