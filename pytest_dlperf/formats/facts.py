"""Facts: what a log says about its run, and how the case says the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
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
_SPELLINGS: Final[Mapping[str, object]] = MappingProxyType(
    {
        "true": True,
        "1": True,
        "yes": True,
        "on": True,
        "false": False,
        "0": False,
        "no": False,
        "off": False,
        "none": False,
    }
)
"""How logs say whether an option is there."""


class Fact(Struct, frozen=True, dict=True):
    """Something a log says about the run, which the case has declared.

    The pattern's only group is the value. ``name`` is how the log calls it. What the case does not
    say (``None``) is not compared.
    """

    name: str
    pattern: str
    declared: Callable[[Case], object]
    values: Mapping[str, object] = {}
    """What printed values mean to a case, where it has another word; one of several, in a set."""
    option: str | None = None
    """Which option of the case it tells of, if any; compared where a case of the system has it."""
    replaces: str | None = None
    """The fact that does not count where this one stands."""

    @cached_property
    def expression(self) -> Expression:
        """The pattern, which is compiled when a log is first searched."""
        return Expression(self.pattern, {}, 1)

    def agrees(self, text: str, case: Case) -> bool:
        """Say whether a printed value is what the case says."""
        declared = self.declared(case)
        meant = self.values.get(text, text)
        if self.option is not None and meant is text:
            meant = _SPELLINGS.get(text.casefold(), text)
        if isinstance(meant, frozenset):
            return declared in meant
        if isinstance(meant, bool) or isinstance(declared, bool):
            return meant is declared
        if isinstance(declared, int):
            return _number(str(meant)) == declared
        word = str(meant).casefold().removeprefix("torch.")
        return str(declared).casefold() in (word, PRECISION_NAMES.get(word))

    def value_in(self, case: Case) -> str:
        """Word what the case says, for a message."""
        declared = self.declared(case)
        if self.option is None:
            return str(declared)
        return f"{'the' if declared else 'no'} option {self.option}"


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


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
            _declared(name, said, CASE_FACTS.get(name) or partial(_axis, name))
            for name, said in facts.items()
        ),
        *(
            _declared(option, said, partial(has_option, option), option=option)
            for option, said in options.items()
        ),
    )


def _declared(
    name: str, said: str | Mapping[str, Any], of_case: Callable[[Case], object], **more: Any
) -> Fact:
    expression, values = (said, {}) if isinstance(said, str) else (said["record"], said["values"])
    pattern = compiled(expression)
    if pattern.groups != 1:
        raise ValueError(
            f"{expression!r} needs one group, around the value of {name}, and has {pattern.groups}"
        )
    meanings = {
        printed: meant if isinstance(meant, (str, bool)) else frozenset(meant)
        for printed, meant in values.items()
    }
    return Fact(name=name, pattern=expression, declared=of_case, values=meanings, **more)


def _axis(name: str, case: Case) -> str | None:
    return case.free_axes.get(name)


def has_option(option: str, case: Case) -> bool:
    """Say whether a case has an option."""
    return option in case.options
