"""The ``log`` of a system file: what its logs are called, how they show a step, and their facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.files.shapes import (
    ByKind,
    Choice,
    Integer,
    Key,
    ListOf,
    MapOf,
    Record,
    Scalar,
    Shape,
    Text,
    YesNo,
    one_of,
)
from pytest_dlperf.formats.expressions import compiled
from pytest_dlperf.formats.facts import CASE_FACTS
from pytest_dlperf.formats.log_format import LogFormat, Ranks, WhichNode, custom_format
from pytest_dlperf.model.case import NAME_PATTERN
from pytest_dlperf.model.work import TIMING_GROUPS, Covers, RateScope, StepsIn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.files.yamlfile import YamlValue

GROUPS: Final = ("step", "epoch", "rank", *TIMING_GROUPS)
"""What a record may say, by name."""
_MOVING: Final = "moving_mean"


def _log_name(text: str) -> str:
    if "/" in text or not text.isprintable() or text.startswith("."):
        raise ValueError(f"a log's name cannot begin with {text!r}")
    return text


def _covers(word: str) -> str:
    if word == _MOVING:
        raise ValueError(
            "a moving mean is of steps that overlap from record to record, so that a slow one "
            "counts many times or is forgotten; read another number of it: a time stamp, or "
            "the value of the last step, which often stands beside it"
        )
    return word


def _sound(expression: str) -> str:
    compiled(expression)
    return expression


def _keys(kind: str) -> MapOf[str]:
    return MapOf(
        Text("a key"),
        f"a mapping of groups to {kind}",
        names="|".join(GROUPS),
        refused=f"is not a group of a record; those are {', '.join(GROUPS)}",
    )


def _format(given: dict[str, Any], place: YamlValue) -> LogFormat:
    return custom_format(place.file.stem, **given)


_EXPRESSION: Final = Text("a regular expression")


def _fact(meaning: Shape[Any], allowed: str) -> Shape[Any]:
    """Return the shape of a fact: an expression, or one with the meanings of what it finds."""
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

_FACTS_KEY: Final = Key(
    "facts",
    MapOf(
        _OF_CASE,
        "a mapping of facts to regular expressions",
        names="|".join(CASE_FACTS),
        refused=f"is not a fact of a case; those are {', '.join(CASE_FACTS)}",
    ),
    "What the log says of its run; a log that contradicts its case is invalid.",
)
_OPTIONS_KEY: Final = Key(
    "options",
    MapOf(
        _OF_OPTION,
        "a mapping of options to regular expressions",
        names=NAME_PATTERN,
        refused="is not a valid name of an option",
    ),
    "Which options the log says that its run has; compared where a case of the system has them.",
)
_NEIGHBOURS_KEY: Final = Key(
    "neighbours",
    MapOf(_EXPRESSION, "a mapping of trainers to regular expressions"),
    "Other trainers, by what stands in their logs only: such a log is invalid, and called so.",
)

_CUSTOM_FORMAT: Final = Record(
    dict[str, Any],
    Key(
        "record",
        Text("a regular expression").parsed(_sound),
        "A regular expression for one record, with the group step and one for its time, such as "
        "seconds or timestamp.",
    ),
    Key("json", _keys("keys"), "The keys of a record that is a JSON object, by group."),
    Key("csv", _keys("columns"), "The columns of records that are rows of CSV, by group."),
    Key(
        "where",
        MapOf(Scalar(), "a mapping of keys to values"),
        "What else a record of JSON or CSV says, by key; * for any value.",
    ),
    Key("first_step", Integer(0), "The number of a run's first step."),
    Key(
        "step",
        ByKind(
            scalar=Choice(("count",), otherwise="a mapping with 'every'").parsed(lambda _: 1),
            mapping=Record(
                lambda every: every,
                Key("every", Integer(1), "How many steps a record stands for.", required=True),
            ),
        ),
        "Records without a number: count them.",
        argument="step_every",
    ),
    Key(
        "steps_in",
        Choice([counted.value for counted in StepsIn]),
        "What the step's number counts; default: steps.",
    ),
    Key(
        "ranks",
        Choice([who.value for who in Ranks]),
        "Who prints: one process, one of each node, or every rank of a node or of the run.",
    ),
    Key(
        "rate_scope",
        Choice([scope.value for scope in RateScope]),
        "What a printed speed covers.",
    ),
    Key(
        "covers",
        Choice([*(covers.value for covers in Covers), _MOVING]).parsed(_covers),
        "The steps that a printed duration or speed is of.",
    ),
    _FACTS_KEY,
    _OPTIONS_KEY,
    _NEIGHBOURS_KEY,
    allowed="a mapping with 'record', 'json' or 'csv'",
).placed(_format)


def log_shape(formats: Mapping[str, LogFormat]) -> Record[dict[str, Any]]:
    """Declare the key ``log``; ``formats`` are those that have a name."""
    named = Choice(tuple(formats), otherwise=_CUSTOM_FORMAT.allowed)
    return Record(
        dict[str, Any],
        Key(
            "name",
            Text("the first part of a file name").parsed(_log_name),
            "The first part of the names of its logs; default for a probe: its framework.",
        ),
        Key(
            "format",
            ByKind(scalar=named.parsed(formats.__getitem__), mapping=_CUSTOM_FORMAT),
            "The format of a training's logs, or what a record of them looks like.",
        ),
        Key("node", one_of(WhichNode), "The nodes whose logs show steps; default: first."),
        Key(
            "file",
            Text("a file"),
            "A file that the trainer writes beside its output; its lines come into the log.",
        ),
    )
