"""Conditions on a case, and values of which the first whose condition holds is taken."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from pytest_dlperf.files.shapes import ByKind, Key, ListOf, Record, Scalar, Shape, Text
from pytest_dlperf.files.yamlfile import nearest
from pytest_dlperf.model.case import PRECISION_PATTERN, check_precision

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.files.yamlfile import YamlValue
    from pytest_dlperf.model.case import Case

T = TypeVar("T")

_COUNTS = re.compile(r"([1-9][0-9]{0,8})(\+?)")


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers that a condition accepts: those in ``among``, or all from ``at_least`` on."""

    among: tuple[int, ...] = ()
    at_least: int | None = None

    @classmethod
    def parse(cls, text: str) -> Counts:
        """Read ``4`` or ``2+``.

        Raises:
            ValueError: The text is anything else.
        """
        match = _COUNTS.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text!r} is not a count; write an integer ≥ 1, or one with a plus behind it, "
                "as in '2+', for at least so many"
            )
        number = int(match[1])
        return cls(at_least=number) if match[2] else cls(among=(number,))

    def __contains__(self, number: int) -> bool:
        """Say whether the number is accepted."""
        return number in self.among or (self.at_least is not None and number >= self.at_least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Condition on a case: all that is given must hold; nothing given holds for all.

    The case's precision is one of ``precisions`` and none of ``without_precisions``; it has all of
    ``options`` and none of ``without_options``; its counts are among those given.
    """

    precisions: tuple[str, ...] = ()
    without_precisions: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    without_options: tuple[str, ...] = ()
    nodes: Counts | None = None
    devices_per_node: Counts | None = None
    world_size: Counts | None = None

    def holds(self, case: Case) -> bool:
        """Say whether the case is one of those."""
        topology = case.topology
        return (
            (not self.precisions or case.precision in self.precisions)
            and case.precision not in self.without_precisions
            and set(self.options) <= set(case.options)
            and set(self.without_options).isdisjoint(case.options)
            and (self.nodes is None or topology.nodes in self.nodes)
            and (
                self.devices_per_node is None or topology.devices_per_node in self.devices_per_node
            )
            and (self.world_size is None or topology.world_size in self.world_size)
        )


ALWAYS: Final = Condition()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of several values; the first whose condition holds is taken."""

    value: str
    when: Condition = ALWAYS


def chosen(choices: Iterable[Choice], case: Case) -> str | None:
    """Give the value of the first choice that is for this case."""
    return next((choice.value for choice in choices if choice.when.holds(case)), None)


def choice_texts(path: str, choices: Iterable[Choice]) -> Iterator[tuple[str, str]]:
    """List all values of some choices, with their key paths."""
    for index, choice in enumerate(choices):
        yield f"{path}[{index}].value", choice.value


def unreachable(path: str, choices: tuple[Choice, ...]) -> Iterator[tuple[str, str]]:
    """Say which choices are never taken, with their key paths."""
    for index, choice in enumerate(choices[:-1]):
        if choice.when == ALWAYS:
            yield f"{path}[{index + 1}]", "is never taken: the choice before it is for all cases"


# ------------------------------------------------------------------------------ in a file


def _one_or_more(item: Shape[str]) -> Shape[tuple[str, ...]]:
    return ByKind(
        scalar=item.parsed(lambda one: (one,)), sequence=ListOf(item, "a name or a list of names")
    )


def _joined(found: tuple[Counts, ...], value: YamlValue) -> Counts | None:
    numbers: list[int] = []
    for index, counts in enumerate(found):
        if counts.at_least is not None:
            value.at(f"[{index}]").fault("'at least so many' stands alone, not in a list")
        numbers += counts.among
    return Counts(among=tuple(numbers)) if numbers else None


_PRECISIONS = _one_or_more(
    Text("a precision such as fp32").parsed(check_precision, pattern=f"^{PRECISION_PATTERN}$")
)
_OPTIONS = _one_or_more(Text("an option such as xla"))
_COUNT = Scalar("a count such as 2, or 2+ for at least so many").parsed(
    Counts.parse, pattern=r"^[1-9][0-9]{0,8}\+?$"
)
_COUNTED = ByKind(scalar=_COUNT, sequence=ListOf(_COUNT, "a list of counts").placed(_joined))

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
    Key("nodes", _COUNTED, "How many nodes: 2, [2, 4], or 2+ for at least so many."),
    Key("devices_per_node", _COUNTED, "How many devices each node has."),
    Key("world_size", _COUNTED, "How many devices the whole run has."),
)

WHEN: Final = "Which cases it is for: all that is said must hold."

CHOICES: Final = ListOf(
    Record(
        Choice,
        Key("value", Scalar(), "The value, in which {placeholders} may stand.", required=True),
        Key("when", CONDITION, WHEN),
    ),
    "a list of choices, each with 'value'",
    stand_in=Choice(value="-"),
)
"""The first choice whose condition holds is taken."""


def words_of_no_case(
    conditions: Iterable[tuple[str, Condition]], cases: Sequence[Case]
) -> Iterator[tuple[str, str]]:
    """Say where a condition names what no case has: it would never hold, and nobody would notice.

    ``conditions`` come with their key paths, and so do the mistakes.
    """
    precisions = sorted({case.precision for case in cases})
    options = sorted({option for case in cases for option in case.options})
    for path, condition in conditions:
        for key, named, axis, known in (
            ("precision", condition.precisions, "precision", precisions),
            ("without_precision", condition.without_precisions, "precision", precisions),
            ("option", condition.options, "option", options),
            ("without_option", condition.without_options, "option", options),
        ):
            for index, word in enumerate(named):
                if word not in known:
                    have = f"the cases have {', '.join(known) or 'none'}{nearest(word, known)}"
                    yield f"{path}.{key}[{index}]", f"no case has the {axis} {word!r}; {have}"
