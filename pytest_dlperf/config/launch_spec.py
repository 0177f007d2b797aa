"""How a trainer is started: the values of ``launch`` in a system file.

An entry is written once for all cases of its system. What differs between them is chosen by
conditions on the case; what differs between runs and nodes stands as ``{field}`` in templates.
"""

from __future__ import annotations

import importlib.util
from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.config.conditions import (
    ALWAYS,
    Choice,
    Condition,
    chosen,
)
from pytest_dlperf.config.slurm_container import EVERY_SYSTEM_TAKES
from pytest_dlperf.config.template import (
    ARGUMENTS,
    EXTRA_ARGUMENTS,
    FIELDS,
    WHY_MISSING,
    case_fields,
    names_in,
    template_problems,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from pytest_dlperf.config.assignments import Assignment
    from pytest_dlperf.model.case import Case

LOG_FILE: Final = "log.file"
"""The key path of the part of a launch that stands outside of ``launch``."""
_RESERVED: Final = {
    *FIELDS,
    *EVERY_SYSTEM_TAKES,
    *(name.strip("{}") for name in (ARGUMENTS, EXTRA_ARGUMENTS)),
}


class Devices(Enum):
    """Devices that a trainer computes on."""

    GPU = "gpu"
    """Accelerators, whichever kind a host has."""
    CPU = "cpu"
    """Any host has enough of them, unless it was declared with a number."""
    NVIDIA = "nvidia"
    AMD = "amd"
    ASCEND = "ascend"
    TPU = "tpu"
    INTEL = "intel"
    GAUDI = "gaudi"
    NEURON = "neuron"

    @property
    def kind(self) -> str | None:
        """The kind of accelerator, where only one will do."""
        return None if self in (Devices.GPU, Devices.CPU) else self.value


class StartOn(Enum):
    """Nodes that a run's command is started on."""

    EVERY_NODE = "every_node"
    HEAD = "head"
    """On node 0 alone: the command itself starts what runs on the others."""


class Steps(Enum):
    """Trainers whose steps a callback of ours prints."""

    HUGGINGFACE = "huggingface"
    LIGHTNING = "lightning"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"


class VariableKind(Enum):
    """Kind of thing that a variable's value names."""

    FOLDER = "folder"
    FILE = "file"
    TEXT = "text"

    @property
    def is_path(self) -> bool:
        """Whether the value is a path that has to exist on every node."""
        return self is not VariableKind.TEXT


class Variable(Struct, frozen=True, kw_only=True):
    """Setting that the user has to give before the trainer can start, unless it has a default."""

    meaning: str
    kind: VariableKind = VariableKind.TEXT
    default: str | None = None
    public: bool = False

    def problem(self, value: str) -> str | None:
        """Return what is wrong with a value, if anything is.

        The path of a folder or file is absolute, for nodes have no common folder to begin in.
        """
        if value and self.kind.is_path and not value.startswith("/"):
            return f"{value!r} is not the absolute path of a {self.kind.value}"
        return None


class ConditionalArguments(Struct, frozen=True, kw_only=True):
    """Arguments of a command that only some cases have."""

    arguments: tuple[str, ...]
    when: Condition


class Server(Struct, frozen=True, kw_only=True):
    """A server that runs beside the command on its node, and how to know that it is ready."""

    command: tuple[str, ...]
    ready_line: str | None = None
    ready_address: str | None = None
    ready_limit_s: float = 600.0

    def problems(self) -> Iterator[tuple[str, str]]:
        """List what is wrong with it, by key path below ``launch``."""
        if (self.ready_line is None) is (self.ready_address is None):
            yield "server", "needs one of 'ready_line' and 'ready_address', and not both"


class LaunchSpec(Struct, frozen=True, kw_only=True):
    """Recipe for starting a trainer, with placeholders for all that differs between runs.

    ``LAUNCH`` says what each value is. A variable of ``environment`` none of whose choices fits is
    not set; a ``working_directory`` of ``None`` is the folder that the tests were started in.
    """

    command: tuple[str | ConditionalArguments, ...]
    more_arguments: tuple[str | ConditionalArguments, ...] = ()
    environment: Mapping[str, str | tuple[Choice, ...]] = {}
    working_directory: str | None = None
    log_file: str | None = None
    """A file that it writes its steps into, beside its output: ``log.file`` of the system."""
    axes: tuple[str, ...] = ()
    """The free axes of the cases, which may stand in templates."""
    variables: Mapping[str, Variable] = {}
    values: Mapping[str, tuple[Choice, ...]] = {}
    devices: Devices = Devices.GPU
    start_on: StartOn = StartOn.EVERY_NODE
    steps: Steps | None = None
    server: Server | None = None
    requires_modules: tuple[str, ...] = ()
    install_hint: str | None = None
    time_limit_s: float = 1800.0
    first_step_limit_s: float = 900.0
    step_limit_s: float = 300.0
    run_to_end: bool = False
    retries: int = 0
    pause_s: float = 0.0
    assignments: tuple[Assignment, ...] = ()
    """Options of engines that start runs, and the container, unless users set others."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """List all that is wrong with the entry, by key path as in ``command[1]``."""
        places = (ARGUMENTS, EXTRA_ARGUMENTS)
        if not any(self.command[:1]) or self.command[0] in places:
            yield "command", "names no program; the first word is the program to start"
        for twice in (name for name in places if self.command.count(name) > 1):
            yield "command", f"has {twice} twice; what it stands for goes to one place"
        for kind, names in (("variables", self.variables), ("values", self.values)):
            for name in names:
                if name in (*_RESERVED, *self.axes) or (
                    kind == "values" and name in self.variables
                ):
                    message = f"has the name {name!r}, which has a meaning already; use another"
                    yield f"{kind}.{name}", message
        for name, variable in self.variables.items():
            if problem := variable.problem(variable.default or ""):
                yield f"variables.{name}.default", problem
        yield from self.server.problems() if self.server is not None else ()
        for path, text, _ in self.templates():
            # Values are put in once, so they cannot hold each other.
            known = (
                *FIELDS,
                *self.axes,
                *self.variables,
                *(() if path.startswith("values.") else self.values),
            )
            if not (text == EXTRA_ARGUMENTS and path.startswith("command")):
                yield from ((path, message) for message in template_problems(text, known))

    def case_problems(self, case: Case) -> Iterator[tuple[str, str]]:
        """List why this case cannot be planned, in an entry that is right by itself."""
        templates = list(self._templates_of(case))
        used = _names_in(templates)
        values = self._chosen_values(used, case)
        for name in self.values:
            if name in used and name not in values:
                yield (
                    f"values.{name}",
                    f"has no choice for {case.id}; a last one without 'when' is for all others",
                )
        if not next((text for path, text in templates if path == "command"), None):
            yield "command", f"names no program for {case.id}"
        fields = case_fields(case)
        for path, text in (*templates, *((f"values.{name}", values[name]) for name in values)):
            for name in names_in(text):
                if fields.get(name, "") is None:
                    why = WHY_MISSING.get(name, "is a probe") if case.work else "is a probe"
                    yield path, f"uses {{{name}}}, and {case.id} {why}"

    def arguments(self, case: Case) -> tuple[str, ...]:
        """Return the command's templates for this case, program first."""
        return tuple(text for _, text, when in self._command_templates() if when.holds(case))

    def environment_of(self, case: Case) -> dict[str, str]:
        """Return the environment's templates for this case."""
        return {
            name: template
            for name, value in self.environment.items()
            if (template := value if isinstance(value, str) else chosen(value, case)) is not None
        }

    def values_of(self, case: Case) -> dict[str, str]:
        """Return the templates of the named values that this case's plan uses."""
        return self._chosen_values(_names_in(self._templates_of(case)), case)

    def variables_of(self, case: Case) -> tuple[str, ...]:
        """Name the variables that this case's plan uses, in the order of the file."""
        return tuple(name for name in self.variables if self.uses(name, case))

    def uses(self, name: str, case: Case) -> bool:
        """Whether this case's plan makes use of a variable or field."""
        used = _names_in(self._templates_of(case))
        values = self._chosen_values(used, case).values()
        return name in used.union(*map(names_in, values))

    def templates(self) -> Iterator[tuple[str, str, Condition]]:
        """List all templates with their key paths, and which cases they are for."""
        yield from self._command_templates()
        for kind, named in (("environment", self.environment), ("values", self.values)):
            for name, value in named.items():
                if isinstance(value, str):
                    yield f"{kind}.{name}", value, ALWAYS
                    continue
                for index, choice in enumerate(value):
                    yield f"{kind}.{name}[{index}].value", choice.value, choice.when
        yield from ((path, text, ALWAYS) for path, text in self._paths())

    def _paths(self) -> Iterator[tuple[str, str]]:
        paths = {"working_directory": self.working_directory, LOG_FILE: self.log_file}
        if self.server is not None:
            paths["server.ready_address"] = self.server.ready_address
            for index, text in enumerate(self.server.command):
                paths[f"server.command[{index}]"] = text
        return ((path, text) for path, text in paths.items() if text is not None)

    def _command_templates(self) -> Iterator[tuple[str, str, Condition]]:
        for path, part in self._parts():
            if isinstance(part, str):
                yield path, part, ALWAYS
            else:
                for inner, argument in enumerate(part.arguments):
                    yield f"{path}.arguments[{inner}]", argument, part.when

    def _parts(self) -> Iterator[tuple[str, str | ConditionalArguments]]:
        """List the parts of the command in their order, with their key paths.

        More arguments stand where ``{arguments}`` says so, else before the user's, or at the end.
        """
        more = [(f"arguments[{index}]", part) for index, part in enumerate(self.more_arguments)]
        place = next((name for name in (ARGUMENTS, EXTRA_ARGUMENTS) if name in self.command), None)
        for index, part in enumerate(self.command):
            if part == place:
                yield from more
            if part != ARGUMENTS:
                yield f"command[{index}]", part
        if place is None:
            yield from more

    def missing_modules(self) -> tuple[str, ...]:
        """List required modules that the running interpreter lacks, without importing them."""
        return tuple(name for name in self.requires_modules if not _is_importable(name))

    def _templates_of(self, case: Case) -> Iterator[tuple[str, str]]:
        """List the templates that this case's plan uses by themselves, by key."""
        yield from (("command", text) for text in self.arguments(case))
        for name, text in self.environment_of(case).items():
            yield f"environment.{name}", text
        yield from self._paths()

    def _chosen_values(self, used: Container[str], case: Case) -> dict[str, str]:
        return {
            name: template
            for name, choices in self.values.items()
            if name in used and (template := chosen(choices, case)) is not None
        }


def _names_in(templates: Iterable[tuple[str, str]]) -> frozenset[str]:
    return frozenset().union(*(names_in(text) for _, text in templates))


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
