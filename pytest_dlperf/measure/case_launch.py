"""One case, ready to be launched: what its hosts need, and what each of its nodes runs.

A candidate of a search is launched otherwise than files and options say: by a ``LaunchChange``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.launch import Launch
from pytest_dlperf.config.launch_keys import Container, Devices, VariableKind
from pytest_dlperf.config.settings import LaunchVariables, Setting, published, resolve
from pytest_dlperf.config.systems import System
from pytest_dlperf.config.template import fill, names_in
from pytest_dlperf.launch.containers import contained, image_probe, node_in_container
from pytest_dlperf.launch.hosts import Node
from pytest_dlperf.launch.plan import NodeCommand, plan_run, run_dir
from pytest_dlperf.launch.preflight import Requirements
from pytest_dlperf.logs.tree import log_path
from pytest_dlperf.model.case import Case

MARGIN_S: Final = 300.0
"""A run may take so long to come up, and to clean up, beside its own limit."""
START: Final = "working_directory"
"""The name of the folder in which a trainer starts."""


class ArgumentEdit(Struct, frozen=True):
    """Arguments ``start`` to ``stop`` of a command are replaced; the program is argument 0."""

    start: int
    stop: int
    words: tuple[str, ...]


class LaunchChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to the commands of a case, made after they were planned."""

    folders: Mapping[str, str] = {}
    """Absolute folders that others take the place of, in arguments, variables and paths."""
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

    def of_command(self, command: NodeCommand, *, starts_here: bool) -> NodeCommand:
        """Change the command of a node, which may start in the folder of the session."""
        words = list(command.arguments)
        for edit in sorted(self.arguments, key=lambda one: one.start, reverse=True):
            words[edit.start : edit.stop] = edit.words
        environment = {**command.environment, **self.environment}
        folder, here = command.working_directory, str(Path.cwd())
        if starts_here and self._moved(here) != here:
            folder = here
        return replace(
            command,
            arguments=tuple(map(self._moved, words)),
            environment={k: self._moved(v) for k, v in environment.items() if v is not None},
            python_path=tuple(map(self._moved, command.python_path)),
            working_directory=None if folder is None else self._moved(folder),
        )

    def _moved(self, text: str) -> str:
        for folder, other in self.folders.items():
            # Within a text, too: a path may stand behind an option's "=" or among others.
            # What lies in the other one already stays there: that may be below the first.
            places = "|".join(re.escape(place.rstrip("/")) for place in (other, folder))
            whole = rf"(?<![\w./-])(?:{places})(?![\w.-])"
            text = re.sub(whole, lambda _, to=other: to, text)  # type: ignore[misc]
        return text


def combined(changes: Iterable[LaunchChange]) -> LaunchChange:
    """Make one change of several that do not contradict each other."""
    found = LaunchChange()
    for one in changes:
        found = LaunchChange(
            folders={**found.folders, **one.folders},
            environment={**found.environment, **one.environment},
            arguments=(*found.arguments, *one.arguments),
            hosts=one.hosts or found.hosts,
        )
    return found


class CaseLaunch(Struct, frozen=True, kw_only=True):
    """One case with all that the user has set for it; logs go below ``folder``.

    ``scratch`` is the folder on each host in which its runs make their own. ``container`` is what
    its commands are put into, unless a queue does that. ``device`` is how the cluster calls
    its devices. A ``change`` is made to what is planned.
    """

    system: System
    spec: Launch
    case: Case
    variables: LaunchVariables
    container: Container | None
    python: str
    folder: Path
    scratch: str
    device: str | None = None
    change: LaunchChange | None = None
    settings: Sequence[Sequence[Setting]] = ()
    """What the variables come from, the strongest first."""

    def log(self, run: int) -> Path:
        """Name the main log of a run."""
        return log_path(self.folder, self.case, self.system.log_name, run)

    @property
    def pause_s(self) -> float:
        """The pause before each run but the first."""
        set_s = self.variables.pause_s
        return self.spec.pause_s if set_s is None else set_s

    @property
    def longest_s(self) -> float:
        """How long a run may take, with the pause before it."""
        return self.spec.time_limit_s + self.pause_s + MARGIN_S

    def published_variables(self, word: Callable[[str], str]) -> LaunchVariables:
        """Resolve the variables as others may read them; ``word`` stands for what they may not."""
        sources = [[*published(self.spec, each, word)] for each in self.settings]
        variables = resolve(self.spec, self.system.id, sources, case=self.case)
        return variables if self.change is None else self.change.of_variables(variables)

    @property
    def needed(self) -> Requirements:
        """What every host has to have."""
        folders = self._paths(VariableKind.FOLDER)
        folder, given = self.spec.working_directory, self.variables.working_directory
        if given is not None:
            folders[START] = given
        # Where it depends on the run, the supervisor alone can tell whether it is there.
        if folder is not None and names_in(folder) <= set(self.variables.values):
            working_directory = fill(folder, self.variables.values)
            is_new = working_directory not in folders.values()
            if is_new and Path(working_directory).is_absolute():
                folders[START] = working_directory
        files = self._paths(VariableKind.FILE)
        checkouts = {name: path for name, path in folders.items() if path.startswith("/")}
        checkouts |= self._folders_not_named
        inner = None
        if self.container is None:
            folders["scratch in cluster.yaml"] = self.scratch
        else:
            inner = image_probe(
                self.container,
                always=self._own_folders,
                unless_said=(*folders.values(), *files.values()),
                kind=self.spec.devices.kind,
                scratch=self.scratch,
            )
        around = self.variables.container
        return Requirements(
            python=self.python,
            engine=self.variables.engine,
            image=self.variables.image if around is None else around.image,
            inside=inner,
            folders=folders,
            files=files,
            checkouts=checkouts,
            modules=self.spec.requires_modules,
            accelerators=self.spec.devices is not Devices.CPU,
            kind=self.spec.devices.kind,
            device=self.device,
        )

    @property
    def _folders_not_named(self) -> dict[str, str]:
        """Where the trainer runs from without being told, by what that is called."""
        found = {}
        is_in_image = self.container is not None or self.variables.image is not None
        if not (is_in_image or self.spec.working_directory or self.variables.working_directory):
            found[START] = str(Path.cwd())
        if self.spec.uses("system_directory", self.case):
            found["system_directory"] = str(self.system.file.parent.absolute())
        return found

    def _paths(self, kind: VariableKind) -> dict[str, str]:
        return {
            name: self.variables.values[name]
            for name in self.spec.variables_of(self.case)
            if self.spec.variables[name].kind is kind
        }

    def commands(self, nodes: Sequence[Node], *, run: int, log: Path) -> tuple[NodeCommand, ...]:
        """Plan a run on these nodes."""
        container, kind = self.container, self.spec.devices.kind
        planned = plan_run(
            self.spec,
            case=self.case,
            window=self.system.window,
            settling_steps=self.system.log_format.settling_steps,
            system_directory=self.system.file.parent,
            run=run,
            nodes=nodes
            if container is None
            else [node_in_container(container, node, kind) for node in nodes],
            variables=self.variables,
            python=self.python,
            log=log,
        )
        if self.change is not None:
            starts_here = START in self._folders_not_named
            planned = tuple(self.change.of_command(one, starts_here=starts_here) for one in planned)
        if container is None:
            return planned
        paths = (
            *self._paths(VariableKind.FOLDER).values(),
            *self._paths(VariableKind.FILE).values(),
        )
        always = self._own_folders
        if self.spec.uses("run_directory", self.case):
            always += (str(run_dir(log.absolute())),)
        return tuple(
            contained(container, command, node, always=always, unless_said=paths, kind=kind)
            for command, node in zip(planned, nodes, strict=False)
        )

    @property
    def _own_folders(self) -> tuple[str, ...]:
        """The folders of the suite that the trainer has to see in a container."""
        uses_own = self.spec.uses("system_directory", self.case)
        return (str(self.system.file.parent.absolute()),) if uses_own else ()


def checkouts_of(
    system: System, case: Case, sources: Sequence[Sequence[Setting]]
) -> dict[str, str]:
    """Return the folders that a case's trainer runs from, by the names of fingerprints.

    Raises:
        CannotMeasureError: A variable is not set.
    """
    if system.launch is None:
        return {}
    launch = CaseLaunch(
        system=system,
        spec=system.launch,
        case=case,
        variables=resolve(system.launch, system.id, sources, case=case),
        container=None,
        python="",
        folder=Path(),
        scratch="/",
    )
    return {**launch.needed.checkouts}
