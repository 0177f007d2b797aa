"""What a session has to say, as one tree, from results and history: one for all reports.

Every sentence is a ``Text``; what a renderer sorts, cuts or colours by stands beside it as a value.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.history.case_history import HistoryReader
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.results import CaseResult, Results
from pytest_dlperf.report import printing, trends, words
from pytest_dlperf.report.entries import (
    AGES,
    CASES_NAMED,
    TEXTS_SHOWN,
    UNDATED,
    Entry,
    advice_of,
    entries_of,
)
from pytest_dlperf.report.overview import absences, places_of_losses, sentence_of
from pytest_dlperf.report.status import recovered_from, worst_first
from pytest_dlperf.report.text import NOTHING, Text, cases_named, code, number, phrase, word

_ABSENT: Final = (Verdict.NOT_JUDGED, Verdict.NOT_MEASURED, Verdict.SKIPPED)


class SessionReport(Struct, frozen=True, dict=True):
    """A session in words: each part is made when it is first asked for, and once."""

    results: Results
    """All that was measured and judged."""
    past: HistoryReader
    """What the history shows."""
    may_read_logs: bool = False
    """Whether its logs are ours: a results file may name any file as one."""

    @cached_property
    def told(self) -> Results:
        """The results as they are told: what is wrong with a host stands in ``urgent`` alone."""
        return _without_host_faults(self.results)

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
        return advice_of(self.told, self.bad, self.gains)

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
        results = self.told
        bad = (one for one in results.cases if one.status.fails(strict=results.strict))
        entries = entries_of(bad, results.started, self.past.drifts)
        return tuple(sorted(entries, key=lambda entry: entry.age))

    @cached_property
    def shifts(self) -> tuple[Entry, ...]:
        """What is worse, and is so with the accepted software as well."""
        return self._of_status(Verdict.ENVIRONMENT_SHIFT)

    @cached_property
    def expected(self) -> tuple[Entry, ...]:
        """What failed as was announced."""
        return self._of_status(Verdict.EXPECTED)

    @cached_property
    def gains(self) -> tuple[Entry, ...]:
        """What is better than the accepted numbers."""
        return self._of_status(Verdict.IMPROVED)

    @cached_property
    def facts(self) -> tuple[Text, ...]:
        """What needs no action: drifts, what passes again, what is absent, what was accepted."""
        bad = {case_id for entry in self.bad for case_id in entry.case_ids}
        drifts = [one for one in self.past.drifts if one[0].case_id not in bad]
        reasons = absences(self._rest, _ABSENT, most=CASES_NAMED)
        more = len(reasons) - TEXTS_SHOWN
        told = [*self.recovered, trends.drifts_text(drifts), *reasons[:TEXTS_SHOWN]]
        if more > 0:
            told.append(phrase("and {} more reasons", more))
        if changes := self.results.baseline_changes:
            by, why = changes[0].by, printing.reason(changes[0].why)
            who = phrase(" by {}", printing.person(by)) if by else NOTHING
            count = number(numbers.counted(len(changes), "number"))
            told.append(phrase("accepted now{}: {} ({})", who, count, why))
        return tuple(filter(None, told))

    @cached_property
    def recovered(self) -> tuple[Text, ...]:
        """What passes again, and since when it was red."""
        by_day: dict[str, list[str]] = {}
        for result in self._rest:
            if (first := recovered_from(result)) is not None:
                day = words.dated(first.at, self.told.started)
                by_day.setdefault(day, []).append(result.case.id)
        return tuple(
            phrase("passes again, was red since {}: {}", word(day), cases_named(ids, CASES_NAMED))
            for day, ids in by_day.items()
        )

    @cached_property
    def suspicions(self) -> tuple[Text, ...]:
        """What only all cases together show, and may need action."""
        new_levels = trends.new_levels(self._rest, self.past.histories, self.told.started)
        return (*places_of_losses(self.told.cases), *new_levels)

    @cached_property
    def drifts(self) -> tuple[Text, ...]:
        """A line for each case that drifts, as its history shows."""
        cases = worst_first(self.told.cases)
        return tuple(trends.drift_lines(cases, self.past.histories))

    @property
    def blocks(self) -> Iterator[tuple[str, tuple[Entry, ...]]]:
        """Yield the entries in the order in which they are told, below their titles.

        Without a title are those of a session that knows of none since when it is bad.
        """
        ages = sorted({entry.age for entry in self.bad})
        for age in ages:
            title = "" if ages == [UNDATED] else AGES[age]
            yield title, tuple(entry for entry in self.bad if entry.age == age)
        if self.shifts:
            yield "worse, and so is the accepted software", self.shifts
        if self.expected:
            yield "expected", self.expected
        if self.gains:
            yield "gains", self.gains

    @cached_property
    def _rest(self) -> list[CaseResult]:
        strict = self.told.strict
        return [result for result in self.told.cases if not result.status.fails(strict=strict)]

    def _of_status(self, status: Verdict) -> tuple[Entry, ...]:
        found = (result for result in self._rest if result.status is status)
        return tuple(entries_of(found, self.told.started))


def session_report(
    results: Results, history_file: Path | None = None, *, may_read_logs: bool = False
) -> SessionReport:
    """Put a session into words; without the database they say nothing of other sessions."""
    return SessionReport(results, HistoryReader(results, history_file), may_read_logs)


def is_red(results: Results) -> bool:
    """Tell whether a session has failed, as far as its results tell."""
    return (
        results.interrupted
        or bool(results.faults)
        or not any(result.is_measured for result in results.cases)
        or any(result.status.fails(strict=results.strict) for result in results.cases)
    )


def _without_host_faults(results: Results) -> Results:
    """Take out of the cases' reasons what is wrong with hosts: the head says it."""
    faults = [f": {'; '.join(dict.fromkeys(found))}" for found in results.unfit_hosts.values()]

    def short(judgement: Judgement) -> Judgement:
        reason = judgement.reason
        for fault in faults:
            reason = reason and reason.replace(fault, "")
        return replace(judgement, reason=reason)

    def of_case(result: CaseResult) -> CaseResult:
        found = {name: short(judgement) for name, judgement in result.judgements.items()}
        return result if found == result.judgements else replace(result, judgements=found)

    return replace(results, cases=tuple(map(of_case, results.cases))) if faults else results
