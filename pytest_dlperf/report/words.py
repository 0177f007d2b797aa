"""Put why a number moved into words: its subject line, since when, what differs, who accepted.

Days are those of the session's time zone; ``now`` is when the session began, ISO 8601.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from os.path import commonprefix
from typing import Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.commits import SUITE, news_of
from pytest_dlperf.model.differences import ABSENT
from pytest_dlperf.model.judgement import (
    Companion,
    Difference,
    DifferenceKind,
    Explanation,
    Judgement,
    Verdict,
)
from pytest_dlperf.model.results import CaseResult, day_of, parse_time
from pytest_dlperf.report import printing
from pytest_dlperf.report.status import decisive_metric
from pytest_dlperf.report.text import (
    NOTHING,
    Piece,
    Text,
    code,
    join,
    number,
    phrase,
    strong,
    word,
)

LONGEST_LINE: Final = 400
"""Characters of a line of texts that have to stay short."""
UNKNOWN: Final = "unknown"
"""Stands for an unknown side of a difference."""
NOT_SET: Final = "not set"
"""Stands for a side of a difference that is known to lack it."""

_COMMITS_SHOWN: Final = 5
"""Commits of one checkout that are listed; the others are counted."""
_NEW: Final = "(new)"
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
    now: str,
    *,
    others: Iterable[Judgement] = (),
) -> Text:
    """Say a verdict, how far the number has moved, and since when.

    For instance ``regressed -9.9 % since Tuesday``. ``others`` are judged alike, and share the
    rest.
    """
    status, verdict = judgement.status, judgement.verdict.value
    parts = (verdict, moved(judgement, *others), since_words(explanation, now))
    said = " ".join(filter(None, parts))
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
    found = sorted(
        (
            one.difference_percent
            for one in judgements
            if one.difference_percent and _is_in_its_direction(one)
        ),
        key=abs,
    )
    if not found:
        return ""
    least, most = numbers.signed_percent(found[0]), numbers.signed_percent(found[-1])
    return most if least == most else f"{least.removesuffix(' %')} to {most}"


def _is_in_its_direction(judgement: Judgement) -> bool:
    loss, verdict = judgement.loss_percent, judgement.verdict
    if loss is None or verdict is Verdict.INCONCLUSIVE:
        return verdict.is_change
    return verdict.is_change and (loss < 0 if verdict is Verdict.IMPROVED else loss > 0)


def case_subject(result: CaseResult, now: str) -> tuple[Text, str]:
    """Say the same of a case by its worst metric, and name that unless it is the first."""
    known = decisive_metric(result)
    if known is None or known.judgement is None:
        return phrase("{}", strong(result.status.value)), ""
    name = known.metric.name
    is_first = name == next(iter(result.metrics()))
    return subject(known.judgement, known.explanation, now), "" if is_first else name


# --------------------------------------------------------------------------- since when


def since_words(explanation: Explanation | None, now: str) -> str:
    """Say since which session, as shortly as it is clear: ``since Tuesday``, or ``(new)``."""
    if explanation is None or explanation.since is None:
        return ""
    at = explanation.since.at
    day, today = _day(at, now), _day(now, now)
    if day is None or today is None:
        return f"since {at[:10]}"
    if day == today:
        return _NEW
    is_near = timedelta(0) < today - day <= timedelta(days=_NAMED_DAYS)
    return f"since {day:%A}" if is_near else f"since {day}"


def is_new(explanation: Explanation | None, now: str) -> bool:
    """Whether a number is as it is since this session."""
    return since_words(explanation, now) == _NEW


def dated(at: str, now: str) -> str:
    """Write a day for a reader who looks closer: ``Tuesday 2026-11-17``."""
    day = _day(at, now)
    return at[:10] if day is None else f"{day:%A} {day}"


def _day(at: str, now: str) -> date | None:
    try:
        return day_of(at, now)
    except (ValueError, OverflowError):
        return None


def onset(explanation: Explanation, now: str) -> Iterator[tuple[str, Text]]:
    """Yield since when a number is as it is, and when it was good, by labels."""
    since, good, today = explanation.since, explanation.last_good, _day(now, now)
    if since is not None:
        day, count = _day(since.at, now), explanation.days_at_level
        # Where every day was measured, the date says how many there were.
        every = (today - day).days + 1 if day and today else None
        days = "" if count in (1, every) else f"on {numbers.counted(count, 'day')}"
        when = f"{'this session, ' * (day is not None and day == today)}{dated(since.at, now)}"
        yield "since", join(", ", [word(when), word(days), _commit(since.commit)])
    if explanation.red_since is not None:
        yield "red since", phrase("{}", word(dated(explanation.red_since.at, now)))
    if good is not None:
        when, day = dated(good.at, now), _day(good.at, now)
        if day is not None and day == today:  # of sessions of one day the hour tells more
            when = f"earlier today, {parse_time(good.at).astimezone(parse_time(now).tzinfo):%H:%M}"
        # Changes that were not committed may be others each time.
        is_same = since and since.commit and since.commit == good.commit and "+" not in good.commit
        commit = phrase("at the same commit") if is_same else _commit(good.commit)
        ago = f"{numbers.counted(explanation.days, 'day')} ago" if explanation.days else ""
        yield "last good", join(", ", [word(when), commit, word(ago)])
    elif since is not None:
        yield "last good", phrase("no session is known")


def _commit(commit: str | None) -> Text:
    return phrase("commit {}", code(short_commit(commit))) if commit else NOTHING


def short_commit(commit: str) -> str:
    """Shorten a commit's digest to what people compare, and name files that differ from it."""
    found = _COMMIT.fullmatch(commit)
    if found is None:  # as a file may have it that was not written here
        return printing.cut(commit, _LONGEST_VALUE)
    return f"{found[1]}{f' with changes in {found[2]}' if found[2] else ''}"


def accepted_by(acceptance: Acceptance | None, now: str) -> Text:
    """Say who accepted a number, when, at which commit and why; empty if nothing is recorded."""
    if acceptance is None:
        return NOTHING
    who = phrase("by {} ", printing.person(acceptance.by)) if acceptance.by else NOTHING
    when = phrase("{}on {}", who, word(dated(acceptance.at, now)))
    said = join(", ", [when, _commit(acceptance.commit)])
    return join(": ", [said, printing.reason(acceptance.reason) if acceptance.reason else ""])


# --------------------------------------------------------------------- probes and bisect


def probes(companions: Iterable[Companion]) -> Text:
    """Quote the probes that are worse, the blamed one first, then those that are unchanged."""
    worse, unchanged = [], []
    for one in sorted(companions, key=lambda each: not each.is_blamed):
        if one.verdict in (Verdict.PASS, Verdict.IMPROVED):
            unchanged.append(one.resource)
            continue
        of_case = phrase("{} {}", code(one.case_id), _of_probe(one))
        worse.append(phrase("{}: the {}", of_case, one.resource) if one.is_blamed else of_case)
    if unchanged:
        *others, last = dict.fromkeys(unchanged)
        template = "{} and {} probes are unchanged" if others else "{}{} probe is unchanged"
        worse.append(phrase(template, join(", ", others), last))
    return phrase("on the same hosts {}", join("; ", worse)) if worse else NOTHING


def _of_probe(one: Companion) -> Text:
    if one.verdict in (Verdict.REGRESSED, Verdict.INCONCLUSIVE):
        verdict = "" if one.verdict is Verdict.REGRESSED else f"{one.verdict.value} "
        percent = number(numbers.signed_percent(one.difference_percent or 0.0))
        return phrase("{} {}{}", one.metric or "", word(verdict), percent)
    verdict = one.verdict.value if one.verdict is not None else "not run"
    reason = phrase(" ({})", printing.in_short(one.reason)) if one.reason else NOTHING
    return phrase("{}{}", word(verdict), reason)


def found_texts(explanation: Explanation) -> Iterator[Text]:
    """Yield what `bisect` has found, and what belongs to it."""
    if explanation.found is not None:
        yield phrase("{}", strong(printing.reason(explanation.found.said)))
        for name, text in explanation.found.facts.items():
            yield phrase("{}: {}", printing.reason(name), printing.reason(text))


# --------------------------------------------------------------------------- what differs

_WITH: Final = {Verdict.IMPROVED: "gain", Verdict.REGRESSED: "loss", Verdict.FAILED: "failure"}


def difference_text(difference: Difference, judgement: Judgement | None) -> Text:
    """Write a difference in a line: its name, its sides, and whether it came with the change."""
    accepted, last_good, now = map(side_piece, side_values(difference))
    sides = [phrase("now {}", now)]
    # A side that is unknown or repeats another says nothing.
    if difference.last_good not in (None, difference.accepted):
        sides.insert(0, phrase("last good {}", last_good))
    if difference.accepted is not None:
        sides.insert(0, phrase("accepted {}", accepted))
    said = phrase("{}: {}", code(difference_name(difference)), join(", ", sides))
    came = strong(came_with(judgement) if difference.came_with_it else "")
    return join(", ", [said, came])


def came_with(judgement: Judgement | None) -> str:
    """Say of a difference that it began in the same session as what was judged."""
    what = _WITH.get(judgement.verdict) if judgement is not None else None
    return f"came with the {what}" if what else "came with it"


def side_values(difference: Difference) -> list[str]:
    """Write its sides: accepted, last good, now; long ones around what differs."""
    values = (difference.accepted, difference.last_good, difference.now)
    if difference.kind is DifferenceKind.COMMIT:
        return [UNKNOWN if value is None else short_commit(value) for value in values]
    return _shortened(values)


def side_piece(value: str) -> Piece:
    """Return a side of a difference: a value, or the word for none."""
    return word(value) if value in (UNKNOWN, NOT_SET) else code(value)


def difference_name(difference: Difference) -> str:
    """Name what differs, its kind first where the name does not show it."""
    kind = difference.kind
    if kind is DifferenceKind.COMMIT:
        return f"commit of {_checkout(difference.checkout or difference.name)}"
    name = printing.cut(difference.name, _LONGEST_VALUE)
    if kind is DifferenceKind.COMMAND or name.startswith(kind.value):
        return name
    return f"{kind.value} {name}"


def news(difference: Difference) -> str:
    """Say what of a checkout is new since the last good session."""
    name = _checkout(difference.checkout or difference.name)
    return news_of(name, difference.last_good or "", difference.now or "")


def _checkout(name: str) -> str:
    """Name a checkout; one that is known by no folder's name by what it holds."""
    known = {"working_directory": "the trainer", SUITE: "the system files"}
    return known.get(name) or printing.cut(name, _LONGEST_VALUE)


def _shortened(values: Sequence[str | None]) -> list[str]:
    """Write values, the long ones without what all of them have at both ends."""
    written = [NOT_SET if value == ABSENT else value for value in values]
    known = list(dict.fromkeys(text for text in written if text not in (None, NOT_SET)))
    begin = end = 0
    if len(known) > 1 and max(map(len, known)) > _LONGEST_VALUE:
        common = len(commonprefix(known))  # noqa: RUF071 - of characters
        ends = commonprefix([text[common:][::-1] for text in known])  # noqa: RUF071 - as above
        begin, end = max(common - _AROUND, 0), max(len(ends) - _AROUND, 0)
    return [UNKNOWN if text is None else _cut(text, begin, len(text) - end) for text in written]


def _cut(text: str, begin: int, end: int) -> str:
    middle = text[begin:end]
    if len(middle) > _LONGEST_VALUE:
        middle, end = middle[:_LONGEST_VALUE].rstrip(), 0
    return f"{'…' * (begin > 0)}{middle}{'…' * (end < len(text))}"


def commit_texts(explanation: Explanation) -> Iterator[Text]:
    """Yield the commits that came with the change, with their pages, and count what is left."""
    for known in explanation.commits:
        name, shown = _checkout(known.checkout), known.commits[:_COMMITS_SHOWN]
        for one in shown:
            author = printing.cut(one.author, _LONGEST_VALUE)
            title = printing.cut(one.title, _LONGEST_TITLE)
            line = f"{short_commit(one.name)} of {name}, {author}: {title}"
            yield phrase("{}", Piece(line, address=printing.address(one.address)))
        more = (known.count or 0) - len(shown)
        if more > 0 or not known.commits:
            count = f"and {more} more " if more > 0 else ""
            ends = f"{short_commit(known.first)} to {short_commit(known.last)}"
            # The address is worth reading where nothing can be clicked.
            address = printing.address(known.compare)
            link = Piece(address, address=address) if address else ""
            yield join(": ", [f"{count}of {name}, {ends}", link])
