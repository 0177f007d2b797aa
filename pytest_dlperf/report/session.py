"""What a session has to say, as one tree, from results and history: one for all reports.

Every sentence is a ``Text``; what a renderer sorts, cuts or colours by stands beside it as a value.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.report import explanation_words as words
from pytest_dlperf.report import history_words, texts
from pytest_dlperf.report.advice import advice_of
from pytest_dlperf.report.case_status import recovered_from, worst_first
from pytest_dlperf.report.figures import alike
from pytest_dlperf.report.groups import DIFFERENCES_SHOWN, bad_groups, groups_of
from pytest_dlperf.report.pieces import (
    NOTHING,
    Piece,
    Text,
    cases_named,
    code,
    join,
    number,
    phrase,
    word,
)
from pytest_dlperf.report.remarks import suspicion_lines
from pytest_dlperf.report.sentence import sentence_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pytest_dlperf.history.case_history import Drifting, Past
    from pytest_dlperf.model.judgement import Difference, Explanation, Judgement
    from pytest_dlperf.model.results import CaseResult, Results
    from pytest_dlperf.report.explanation_words import ToldDifference
    from pytest_dlperf.report.groups import Group

CASES_NAMED: Final = 3
"""Cases that a line names; the others are counted."""

_ABSENT: Final = (Verdict.NOT_JUDGED, Verdict.NOT_MEASURED, Verdict.SKIPPED)
AGES: Final = ("new tonight", "not known since when", "since earlier nights", "known")
"""Ages of what is bad, in the order in which it is told."""
_TONIGHT, _UNDATED, _EARLIER, _KNOWN = range(len(AGES))


class Entry(Struct, frozen=True, kw_only=True):
    """Cases that are told together, from the title to who accepted their numbers."""

    status: Verdict
    age: int
    """Its place in ``AGES``."""
    subject: Text
    """For instance ``regressed -9.9 % since Tuesday``."""
    metric: Text
    """The metric that is wrong; of a single case nothing where that is its first one."""
    case_ids: tuple[str, ...]
    lines: tuple[Text, ...]
    """What was measured or why not, and since when."""
    reason: Text
    """Why, of what has no number to tell it by; among the lines too."""
    found: tuple[Text, ...]
    """What a hunt has found."""
    differences: tuple[Text, ...]
    """What differs from the last good night, the most suspicious first."""
    commits: tuple[Text, ...]
    """What came to a checkout with the change."""
    accepted: Text
    """Who accepted the number that it is held against, where there is one."""
    commit_count: int
    """How many commits came with the change, of which not all may be listed."""

    @property
    def named(self) -> Text:
        """The metric and the first cases, and how many others there are."""
        cases = cases_named(self.case_ids, CASES_NAMED)
        return phrase("{} of {}", self.metric, cases) if self.metric else cases

    @property
    def title(self) -> Text:
        """The subject and what it is about."""
        return phrase("{}: {}", self.subject, self.named)

    @property
    def causes(self) -> tuple[Text, ...]:
        """What a hunt has found, or else the suspects."""
        return self.found or (*self.first_differences(), *self.commits)

    def first_differences(self, most: int = DIFFERENCES_SHOWN) -> list[Text]:
        """Return the first differences; where there are more, the last line counts them."""
        return first_differences(self.differences, most)


class Night(Struct, frozen=True, dict=True):
    """A session in words: each part is made when it is first asked for, and once."""

    results: Results
    """All that was measured and judged."""
    past: Past
    """What the history shows."""
    may_read_logs: bool = False
    """Whether its logs are ours: a results file may name any file as one."""

    @cached_property
    def told(self) -> Results:
        """The results as they are told: what is wrong with a host stands in ``urgent`` alone."""
        return said_once(self.results)

    @cached_property
    def began(self) -> str:
        """Its day: ``Friday 2026-11-20``."""
        return words.dated(self.results.started, self.results.started)

    @cached_property
    def sentence(self) -> Text:
        """What it has come to."""
        return sentence_of(self.results)

    @cached_property
    def advice(self) -> Text:
        """What to do first; nothing where all is well."""
        return advice_of(self.told, self._bad_groups, self._gain_groups)

    @property
    def is_red(self) -> bool:
        """Whether it has failed, as far as its results tell."""
        return is_red(self.results)

    @cached_property
    def urgent(self) -> tuple[Text, ...]:
        """Hosts and devices that cannot be used: what to act on at once."""
        return tuple(
            phrase("host {} cannot be used: {}", code(host), "; ".join(faults))
            for host, faults in sorted(self.results.unfit_hosts.items())
        )

    @cached_property
    def bad(self) -> tuple[Entry, ...]:
        """What makes the session red, by its age."""
        return tuple(entry_of(one, self.told, self.past.drifts) for one in self._bad_groups)

    @cached_property
    def shifts(self) -> tuple[Entry, ...]:
        """What is worse, and is so with the accepted software as well."""
        return self._entries(self._of_status(Verdict.ENVIRONMENT_SHIFT))

    @cached_property
    def gains(self) -> tuple[Entry, ...]:
        """What is better than the accepted numbers."""
        return self._entries(self._gain_groups)

    @cached_property
    def facts(self) -> tuple[Text, ...]:
        """What needs no action: drifts, what passes again, what is absent, what was accepted."""
        drifts = [one for one in self.past.drifts if one[0].case_id not in self._bad_ids]
        return (*self.recovered, *_facts(self.told, self._rest, drifts))

    @cached_property
    def recovered(self) -> tuple[Text, ...]:
        """What passes again, and since when it was red."""
        return tuple(_recovered(self._rest, self.told.started))

    @cached_property
    def suspicions(self) -> tuple[Text, ...]:
        """What only all cases together show, and may need action."""
        return (
            *(phrase("{}", line) for line in suspicion_lines(self.told.cases)),
            *history_words.new_levels(self._rest, self.past.histories, self.told.started),
        )

    @cached_property
    def drifts(self) -> tuple[Text, ...]:
        """A line for each case that drifts, as its history shows."""
        cases = worst_first(self.told.cases)
        return tuple(history_words.drift_lines(cases, self.past.histories))

    @property
    def blocks(self) -> Iterator[tuple[str, tuple[Entry, ...]]]:
        """Yield the entries in the order in which they are told, below their titles.

        Without a title are those of a session that knows of none since when it is bad.
        """
        ages = sorted({entry.age for entry in self.bad})
        for age in ages:
            title = "" if ages == [_UNDATED] else AGES[age]
            yield title, tuple(entry for entry in self.bad if entry.age == age)
        if self.shifts:
            yield "worse, and so is the accepted software", self.shifts
        if self.gains:
            yield "gains", self.gains

    @cached_property
    def _bad_groups(self) -> list[Group]:
        tonight = self.told.started
        return sorted(bad_groups(self.told), key=lambda one: _age(one.explanation, tonight))

    @cached_property
    def _gain_groups(self) -> list[Group]:
        return self._of_status(Verdict.IMPROVED)

    @cached_property
    def _bad_ids(self) -> set[str]:
        return {result.case.id for group in self._bad_groups for result in group.cases}

    @cached_property
    def _rest(self) -> list[CaseResult]:
        return [result for result in self.told.cases if result.case.id not in self._bad_ids]

    def _of_status(self, status: Verdict) -> list[Group]:
        found = (result for result in self._rest if result.status is status)
        return groups_of(found, self.told.started)

    def _entries(self, groups: Iterable[Group]) -> tuple[Entry, ...]:
        return tuple(entry_of(group, self.told) for group in groups)


def night_of(
    results: Results, history_file: Path | None = None, *, may_read_logs: bool = False
) -> Night:
    """Put a session into words; without the database they say nothing of other nights."""
    from pytest_dlperf.history.case_history import Past

    return Night(results, Past(results, history_file), may_read_logs)


def said_once(results: Results) -> Results:
    """Take out of the cases' reasons what is wrong with hosts: the head says it."""
    faults = [f": {'; '.join(dict.fromkeys(found))}" for found in results.unfit_hosts.values()]

    def short(judgement: Judgement) -> Judgement:
        reason = judgement.reason
        for fault in faults:
            reason = reason and reason.replace(fault, "")
        return judgement if reason == judgement.reason else replace(judgement, reason=reason)

    def of_case(result: CaseResult) -> CaseResult:
        found = {name: short(judgement) for name, judgement in result.judgements.items()}
        return result if found == result.judgements else replace(result, judgements=found)

    return replace(results, cases=tuple(map(of_case, results.cases))) if faults else results


def is_red(results: Results) -> bool:
    """Tell whether a session has failed, as far as its results tell."""
    return (
        results.interrupted
        or not any(result.is_measured for result in results.cases)
        or any(result.status.fails(strict=results.strict) for result in results.cases)
    )


# ----------------------------------------------------------------------------- entries


def entry_of(group: Group, results: Results, drifts: Iterable[Drifting] = ()) -> Entry:
    """Put cases that are told together into words; of ``drifts``, only theirs are told."""
    tonight = results.started
    explanation, judgement = group.explanation, group.judgement
    since = words.since_line(explanation, tonight)
    ids = tuple(result.case.id for result in group.cases)
    own = [one for one in drifts if one[0].case_id in ids]
    beside = phrase("beside it, {}", _drifts(own)) if own else NOTHING
    has_reference = judgement is not None and judgement.decision is not None
    return Entry(
        status=group.status,
        age=_age(explanation, tonight),
        subject=group.subject,
        metric=phrase("{}", group.metric),
        case_ids=ids,
        lines=tuple(
            phrase("{}", line)
            for line in (
                group.measured(),
                group.reason(),
                since,
                words.probed_line(explanation),
                beside,
            )
            if line
        ),
        reason=phrase("{}", group.reason()),
        found=tuple(words.found_texts(explanation)),
        differences=difference_texts(group.suspects, judgement),
        commits=tuple(words.commit_texts(explanation)),
        accepted=phrase("{}", group.accepted(tonight)) if has_reference else NOTHING,
        commit_count=words.commit_count(explanation),
    )


def _age(explanation: Explanation | None, tonight: str) -> int:
    if words.is_known(explanation, tonight):
        return _KNOWN
    if explanation is None or explanation.since is None:
        return _UNDATED
    return _TONIGHT if words.is_new(explanation, tonight) else _EARLIER


def difference_texts(
    differences: Iterable[Difference], judgement: Judgement | None
) -> tuple[Text, ...]:
    """Put each difference into a line: its name, its sides, and whether it came with the change."""
    if judgement is None:
        return ()
    return tuple(difference_text(words.told_difference(one), judgement) for one in differences)


def difference_text(told: ToldDifference, judgement: Judgement) -> Text:
    """Write a difference in a line."""
    sides = (phrase("{} {}", word(side), side_piece(told.values[side])) for side in told.sides)
    said = phrase("{}: {}", code(told.name), join(", ", sides))
    return join(", ", [said, words.blame(told, judgement)])


def side_piece(value: str) -> Piece:
    """Return a side of a difference: a value, or the word for none."""
    return word(value) if value in (words.UNKNOWN, words.NOT_SET) else code(value)


def first_differences(differences: Sequence[Text], most: int) -> list[Text]:
    """Return the first differences; where there are more, the last line counts them."""
    more = len(differences) - most
    rest = phrase("and {}", number(numbers.counted(more, "more difference")))
    return [*differences[:most], *([rest] if more > 0 else [])]


# ------------------------------------------------------------------------------- facts


def _facts(
    results: Results, rest: Sequence[CaseResult], drifts: Sequence[Drifting]
) -> Iterator[Text]:
    """Yield a line for each fact that needs no action; ``rest`` are the cases not told so far."""
    if drifts:
        yield _drifts(drifts)
    for status in _ABSENT:
        yield from _absent([result for result in rest if result.status is status], status)
    yield from _accepted(results)


def _recovered(cases: Iterable[CaseResult], tonight: str) -> Iterator[Text]:
    """Say which cases pass again, by the night since which they were red."""
    by_night: dict[str, list[str]] = {}
    for result in cases:
        if (first := recovered_from(result)) is not None:
            by_night.setdefault(words.red_words(first, tonight), []).append(result.case.id)
    for was_red, ids in by_night.items():
        yield phrase("passes again, {}: {}", was_red, cases_named(ids, CASES_NAMED))


def _drifts(drifts: Sequence[Drifting]) -> Text:
    series, drift = max(drifts, key=lambda pair: abs(pair[1].percent))
    said = phrase("{} of {} {}", series.metric, code(series.case_id), history_words.drift(drift))
    return phrase("{}; and {} more", said, len(drifts) - 1) if len(drifts) > 1 else said


def _absent(cases: Sequence[CaseResult], status: Verdict) -> Iterator[Text]:
    if not cases:
        return
    known = [(result, judged.reason) for result in cases for judged in result.judgements.values()]
    reasons = [(result, reason) for result, reason in known if reason]
    counted = number(numbers.counted(len(cases), "case"))
    ids = [result.case.id for result in cases]
    said = phrase("{} {}: {}", counted, word(status.value), cases_named(ids, CASES_NAMED))
    if reasons:
        said = phrase("{}: {}", said, texts.in_short(reasons[0][1]))
    different = {alike(reason, result) for result, reason in reasons}
    yield phrase("{}; and other reasons", said) if len(different) > 1 else said


def _accepted(results: Results) -> Iterator[Text]:
    changes = results.baseline_changes
    if changes:
        first = changes[0]
        who = phrase(" by {}", texts.person(first.by)) if first.by else NOTHING
        count = numbers.counted(len(changes), "number")
        yield phrase("accepted tonight{}: {} ({})", who, number(count), texts.reason(first.why))
