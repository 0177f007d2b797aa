"""Facts: what a log says about its run, and how the case says the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from pytest_dlperf.formats.expressions import Expression, compiled
from pytest_dlperf.model.case import Case

CASE_FACTS: Final[Mapping[str, Callable[[Case], object]]] = MappingProxyType(
    {
        "precision": attrgetter("precision"),
        "nodes": attrgetter("topology.nodes"),
        "devices_per_node": attrgetter("topology.devices_per_node"),
        "world_size": attrgetter("topology.world_size"),
        "replicas": attrgetter("replicas"),
        "batch_per_replica": attrgetter("batch_per_replica"),
        "global_batch": attrgetter("global_batch"),
        "sequence_length": attrgetter("sequence_length"),
        "tp": attrgetter("layout.tp"),
        "pp": attrgetter("layout.pp"),
        "cp": attrgetter("layout.cp"),
        "ep": attrgetter("layout.ep"),
    }
)
"""What a log can be held to, by name, and how a case says it."""
PRECISION_NAMES: Final = MappingProxyType(
    {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
)
"""What PyTorch calls the precisions of cases."""
_SWITCHES: Final = MappingProxyType(
    {
        **dict.fromkeys(("true", "1", "yes", "on"), True),
        **dict.fromkeys(("false", "0", "no", "off", "none"), False),
    }
)
"""How logs say whether an option is there."""


class Fact(Struct, frozen=True):
    """Something a log says about the run, which the case has declared.

    The pattern's only group is the value. ``name`` is how the log calls it. What the case does not
    say (``None``) is not compared.
    """

    name: str
    expression: Expression
    declared: Callable[[Case], object]
    values: Mapping[str, object] = {}
    """What printed values mean to a case, where it has another word; one of several, in a set."""
    option: str | None = None
    """Which option of the case it tells of, if any; compared where a case of the system has it."""
    replaces: str | None = None
    """The fact that does not count where this one stands."""

    def agrees(self, text: str, case: Case) -> bool:
        """Say whether a printed value is what the case says."""
        declared = self.declared(case)
        meant = self.values.get(text, text)
        if self.option is not None and meant is text:
            meant = _SWITCHES.get(text.casefold(), text)
        if isinstance(meant, frozenset):
            return declared in meant
        if isinstance(meant, bool) or isinstance(declared, bool):
            return meant is declared
        word = str(meant).casefold().removeprefix("torch.")
        if isinstance(declared, int):
            number = word.replace(",", "")
            return re.fullmatch(rf"0*{declared}(?:\.0*)?", number) is not None
        return str(declared).casefold() in (word, PRECISION_NAMES.get(word))

    def value_in(self, case: Case) -> str:
        """Word what the case says, for a message."""
        declared = self.declared(case)
        if self.option is None:
            return str(declared)
        return f"{'the' if declared else 'no'} option {self.option}"


def declared_facts(facts: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Make facts of what a user declares: expressions, by names of ``CASE_FACTS`` and by options.

    Other names are those of a probe's axes.

    In place of an expression may stand a mapping of ``record`` and ``values``: what printed values
    mean to a case, or several of which each will do; of an option, true or false.

    Raises:
        ValueError: An expression cannot be used; the message says why.
    """
    return (
        *(
            _declared(name, said, CASE_FACTS.get(name) or _axis(name))
            for name, said in facts.items()
        ),
        *(option_fact(name, said, name) for name, said in options.items()),
    )


def option_fact(name: str, said: Any, option: str) -> Fact:
    """Make a fact of whether a case has an option."""
    return _declared(name, said, partial(_has_option, option), option)


def _declared(
    name: str, said: Any, of_case: Callable[[Case], object], option: str | None = None
) -> Fact:
    expression, values = (said, {}) if isinstance(said, str) else (said["record"], said["values"])
    groups = re.compile(compiled(expression).pattern).groups
    if groups != 1:
        raise ValueError(
            f"{expression!r} needs one group, around the value of {name}, and has {groups}"
        )
    meanings = {
        printed: meant if isinstance(meant, (str, bool)) else frozenset(meant)
        for printed, meant in values.items()
    }
    return Fact(name, compiled(expression), of_case, meanings, option)


def _axis(name: str) -> Callable[[Case], object]:
    return lambda case: case.free_axes.get(name)


def _has_option(option: str, case: Case) -> bool:
    return option in case.options
