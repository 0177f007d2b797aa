"""What a session launches otherwise than its files and options say: a candidate of a hunt."""

from __future__ import annotations

import re
from collections.abc import Mapping  # noqa: TC003 - msgspec reads the type
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_dlperf.config.launch_variables import LaunchVariables
    from pytest_dlperf.launch.plan import NodeCommand


class ArgumentEdit(Struct, frozen=True):
    """Arguments ``start`` to ``stop`` of a command are replaced; the program is argument 0."""

    start: int
    stop: int
    words: tuple[str, ...]


class LaunchChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to the commands of a case, made after they were planned."""

    folders: Mapping[str, str] = {}
    """Absolute folders that others take the place of, in arguments, variables and paths."""
    python_path: tuple[str, ...] = ()
    """Folders that stand first in ``PYTHONPATH``."""
    environment: Mapping[str, str | None] = {}
    """Variables; those that are ``None`` are not set."""
    arguments: tuple[ArgumentEdit, ...] = ()
    """Edits of the planned arguments; they do not overlap."""
    hosts: tuple[str, ...] = ()
    """The hosts to run on, node 0 first; empty for any."""

    def of_variables(self, variables: LaunchVariables) -> LaunchVariables:
        """Move the values that are paths: what a container has to see follows from them."""
        values = {name: self._moved(value) for name, value in variables.values.items()}
        return replace(variables, values=values)

    def of_command(self, command: NodeCommand) -> NodeCommand:
        """Change the command of a node."""
        words = list(command.arguments)
        for edit in sorted(self.arguments, key=lambda one: one.start, reverse=True):
            words[edit.start : edit.stop] = edit.words
        environment = {**command.environment, **self.environment}
        folder = command.working_directory
        return replace(
            command,
            arguments=tuple(map(self._moved, words)),
            environment={k: self._moved(v) for k, v in environment.items() if v is not None},
            python_path=(*self.python_path, *map(self._moved, command.python_path)),
            working_directory=None if folder is None else self._moved(folder),
        )

    def _moved(self, text: str) -> str:
        for folder, other in self.folders.items():
            # Within a text, too: a path may stand behind an option's "=" or among others.
            whole = rf"(?<![\w./-]){re.escape(folder.rstrip('/'))}(?![\w.-])"
            text = re.sub(whole, lambda _, to=other: to, text)  # type: ignore[misc]
        return text


def combined(changes: Iterable[LaunchChange]) -> LaunchChange:
    """Make one change of several that do not contradict each other."""
    found = LaunchChange()
    for one in changes:
        found = LaunchChange(
            folders={**found.folders, **one.folders},
            python_path=(*found.python_path, *one.python_path),
            environment={**found.environment, **one.environment},
            arguments=(*found.arguments, *one.arguments),
            hosts=one.hosts or found.hosts,
        )
    return found
