"""Templates: texts of a launch entry in which ``{field}`` stands for what differs between runs.

Values are put in once, in one pass: whatever a value holds, braces included, stays as it is and
stays in its text. ``{{`` and ``}}`` are literal braces. A number may be reckoned with one other
number, a field or a literal one: ``{batch_per_replica/tp}``, ``{batch_per_node/1000}``.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from fractions import Fraction
from functools import cache
from operator import attrgetter
from typing import Any, Final

from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.formats.facts import CASE_FACTS
from pytest_dlperf.model.case import Case

_CASE_FIELDS: Final[Mapping[str, Callable[[Case], object]]] = {
    "framework": attrgetter("framework"),
    "model": attrgetter("model"),
    "options": lambda case: "+".join(case.options),
    **CASE_FACTS,
    "batch_per_device": lambda case: case.batch_per(case.topology.world_size),
    "batch_per_node": lambda case: case.batch_per(case.topology.nodes),
}
"""Fields that follow from the case alone; ``None`` where a case has no such thing."""
WHY_MISSING: Final = {
    "batch_per_device": "spreads a replica over several devices; use {batch_per_replica}",
    "batch_per_node": "spreads a replica over several nodes; use {batch_per_replica}",
    "sequence_length": "has no sequence_length",
}
"""Why a case may have no value of a field."""
_OF_EVERY_CASE: Final = ("framework", "model", "nodes", "devices_per_node", "world_size")
_OF_STEPS: Final = ("warmup_steps", "measured_steps", "steps")
_OF_NODES: Final = (
    *("node_address", "node_addresses", "node_endpoints", "master_address", "master_endpoint"),
    *("host_slots", "device_ids", "run_directory", "scratch_directory", "system_directory"),
)
_NUMBERS_OF_NODES: Final = ("node_rank", "node_port", "master_port", "first_port", "run")
_TEXTS: Final = ("python", "framework", "model", "options", "precision", *_OF_NODES)
FIELDS: Final[Mapping[str, type]] = {
    name: str if name in _TEXTS else int
    for name in ("python", *_CASE_FIELDS, *_OF_STEPS, *_NUMBERS_OF_NODES, *_OF_NODES)
}
"""What may stand between braces in a launch entry: text, or a number that can be reckoned with.

``docs/adding-a-system.md`` says what each is.
"""

ARGUMENTS: Final = "{arguments}"
EXTRA_ARGUMENTS: Final = "{extra_arguments}"
"""Where in a command the system's further arguments, and the user's, go; whole arguments."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
# Short numbers only, so that no result is out of a float's range.
_ARITHMETIC = re.compile(
    r"([A-Za-z_]\w*) ?([-+*/]) ?([0-9]{1,15}(?:\.[0-9]{1,15})?|[A-Za-z_]\w*)", re.ASCII
)
_MAY_BE_ZERO: Final = ("node_rank", "warmup_steps")


def case_fields(case: Case) -> dict[str, object]:
    """Return the fields that follow from the case; ``None`` for those that it has no value of."""
    if case.work is not None:
        return {name: value(case) for name, value in _CASE_FIELDS.items()}
    fields = {name: _CASE_FIELDS[name](case) for name in _OF_EVERY_CASE}
    return {**dict.fromkeys((*_CASE_FIELDS, *_OF_STEPS)), **fields, **case.free_axes}


def fill(template: str, values: Mapping[str, object]) -> str:
    """Put the values in, in one pass."""

    def replacement(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]
        name, operation, other = _parts(match[1])
        if not operation:
            return str(values[name])
        number = Fraction(other if other[0].isdigit() else str(values[other]))
        result = _OPERATORS[operation](Fraction(str(values[name])), number)
        return str(result) if result.denominator == 1 else repr(float(result))

    return _PLACEHOLDER.sub(replacement, template)


@cache
def names_in(template: str) -> frozenset[str]:
    """List the names that stand between braces."""
    insides = (match[1] for match in _PLACEHOLDER.finditer(template) if match[1] is not None)
    return frozenset(name for inside in insides for name in _names(inside))


def template_problems(template: str, allowed: Collection[str]) -> Iterator[str]:
    """List all that is wrong with a template in which the ``allowed`` names may stand."""
    for match in _PLACEHOLDER.finditer(template):
        placeholder, inside = match[0], match[1]
        if inside is None:
            if len(placeholder) == 1:
                yield (
                    f"{template!r} has a single {placeholder!r} at character {match.start() + 1}; "
                    f"a literal brace is written twice, {placeholder * 2!r}"
                )
            continue
        _, operation, other = _parts(inside)
        for name in _names(inside):
            if placeholder in (ARGUMENTS, EXTRA_ARGUMENTS):
                yield f"{template!r} has {placeholder} inside, which can only be a whole argument"
            elif name not in allowed:
                there_are = f"{nearest(name, allowed)}; allowed are {', '.join(allowed)}"
                yield f"{template!r} has the unknown placeholder {placeholder}{there_are}"
            elif operation and FIELDS.get(name) is not int:
                yield f"{template!r} reckons with {name!r} in {placeholder}, which is no number"
        if operation == "/" and (other in _MAY_BE_ZERO or not other.strip("0.")):
            yield f"{template!r} divides by zero in {placeholder}"


def _parts(inside: str) -> tuple[str, str, str]:
    """Split what stands between two braces: a name, or one with an operation and its operand."""
    match = _ARITHMETIC.fullmatch(inside)
    return (match[1], match[2], match[3]) if match else (inside, "", "")


def _names(inside: str) -> list[str]:
    name, operation, other = _parts(inside)
    return [name, other] if operation and not other[0].isdigit() else [name]
