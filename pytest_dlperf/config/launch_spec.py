"""How a trainer is started: the values of ``launch`` in a system file.

An entry is written once for all cases of its system. What differs between them is chosen by
conditions on the case; what differs between runs and nodes stands as ``{field}`` in templates.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import asdict, replace

from pytest_dlperf.config.conditions import ALWAYS, Condition, chosen
from pytest_dlperf.config.launch_keys import STARTS, ConditionalArguments, Launch
from pytest_dlperf.config.parts import Arguments
from pytest_dlperf.config.settings import (
    ALL_SYSTEMS,
    CONTAINER,
    EVERY_SYSTEM_TAKES,
    SLURM,
    Setting,
    settings_at,
)
from pytest_dlperf.config.template import (
    ARGUMENTS,
    EXTRA_ARGUMENTS,
    FIELDS,
    WHY_MISSING,
    case_fields,
    names_in,
    template_problems,
)
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.yamlfile import YamlFile
from pytest_dlperf.model.case import Case

Path = tuple[str | int, ...]
"""The keys that lead to a place of a system file."""

_LOG_FILE: Final = ("log", "file")
_COMMAND: Final = ("launch", "command")
_RESERVED: Final = {
    *FIELDS,
    *EVERY_SYSTEM_TAKES,
    *(name.strip("{}") for name in (ARGUMENTS, EXTRA_ARGUMENTS)),
}


class LaunchSpec(Launch, frozen=True, kw_only=True):
    """How a trainer is started: what the file says, and what belongs to it beside ``launch``."""

    log_file: str | None = None
    """A file that it writes its steps into, beside its output: ``log.file`` of the system."""
    axes: tuple[str, ...] = ()
    """The free axes of the cases, which may stand in templates."""
    settings: tuple[Setting, ...] = ()
    """Options of engines that start runs, and the container, unless users set others."""

    @property
    def start(self) -> str:
        """The key that says what to start."""
        return next((key for key in STARTS if getattr(self, key)), "command")

    @property
    def _words(self) -> tuple[str | ConditionalArguments, ...]:
        words: tuple[str | ConditionalArguments, ...] = getattr(self, self.start)
        return words

    def problems(self) -> Iterator[tuple[Path, str]]:
        """List all that is wrong with the entry, by key path."""
        yield from self._start_problems()
        for kind, names in (("variables", self.variables), ("values", self.values)):
            for name in names:
                if name in (*_RESERVED, *self.axes) or (
                    kind == "values" and name in self.variables
                ):
                    message = f"has the name {name!r}, which has a meaning already; use another"
                    yield ("launch", kind, name), message
        for name, variable in self.variables.items():
            if problem := variable.problem(variable.default or ""):
                yield ("launch", "variables", name, "default"), problem
        for path, text, _ in self.templates():
            # Values are put in once, so they cannot hold each other.
            others = () if "values" in path else self.values
            allowed = (*FIELDS, *self.axes, *self.variables, *others)
            if not (text == EXTRA_ARGUMENTS and path[1] in STARTS):
                yield from ((path, message) for message in template_problems(text, allowed))

    def _start_problems(self) -> Iterator[tuple[Path, str]]:
        places = (ARGUMENTS, EXTRA_ARGUMENTS)
        words, start = self._words, ("launch", self.start)
        if others := [key for key in STARTS if key != self.start and getattr(self, key)]:
            yield start, f"stands beside {others[0]!r}; one of them starts the trainer"
        if self.start == "command" and (not any(words[:1]) or words[0] in places):
            yield start, "names no program; the first word is the program to start"
        for twice in (name for name in places if words.count(name) > 1):
            yield start, f"has {twice} twice; what it stands for goes to one place"

    def case_problems(self, case: Case) -> Iterator[tuple[Path, str]]:
        """List why this case cannot be planned, in an entry that is right by itself."""
        templates = list(self._templates_of(case))
        used = _names_in(templates)
        values = self._chosen_values(used, case)
        for name in self.values:
            if name in used and name not in values:
                message = f"has no choice for {case.id}; a last one without 'when' is for all"
                yield ("launch", "values", name), message
        if not next((text for path, text in templates if path == _COMMAND), None):
            yield _COMMAND, f"names no program for {case.id}"
        fields = case_fields(case)
        for path, text in (
            *templates,
            *((("launch", "values", name), values[name]) for name in values),
        ):
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

    def templates(self) -> Iterator[tuple[Path, str, Condition]]:
        """List all templates with their key paths, and which cases they are for."""
        yield from self._command_templates()
        for kind, named in (("environment", self.environment), ("values", self.values)):
            for name, value in named.items():
                if isinstance(value, str):
                    yield ("launch", kind, name), value, ALWAYS
                    continue
                for index, choice in enumerate(value):
                    path = ("launch", kind, name, index, "value")
                    yield path, choice.value, choice.when
        yield from ((path, text, ALWAYS) for path, text in self._paths())

    def conditions(self) -> Iterator[tuple[Path, Condition]]:
        """List the conditions of the entry with their key paths."""
        for kind, parts in ((self.start, self._words), ("arguments", self.more_arguments)):
            for index, part in enumerate(parts):
                if not isinstance(part, str):
                    yield ("launch", kind, index, "when"), part.when
        for kind, named in (("environment", self.environment), ("values", self.values)):
            for name, value in named.items():
                for index, choice in enumerate(() if isinstance(value, str) else value):
                    yield ("launch", kind, name, index, "when"), choice.when

    def _paths(self) -> Iterator[tuple[Path, str]]:
        paths: dict[Path, str | None] = {
            ("launch", "working_directory"): self.working_directory,
            _LOG_FILE: self.log_file,
        }
        if self.server is not None:
            paths["launch", "server", "ready_address"] = self.server.ready_address
            for index, text in enumerate(self.server.command):
                paths["launch", "server", "command", index] = text
        return ((path, text) for path, text in paths.items() if text is not None)

    def _command_templates(self) -> Iterator[tuple[Path, str, Condition]]:
        for path, part in self._parts():
            if isinstance(part, str):
                yield path, part, ALWAYS
            else:
                for inner, argument in enumerate(part.arguments):
                    yield (*path, "arguments", inner), argument, part.when

    def _parts(self) -> Iterator[tuple[Path, str | ConditionalArguments]]:
        """List the parts of the command in their order, with their key paths.

        More arguments stand where ``{arguments}`` says so, else before the user's, or at the end.
        """
        more: list[tuple[Path, str | ConditionalArguments]] = [
            (("launch", "arguments", index), part) for index, part in enumerate(self.more_arguments)
        ]
        start: Path = ("launch", self.start)
        place = next((name for name in (ARGUMENTS, EXTRA_ARGUMENTS) if name in self._words), None)
        yield from ((start, part) for part in STARTS[self.start])
        for index, part in enumerate(self._words):
            if part == place:
                yield from more
            if part != ARGUMENTS:
                yield (*start, index), part
        if place is None:
            yield from more

    def missing_modules(self) -> tuple[str, ...]:
        """List required modules that the running interpreter lacks, without importing them."""
        return tuple(name for name in self.requires_modules if not _is_importable(name))

    def _templates_of(self, case: Case) -> Iterator[tuple[Path, str]]:
        """List the templates that this case's plan uses by themselves, by key."""
        yield from ((_COMMAND, text) for text in self.arguments(case))
        for name, text in self.environment_of(case).items():
            yield ("launch", "environment", name), text
        yield from self._paths()

    def _chosen_values(self, used: Container[str], case: Case) -> dict[str, str]:
        return {
            name: template
            for name, choices in self.values.items()
            if name in used and (template := chosen(choices, case)) is not None
        }


def _names_in(templates: Iterable[tuple[Path, str]]) -> frozenset[str]:
    return frozenset().union(*(names_in(text) for _, text in templates))


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


# ------------------------------------------------------------------------------ in a file

_DIGITS: Final = re.compile("[0-9]+")
_OF_STEPS: Final = ("steps", "first_step_limit_s", "step_limit_s", "run_to_end")


def launch_of(
    file: YamlFile, keys: Launch, cases: Sequence[Case], log_file: str | None
) -> LaunchSpec:
    """Make a launch of what a system file says; report what is wrong with it and with its cases."""
    variables = {
        name: replace(variable, default=_beside(file, name, variable.default))
        if variable.default and variable.kind.is_path
        else variable
        for name, variable in keys.variables.items()
    }
    around = {
        key: file.read(dict[str, Arguments], ("launch", key))
        for key in (SLURM, CONTAINER)
        if key in file.value["launch"]
    }
    spec = LaunchSpec(
        **{**asdict(keys), "variables": variables},
        log_file=log_file,
        axes=tuple(cases[0].free_axes) if cases else (),
        settings=(
            *settings_at(file, ("launch",), ALL_SYSTEMS, around),
            *settings_at(file, ("launch", "engines"), ALL_SYSTEMS, keys.engines),
        ),
    )
    for key in file.value["launch"] if cases and cases[0].work is None else ():
        if key in _OF_STEPS:
            message = f"{key!r} is of trainings, which have steps; this is a probe"
            file.error(("launch", key), message)
    problems = list(spec.problems())
    if cases:
        problems += _never_held(file, spec, cases)
    if not problems:
        # What speedups are taken over is launched as well, declared or not.
        references = (case.reference for case in cases if case.is_scaled)
        launched = dict.fromkeys(case for case in (*cases, *references) if case)
        problems = [problem for case in launched for problem in spec.case_problems(case)]
    for path, message in problems:
        file.error(path, message)
    return spec


def _beside(file: YamlFile, variable: str, path: str) -> str:
    """Take a relative path from the folder of the file that says it."""
    said_in = file.place(("launch", "variables", variable, "default")).file
    return os.path.normpath(said_in.absolute().parent / path)


def _never_held(
    file: YamlFile, spec: LaunchSpec, cases: Sequence[Case]
) -> Iterator[tuple[Path, str]]:
    """Find conditions on a misspelt option or an unknown axis.

    A base has some for other cases, and so has a file whose cases were left out.
    """
    options = sorted({option for case in cases for option in case.options})
    for path, condition in spec.conditions():
        if file.place(path).file != file.file:
            continue
        for option in condition.options:
            others = [name for name in options if _DIGITS.sub("", name) != _DIGITS.sub("", option)]
            if option not in options and (near := nearest(option, others)):
                yield path, f"no case has the option {option!r}{near}"
        for axis in condition.axes:
            if axis not in spec.axes:
                there_are = f"there are: {', '.join(spec.axes) or 'none'}"
                yield path, f"no case has the axis {axis!r}{nearest(axis, spec.axes)}; {there_are}"
