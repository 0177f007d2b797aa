"""Conditions on a case, and values of which the first whose condition holds is taken."""

from __future__ import annotations

import sys
from functools import cache
from typing import Annotated, Final

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.keys import OneOrMore, Part, Precision, Scalar, Text, many, text
from pytest_dlperf.model.work import WAYS

Count = Annotated[
    Scalar, text(r"^[1-9][0-9]{0,8}\+?$", "a count such as 2, or 2+ for at least so many")
]


class Condition(Part, frozen=True, kw_only=True):
    """Condition on a case: all that is given must hold; nothing given holds for all."""

    precision: OneOrMore[Precision] = ()
    """The case has one of these."""
    without_precision: OneOrMore[Precision] = ()
    """The case has none of these."""
    option: OneOrMore[Text] = ()
    """The case has all of these."""
    without_option: OneOrMore[Text] = ()
    """The case has none of these."""
    nodes: OneOrMore[Count] = ()
    """Number of nodes: 2, [2, 4], or 2+ for at least two."""
    devices_per_node: OneOrMore[Count] = ()
    """Number of devices per node."""
    world_size: OneOrMore[Count] = ()
    """Number of devices in the whole run."""
    sequence_length: OneOrMore[Count] = ()
    """Tokens of one sample."""
    tp: OneOrMore[Count] = ()
    """Number of devices that share a layer (tensor parallelism)."""
    pp: OneOrMore[Count] = ()
    """Number of stages of layers (pipeline parallelism)."""
    cp: OneOrMore[Count] = ()
    """Number of devices that share a sequence (context parallelism)."""
    ep: OneOrMore[Count] = ()
    """Number of devices that share the experts (expert parallelism)."""
    axes: dict[str, OneOrMore[Scalar]] = {}
    """The case has one of these values of each axis."""

    def holds(self, case: Case) -> bool:
        """Whether the condition holds for a case."""
        topology = case.topology
        return self is ALWAYS or (
            (not self.precision or case.precision in many(self.precision))
            and case.precision not in many(self.without_precision)
            and set(many(self.option)) <= set(case.options)
            and set(many(self.without_option)).isdisjoint(case.options)
            and _is_among(topology.nodes, self.nodes)
            and _is_among(topology.devices_per_node, self.devices_per_node)
            and _is_among(topology.world_size, self.world_size)
            and _is_among(case.sequence_length or 0, self.sequence_length)
            and all(case.free_axes.get(name) in many(values) for name, values in self.axes.items())
            and all(_is_among(getattr(case.layout, way), getattr(self, way)) for way in WAYS)
        )

    @property
    def options(self) -> tuple[str, ...]:
        """The options that it speaks of."""
        return (*many(self.option), *many(self.without_option))


@cache
def _numbers(text: str) -> range:
    """Read ``4``, or ``2+`` for at least so many."""
    number = int(text.removesuffix("+"))
    return range(number, sys.maxsize if text.endswith("+") else number + 1)


def _is_among(count: int, accepted: OneOrMore[Count]) -> bool:
    return not accepted or any(count in _numbers(text) for text in many(accepted))


ALWAYS: Final = Condition()


class Choice(Part, frozen=True, kw_only=True):
    """One of several values; the first whose condition holds is taken."""

    value: Scalar
    """The value, in which {placeholders} may stand."""
    when: Condition = ALWAYS
    """The cases that it is for: all given keys must hold."""
