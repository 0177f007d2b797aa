"""How a trainer is started: the values of ``launch`` in a system file.

An entry is written once for all cases of its system. What differs between them is chosen by
conditions on the case; what differs between runs and nodes stands as ``{field}`` in templates.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import asdict, replace

from pytest_dlperf.config.conditions import ALWAYS, Condition
from pytest_dlperf.config.launch_keys import STARTS, ConditionalArguments, Launch
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
from pytest_dlperf.files.mistakes import KeyPath, nearest
from pytest_dlperf.files.yamlfile import YamlFile
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.keys import Arguments

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

    def problems(self) -> Iterator[tuple[KeyPath, str]]:
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
            others = () if path[1] == "values" else self.values
            allowed = (*FIELDS, *self.axes, *self.variables, *others)
            if not (text == EXTRA_ARGUMENTS and path[1] in STARTS):
                yield from ((path, message) for message in template_problems(text, allowed))

    def _start_problems(self) -> Iterator[tuple[KeyPath, str]]:
        places = (ARGUMENTS, EXTRA_ARGUMENTS)
        words, start = self._words, ("launch", self.start)
        if others := [key for key in STARTS if key != self.start and getattr(self, key)]:
            yield start, f"stands beside {others[0]!r}; one of them starts the trainer"
        if self.start == "command" and (not any(words[:1]) or words[0] in places):
            yield start, "names no program; the first word is the program to start"
        for twice in (name for name in places if words.count(name) > 1):
            yield start, f"has {twice} twice; what it stands for goes to one place"

    def case_problems(self, case: Case) -> Iterator[tuple[KeyPath, str]]:
        """List why this case cannot be planned, in an entry that is right by itself."""
        templates = self._templates_of(case)
        values = self.values_of(case)
        for name in self.values:
            if name not in values and self.uses(name, case):
                message = f"has no choice for {case.id}; a last one without 'when' is for all"
                yield ("launch", "values", name), message
        if not next(iter(self.arguments(case)), None):
            yield ("launch", "command"), f"names no program for {case.id}"
        fields = case_fields(case)
        for path, text in templates:
            for name in names_in(text):
                if fields.get(name, "") is None:
                    why = WHY_MISSING.get(name, "is a probe") if case.work else "is a probe"
                    yield path, f"uses {{{name}}}, and {case.id} {why}"

    def arguments(self, case: Case) -> tuple[str, ...]:
        """Return the command's templates for this case, program first."""
        return tuple(text for _, text, when in self._command() if when.holds(case))

    def environment_of(self, case: Case) -> dict[str, str]:
        """Return the environment's templates for this case."""
        return self._named("environment", case)

    def values_of(self, case: Case) -> dict[str, str]:
        """Return the templates of the named values that this case's plan uses."""
        return self._named("values", case)

    def variables_of(self, case: Case) -> tuple[str, ...]:
        """Name the variables that this case's plan uses, in the order of the file."""
        return tuple(name for name in self.variables if self.uses(name, case))

    def uses(self, name: str, case: Case) -> bool:
        """Whether this case's plan makes use of a variable, value or field."""
        return any(name in names_in(text) for _, text in self._templates_of(case))

    def templates(self) -> Iterator[tuple[KeyPath, str, Condition]]:
        """List all templates with their key paths, and which cases they are for."""
        yield from self._command()
        for kind, named in (("environment", self.environment), ("values", self.values)):
            for name, value in named.items():
                if isinstance(value, str):
                    yield ("launch", kind, name), value, ALWAYS
                else:
                    for index, choice in enumerate(value):
                        yield ("launch", kind, name, index, "value"), choice.value, choice.when
        paths: dict[KeyPath, str | None] = {
            ("launch", "working_directory"): self.working_directory,
            ("log", "file"): self.log_file,
        }
        if self.server is not None:
            paths["launch", "server", "ready_address"] = self.server.ready_address
            for index, text in enumerate(self.server.command):
                paths["launch", "server", "command", index] = text
        yield from ((path, text, ALWAYS) for path, text in paths.items() if text is not None)

    def _command(self) -> Iterator[tuple[KeyPath, str, Condition]]:
        """List the templates of the command in their order.

        More arguments stand where ``{arguments}`` says so, else before the user's, or at the end.
        """
        start = ("launch", self.start)
        parts: list[tuple[KeyPath, str | ConditionalArguments]] = [
            ((*start, index), part) for index, part in enumerate(self._words)
        ]
        places = [self._words.index(it) for it in (ARGUMENTS, EXTRA_ARGUMENTS) if it in self._words]
        place = places[0] if places else len(parts)
        more = enumerate(self.more_arguments)
        parts[place:place] = [(("launch", "arguments", index), part) for index, part in more]
        for path, part in (*((start, word) for word in STARTS[self.start]), *parts):
            if not isinstance(part, str):
                for inner, argument in enumerate(part.arguments):
                    yield (*path, "arguments", inner), argument, part.when
            elif part != ARGUMENTS:
                yield path, part, ALWAYS

    def _templates_of(self, case: Case) -> list[tuple[KeyPath, str]]:
        """List the templates that this case's plan uses: of choices, the first one that holds."""
        found: dict[tuple[object, ...], tuple[KeyPath, str]] = {}
        for number, (path, text, when) in enumerate(self.templates()):
            if when.holds(case):
                key = path[:3] if path[1] in ("environment", "values") else (number,)
                found.setdefault(key, (path, text))
        direct = [(path, text) for path, text in found.values() if path[1] != "values"]
        used = frozenset[str]().union(*(names_in(text) for _, text in direct))
        chosen = ((path, text) for path, text in found.values() if path[1] == "values")
        return [*direct, *((path, text) for path, text in chosen if path[2] in used)]

    def _named(self, kind: str, case: Case) -> dict[str, str]:
        return {str(path[2]): text for path, text in self._templates_of(case) if path[1] == kind}

    def missing_modules(self) -> tuple[str, ...]:
        """List required modules that the running interpreter lacks, without importing them."""
        return tuple(name for name in self.requires_modules if not _is_importable(name))


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
) -> Iterator[tuple[KeyPath, str]]:
    """Find conditions on a misspelt option or an unknown axis.

    A base has some for other cases, and so has a file whose cases were left out.
    """
    options = sorted({option for case in cases for option in case.options})
    conditions = {
        (*path[: -2 if path[-2] == "arguments" else -1], "when"): condition
        for path, _, condition in spec.templates()
        if file.place(path).file == file.file
    }
    for path, condition in conditions.items():
        for option in condition.options:
            others = [name for name in options if _DIGITS.sub("", name) != _DIGITS.sub("", option)]
            if option not in options and (near := nearest(option, others)):
                yield path, f"no case has the option {option!r}{near}"
        for axis in condition.axes:
            if axis not in spec.axes:
                there_are = f"there are: {', '.join(spec.axes) or 'none'}"
                yield path, f"no case has the axis {axis!r}{nearest(axis, spec.axes)}; {there_are}"
