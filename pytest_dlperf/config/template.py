"""Templates: texts of a launch entry in which ``{field}`` stands for what differs between runs.

Values are put in once, in one pass: whatever a value holds, braces included, stays as it is and
stays in its text. ``{{`` and ``}}`` are literal braces. A number may be reckoned with one other
number, a field or a literal one: ``{batch_per_replica/tp}``, ``{batch_per_node/1000}``.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, Final

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
"""Fields that follow from the case alone, and how; ``None`` where a case has no such thing."""
WHY_MISSING: Final = {
    "batch_per_device": "spreads a replica over several devices; use {batch_per_replica}",
    "batch_per_node": "spreads a replica over several nodes; use {batch_per_replica}",
    "sequence_length": "has no sequence_length",
}
"""Why a case may have no value of a field."""
_OF_EVERY_CASE: Final = ("framework", "model", "nodes", "devices_per_node", "world_size")
_OF_STEPS: Final = ("warmup_steps", "measured_steps", "steps")
_TEXTS: Final = ("framework", "model", "options", "precision")

FIELDS: Final[Mapping[str, type]] = {
    "python": str,
    **{name: str if name in _TEXTS else int for name in _CASE_FIELDS},
    "node_rank": int,
    "node_address": str,
    "node_addresses": str,
    "node_port": int,
    "node_endpoints": str,
    "master_address": str,
    "master_port": int,
    "master_endpoint": str,
    "first_port": int,
    "host_slots": str,
    "device_ids": str,
    "warmup_steps": int,
    "measured_steps": int,
    "steps": int,
    "run": int,
    "run_directory": str,
    "scratch_directory": str,
    "system_directory": str,
}
"""What may stand between braces in a launch entry: text, or a number that can be reckoned with.

``docs/adding-a-system.md`` says what each is.
"""

ARGUMENTS: Final = "{arguments}"
EXTRA_ARGUMENTS: Final = "{extra_arguments}"
"""Where in a command the system's further arguments, and the user's, go; whole arguments."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
# Short numbers only, so that no result is out of a float's range.
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_ARITHMETIC = re.compile(
    r"([A-Za-z_]\w*) ?([-+*/]) ?([0-9]{1,15}(?:\.[0-9]{1,15})?|[A-Za-z_]\w*)", re.ASCII
)
_MAY_BE_ZERO: Final = ("node_rank", "warmup_steps")


def case_fields(case: Case) -> dict[str, object]:
    """Return the fields that follow from the case; ``None`` for those that it has no value of."""
    if case.work is not None:
        return {name: value(case) for name, value in _CASE_FIELDS.items()}
    fields = {name: value(case) for name, value in _CASE_FIELDS.items() if name in _OF_EVERY_CASE}
    return {**dict.fromkeys((*_CASE_FIELDS, *_OF_STEPS)), **fields, **case.free_axes}


def fill(template: str, values: Mapping[str, object]) -> str:
    """Put the values in, in one pass."""

    def replacement(match: re.Match[str]) -> str:
        inside = match[1]
        if inside is None:
            return match[0][0]
        arithmetic = _ARITHMETIC.fullmatch(inside)
        return str(values[inside]) if arithmetic is None else _reckon(arithmetic, values)

    return _PLACEHOLDER.sub(replacement, template)


@cache
def names_in(template: str) -> frozenset[str]:
    """List the names that stand between braces."""
    insides = (match[1] for match in _PLACEHOLDER.finditer(template) if match[1] is not None)
    return frozenset(name for inside in insides for name in _names(inside))


def template_problems(template: str, allowed: Collection[str]) -> Iterator[str]:
    """List all that is wrong with a template in which the ``allowed`` names may stand."""
    for match in _PLACEHOLDER.finditer(template):
        inside = match[1]
        if inside is None:
            if len(match[0]) == 1:
                yield (
                    f"{template!r} has a single {match[0]!r} at character {match.start() + 1}; "
                    f"a literal brace is written twice, {match[0] * 2!r}"
                )
            continue
        arithmetic = _ARITHMETIC.fullmatch(inside)
        for name in _names(inside):
            if name not in allowed:
                yield _unknown(template, match[0], name, allowed)
            elif arithmetic is not None and FIELDS.get(name) is not int:
                yield (
                    f"{template!r} reckons with {name!r} in {match[0]}; numbers are "
                    f"{', '.join(field for field, kind in FIELDS.items() if kind is int)}"
                )
        if arithmetic is not None and arithmetic[2] == "/":
            divisor = arithmetic[3]
            if divisor in _MAY_BE_ZERO or (divisor[0].isdigit() and not float(divisor)):
                yield f"{template!r} divides by zero in {match[0]}"


def _names(inside: str) -> tuple[str, ...]:
    """List the names in what stands between two braces."""
    arithmetic = _ARITHMETIC.fullmatch(inside)
    if arithmetic is None:
        return (inside,)
    left, _, right = arithmetic.groups()
    return (left,) if right[0].isdigit() else (left, right)


def _unknown(template: str, placeholder: str, name: str, allowed: Collection[str]) -> str:
    if placeholder in (ARGUMENTS, EXTRA_ARGUMENTS):
        return (
            f"{template!r} has {placeholder} in it, which can only be an argument of its own "
            "in 'command'"
        )
    near = difflib.get_close_matches(name, allowed, n=1)
    meant = f"did you mean {{{near[0]}}}? " if near else ""
    return (
        f"{template!r} has the unknown placeholder {placeholder}; {meant}allowed are "
        f"{', '.join(allowed)}"
    )


def _reckon(arithmetic: re.Match[str], values: Mapping[str, object]) -> str:
    """Return a whole number where the result is one, else its shortest decimal form."""
    from fractions import Fraction

    name, operation, other = arithmetic.groups()
    number = other if other[0].isdigit() else str(values[other])
    result = _OPERATORS[operation](Fraction(str(values[name])), Fraction(number))
    return str(result) if result.denominator == 1 else repr(float(result))
