"""The session in ten seconds: what mails, chats and comments say of it, in blocks and as Markdown.

It stays short, however bad the session was: what has no room is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pytest_dlperf.model import numbers
from pytest_dlperf.notices.notice import Block, Notice, plain_text
from pytest_dlperf.report import printing
from pytest_dlperf.report.entries import CASES_NAMED, TEXTS_SHOWN
from pytest_dlperf.report.markdown_text import rendered
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.text import Piece, Role, Text, code, join, phrase, word
from pytest_dlperf.report.words import LONGEST_LINE, short_commit

LONGEST_TEXT: Final = 3000
"""Characters of the plain text; what chats show of one message at the least."""
_LONGEST_SUBJECT: Final = 160
_ENTRIES_SHOWN: Final = 8


def notice_of(
    session: SessionReport,
    *,
    faults: Sequence[str] = (),
    is_due: bool = True,
    page: str | None = None,
) -> Notice:
    """Tell a session shortly.

    ``faults`` are what else made it fail, such as a report that could not be written; ``page`` is
    the address or the place of its page.
    """
    results, shown = session.results, _ENTRIES_SHOWN
    blocks = _blocks(session, faults, shown, page)
    while len(plain_text(blocks)) > LONGEST_TEXT and shown:
        shown -= 1
        blocks = _blocks(session, faults, shown, page)
    said = session.sentence
    if len(session.bad) == 1 and len(session.bad[0].case_ids) == 1:
        said = phrase("{}: {}", said, session.bad[0].named)
    if faults:
        said = phrase("{}; {}", faults[0].partition(": ")[0], said)
    return Notice(
        subject=str(phrase("dlperf {}: {}", results.cluster, said).cut(_LONGEST_SUBJECT)),
        blocks=tuple(blocks),
        markdown=_markdown(session, blocks),
        cluster=results.cluster,
        is_red=session.is_red or bool(faults),
        is_due=is_due,
        ci_run=printing.address(results.origin.ci_run),
        session=session,
    )


def _blocks(
    session: SessionReport, faults: Sequence[str], shown: int, page: str | None
) -> list[Block]:
    """Make the paragraphs, the worst news first; the subject, which says the sentence, is above."""
    day = phrase("{}, {}", session.results.cluster, word(session.began))
    hosts = "{} more hosts cannot be used"
    blocks = [
        Block(tuple(filter(None, (day, session.advice)))),
        # A fault of the session itself is worse news than any number.
        Block((), _first([phrase("{}", fault) for fault in faults], "and {} more")),
        Block((), _first(session.urgent, hosts)),
    ]
    for entry in session.bad[:shown]:
        below = (
            phrase("{} {}", word(fact.label), text)
            for fact in entry.facts
            for text in fact.first(TEXTS_SHOWN)
        )
        blocks.append(Block((entry.title.cut(LONGEST_LINE),), tuple(below)))
    if left := session.bad[shown:]:
        count = numbers.counted(sum(len(entry.case_ids) for entry in left), "more case")
        more = phrase("and {}, the worst: {}", word(count), left[0].title)
        blocks.append(Block((), (more.cut(LONGEST_LINE),)))
    blocks.append(Block((), tuple(line.cut(LONGEST_LINE) for line in _quiet(session))))
    commit, _, ci_run = session.results.origin
    places = [
        phrase("{}: {}", word(name), Piece(place, Role.CODE, printing.address(place)))
        for name, place in (("page", page), ("CI run", ci_run))
        if place
    ]
    places += [phrase("commit: {}", code(short_commit(commit)))] if commit else []
    blocks.append(Block(tuple(places)))
    return [block for block in blocks if block.lines or block.below]


def _first(lines: Sequence[Text], counted: str) -> tuple[Text, ...]:
    more = len(lines) - CASES_NAMED
    shown = tuple(line.cut(LONGEST_LINE) for line in lines[:CASES_NAMED])
    return (*shown, phrase(counted, more)) if more > 0 else shown


def _quiet(session: SessionReport) -> Iterator[Text]:
    for entries in (session.shifts, session.expected, session.gains):
        for entry in entries[:CASES_NAMED]:
            yield join("; ", [entry.title, *entry.causes[:1]])
        if left := sum(len(entry.case_ids) for entry in entries[CASES_NAMED:]):
            count = numbers.counted(left, "more case")
            yield phrase("{} {}", word(count), word(entries[0].status.value))
    yield from session.facts


def _markdown(session: SessionReport, blocks: Sequence[Block]) -> str:
    first, *others = blocks
    day, *advice = map(rendered, first.lines)
    parts = [f"**{day}: {rendered(session.sentence)}.**", *advice]
    for block in others:
        indent = "  " * bool(block.lines)
        lines = [f"- {rendered(line)}" for line in block.lines]
        lines += [f"{indent}- {rendered(line)}" for line in block.below]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
