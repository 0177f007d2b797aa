"""What each node of a case would execute, as it would be typed into a shell."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from pytest_dlperf.launch.secrets import masked_arguments, masked_environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.launch.plan import NodeCommand


def plan_lines(case_id: str, commands: Sequence[NodeCommand]) -> Iterator[str]:
    """The case, and one line for each of its nodes; values that look like secrets are masked."""
    yield case_id
    for command in commands:
        words = masked_arguments(command.arguments)
        environment = masked_environment(command.environment)
        if environment:
            words = ["env", *(f"{name}={value}" for name, value in environment.items()), *words]
        folder = command.working_directory
        change = f"cd {shlex.quote(folder)} && " if folder is not None else ""
        yield f"  node {command.node_rank} on {command.host}: {change}{shlex.join(words)}"
