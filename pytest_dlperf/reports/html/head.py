"""Gather what the head of a session's page says: what is bad, what is suspicious, what is known."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.results import Origin, parse_time
from pytest_dlperf.night import explanation_words as words
from pytest_dlperf.night import history_words, texts
from pytest_dlperf.night.case_status import CaseStatus, status_of, worst_first
from pytest_dlperf.night.environment import environment_facts, session_facts
from pytest_dlperf.night.groups import bad_groups, groups_of
from pytest_dlperf.night.remarks import suspicion_lines, to_be_expected
from pytest_dlperf.reports.html.drawing import Badge, badge_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.history.series import CaseHistory
    from pytest_dlperf.model.results import CaseResult, Results
    from pytest_dlperf.night.groups import Group

    Histories = Mapping[str, Mapping[str, CaseHistory]]

LINES_SHOWN: Final = 10
"""Lines of one kind that the head has room for; the others are folded."""
_RECENT_DAYS: Final = 30
_AT_SEVEN: Final = ("cluster", "started", "took")
"""Facts of the session that stand in the head; the others stand at the foot."""


class HeadGroup(Struct, frozen=True, kw_only=True):
    """Cases that are bad for the same reason.

    ``said`` is the verdict, how much and since when; ``lines`` stand below it, and so do the most
    suspicious of what differs and ``came``, whether it began with the loss.
    """

    badge: Badge
    said: str
    metric: str
    """Its name; empty where the case has no other that comes before it."""
    case_ids: tuple[str, ...]
    lines: tuple[str, ...]
    difference: str
    came: str
    more: str
    """How many differences there are beside it."""
    accepted: str


class Fold(Struct, frozen=True, kw_only=True):
    """Lines of the head that are folded until a reader opens them."""

    summary: str
    lines: tuple[str, ...]


class HeadFact(Struct, frozen=True, kw_only=True):
    """A fact of the session, with a link where there is one."""

    name: str
    value: str
    address: str | None = None


class Head(Struct, frozen=True, kw_only=True):
    """The head of the page, from top to bottom; ``foot`` has the facts of least interest."""

    facts: tuple[HeadFact, ...]
    groups: tuple[HeadGroup, ...]
    suspicions: tuple[str, ...]
    folds: tuple[Fold, ...]
    foot: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]


def head_of(results: Results, histories: Histories) -> Head:
    """Gather the head of a session's page."""
    bad = bad_groups(results)
    told = {result.case.id for group in bad for result in group.cases}
    facts = session_facts(results)
    suspicions = list(_suspicions(results, histories, told))
    known = results.environment.items()
    others = {name: one for name, one in known if name not in Origin._fields}
    return Head(
        facts=tuple(_facts(results, facts)),
        groups=tuple(_head_group(group, results.started, strict=results.strict) for group in bad),
        suspicions=tuple(suspicions[:LINES_SHOWN]),
        folds=tuple(_folds(results, histories, suspicions[LINES_SHOWN:])),
        foot=tuple(fact for fact in facts if fact[0] not in _AT_SEVEN),
        environment=tuple(environment_facts(others)),
    )


def _facts(results: Results, facts: Iterable[tuple[str, str]]) -> Iterator[HeadFact]:
    for name, value in facts:
        if name == "started":
            day = words.dated(results.started, results.started).partition(" ")[0]
            yield HeadFact(name=name, value=f"{day} {value}" if day != value[:10] else value)
        elif name in _AT_SEVEN:
            yield HeadFact(name=name, value=value)
    commit, page, run = results.origin
    if commit:
        address = texts.address(page)
        yield HeadFact(name="commit", value=words.short_commit(commit), address=address)
    if run:
        address = texts.address(run)
        yield HeadFact(name="CI", value="run" if address else run, address=address)


def _head_group(group: Group, tonight: str, *, strict: bool) -> HeadGroup:
    judgement, differences = group.judgement, group.suspects
    first = words.told_difference(differences[0]) if differences else None
    return HeadGroup(
        badge=badge_of(group.status, strict=strict),
        said=group.subject,
        metric=group.metric,
        case_ids=tuple(result.case.id for result in group.cases),
        lines=tuple(group.lines(tonight)),
        difference=f"{first.name}: {first.line}" if first else "",
        came=words.came_with(judgement) if first and first.came_with_it and judgement else "",
        more=f"and {len(differences) - 1} more" if len(differences) > 1 else "",
        accepted=group.accepted(tonight) if judgement and judgement.reference else "",
    )


# ------------------------------------------------------------------------- worth knowing


def _suspicions(results: Results, histories: Histories, told: set[str]) -> Iterator[str]:
    """Yield further remarks; the cases in ``told`` are covered already."""
    for host, faults in sorted(results.unfit_hosts.items()):
        yield f"host {host} cannot be used: {'; '.join(faults)}"
    for status in (CaseStatus.ENVIRONMENT_SHIFT, CaseStatus.IMPROVED):
        cases = [result for result in results.cases if status_of(result) is status]
        rest = [result for result in cases if result.case.id not in told]
        for group in groups_of(rest, results.started):
            yield group.line
    yield from suspicion_lines(results.cases)
    quiet = [result for result in results.cases if result.case.id not in told]
    yield from _changes(_judged(quiet, histories), results.started)


def _folds(results: Results, histories: Histories, more: Sequence[str]) -> Iterator[Fold]:
    if more:
        yield Fold(summary=f"and {len(more)} more", lines=tuple(more))
    drifts = tuple(_drift(_judged(worst_first(results.cases), histories)))
    if drifts:
        yield Fold(summary=f"{numbers.counted(len(drifts), 'case')} with drift", lines=drifts)
    remarks = tuple(to_be_expected(results.cases))
    if remarks:
        yield Fold(summary="what to expect of such a session", lines=remarks)


def _judged(results: Iterable[CaseResult], by_case: Histories) -> Histories:
    """Return the histories of the metrics that are judged."""
    found = {}
    for result in results:
        histories = by_case.get(result.case.id, {})
        names = [name for name, known in result.metrics().items() if known.metric.is_judged]
        found[result.case.id] = {name: histories[name] for name in names if name in histories}
    return found


def _changes(histories: Histories, started: str) -> Iterator[str]:
    """Tell the new levels of the last 30 days, a line for each case and day."""
    since = f"{(parse_time(started) - timedelta(days=_RECENT_DAYS)).date()}"
    found: dict[tuple[str, str], list[str]] = {}
    for case_id, by_metric in histories.items():
        for name, history in by_metric.items():
            for change in history.change_points:
                told = f"{name} {numbers.signed_percent(change.difference_percent)}"
                found.setdefault((change.at[:10], case_id), []).append(told)
    for (at, case_id), levels in sorted(found.items(), key=lambda one: one[0][0], reverse=True):
        if at >= since:
            yield f"{case_id}: level changed on {at}: {', '.join(levels)}"


def _drift(histories: Histories) -> Iterator[str]:
    """Tell the drift of a case's first metric that has one, and name the others."""
    for case_id, by_metric in histories.items():
        drifts = {name: one.drift for name, one in by_metric.items() if one.drift is not None}
        if drifts:
            first, *others = drifts
            more = f"; also {', '.join(others)}" if others else ""
            yield f"{case_id}: {first} {history_words.drift(drifts[first])}{more}"
