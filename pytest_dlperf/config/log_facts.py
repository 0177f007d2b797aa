"""What a system file says of its logs beside their records: facts, and other trainers' logs."""

from __future__ import annotations

from typing import Any, Final

from pytest_dlperf.files.shapes import (
    ByKind,
    Key,
    ListOf,
    MapOf,
    Record,
    Scalar,
    Shape,
    Text,
    YesNo,
)
from pytest_dlperf.formats.facts import CASE_FACTS
from pytest_dlperf.model.case import NAME_PATTERN

_EXPRESSION: Final = Text("a regular expression")


def _fact(meaning: Shape[Any], allowed: str) -> Shape[Any]:
    """Give the shape of a fact: an expression, or one with the meanings of what it finds."""
    with_values: Record[dict[str, Any]] = Record(
        dict[str, Any],
        Key("record", _EXPRESSION, "An expression with one group, the value.", required=True),
        Key("values", MapOf(meaning, allowed), "What printed values mean.", required=True),
    )
    return ByKind(scalar=_EXPRESSION, mapping=with_values)


_WORD: Final = Scalar("what a case says")
_OF_CASE: Final = _fact(
    ByKind(scalar=_WORD, sequence=ListOf(_WORD, "a list of what a case says")),
    "a mapping of printed values to what a case says",
)
_OF_OPTION: Final = _fact(YesNo(), "a mapping of printed values to true or false")

FACTS_KEY: Final = Key(
    "facts",
    MapOf(
        _OF_CASE,
        "a mapping of facts to regular expressions",
        names="|".join(CASE_FACTS),
        refused=f"is no fact of a case; those are {', '.join(CASE_FACTS)}",
    ),
    "What the log says of its run; a log that contradicts its case is invalid.",
)
OPTIONS_KEY: Final = Key(
    "options",
    MapOf(
        _OF_OPTION,
        "a mapping of options to regular expressions",
        names=NAME_PATTERN,
        refused="is no name of an option",
    ),
    "Which options the log says that its run has; compared where a case of the system has them.",
)
NEIGHBOURS_KEY: Final = Key(
    "neighbours",
    MapOf(_EXPRESSION, "a mapping of trainers to regular expressions"),
    "Other trainers, by what stands in their logs only: such a log is invalid, and called so.",
)
