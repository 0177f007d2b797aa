"""Order what the head of a session's page shows of its night: what to act on comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.results import Origin
from pytest_dlperf.night import explanation_words as words
from pytest_dlperf.night import texts
from pytest_dlperf.night.environment import environment_facts, session_facts
from pytest_dlperf.night.night import AGES
from pytest_dlperf.night.pieces import Piece, Text, phrase
from pytest_dlperf.reports.html.drawing import Badge, badge_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.night.night import Entry, Night

LINES_SHOWN: Final = 10
"""Lines of one kind that the head has room for; the others are folded."""
ENTRIES_SHOWN: Final = 8
"""Entries of a block that the head has room for; the others are folded."""
_HEAD_FACTS: Final = ("cluster", "started", "took")
"""Facts of the session that stand in the head; the others stand at the foot."""


class Block(Struct, frozen=True, kw_only=True):
    """Entries below a title; what has no room in ``shown`` is in ``folded``."""

    title: str
    shown: tuple[tuple[Badge, Entry], ...]
    folded: tuple[tuple[Badge, Entry], ...]


class Fold(Struct, frozen=True, kw_only=True):
    """Lines that are folded until a reader opens them."""

    summary: str
    lines: tuple[Text, ...]


class Head(Struct, frozen=True, kw_only=True):
    """The head of the page, from top to bottom; ``foot`` has the facts of least interest."""

    facts: tuple[tuple[str, Text], ...]
    urgent: tuple[Text, ...]
    blocks: tuple[Block, ...]
    remarks: tuple[Text, ...]
    folds: tuple[Fold, ...]
    foot: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]


def head_of(night: Night) -> Head:
    """Order the head of a session's page."""
    results = night.results
    facts = session_facts(results)
    remarks = (*night.suspicions, *night.facts)
    known = results.environment.items()
    return Head(
        facts=tuple(_facts(night, facts)),
        urgent=night.urgent,
        blocks=tuple(_blocks(night)),
        remarks=remarks[:LINES_SHOWN],
        folds=tuple(_folds(night, remarks[LINES_SHOWN:])),
        foot=tuple(fact for fact in facts if fact[0] not in _HEAD_FACTS),
        environment=tuple(environment_facts({n: v for n, v in known if n not in Origin._fields})),
    )


def _facts(night: Night, facts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Text]]:
    for name, value in facts:
        if name == "started":
            day, _, date = night.began.partition(" ")
            yield name, phrase("{}", f"{day} {value}" if date == value[:10] else value)
        elif name in _HEAD_FACTS:
            yield name, phrase("{}", value)
    commit, page, run = night.results.origin
    if commit:
        link = Piece(words.short_commit(commit), address=texts.address(page))
        yield "commit", phrase("{}", link)
    if run:
        address = texts.address(run)
        yield "CI", phrase("{}", Piece("run" if address else run, address=address))


def _blocks(night: Night) -> Iterator[Block]:
    ages = {entry.age for entry in night.bad}
    is_dated = ages != {AGES.index("not known since when")}
    for age in sorted(ages):
        entries = [entry for entry in night.bad if entry.age == age]
        yield from _block(AGES[age] if is_dated else "", entries, night)
    yield from _block("worse, and so is the accepted software", night.shifts, night)
    yield from _block("gains", night.gains, night)


def _block(title: str, entries: Sequence[Entry], night: Night) -> Iterator[Block]:
    strict = night.results.strict
    found = tuple((badge_of(entry.status, strict=strict), entry) for entry in entries)
    if found:
        yield Block(title=title, shown=found[:ENTRIES_SHOWN], folded=found[ENTRIES_SHOWN:])


def _folds(night: Night, more: Sequence[Text]) -> Iterator[Fold]:
    if more:
        yield Fold(summary=f"and {len(more)} more", lines=tuple(more))
    if night.drifts:
        count = numbers.counted(len(night.drifts), "case")
        yield Fold(summary=f"{count} with drift", lines=night.drifts)
    if night.expected:
        yield Fold(summary="what to expect of such a session", lines=night.expected)
