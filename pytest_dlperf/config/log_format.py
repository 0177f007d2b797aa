"""The ``log`` of a system file: what its logs are called, how they show a step, and their facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

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
)
from pytest_dlperf.formats.expressions import compiled
from pytest_dlperf.formats.facts import declared_facts
from pytest_dlperf.formats.log_format import (
    NO_STEPS,
    LogFormat,
    Ranks,
    WhichNode,
    custom_format,
)
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
    if given.keys() == {"facts"}:
        # That of a probe: which facts its cases have is known when these are.
        return replace(NO_STEPS, facts=declared_facts(given["facts"], {}))
    return custom_format(place.file.stem, **given)


_EXPRESSION: Final = Text("a regular expression")


def _fact(meaning: Shape[Any], allowed: str) -> Shape[Any]:
    """Return the shape of a fact: an expression, or one with the meanings of what it finds."""
    with_values: Record[dict[str, Any]] = Record(
        dict[str, Any],
        Key("record", _EXPRESSION, "An expression with one group, the value.", required=True),
        Key(
            "values",
            MapOf(meaning, allowed),
            "What each printed value means to a case; a list if each of several will do.",
            required=True,
        ),
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
        names=NAME_PATTERN,
        refused="is not a valid name of a fact",
    ),
    "What the log says about its run. A log that contradicts its case is invalid.",
)
_OPTIONS_KEY: Final = Key(
    "options",
    MapOf(
        _OF_OPTION,
        "a mapping of options to regular expressions",
        names=NAME_PATTERN,
        refused="is not a valid name of an option",
    ),
    "The options that the log says its run has.",
)

_CUSTOM_FORMAT: Final = Record(
    dict[str, Any],
    Key(
        "record",
        Text("a regular expression").parsed(_sound),
        "A regular expression for a step's record. Named groups, such as step and timestamp, say "
        "what it has.",
    ),
    Key(
        "json",
        _keys("keys"),
        "The keys of a record that is a JSON object or a Python dictionary, by group.",
    ),
    Key("csv", _keys("columns"), "The columns of records that are rows of CSV, by group."),
    Key(
        "where",
        MapOf(Scalar(), "a mapping of keys to values"),
        "Values that a record of JSON or CSV must have, by key; * for any value.",
    ),
    Key(
        "first_step",
        Integer(0),
        "The number that the first step is printed with; default: 0 if the log's first record has "
        "step 0, or is one below a multiple of the interval (19, 39, …), else 1.",
    ),
    Key(
        "step",
        ByKind(
            scalar=Choice(("count",), otherwise="a mapping with 'every'").parsed(lambda _: 1),
            mapping=Record(
                lambda every: every,
                Key("every", Integer(1), "Count each record as so many steps.", required=True),
            ),
        ),
        "Records have no number: count each as one step.",
        argument="step_every",
    ),
    Key(
        "steps_in",
        Choice([counted.value for counted in StepsIn]),
        "What the step's number counts; default: steps. Samples are divided by the global batch.",
    ),
    Key(
        "ranks",
        Choice([who.value for who in Ranks]),
        f"Who prints into a log: one process, every rank of the node, one process of each node, or "
        f"every rank of the run; default: {Ranks.ONE.value}.",
    ),
    Key(
        "rate_scope",
        Choice([scope.value for scope in RateScope]),
        f"What a printed speed covers; default: {RateScope.GLOBAL.value}.",
    ),
    Key(
        "covers",
        Choice([*(covers.value for covers in Covers), _MOVING]).parsed(_covers),
        "The steps that a printed duration or speed is of; default: since_last for a speed, else "
        "last_step.",
    ),
    _FACTS_KEY,
    _OPTIONS_KEY,
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
            "First part of a log's file name; default for a probe: its framework.",
        ),
        Key(
            "format",
            ByKind(scalar=named.parsed(formats.__getitem__), mapping=_CUSTOM_FORMAT),
            "The name of a built-in format, or how a step's record looks.",
        ),
        Key(
            "node",
            Choice([each.value for each in WhichNode if each is not WhichNode.ANY]).parsed(
                WhichNode
            ),
            "The nodes whose logs show steps; default: first.",
        ),
        Key(
            "file",
            Text("a file"),
            "A file that the trainer writes its steps into. Its lines are added to the log.",
        ),
    )
