"""Put why a number moved into words: its subject line, since when, what differs, who accepted.

Every report has these words, so that a night reads the same in a mail, a comment and a page. Days
are those of tonight's time zone. What histories, logs and baselines say is made safe for one line
of a terminal; for Markdown and HTML it has to be escaped.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.commits import SUITE, news_of
from pytest_dlperf.model.differences import ABSENT
from pytest_dlperf.model.judgement import DifferenceKind, Verdict
from pytest_dlperf.model.results import day_of, parse_time
from pytest_dlperf.report import texts
from pytest_dlperf.report.case_status import decisive_metric
from pytest_dlperf.report.figures import difference_percent, lost
from pytest_dlperf.report.pieces import Piece, Text, join, phrase, strong

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import date

    from pytest_dlperf.model.baseline import Acceptance
    from pytest_dlperf.model.judgement import (
        Difference,
        Explanation,
        Judgement,
        Note,
        PastNight,
    )
    from pytest_dlperf.model.results import CaseResult

COMMITS_SHOWN: Final = 5
"""Commits of one checkout that a message lists."""
UNKNOWN: Final = "unknown"
"""Stands for an unknown side of a difference."""
NOT_SET: Final = "not set"
"""Stands for a side of a difference that is known to lack it."""
SIDES: Final = ("accepted", "last good", "tonight")
"""Sides of a difference."""
LONGEST_LINE: Final = 400
"""Characters of a line of texts that have to stay short."""

_WEEKDAYS: Final = (
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
)  # fmt: skip
_NAMED_DAYS: Final = 6
"""Days back that a weekday names: a week ago it would be today's."""
_COMMIT: Final = re.compile(r"([0-9a-f]{7})[0-9a-f]{0,57}(?:\+(.+))?", re.ASCII)
_LONGEST_VALUE: Final = 48
_LONGEST_TITLE: Final = 80
_AROUND: Final = 12
"""Characters that stay before and behind what differs between long values."""


# ------------------------------------------------------------------------ the subject line


def subject(
    judgement: Judgement,
    explanation: Explanation | None,
    tonight: str,
    *,
    others: Iterable[Judgement] = (),
) -> Text:
    """Say a verdict, how far the number has moved, and since when.

    For instance ``regressed -9.9 % since Tuesday``. ``tonight`` is when the session began, ISO
    8601, here and below. ``others`` are judged alike, and share the rest.
    """
    status, verdict = judgement.status, judgement.verdict.value
    parts = (verdict, moved(judgement, *others), since_words(explanation, tonight))
    said = " ".join(filter(None, parts)) + ", known" * is_known(explanation, tonight)
    if status is Verdict.IMPROVED:
        said += ", not accepted"
    elif status.value != verdict:
        said += f", {status.value}"
    return phrase("{}", strong(said))


def moved(*judgements: Judgement) -> str:
    """Write by how much numbers have moved, from the least to the most.

    A difference that is no loss explains no ``regressed``, nor a loss an ``improved``: what was
    decided beside a control arm has its reason.
    """
    found = sorted(filter(None, map(_told_percent, judgements)), key=abs)
    if not found:
        return ""
    least, most = numbers.signed_percent(found[0]), numbers.signed_percent(found[-1])
    return most if least == most else f"{least.removesuffix(' %')} to {most}"


def _told_percent(judgement: Judgement) -> float | None:
    loss, verdict = lost(judgement), judgement.verdict
    if not verdict.is_change:
        return None
    if loss is not None and verdict is not Verdict.INCONCLUSIVE:
        is_expected = loss < 0 if verdict is Verdict.IMPROVED else loss > 0
        return difference_percent(judgement) if is_expected else None
    return difference_percent(judgement)


def case_subject(result: CaseResult, tonight: str) -> tuple[Text, str]:
    """Say the same of a case by its worst metric, and name that unless it is the first."""
    known = decisive_metric(result)
    if known is None or known.judgement is None:
        return phrase("{}", strong(result.status.value)), ""
    name = known.metric.name
    is_first = name == next(iter(result.metrics()))
    said = subject(known.judgement, known.explanation, tonight)
    return said, "" if is_first else texts.printable(name)


def since_words(explanation: Explanation | None, tonight: str) -> str:
    """Say since which night, as shortly as it is clear: ``since Tuesday``, or ``tonight``."""
    if explanation is None or explanation.since is None:
        return ""
    at = explanation.since.at
    day, today = _day(at, tonight), _day(tonight, tonight)
    if day is None or today is None:
        named = texts.printable(at[:10])
    elif is_new(explanation, tonight):
        return "tonight"
    else:
        is_near = timedelta(0) < today - day <= timedelta(days=_NAMED_DAYS)
        named = _WEEKDAYS[day.weekday()] if is_near else day.isoformat()
    return f"since {named}"


def is_new(explanation: Explanation | None, tonight: str) -> bool:
    """Whether a number is as it is since tonight."""
    since = explanation.since if explanation is not None else None
    day = _day(since.at, tonight) if since is not None else None
    return day is not None and day == _day(tonight, tonight)


def dated(at: str, tonight: str) -> str:
    """Write a day for a reader who looks closer: ``Tuesday 2026-11-17``."""
    day = _day(at, tonight)
    if day is None:
        return texts.printable(at[:10])
    return f"{_WEEKDAYS[day.weekday()]} {day.isoformat()}"


def _day(at: str, tonight: str) -> date | None:
    """Return a time's day where the session ran; ``None`` if a file says no time."""
    try:
        return day_of(at, tonight)
    except (ValueError, OverflowError):
        return None


# --------------------------------------------------------------------------- since when


def since_line(explanation: Explanation | None, tonight: str) -> str:
    """Say since when, by which commit, when it was good, and what is noted."""
    if explanation is None:
        return ""
    since, good = explanation.since, explanation.last_good
    told = []
    if since is not None:
        told.append(_since(since, explanation, tonight))
    if explanation.red_since is not None:
        told.append(red_words(explanation.red_since, tonight))
    if good is not None:
        is_same = since is not None and _is_same(since.commit, good.commit)
        commit = "at the same commit" if is_same else _commit(good.commit)
        ago = f"{numbers.counted(explanation.nights, 'night')} ago" if explanation.nights else ""
        told.append(", ".join(filter(None, (f"last good {_good(good.at, tonight)}", commit, ago))))
    elif since is not None:
        told.append("no good night is known")
    if explanation.note is not None:
        told.append(noted(explanation.note, tonight))
    return "; ".join(told)


def found_pairs(explanation: Explanation | None) -> Iterator[tuple[str, str]]:
    """Yield what a hunt has found, and what belongs to it, each with what it is called."""
    if explanation is not None and explanation.found is not None:
        yield "found", texts.reason(explanation.found.said)
        for name, text in explanation.found.facts.items():
            yield texts.reason(name), texts.reason(text)


def found_texts(explanation: Explanation | None) -> Iterator[Text]:
    """Yield the same, a line each, without what it took."""
    for at, (name, text) in enumerate(found_pairs(explanation)):
        if name != "spent":
            yield phrase("{}: {}", name if at else strong(name), text)


def probed_line(explanation: Explanation | None) -> str:
    """Quote the companions that are worse, the blamed one first, then those that are as ever."""
    told, as_ever = [], []
    companions = explanation.companions if explanation is not None else ()
    for one in sorted(companions, key=lambda each: not each.is_blamed):
        resource = texts.printable(one.resource)
        if one.verdict in (Verdict.PASS, Verdict.IMPROVED):
            as_ever.append(resource)
            continue
        if one.verdict in (Verdict.REGRESSED, Verdict.INCONCLUSIVE):
            word = "" if one.verdict is Verdict.REGRESSED else f"{one.verdict.value} "
            said = f"{one.metric} {word}{numbers.signed_percent(one.difference_percent or 0.0)}"
        else:
            verdict = one.verdict.value if one.verdict is not None else "not run"
            said = f"{verdict} ({texts.in_short(one.reason)})" if one.reason else verdict
        whose = f"{texts.printable(one.case_id)} {texts.printable(said)}"
        told.append(f"{whose}: the {resource}" if one.is_blamed else whose)
    if as_ever:
        *others, last = dict.fromkeys(as_ever)
        probes = f"{', '.join(others)} and {last} probes are" if others else f"{last} probe is"
        told.append(f"{probes} as ever")
    return f"on the same hosts {'; '.join(told)}" if told else ""


def red_words(night: PastNight, tonight: str) -> str:
    """Say since which night a number had been red before."""
    return f"was red since {dated(night.at, tonight)}"


def is_known(explanation: Explanation | None, tonight: str) -> bool:
    """Whether a note on the fault holds tonight."""
    today = _day(tonight, tonight)
    note = explanation.note if explanation is not None else None
    return note is not None and today is not None and note.holds(today)


def noted(note: Note, tonight: str) -> str:
    """Say who noted what of a fault, and until when."""
    today = _day(tonight, tonight)
    by = f"by {texts.person(note.by)} " if note.by else ""
    over = "" if today is not None and note.holds(today) else " (which is over)"
    said = f"noted {by}on {dated(note.at, tonight)} until {note.until}{over}"
    return f"{said}: {texts.reason(note.text)}"


def _since(night: PastNight, explanation: Explanation, tonight: str) -> str:
    day, today = _day(night.at, tonight), _day(tonight, tonight)
    is_new = day is not None and day == today
    begun = "new tonight, " if is_new else "since "
    # Where every night was measured, the day says how many there were.
    every = (today - day).days + 1 if day and today else None
    count = explanation.nights_at_level
    nights = "" if count in (1, every) else f"on {numbers.counted(count, 'night')}"
    said = (f"{begun}{dated(night.at, tonight)}", nights, _commit(night.commit))
    return ", ".join(filter(None, said))


def _good(at: str, tonight: str) -> str:
    """Write when it was good; of sessions of one day the hour tells more."""
    day = _day(at, tonight)
    if day is None or day != _day(tonight, tonight):
        return dated(at, tonight)
    here = parse_time(at).astimezone(parse_time(tonight).tzinfo)
    return f"earlier today, {here:%H:%M}"


def _commit(commit: str | None) -> str:
    return f"commit {short_commit(commit)}" if commit else ""


def short_commit(commit: str) -> str:
    """Shorten a commit's digest to what people compare, and name files that differ from it."""
    found = _COMMIT.fullmatch(commit)
    if found is None:  # as a file may have it that was not written here
        return texts.cut(texts.printable(commit), _LONGEST_VALUE)
    return f"{found[1]}{_with_changes(found[2])}"


def _with_changes(files: str | None) -> str:
    return f" with changes in {texts.printable(files)}" if files else ""


def _is_same(first: str | None, second: str | None) -> bool:
    # Changes that were not committed may be others each night.
    return first is not None and first == second and "+" not in first


# --------------------------------------------------------------------------- what differs


class ToldDifference(Struct, frozen=True, kw_only=True):
    """A difference in words; long values are shortened around what differs."""

    name: str
    values: dict[str, str]
    """By ``SIDES``."""
    sides: tuple[str, ...]
    """Those that a line tells: they are known, and do not repeat another."""
    came_with_it: bool


def told_difference(difference: Difference) -> ToldDifference:
    """Put a difference into words, with ``unknown`` for a missing side."""
    accepted, last_good, tonight = difference.accepted, difference.last_good, difference.tonight
    is_told = (accepted is not None, last_good not in (None, accepted), True)
    values = (accepted, last_good, tonight)
    is_commit = difference.kind is DifferenceKind.COMMIT
    told = [UNKNOWN if one is None else short_commit(one) for one in values]
    return ToldDifference(
        name=_named(difference),
        values=dict(zip(SIDES, told if is_commit else _shortened(values), strict=True)),
        sides=tuple(side for side, known in zip(SIDES, is_told, strict=True) if known),
        came_with_it=difference.came_with_it,
    )


_WITH: Final = {Verdict.IMPROVED: "gain", Verdict.REGRESSED: "loss", Verdict.FAILED: "failure"}


def came_with(judgement: Judgement | None) -> str:
    """Say of a difference that it began in the same night as what was judged."""
    what = _WITH.get(judgement.verdict) if judgement is not None else None
    return f"came with the {what}" if what else "came with it"


def news(difference: Difference) -> str:
    """Say what of a checkout is new since the last good night."""
    name = _checkout(difference.checkout or difference.name)
    return texts.printable(news_of(name, difference.last_good or "", difference.tonight or ""))


def blame(told: ToldDifference, judgement: Judgement) -> Piece:
    """Say whether a difference may be the cause; nothing of one that came at another time."""
    return strong(came_with(judgement) if told.came_with_it else "")


def _named(difference: Difference) -> str:
    """Name what differs, its kind first where the name does not show it."""
    kind = difference.kind
    if kind is DifferenceKind.COMMIT:
        return f"commit of {_checkout(difference.checkout or difference.name)}"
    name = texts.cut(texts.printable(difference.name), _LONGEST_VALUE)
    if kind is DifferenceKind.COMMAND or name.startswith(kind.value):
        return name
    return f"{kind.value} {name}"


def _checkout(name: str) -> str:
    """Name a checkout; one that is known by no folder's name by what it holds."""
    known = {"working_directory": "the trainer", SUITE: "the system files"}
    return known.get(name) or texts.cut(texts.printable(name), _LONGEST_VALUE)


def _shortened(values: Sequence[str | None]) -> list[str]:
    """Write values, the long ones without what all of them have at both ends."""
    written = [NOT_SET if value == ABSENT else value and texts.printable(value) for value in values]
    known = list(dict.fromkeys(text for text in written if text not in (None, NOT_SET)))
    begin = end = 0
    if len(known) > 1 and max(map(len, known)) > _LONGEST_VALUE:
        common = _common(known)
        ends = [text[common:][::-1] for text in known]
        begin, end = max(common - _AROUND, 0), max(_common(ends) - _AROUND, 0)
    return [UNKNOWN if text is None else _cut(text, begin, len(text) - end) for text in written]


def _common(values: Sequence[str]) -> int:
    """Count the characters that all begin with: the first and the last in order differ soonest."""
    pairs = zip(min(values), max(values), strict=False)
    shortest = min(map(len, values))
    return next((at for at, (one, other) in enumerate(pairs) if one != other), shortest)


def _cut(text: str, begin: int, end: int) -> str:
    middle = text[begin:end]
    if len(middle) > _LONGEST_VALUE:
        middle, end = middle[:_LONGEST_VALUE].rstrip(), 0
    return f"{'…' * (begin > 0)}{middle}{'…' * (end < len(text))}"


def commit_texts(explanation: Explanation | None, most: int = COMMITS_SHOWN) -> Iterator[Text]:
    """Yield the commits that came with the change, ``most`` of each checkout, with their pages."""
    for known in explanation.commits if explanation is not None else ():
        name = _checkout(known.checkout)
        for one in known.commits[:most]:
            author, title = (
                texts.cut(texts.printable(text), longest)
                for text, longest in ((one.author, _LONGEST_VALUE), (one.title, _LONGEST_TITLE))
            )
            line = f"commit {short_commit(one.name)} of {name}, {author}: {title}"
            yield phrase("{}", Piece(line, address=texts.address(one.address)))
        more = (known.count or 0) - most
        ends = f"{short_commit(known.first)} to {short_commit(known.last)}"
        if more > 0 or not known.commits:
            count = f"and {numbers.counted(more, 'more commit')}" if more > 0 else "commits"
            # The address is worth reading where nothing can be clicked.
            address = texts.address(known.compare)
            link = Piece(address, address=address) if address else ""
            yield join(": ", [f"{count} of {name}, {ends}", link])


def commit_count(explanation: Explanation | None) -> int:
    """Count the same commits; those of a checkout that nobody has counted are one."""
    known = explanation.commits if explanation is not None else ()
    return sum(one.count or len(one.commits) or 1 for one in known)


# --------------------------------------------------------------------------- who


def accepted_by(acceptance: Acceptance | None, tonight: str) -> str:
    """Say who accepted a number, when, at which commit and why; empty if nothing is recorded."""
    if acceptance is None:
        return ""
    who = f"by {texts.person(acceptance.by)} " if acceptance.by else ""
    why = f": {texts.reason(acceptance.reason)}" if acceptance.reason else ""
    where = f", {_commit(acceptance.commit)}" if acceptance.commit else ""
    return f"{who}on {dated(acceptance.at, tonight)}{where}{why}"
