"""What a system says about how its trainer is started: the values behind ``launch`` in its file.

An entry is written once for all cases of its system. What differs between them is chosen by
conditions on the case; what differs between runs and nodes stands as ``{field}`` in templates.
"""

from __future__ import annotations

import importlib.util
import math
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from pytest_dlperf.config.template import EXTRA_ARGUMENTS, FIELDS, names_in, template_problems
from pytest_dlperf.model.case import NAME_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_dlperf.model.case import Case

EVERY_SYSTEM_TAKES: Final = ("extra_args", "env", "python", "pause_s")
"""What the user can set for any system, beside the system's own variables."""

_RESERVED: Final = (*EVERY_SYSTEM_TAKES, EXTRA_ARGUMENTS.strip("{}"))
_NAME = re.compile(NAME_PATTERN)
_COUNTS = re.compile(r"([1-9][0-9]{0,8})(\+?)")


class Devices(Enum):
    """What a trainer computes on."""

    GPU = "gpu"
    CPU = "cpu"
    """Any host has enough of them, unless it was declared with a number."""


class StartOn(Enum):
    """Where a run's command is started."""

    EVERY_NODE = "every_node"
    HEAD = "head"
    """On node 0 alone: the command itself starts what runs on the others."""


class VariableKind(Enum):
    """What a variable's value names."""

    FOLDER = "folder"
    FILE = "file"
    TEXT = "text"

    @property
    def is_path(self) -> bool:
        """Whether the value is the path of something that has to be on every node."""
        return self is not VariableKind.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """What the user has to say before the trainer can start; with a default he need not."""

    meaning: str
    kind: VariableKind = VariableKind.TEXT
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers that a condition accepts: those in ``among``, or all from ``at_least`` on."""

    among: tuple[int, ...] = ()
    at_least: int | None = None

    @classmethod
    def parse(cls, text: str) -> Counts:
        """Read ``4`` or ``2+``.

        Raises:
            ValueError: The text is anything else.
        """
        match = _COUNTS.fullmatch(text)
        if match is None:
            raise ValueError(
                f"{text!r} is no count; write a whole number above 0, or with a plus behind it, "
                "as in '2+', for at least so many"
            )
        number = int(match[1])
        return cls(at_least=number) if match[2] else cls(among=(number,))

    def __contains__(self, number: int) -> bool:
        """Whether the number is accepted."""
        return number in self.among or (self.at_least is not None and number >= self.at_least)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Which cases something is for: all that is given must hold; nothing given holds for all.

    The case's precision is one of ``precisions`` and none of ``without_precisions``; it has all of
    ``options`` and none of ``without_options``; its counts are among those given.
    """

    precisions: tuple[str, ...] = ()
    without_precisions: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    without_options: tuple[str, ...] = ()
    nodes: Counts | None = None
    devices_per_node: Counts | None = None
    world_size: Counts | None = None

    def holds(self, case: Case) -> bool:
        """Whether the case is one of those."""
        topology = case.topology
        return (
            (not self.precisions or case.precision in self.precisions)
            and case.precision not in self.without_precisions
            and set(self.options) <= set(case.options)
            and set(self.without_options).isdisjoint(case.options)
            and (self.nodes is None or topology.nodes in self.nodes)
            and (
                self.devices_per_node is None or topology.devices_per_node in self.devices_per_node
            )
            and (self.world_size is None or topology.world_size in self.world_size)
        )


ALWAYS: Final = Condition()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of several values; the first whose condition holds is taken."""

    value: str
    when: Condition = ALWAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionalArguments:
    """Arguments of a command that only some cases have."""

    arguments: tuple[str, ...]
    when: Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecProblem:
    """One mistake in a launch entry. ``path`` is where, as in ``command[1]``."""

    path: str
    message: str

    def __str__(self) -> str:
        """Where, then what."""
        return f"{self.path} {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """How a trainer is started, with placeholders for all that differs between runs.

    ``command`` is the program and its arguments; ``environment`` is added to what the node has
    anyway (a variable none of whose choices fits is not set). Placeholders may stand in both, in
    ``values`` and in ``working_directory``, where ``None`` is the folder that the tests were
    started in. ``requires_modules`` are the Python modules that have to be importable before a run
    makes sense, ``install_hint`` says how to get them. A run is ended after ``time_limit_s``
    seconds; it hangs when it has no first step after ``first_step_limit_s`` or no further one for
    ``step_limit_s``. It is ended once it has what is measured, but with ``run_to_end``. A run that
    failed or hung is run again up to ``retries`` times. ``pause_s`` seconds pass between two runs.
    """

    command: tuple[str | ConditionalArguments, ...]
    environment: Mapping[str, str | tuple[Choice, ...]] = field(default_factory=dict)
    working_directory: str | None = None
    variables: Mapping[str, Variable] = field(default_factory=dict)
    values: Mapping[str, tuple[Choice, ...]] = field(default_factory=dict)
    devices: Devices = Devices.GPU
    start_on: StartOn = StartOn.EVERY_NODE
    requires_modules: tuple[str, ...] = ()
    install_hint: str | None = None
    time_limit_s: float = 1800.0
    first_step_limit_s: float = 900.0
    step_limit_s: float = 300.0
    run_to_end: bool = False
    retries: int = 0
    pause_s: float = 0.0

    def problems(self) -> tuple[SpecProblem, ...]:
        """All that is wrong with the entry; empty when nothing is."""
        return tuple(SpecProblem(path=path, message=text) for path, text in self._problems())

    def case_problems(self, case: Case) -> tuple[SpecProblem, ...]:
        """What makes it impossible to plan this case, in an entry that is right by itself."""
        used = self._names_of(case)
        found = [
            SpecProblem(
                path=f"values.{name}",
                message=f"has no choice for {case.id}; a last one without 'when' is for all others",
            )
            for name, choices in self.values.items()
            if name in used and chosen(choices, case) is None
        ]
        if not any(self.arguments(case)[:1]):
            found.append(SpecProblem(path="command", message=f"names no program for {case.id}"))
        return tuple(found)

    def arguments(self, case: Case) -> tuple[str, ...]:
        """The command's templates for this case, program first."""
        found: list[str] = []
        for part in self.command:
            if isinstance(part, str):
                found.append(part)
            elif part.when.holds(case):
                found += part.arguments
        return tuple(found)

    def environment_of(self, case: Case) -> dict[str, str]:
        """The environment's templates for this case."""
        found = {}
        for name, value in self.environment.items():
            template = value if isinstance(value, str) else chosen(value, case)
            if template is not None:
                found[name] = template
        return found

    def values_of(self, case: Case) -> dict[str, str]:
        """The templates of the named values that this case's plan makes use of."""
        used = self._names_of(case)
        return {
            name: template
            for name, choices in self.values.items()
            if name in used and (template := chosen(choices, case)) is not None
        }

    def variables_of(self, case: Case) -> tuple[str, ...]:
        """The variables that this case's plan makes use of, in the order of the file."""
        used = self._names_of(case).union(*map(names_in, self.values_of(case).values()))
        return tuple(name for name in self.variables if name in used)

    def missing_modules(self) -> tuple[str, ...]:
        """Those of ``requires_modules`` that the running interpreter does not find.

        Nothing is imported but the parents of dotted names.
        """
        return tuple(name for name in self.requires_modules if not _is_importable(name))

    def _names_of(self, case: Case) -> frozenset[str]:
        """What stands between braces in this case's command, environment and folder."""
        texts = [*self.arguments(case), *self.environment_of(case).values()]
        if self.working_directory is not None:
            texts.append(self.working_directory)
        return frozenset().union(*map(names_in, texts))

    def _problems(self) -> Iterator[tuple[str, str]]:
        first = self.command[0] if self.command else ""
        if not first or first == EXTRA_ARGUMENTS:
            yield "command", "names no program; the first word is the program to start"
        if self.command.count(EXTRA_ARGUMENTS) > 1:
            yield "command", f"has {EXTRA_ARGUMENTS} twice; the user's arguments go to one place"
        for name in self.environment:
            if not name or "=" in name or "\0" in name:
                yield "environment", f"has the name {name!r}, which no variable can have"
        yield from self._name_problems()
        yield from self._template_problems()
        yield from self._number_problems()

    def _template_problems(self) -> Iterator[tuple[str, str]]:
        fields_and_variables = (*FIELDS, *self.variables)
        for name, choices in self.values.items():
            for path, text in _choice_texts(f"values.{name}", choices):
                yield from _at(path, template_problems(text, fields_and_variables))
            yield from _unreachable(f"values.{name}", choices)
        known = (*fields_and_variables, *self.values)
        for path, text in self._templates():
            yield from _at(path, template_problems(text, known))
        for name, value in self.environment.items():
            if not isinstance(value, str):
                yield from _unreachable(f"environment.{name}", value)

    def _number_problems(self) -> Iterator[tuple[str, str]]:
        for name in ("time_limit_s", "first_step_limit_s", "step_limit_s"):
            seconds = getattr(self, name)
            if not (math.isfinite(seconds) and seconds > 0):
                yield name, f"is a number of seconds above zero, not {seconds!r}"
        if not (math.isfinite(self.pause_s) and self.pause_s >= 0):
            yield "pause_s", f"is a number of seconds from zero on, not {self.pause_s!r}"
        if self.retries < 0:
            yield "retries", f"is a whole number from zero on, not {self.retries!r}"

    def _name_problems(self) -> Iterator[tuple[str, str]]:
        for kind, names in (("variables", self.variables), ("values", self.values)):
            for name in names:
                path = f"{kind}.{name}"
                if not _NAME.fullmatch(name):
                    yield (
                        path,
                        (
                            f"has the name {name!r}; allowed are lower-case letters, digits and "
                            "underscores, a letter first"
                        ),
                    )
                elif name in FIELDS or name in _RESERVED:
                    yield path, f"has the name {name!r}, which has a meaning already; use another"
                elif kind == "values" and name in self.variables:
                    yield path, f"has the name {name!r} of a variable; use another"
        for name, variable in self.variables.items():
            if variable.default is not None and (
                problem := value_problem(variable, variable.default)
            ):
                yield f"variables.{name}.default", problem

    def _templates(self) -> Iterator[tuple[str, str]]:
        for index, part in enumerate(self.command):
            path = f"command[{index}]"
            if isinstance(part, str):
                pairs = [(path, part)]
            else:
                pairs = [
                    (f"{path}.arguments[{inner}]", argument)
                    for inner, argument in enumerate(part.arguments)
                ]
            yield from (pair for pair in pairs if pair[1] != EXTRA_ARGUMENTS)
        for name, value in self.environment.items():
            path = f"environment.{name}"
            if isinstance(value, str):
                yield path, value
            else:
                yield from _choice_texts(path, value)
        if self.working_directory is not None:
            yield "working_directory", self.working_directory


def chosen(choices: Iterable[Choice], case: Case) -> str | None:
    """The value of the first choice that is for this case."""
    return next((choice.value for choice in choices if choice.when.holds(case)), None)


def value_problem(variable: Variable, value: str) -> str | None:
    """What is wrong with a variable's value, if anything is.

    The path of a folder or file is absolute, for nodes have no common folder to begin in.
    """
    if "\0" in value:
        return f"{value!r} holds a NUL character, which no program can be given"
    if variable.kind.is_path and not value.startswith("/"):
        return f"{value!r} is no absolute path of a {variable.kind.value}"
    return None


def _choice_texts(path: str, choices: Iterable[Choice]) -> Iterator[tuple[str, str]]:
    for index, choice in enumerate(choices):
        yield f"{path}[{index}].value", choice.value


def _unreachable(path: str, choices: tuple[Choice, ...]) -> Iterator[tuple[str, str]]:
    for index, choice in enumerate(choices[:-1]):
        if choice.when == ALWAYS:
            yield f"{path}[{index + 1}]", "is never taken: the choice before it is for all cases"


def _at(path: str, messages: Iterable[str]) -> Iterator[tuple[str, str]]:
    return ((path, message) for message in messages)


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
