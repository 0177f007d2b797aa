"""Put what the history shows of a metric into words, the same in terminal, page and command.

Texts may quote results files: the caller that prints them escapes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Final

from pytest_dlperf.history.case_history import Drifting, Histories
from pytest_dlperf.history.series import (
    AcceptedChange,
    CaseHistory,
    ChangePoint,
    Drift,
    OtherMachine,
)
from pytest_dlperf.model import numbers
from pytest_dlperf.model.metric import MEMBER
from pytest_dlperf.model.results import CaseResult, parse_time
from pytest_dlperf.report import printing
from pytest_dlperf.report.text import NOTHING, Text, case, join, number, phrase
from pytest_dlperf.report.words import short_commit

_RECENT_DAYS: Final = 30


def drift(known: Drift, percent: Callable[[float], str] = numbers.signed_percent) -> str:
    """Describe a slow change, behind a case's name; ``percent`` writes a difference."""
    return (
        f"drifts {percent(known.percent_per_week)} a week since {known.since[:10]} "
        f"({numbers.counted(known.days, 'day')}), {percent(known.percent)} in all"
    )


def change(
    known: ChangePoint, unit: str, percent: Callable[[float], str] = numbers.signed_percent
) -> str:
    """Describe how far the level has changed; ``percent`` writes a difference."""
    before, after = numbers.number(known.before, unit), numbers.number(known.after, unit)
    return f"{percent(known.difference_percent)}, from {before} to {after}"


def commits(before: str | None, since: str | None) -> str | None:
    """Say which commits a level ended and began with, as far as sessions have told them."""
    if before == since:
        return None if since is None else f"on both sides commit {short_commit(since)}"
    told = [f"commit {short_commit(since)}"] if since else []
    told += [f"in the session before it {short_commit(before)}"] if before else []
    return ", ".join(told)


def accepted(known: AcceptedChange, unit: str) -> str:
    """Describe an accepted number, what it took the place of, who accepted it and why."""
    old = numbers.number(known.old, unit)
    who = f", by {printing.person(known.by)}" if known.by else ""
    commit = f", commit {short_commit(known.commit)}" if known.commit else ""
    new, why = numbers.number(known.new, unit), printing.reason(known.why)
    return f"{new}, instead of {old}{who}{commit}: {why}"


def noise(known: CaseHistory) -> str | None:
    """Describe how much runs of one session differ, where it is known."""
    of = known.noise_percent
    return None if of is None else f"noise of runs: {numbers.percent(of)}"


def other_machine(known: OtherMachine) -> str:
    """Describe what is left out, and why."""
    facts = ", ".join(f"{name} {was}, now {now}" for name, (was, now) in known.facts.items())
    first, last = known.first[:10], known.last[:10]
    dates = f"on {first}" if first == last else f"from {first} to {last}"
    count = numbers.counted(known.sessions, "session")
    return f"{count} {dates} on another machine ({facts}): in no level, drift or noise"


def _judged(
    results: Iterable[CaseResult], histories: Histories
) -> Iterator[tuple[str, str, CaseHistory]]:
    for result in results:
        of_case = histories.get(result.case.id, {})
        for name, known in result.metrics().items():
            if known.metric.is_judged and name in of_case:
                yield result.case.id, name, of_case[name]


def new_levels(cases: Iterable[CaseResult], histories: Histories, now: str) -> Iterator[Text]:
    """Yield the new levels of the last weeks, a line for each case and day, the last first."""
    since = f"{(parse_time(now) - timedelta(days=_RECENT_DAYS)).date()}"
    found: dict[tuple[str, str], dict[str, float]] = {}
    for case_id, name, history in _judged(cases, histories):
        for point in history.change_points:
            if point.at[:10] >= since:
                levels = found.setdefault((point.at[:10], case_id), {})
                told = name.partition(MEMBER)[0]  # of a family the name that moved the farthest
                levels[told] = max(levels.get(told, 0.0), point.difference_percent, key=abs)
    for (at, case_id), levels in sorted(found.items(), key=lambda one: one[0][0], reverse=True):
        said = (
            phrase("{} {}", name, number(numbers.signed_percent(moved)))
            for name, moved in levels.items()
        )
        yield phrase("{}: level changed on {}: {}", case(case_id), at, join(", ", said))


def drift_lines(cases: Iterable[CaseResult], histories: Histories) -> Iterator[Text]:
    """Yield the drift of each case's first metric that has one, and name the others."""
    found: dict[str, dict[str, Drift]] = {}
    for case_id, name, history in _judged(cases, histories):
        if history.drift is not None:
            found.setdefault(case_id, {})[name] = history.drift
    for case_id, drifts in found.items():
        first, *others = drifts
        said = phrase("{}: {} {}", case(case_id), first, drift(drifts[first]))
        also = ", ".join(dict.fromkeys(name.partition(MEMBER)[0] for name in others))
        yield phrase("{}; also {}", said, also) if also else said


def drifts_text(drifts: Sequence[Drifting]) -> Text:
    """Name the metric that drifts the farthest, and count the others."""
    if not drifts:
        return NOTHING
    series, found = max(drifts, key=lambda pair: abs(pair[1].percent))
    said = phrase("{} of {} {}", series.metric, case(series.case_id), drift(found))
    return phrase("{}; and {} more", said, len(drifts) - 1) if len(drifts) > 1 else said
