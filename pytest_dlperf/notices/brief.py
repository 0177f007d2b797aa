"""The session in ten seconds: what mails, chats and comments say of it, in blocks and as Markdown.

It stays short, however bad the session was: what has no room is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pytest_dlperf.model import numbers
from pytest_dlperf.notices.notice import Block, Notice, plain_text
from pytest_dlperf.report import printing
from pytest_dlperf.report.entries import CASES_NAMED, TEXTS_SHOWN, Entry
from pytest_dlperf.report.markdown_text import rendered
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.text import NOTHING, Piece, Role, Text, code, join, phrase, word
from pytest_dlperf.report.words import LONGEST_LINE, short_commit

LONGEST_TEXT: Final = 3000
"""Characters of the plain text; what chats show of one message at the least."""
LONGEST_SUBJECT: Final = 160
ENTRIES_SHOWN: Final = 8


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
    results, shown = session.results, ENTRIES_SHOWN
    wrong = _faults(faults)
    while (
        len(plain_text(blocks := [*_blocks(session, wrong, shown, page)])) > LONGEST_TEXT and shown
    ):
        shown -= 1
    said = session.sentence
    if len(session.bad) == 1 and len(session.bad[0].case_ids) == 1:
        said = phrase("{}: {}", said, session.bad[0].named)
    if faults:
        said = phrase("{}; {}", faults[0].partition(": ")[0], said)
    return Notice(
        subject=str(phrase("dlperf {}: {}", results.cluster, said).cut(LONGEST_SUBJECT)),
        blocks=tuple(blocks),
        markdown=_markdown(session, blocks),
        cluster=results.cluster,
        is_red=session.is_red or bool(faults),
        is_due=is_due,
        ci_run=printing.address(results.origin.ci_run),
        session=session,
    )


def _more(left: Sequence[Entry]) -> Text:
    """Count what has no room."""
    if not left:
        return NOTHING
    count = numbers.counted(sum(len(entry.case_ids) for entry in left), "more case")
    return phrase("and {}, the worst: {}", word(count), left[0].title).cut(LONGEST_LINE)


def _below(entry: Entry) -> Iterator[Text]:
    """Yield what stands below an entry's title."""
    for fact in entry.facts:
        yield from (phrase("{} {}", word(fact.label), text) for text in fact.first(TEXTS_SHOWN))


def _quiet(session: SessionReport) -> Iterator[Text]:
    """Yield a line for each thing that needs no action."""
    for entries in (session.shifts, session.expected, session.gains):
        for entry in entries[:CASES_NAMED]:
            yield join("; ", [entry.title, *entry.causes[:1]])
        if left := sum(len(entry.case_ids) for entry in entries[CASES_NAMED:]):
            count = numbers.counted(left, "more case")
            yield phrase("{} {}", word(count), word(entries[0].status.value))
    yield from session.facts


def _places(session: SessionReport, page: str | None) -> Iterator[tuple[str, Piece]]:
    commit, _, ci_run = session.results.origin
    for name, place in (("page", page), ("CI run", ci_run)):
        if place:
            yield name, Piece(place, Role.CODE, printing.address(place))
    if commit:
        yield "commit", code(short_commit(commit))


def _urgent(session: SessionReport) -> list[Text]:
    shown = [line.cut(LONGEST_LINE) for line in session.urgent[:CASES_NAMED]]
    more = len(session.urgent) - CASES_NAMED
    return [*shown, *([phrase("{} more hosts cannot be used", more)] if more > 0 else [])]


def _faults(faults: Sequence[str]) -> list[Text]:
    """Name what else made the session fail: it is worse news than any number."""
    told = [phrase("{}", fault).cut(LONGEST_LINE) for fault in faults[:CASES_NAMED]]
    more = len(faults) - CASES_NAMED
    return [*told, *([phrase("and {} more", more)] if more > 0 else [])]


def _blocks(
    session: SessionReport, wrong: Sequence[Text], shown: int, page: str | None
) -> Iterator[Block]:
    # The subject, which says the sentence, stands above it wherever it is shown.
    day = phrase("{}, {}", session.results.cluster, word(session.began))
    yield Block((day, session.advice) if session.advice else (day,))
    every = [Block((), tuple(wrong)), Block((), tuple(_urgent(session)))]
    every += [
        Block((entry.title.cut(LONGEST_LINE),), tuple(_below(entry)))
        for entry in session.bad[:shown]
    ]
    every.append(Block((), tuple(filter(None, [_more(session.bad[shown:])]))))
    every.append(Block((), tuple(line.cut(LONGEST_LINE) for line in _quiet(session))))
    places = (phrase("{}: {}", word(name), place) for name, place in _places(session, page))
    every.append(Block(tuple(places)))
    yield from (block for block in every if block.lines or block.below)


def _markdown(session: SessionReport, blocks: Sequence[Block]) -> str:
    """Write the same for GitHub and GitLab, below the sentence."""
    first, *others = blocks
    day, *advice = map(rendered, first.lines)
    parts = [f"**{day}: {rendered(session.sentence)}.**", *advice]
    for block in others:
        head = [f"- {rendered(line)}" for line in block.lines]
        parts.append(
            "\n".join([*head, *(f"{'  ' * bool(head)}- {rendered(line)}" for line in block.below)])
        )
    return "\n\n".join(parts)
