"""Facts: what a log says about its run, and how the case says the same."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pytest_dlperf.logs.expressions import compiled

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Mapping

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something a log says about the run, which the case has declared.

    The pattern's only group is the value. ``name`` is how the log calls it. What the case does not
    say (``None``) is not compared.
    """

    name: str
    pattern: re.Pattern[bytes]
    declared: Callable[[Case], object]


def declared_fact(name: str, expression: str) -> Fact:
    """Make one of ``CASE_FACTS`` of a user's regular expression.

    Raises:
        ValueError: The expression cannot be used; the message says why.
    """
    pattern = compiled(expression)
    if pattern.groups != 1:
        raise ValueError(
            f"{expression!r} needs one group, around the value of {name}, and has {pattern.groups}"
        )
    return Fact(name=name, pattern=pattern, declared=CASE_FACTS[name])
