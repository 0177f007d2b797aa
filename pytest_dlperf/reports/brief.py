"""The night in ten seconds: what mails, chats and comments say of a session.

What is bad comes first, by the size of the loss; cases that share metric, age and cause are told
together. Below it, a line each, stand facts that need no action. It stays short,
however bad the night was.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.model import numbers
from pytest_dlperf.model.results import parse_time
from pytest_dlperf.night import explanation_words as words
from pytest_dlperf.night import history_words, texts
from pytest_dlperf.night.case_status import (
    CaseStatus,
    decisive_metric,
    headline,
    status_of,
)
from pytest_dlperf.night.figures import alike
from pytest_dlperf.night.groups import CASES_NAMED, DIFFERENCES_SHOWN, bad_groups, groups_of
from pytest_dlperf.reports.explanation_markdown import commits, differences, titled
from pytest_dlperf.reports.markdown_text import bullets, code, inline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.history.series import Drift, Series
    from pytest_dlperf.model.results import CaseResult, Results
    from pytest_dlperf.night.groups import Group

LONGEST_TEXT: Final = 3000
"""Characters of the plain text; what chats show of one message at the least."""
LONGEST_SUBJECT: Final = 160
GROUPS_SHOWN: Final = 8
_ABSENT: Final = (CaseStatus.NOT_JUDGED, CaseStatus.NOT_MEASURED, CaseStatus.SKIPPED)


class Brief(Struct, frozen=True, kw_only=True):
    """A session in a few words."""

    subject: str
    """One line: a mail's subject, a chat's title."""
    text: str
    """Plain text, the subject's facts included."""
    markdown: str
    """The same as GitHub-flavoured Markdown."""


class _BriefContent(Struct, frozen=True, kw_only=True):
    """What both forms of the text say, from top to bottom."""

    headline: str
    groups: Sequence[Group]
    left: Sequence[Group]
    """Those that have no room."""
    quiet: Sequence[str]
    places: Sequence[tuple[str, str]]
    tonight: str

    @property
    def more(self) -> str:
        """Counts what has no room."""
        if not self.left:
            return ""
        count = numbers.counted(sum(len(group.cases) for group in self.left), "more case")
        return _cut(f"and {count}, the worst: {self.left[0].title}")


def brief_of(
    results: Results, *, drifts: Sequence[tuple[Series, Drift]] = (), page: str | None = None
) -> Brief:
    """Tell a session shortly.

    ``drifts`` are what the history shows (``history.case_history.drifts_of``), ``page`` the address
    or the place of the session's page.
    """
    night = words.dated(results.started, results.started)
    groups = bad_groups(results)
    content = _BriefContent(
        headline=f"{texts.printable(results.cluster)}, {night}: {headline(results)}",
        groups=groups[:GROUPS_SHOWN],
        left=groups[GROUPS_SHOWN:],
        quiet=[_cut(line) for line in _quiet_lines(results, groups, drifts)],
        places=_places(results, page),
        tonight=results.started,
    )
    while content.groups and len(_text(content)) > LONGEST_TEXT:
        *shown, last = content.groups
        content = replace(content, groups=shown, left=[last, *content.left])
    return Brief(
        subject=_subject(results, groups), text=_text(content), markdown=_markdown(content)
    )


# ------------------------------------------------------------------------- quiet lines


def _quiet_lines(
    results: Results, groups: Sequence[Group], drifts: Sequence[tuple[Series, Drift]]
) -> Iterator[str]:
    """Yield a line for each fact that needs no action."""
    told = {result.case.id for group in groups for result in group.cases}
    rest = [result for result in results.cases if result.case.id not in told]
    for status in (CaseStatus.ENVIRONMENT_SHIFT, CaseStatus.IMPROVED):
        cases = [result for result in rest if status_of(result) is status]
        shown = groups_of(cases, results.started)
        yield from map(_quiet, shown[:CASES_NAMED])
        if len(shown) > CASES_NAMED:
            left = sum(len(group.cases) for group in shown[CASES_NAMED:])
            yield f"{numbers.counted(left, 'more case')} {status.value}"
    yield from _recovered(rest, results.started)
    drifting = {
        result.case.id
        for group in groups
        if group.explanation is not None and group.explanation.is_gradual
        for result in group.cases
    }
    if others := [one for one in drifts if one[0].case_id not in drifting]:
        yield _drifts(others)
    for host, faults in sorted(results.unfit_hosts.items())[:CASES_NAMED]:
        fault = texts.printable("; ".join(faults))
        yield f"host {texts.printable(host)} cannot be used: {fault}"
    if len(results.unfit_hosts) > CASES_NAMED:
        yield f"{len(results.unfit_hosts) - CASES_NAMED} more hosts cannot be used"
    for status in _ABSENT:
        yield from _absent([result for result in rest if status_of(result) is status], status)
    yield from _accepted(results)


def _recovered(cases: Sequence[CaseResult], tonight: str) -> Iterator[str]:
    """Say which cases pass again, by the night since which they were red."""
    by_night: dict[str, list[str]] = {}
    for result in cases:
        red = [e.red_since for e in result.explanations.values() if e.red_since is not None]
        if red and status_of(result) is CaseStatus.PASS:
            first = min(red, key=lambda night: parse_time(night.at))
            by_night.setdefault(words.red_words(first, tonight), []).append(result.case.id)
    for was_red, named in by_night.items():
        yield f"passes again, {was_red}: {numbers.named(named, CASES_NAMED)}"


def _quiet(group: Group) -> str:
    """Say in one line what moved without harm, with what came with it first."""
    first = next((one for one in group.suspects if one.came_with_it), None)
    if first is None or group.judgement is None:
        return group.line
    told = words.told_difference(first)
    return f"{group.line}; {told.name}: {told.line}, {words.came_with(group.judgement)}"


def _drifts(drifts: Sequence[tuple[Series, Drift]]) -> str:
    series, drift = max(drifts, key=lambda pair: abs(pair[1].percent))
    more = f"; and {len(drifts) - 1} more" if len(drifts) > 1 else ""
    named = f"{texts.printable(series.metric)} of {series.case_id}"
    return f"{named} {history_words.drift(drift)}{more}"


def _absent(cases: Sequence[CaseResult], status: CaseStatus) -> Iterator[str]:
    if not cases:
        return
    reasons = [j.reason for result in cases for j in result.judgements.values() if j.reason]
    why = f": {texts.in_short(reasons[0])}" if reasons else ""
    different = {alike(reason, result.case) for result in cases for reason in reasons}
    more = "; and other reasons" if len(different) > 1 else ""
    named = numbers.named([result.case.id for result in cases], CASES_NAMED)
    yield f"{numbers.counted(len(cases), 'case')} {status.value}: {named}{why}{more}"


def _accepted(results: Results) -> Iterator[str]:
    changes = results.baseline_changes
    if changes:
        first = changes[0]
        who = f" by {texts.person(first.by)}" if first.by else ""
        count = numbers.counted(len(changes), "number")
        yield f"accepted tonight{who}: {count} ({texts.reason(first.why)})"


# ------------------------------------------------------------------------------- written


def _subject(results: Results, groups: Sequence[Group]) -> str:
    """Say the only group, or of each status how many, how much and since when."""
    begin = f"dlperf {texts.printable(results.cluster)}: "
    if not groups or results.interrupted:
        said = headline(results)
    elif len(groups) == 1:
        said = groups[0].title
    else:
        by_status: dict[CaseStatus, list[Group]] = {}
        for group in groups:
            by_status.setdefault(group.status, []).append(group)
        said = ", ".join(_summed_up(alike, results.started) for alike in by_status.values())
    return texts.cut(f"{begin}{said}", LONGEST_SUBJECT)


def _summed_up(groups: Sequence[Group], tonight: str) -> str:
    """Say of groups of one status how many cases, how much and since when, in one piece."""
    cases = [result for group in groups for result in group.cases]
    known = [each for each in map(decisive_metric, cases) if each is not None]
    judgements = [each.judgement for each in known if each.judgement is not None]
    if not judgements:
        return f"{len(cases)} {groups[0].status.value}"
    first, *others = judgements
    said = f"{len(cases)} {words.subject(first, None, tonight, others=others)}"
    days = [words.since_words(each.explanation, tonight) for each in known]
    since = Counter(filter(None, days))
    if not since:
        return said
    day, count = since.most_common(1)[0]
    return f"{said} {day}" if count == len(cases) else f"{said} ({count} {day})"


def _places(results: Results, page: str | None) -> list[tuple[str, str]]:
    commit, _, ci_run = results.origin
    found = [("page", page), ("CI run", ci_run)]
    told = [(name, texts.printable(place)) for name, place in found if place]
    return [*told, *([("commit", words.short_commit(commit))] if commit else [])]


def _text(content: _BriefContent) -> str:
    blocks = [content.headline]
    for group in content.groups:
        below = [group.names()] if len(group.cases) > 1 else []
        below += [*map(_cut, group.lines(content.tonight)), *_differences(group)]
        below += [one.plain for one in words.told_commits(group.explanation)]
        below += filter(None, [_cut(group.accepted(content.tonight))])
        blocks.append("\n".join([_cut(group.title), *(f"  {line}" for line in below)]))
    places = (f"{name}: {place}" for name, place in content.places)
    blocks += [content.more, "\n".join(content.quiet), "\n".join(places)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _differences(group: Group) -> Iterator[str]:
    if group.judgement is not None:
        yield from words.difference_lines(group.suspects, group.judgement, most=DIFFERENCES_SHOWN)


def _markdown(content: _BriefContent) -> str:
    items = [_item(group, content.tonight) for group in content.groups]
    blocks = [
        f"**{inline(content.headline)}.**",
        bullets([*items, *([inline(content.more)] if content.more else [])]),
        bullets(map(inline, content.quiet)),
        " · ".join(_linked(name, place) for name, place in content.places),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _item(group: Group, tonight: str) -> str:
    below = [*map(inline, group.lines(tonight)), *differences(group, most=DIFFERENCES_SHOWN)]
    below += commits(group.explanation)
    below += filter(None, [inline(group.accepted(tonight))])
    return "\n".join([titled(group), *(f"  - {line}" for line in below)])


def _linked(name: str, place: str) -> str:
    return f"[{name}]({place})" if texts.address(place) else f"{name} {code(place)}"


def _cut(line: str) -> str:
    return texts.cut(line, words.LONGEST_LINE)
