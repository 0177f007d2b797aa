"""The night in ten seconds: what mails, chats and comments say of a session.

What is bad comes first, by the size of the loss; cases that share metric, age and cause are told
together. Below it stands, a line each, what is worth knowing and alarms nobody. It stays short,
however bad the night was.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.explanation import DifferenceKind
from pytest_dlperf.reports import explanation_words as words
from pytest_dlperf.reports import history_words, numbers
from pytest_dlperf.reports.case_status import (
    CaseStatus,
    headline,
    of_judgement,
    status_of,
    telling,
    worst_first,
)
from pytest_dlperf.reports.figures import alike, difference_percent
from pytest_dlperf.reports.markdown_text import bullets, code, inline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.history.series import Drift, Series
    from pytest_dlperf.model.baseline import Acceptance
    from pytest_dlperf.model.explanation import Difference, Explanation
    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.records import CaseResult, MetricResult
    from pytest_dlperf.model.results import Results

LONGEST_TEXT: Final = 3000
"""Characters of the plain text; what chats show of one message at the least."""
LONGEST_SUBJECT: Final = 160
GROUPS_SHOWN: Final = 8
CASES_NAMED: Final = 3
DIFFERENCES_SHOWN: Final = 3
_LONGEST_LINE: Final = 400
_ABSENT: Final = (CaseStatus.NOT_JUDGED, CaseStatus.NOT_MEASURED, CaseStatus.SKIPPED)
# An address that may become a link: nothing in it ends one, or stands in for another.
_ADDRESS: Final = re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&'*+,;=%-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A session in a few words."""

    subject: str
    """One line: a mail's subject, a chat's title."""
    text: str
    """Plain text, the subject's facts included."""
    markdown: str
    """The same as GitHub-flavoured Markdown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases with the same status for the same reason, the worst first."""

    status: CaseStatus
    cases: tuple[CaseResult, ...]
    title: str
    """For instance ``12 cases regressed -9.9 to -11.2 % since Tuesday: throughput``; of a single
    case its name instead of the metric, or both."""
    known: MetricResult | None
    """The metric that tells what is wrong with the first case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
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


def ten_seconds(
    results: Results, *, drifts: Sequence[tuple[Series, Drift]] = (), page: str | None = None
) -> Brief:
    """Tell a session shortly.

    ``drifts`` are what the history shows (``history.case_history.drifts_of``), ``page`` the address
    or the place of the session's page.
    """
    night = words.dated(results.started, results.started)
    bad = [result for result in results.cases if status_of(result).fails(strict=results.strict)]
    groups = groups_of(bad, results.started)
    told = _Told(
        headline=f"{numbers.printable(results.cluster)}, {night}: {headline(results)}",
        groups=groups[:GROUPS_SHOWN],
        left=groups[GROUPS_SHOWN:],
        quiet=[_cut(line) for line in _quiet_lines(results, groups, drifts)],
        places=_places(results, page),
        tonight=results.started,
    )
    while told.groups and len(_text(told)) > LONGEST_TEXT:
        *shown, last = told.groups
        told = replace(told, groups=shown, left=[last, *told.left])
    return Brief(subject=_subject(results, groups), text=_text(told), markdown=_markdown(told))


# ----------------------------------------------------------------------------- groups


def groups_of(cases: Iterable[CaseResult], tonight: str) -> list[Group]:
    """Put together cases that share status, metric, age and cause, the worst first."""
    found: dict[tuple[object, ...], list[CaseResult]] = {}
    for result in worst_first(cases):
        found.setdefault(_cause(result, tonight), []).append(result)
    return [_group(members, tonight) for members in found.values()]


def _cause(result: CaseResult, tonight: str) -> tuple[object, ...]:
    status, known = status_of(result), _telling(result)
    judgement = known.judgement if known else None
    if known is None or judgement is None:
        return (status,)
    explanation, reason = known.explanation, judgement.reason or ""
    return (
        status,
        judgement.verdict,
        known.metric.name,
        # How far a number has moved is told; what has not has its reason.
        None if words.moved(judgement) else alike(reason.partition("\n")[0], result.case),
        *(_nights(explanation, tonight) if explanation else ()),
        _suspects(explanation),
    )


def _nights(explanation: Explanation, tonight: str) -> tuple[object, ...]:
    nights = (explanation.since, explanation.last_good)
    return tuple(night and (words.dated(night.at, tonight), night.commit) for night in nights)


def _suspects(explanation: Explanation | None) -> tuple[Difference, ...]:
    """Return what may be the cause; which hosts a case ran on is its own."""
    if explanation is None:
        return ()
    shared = [one for one in explanation.differences if one.kind is not DifferenceKind.HOSTS]
    return tuple(one for one in shared if one.came_with_it) or tuple(shared[:DIFFERENCES_SHOWN])


def _group(members: Sequence[CaseResult], tonight: str) -> Group:
    first, *others = members
    status, known = status_of(first), _telling(first)
    if not others:
        title = words.case_subject(first, tonight)
    elif known is None or known.judgement is None:
        title = f"{len(members)} cases {status.value}"
    else:
        more = [each.judgement for each in map(telling, others) if each and each.judgement]
        said = words.subject(known.judgement, known.explanation, tonight, others=more)
        title = f"{len(members)} cases {said}: {numbers.printable(known.metric.name)}"
    return Group(status=status, cases=tuple(members), title=title, known=known)


def _telling(result: CaseResult) -> MetricResult | None:
    """Return the metric that a case's status comes from, if it comes from one."""
    known = telling(result)
    if known is None or known.judgement is None:
        return None
    return known if of_judgement(known.judgement) is status_of(result) else None


# ------------------------------------------------------------------------ a group's lines


def _numbers(group: Group) -> str:
    """Say what was measured, of a single case, and which other metrics moved."""
    known, told = group.known, []
    if known is not None and len(group.cases) == 1 and (judgement := known.judgement) is not None:
        unit = known.metric.unit
        if judgement.measured is not None:
            held = judgement.reference
            reference = "" if held is None else f", reference {numbers.written(held, unit)}"
            measured = numbers.amount(judgement.measured, unit)
            told.append(f"{numbers.printable(known.metric.name)} {measured}{reference}")
    also = _also(group)
    return "; ".join(filter(None, (*told, f"also {also}" if also else "")))


def _also(group: Group) -> str:
    """Name the other metrics that are not good, of a single case with how far they moved."""
    told: dict[str, list[str]] = {}
    for result in group.cases:
        for name, judgement in result.judgements.items():
            is_told = group.known is not None and name == group.known.metric.name
            if is_told or not of_judgement(judgement).is_alarm:
                continue
            percent = difference_percent(judgement)
            moved = judgement.verdict.value if percent is None else numbers.signed_percent(percent)
            told.setdefault(name, []).append(moved)
    single = len(group.cases) == 1
    return ", ".join(
        f"{numbers.printable(name)} {moved[0] if single else f'of {len(moved)}'}"
        for name, moved in told.items()
    )


def _reason(group: Group) -> str:
    judgement = group.known.judgement if group.known else None
    if judgement is None or not judgement.reason or words.moved(judgement):
        return ""
    more = len(group.cases) - 1
    like_it = f"; and {more} more like it" if more else ""
    reason = judgement.reason.removeprefix(f"{group.cases[0].case.id}, ")
    return f"{_cut(numbers.in_short(reason))}{like_it}"


def _acceptance(group: Group) -> Acceptance | None:
    """Return the last acceptance of the numbers that the group was held against."""
    if group.known is None:
        return None
    name = group.known.metric.name
    held = [result.accepted.get(name) for result in group.cases]
    found = [one.acceptance for one in held if one is not None and one.acceptance is not None]
    return max(found, key=lambda acceptance: acceptance.at, default=None)


def _explanation(group: Group) -> Explanation | None:
    return group.known.explanation if group.known else None


def _lines(group: Group, tonight: str) -> Iterator[str]:
    """Yield what is told of a group below its title and its cases, but what differs."""
    yield from filter(None, (_numbers(group), _reason(group)))
    since = words.since_line(_explanation(group), tonight)
    if since:
        yield since


def _who(group: Group, tonight: str) -> str:
    said = words.accepted_by(_acceptance(group), tonight)
    return f"reference accepted {said}" if said else ""


# ------------------------------------------------------------------------- quiet lines


def _quiet_lines(
    results: Results, groups: Sequence[Group], drifts: Sequence[tuple[Series, Drift]]
) -> Iterator[str]:
    """Yield what alarms nobody and is worth knowing, a line each."""
    told = {result.case.id for group in groups for result in group.cases}
    rest = [result for result in results.cases if result.case.id not in told]
    for status in (CaseStatus.ENVIRONMENT_SHIFT, CaseStatus.IMPROVED):
        cases = [result for result in rest if status_of(result) is status]
        shown = groups_of(cases, results.started)
        yield from (_named_group(group) for group in shown[:CASES_NAMED])
        if len(shown) > CASES_NAMED:
            left = sum(len(group.cases) for group in shown[CASES_NAMED:])
            yield f"{numbers.counted(left, 'more case')} {status.value}"
    if drifts:
        yield _drifts(drifts)
    for host, faults in sorted(results.unfit_hosts.items())[:CASES_NAMED]:
        fault = numbers.printable("; ".join(faults))
        yield f"host {numbers.printable(host)} cannot be used: {fault}"
    if len(results.unfit_hosts) > CASES_NAMED:
        yield f"{len(results.unfit_hosts) - CASES_NAMED} more hosts cannot be used"
    for status in _ABSENT:
        yield from _absent([result for result in rest if status_of(result) is status], status)
    yield from _accepted(results)


def _named_group(group: Group) -> str:
    if len(group.cases) == 1:
        return group.title
    return f"{group.title} of {_names(group)}"


def _names(group: Group, write: Callable[[str], str] = str) -> str:
    return numbers.named([write(result.case.id) for result in group.cases], CASES_NAMED)


def _drifts(drifts: Sequence[tuple[Series, Drift]]) -> str:
    series, drift = max(drifts, key=lambda pair: abs(pair[1].percent))
    more = f"; and {len(drifts) - 1} more" if len(drifts) > 1 else ""
    named = f"{numbers.printable(series.metric)} of {series.case_id}"
    return f"{named} {history_words.drift(drift)}{more}"


def _absent(cases: Sequence[CaseResult], status: CaseStatus) -> Iterator[str]:
    if not cases:
        return
    reasons = [j.reason for result in cases for j in result.judgements.values() if j.reason]
    why = f": {numbers.in_short(reasons[0])}" if reasons else ""
    different = {alike(reason, result.case) for result in cases for reason in reasons}
    more = "; and other reasons" if len(different) > 1 else ""
    named = numbers.named([result.case.id for result in cases], CASES_NAMED)
    yield f"{numbers.counted(len(cases), 'case')} {status.value}: {named}{why}{more}"


def _accepted(results: Results) -> Iterator[str]:
    changes = results.baseline_changes
    if changes:
        first = changes[0]
        who = f" by {numbers.person(first.by)}" if first.by else ""
        count = numbers.counted(len(changes), "number")
        yield f"accepted tonight{who}: {count} ({numbers.reason(first.why)})"


# ------------------------------------------------------------------------------- written


def _subject(results: Results, groups: Sequence[Group]) -> str:
    """Say the only group, or of each status how many, how much and since when."""
    begin = f"dlperf {numbers.printable(results.cluster)}: "
    if not groups or results.interrupted:
        said = headline(results)
    elif len(groups) == 1:
        said = groups[0].title
    else:
        by_status: dict[CaseStatus, list[Group]] = {}
        for group in groups:
            by_status.setdefault(group.status, []).append(group)
        said = ", ".join(_summed_up(alike, results.started) for alike in by_status.values())
    return numbers.cut(f"{begin}{said}", LONGEST_SUBJECT)


def _summed_up(groups: Sequence[Group], tonight: str) -> str:
    """Say of groups of one status how many cases, how much and since when, in one piece."""
    cases = [result for group in groups for result in group.cases]
    known = [each for each in map(_telling, cases) if each is not None]
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
    known: Mapping[str, object] = results.environment
    commit, ci_run = known.get("commit"), known.get("ci_run")
    found = [("page", page), ("CI run", ci_run)]
    told = [(name, numbers.printable(str(place))) for name, place in found if place]
    return [*told, *([("commit", words.short_commit(str(commit)))] if commit else [])]


def _text(told: _Told) -> str:
    blocks = [told.headline]
    for group in told.groups:
        below = [_names(group)] if len(group.cases) > 1 else []
        below += [*map(_cut, _lines(group, told.tonight)), *_differences(group)]
        below += filter(None, [_cut(_who(group, told.tonight))])
        blocks.append("\n".join([_cut(group.title), *(f"  {line}" for line in below)]))
    places = (f"{name}: {place}" for name, place in told.places)
    blocks += [told.more, "\n".join(told.quiet), "\n".join(places)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _differences(group: Group) -> Iterator[str]:
    explanation = _explanation(group)
    if explanation is not None and group.known is not None and group.known.judgement is not None:
        judged: Judgement = group.known.judgement
        yield from words.difference_lines(explanation.differences, judged, most=DIFFERENCES_SHOWN)


def _markdown(told: _Told) -> str:
    items = [markdown_item(group, told.tonight) for group in told.groups]
    blocks = [
        f"**{inline(told.headline)}.**",
        bullets([*items, *([inline(told.more)] if told.more else [])]),
        bullets(map(inline, told.quiet)),
        " · ".join(_linked(name, place) for name, place in told.places),
    ]
    return "\n\n".join(filter(None, blocks)) + "\n"


def markdown_item(group: Group, tonight: str) -> str:
    """Write a group as an item of a list, the details below it."""
    title, _, name = group.title.rpartition(": ")
    several = len(group.cases) > 1
    named = f"{inline(name)} of {_names(group, code)}" if several else code(name)
    below = [*map(inline, _lines(group, tonight)), *map(_coded, _told(group))]
    below += filter(None, [inline(_who(group, tonight))])
    return "\n".join([f"**{inline(title)}**: {named}", *(f"  - {line}" for line in below)])


def _told(group: Group) -> Iterator[tuple[words.ToldDifference | None, str]]:
    explanation = _explanation(group)
    if explanation is None or group.known is None or group.known.judgement is None:
        return
    came = words.came_with(group.known.judgement)
    for one in explanation.differences[:DIFFERENCES_SHOWN]:
        yield words.told_difference(one), came if one.came_with_it else ""
    more = len(explanation.differences) - DIFFERENCES_SHOWN
    if more > 0:
        yield None, f"and {numbers.counted(more, 'more difference')}"


def _coded(pair: tuple[words.ToldDifference | None, str]) -> str:
    told, came = pair
    if told is None:
        return came
    sides = ", ".join(f"{side} {code(value)}" for side, value in told.sides)
    return f"{code(told.name)}: {sides}{f', **{came}**' if came else ''}"


def _linked(name: str, place: str) -> str:
    if _ADDRESS.fullmatch(place):
        return f"[{name}]({place})"
    return f"{name} {code(place)}"


def _cut(line: str) -> str:
    return numbers.cut(line, _LONGEST_LINE)
