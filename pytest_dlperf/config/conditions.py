"""Conditions on a case, and values of which the first whose condition holds is taken."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from pytest_dlperf.config.cases import PRECISION
from pytest_dlperf.files.shapes import ByKind, Key, ListOf, MapOf, Record, Scalar, Shape, Text
from pytest_dlperf.model.work import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_dlperf.model.case import Case

T = TypeVar("T")

_COUNT_PATTERN: Final = r"^[1-9][0-9]{0,8}\+?$"

Counts = tuple[range, ...]
"""Numbers that a condition accepts; empty for all."""


class Condition(Struct, frozen=True, kw_only=True):
    """Condition on a case: all that is given must hold; nothing given holds for all."""

    precisions: tuple[str, ...] = ()
    without_precisions: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    without_options: tuple[str, ...] = ()
    nodes: Counts = ()
    devices_per_node: Counts = ()
    world_size: Counts = ()
    sequence_length: Counts = ()
    tp: Counts = ()
    pp: Counts = ()
    cp: Counts = ()
    ep: Counts = ()
    axes: Mapping[str, tuple[str, ...]] = {}

    def holds(self, case: Case) -> bool:
        """Whether the condition holds for a case."""
        topology = case.topology
        return self is ALWAYS or (
            (not self.precisions or case.precision in self.precisions)
            and case.precision not in self.without_precisions
            and set(self.options) <= set(case.options)
            and set(self.without_options).isdisjoint(case.options)
            and _is_among(topology.nodes, self.nodes)
            and _is_among(topology.devices_per_node, self.devices_per_node)
            and _is_among(topology.world_size, self.world_size)
            and _is_among(case.sequence_length or 0, self.sequence_length)
            and all(case.free_axes.get(name) in values for name, values in self.axes.items())
            and all(_is_among(getattr(case.layout, way), getattr(self, way)) for way in WAYS)
        )


def parse_count(text: str) -> range:
    """Read ``4``, or ``2+`` for at least so many."""
    if not re.fullmatch(_COUNT_PATTERN, text):
        raise ValueError(
            f"{text!r} is not a count; write an integer ≥ 1, or one with a plus behind it, "
            "as in '2+', for at least so many"
        )
    number = int(text.removesuffix("+"))
    return range(number, sys.maxsize if text.endswith("+") else number + 1)


def _is_among(count: int, accepted: Counts) -> bool:
    return not accepted or any(count in numbers for numbers in accepted)


ALWAYS: Final = Condition()


class Choice(Struct, frozen=True, kw_only=True):
    """One of several values; the first whose condition holds is taken."""

    value: str
    when: Condition = ALWAYS


def chosen(choices: Iterable[Choice], case: Case) -> str | None:
    """Return the value of the first choice that is for this case."""
    return next((choice.value for choice in choices if choice.when.holds(case)), None)


# ------------------------------------------------------------------------------ in a file


def _one_or_more(item: Shape[T], many: str) -> Shape[tuple[T, ...]]:
    return ByKind(scalar=item.parsed(lambda one: (one,)), sequence=ListOf(item, many))


_PRECISIONS = _one_or_more(PRECISION, "a name or a list of names")
_OPTIONS = _one_or_more(Text("an option such as xla"), "a name or a list of names")
_COUNTED = _one_or_more(
    Scalar("a count such as 2, or 2+ for at least so many").parsed(
        parse_count, pattern=_COUNT_PATTERN
    ),
    "a list of counts",
)

CONDITION: Final = Record(
    Condition,
    Key("precision", _PRECISIONS, "The case has one of these.", argument="precisions"),
    Key(
        "without_precision",
        _PRECISIONS,
        "The case has none of these.",
        argument="without_precisions",
    ),
    Key("option", _OPTIONS, "The case has all of these.", argument="options"),
    Key("without_option", _OPTIONS, "The case has none of these.", argument="without_options"),
    Key("nodes", _COUNTED, "Number of nodes: 2, [2, 4], or 2+ for at least two."),
    Key("devices_per_node", _COUNTED, "Number of devices per node."),
    Key("world_size", _COUNTED, "Number of devices in the whole run."),
    Key("sequence_length", _COUNTED, "Tokens of one sample."),
    *(Key(way, _COUNTED, f"Number of {counted}.") for way, counted in WAYS.items()),
    Key(
        "axes",
        MapOf(_one_or_more(Scalar(), "a value or a list of values"), "a mapping of axes to values"),
        "The case has one of these values of each axis.",
    ),
)

WHEN: Final = "The cases that it is for: all given keys must hold."

CHOICES: Final = ListOf(
    Record(
        Choice,
        Key("value", Scalar(), "The value, in which {placeholders} may stand.", required=True),
        Key("when", CONDITION, WHEN),
    ),
    "a list of choices, each with 'value'",
)
