"""What each node of a case would execute, as it would be typed into a shell."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pytest_dlperf.launch.record import masked_arguments, masked_environment
from pytest_dlperf.model.errors import BrokenError, CannotMeasureError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_dlperf.launch.plan import NodeCommand
    from pytest_dlperf.model.case import Case


def dry_run_lines(
    cases: Sequence[Case], planned: Callable[[Case], Sequence[NodeCommand]]
) -> Iterator[str]:
    """Each case, and one line for each of its nodes; values that look like secrets are masked."""
    launched = 0
    for case in cases:
        yield case.id
        try:
            commands = planned(case)
        except (CannotMeasureError, BrokenError) as error:
            yield f"  cannot be launched: {error}"
        else:
            launched += 1
            yield from map(_node_line, commands)
    missing = len(cases) - launched
    cannot = f", {missing} of them cannot be launched" if missing else ""
    yield f"{len(cases)} case{'s' * (len(cases) != 1)}{cannot}; nothing was run"
    if launched:
        yield "ports and scratch folders are examples: a run is given free ones"


def _node_line(command: NodeCommand) -> str:
    words = masked_arguments(command.arguments)
    environment = masked_environment(command.environment)
    if environment:
        words = ["env", *(f"{name}={value}" for name, value in environment.items()), *words]
    folder = command.working_directory
    change = f"cd {shlex.quote(folder)} && " if folder is not None else ""
    return f"  node {command.node_rank} on {command.host}: {change}{shlex.join(words)}"
