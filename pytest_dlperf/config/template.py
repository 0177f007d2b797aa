"""Templates: texts of a launch entry in which ``{field}`` stands for what differs between runs.

Values are put in once, in one pass: whatever a value holds, braces included, stays as it is and
stays in its text. ``{{`` and ``}}`` are literal braces. A number may be reckoned with one other
number: ``{batch_per_node/1000}``.
"""

from __future__ import annotations

import difflib
import operator
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

FIELDS: Final[Mapping[str, str]] = {
    "python": "the trainer's Python interpreter: what the user set, or the one that runs the tests",
    "framework": "framework of the case, as in 'pytorch'",
    "model": "model of the case, as in 'resnet50'",
    "precision": "precision of the case, as in 'fp32'",
    "options": "options of the case, sorted, as in 'dali+workers8'; empty without any",
    "nodes": "number of nodes in the run",
    "devices_per_node": "number of devices on each node",
    "world_size": "number of devices in the whole run",
    "node_rank": "number of this node, from 0",
    "node_address": "address of this node",
    "node_addresses": "addresses of all nodes, node 0 first, with commas between",
    "node_port": "TCP port, free on this node",
    "node_endpoints": "address:port of all nodes, node 0 first, with commas between",
    "master_address": "address of node 0",
    "master_port": "TCP port, free on node 0, where the nodes of this run meet",
    "master_endpoint": "address:port of node 0",
    "host_slots": "address:devices of all nodes, with commas between, as mpirun -H takes it",
    "device_ids": "ids of this node's devices, with commas between, as in '0,1,2,3'",
    "batch_per_device": "samples per step on one device",
    "batch_per_node": "samples per step on one node",
    "global_batch": "samples per step in the whole run",
    "warmup_steps": "steps at the start that are not measured",
    "measured_steps": "steps that are measured",
    "steps": "steps that a run needs: settling (by log format), warm-up and measured",
    "run": "number of this run among the repeats of its case, from 1",
    "run_directory": "absolute path of this run's own folder, beside its log",
    "scratch_directory": "folder on this node, empty when the run starts, removed after it",
    "system_directory": "absolute path of the folder that the system file lies in",
}
"""What may stand between braces in a launch entry, and what it becomes."""

NUMERIC_FIELDS: Final = frozenset(
    {
        "nodes",
        "devices_per_node",
        "world_size",
        "node_rank",
        "node_port",
        "master_port",
        "batch_per_device",
        "batch_per_node",
        "global_batch",
        "warmup_steps",
        "measured_steps",
        "steps",
        "run",
    }
)
"""Fields that can be reckoned with."""

EXTRA_ARGUMENTS: Final = "{extra_arguments}"
"""Where in a command the user's extra arguments go; a whole argument, not a part of one."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
# Short numbers only, so that no result is out of a float's range.
_OPERATORS: Final[Mapping[str, Callable[[Fraction, Fraction], Fraction]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_ARITHMETIC = re.compile(r"(\w+) ?([-+*/]) ?([0-9]{1,15}(?:\.[0-9]{1,15})?)", re.ASCII)


def fill(template: str, values: Mapping[str, object]) -> str:
    """Put the values in, in one pass."""

    def replacement(match: re.Match[str]) -> str:
        inside = match[1]
        if inside is None:
            return match[0][0]
        arithmetic = _ARITHMETIC.fullmatch(inside)
        return str(values[inside]) if arithmetic is None else _reckon(arithmetic, values)

    return _PLACEHOLDER.sub(replacement, template)


def names_in(template: str) -> frozenset[str]:
    """List the names that stand between braces."""
    found = set()
    for match in _PLACEHOLDER.finditer(template):
        inside = match[1]
        if inside is not None:
            arithmetic = _ARITHMETIC.fullmatch(inside)
            found.add(inside if arithmetic is None else arithmetic[1])
    return frozenset(found)


def template_problems(template: str, known: Collection[str]) -> Iterator[str]:
    """List all that is wrong with a template in which the names ``known`` may stand."""
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
        name = inside if arithmetic is None else arithmetic[1]
        if name not in known:
            yield _unknown(template, match[0], name, known)
        elif arithmetic is not None and name not in NUMERIC_FIELDS:
            yield (
                f"{template!r} reckons with {name!r} in {match[0]}; numbers are "
                f"{', '.join(field for field in FIELDS if field in NUMERIC_FIELDS)}"
            )
        elif arithmetic is not None and arithmetic[2] == "/" and not Fraction(arithmetic[3]):
            yield f"{template!r} divides by zero in {match[0]}"


def _unknown(template: str, placeholder: str, name: str, known: Collection[str]) -> str:
    if placeholder == EXTRA_ARGUMENTS:
        return (
            f"{template!r} has {EXTRA_ARGUMENTS} in it, which can only be an argument of its own "
            "in 'command'"
        )
    nearest = difflib.get_close_matches(name, known, n=1)
    suggestion = f"did you mean {{{nearest[0]}}}? " if nearest else ""
    return (
        f"{template!r} has the unknown placeholder {placeholder}; {suggestion}"
        f"allowed are {', '.join(known)}"
    )


def _reckon(arithmetic: re.Match[str], values: Mapping[str, object]) -> str:
    """Give a whole number where the result is one, else its shortest decimal form."""
    number, operation, other = arithmetic.groups()
    result = _OPERATORS[operation](Fraction(str(values[number])), Fraction(other))
    return str(result) if result.denominator == 1 else repr(float(result))
