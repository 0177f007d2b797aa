"""How a trainer is started: the mapping ``launch`` of a system file.

An entry is written once for all cases of its system. What differs between them is chosen by
conditions on the case; what differs between runs and nodes stands as ``{field}`` in templates.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.config.launch_keys import (
    ALWAYS,
    EVERY_SYSTEM_TAKES,
    STARTS,
    Condition,
    ConditionalArguments,
    LaunchKeys,
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

_RESERVED: Final = {
    *FIELDS,
    *EVERY_SYSTEM_TAKES,
    *(name.strip("{}") for name in (ARGUMENTS, EXTRA_ARGUMENTS)),
}
_OF_STEPS: Final = ("steps", "first_step_limit_s", "step_limit_s", "run_to_end")
_DIGITS: Final = re.compile("[0-9]+")


class Launch(LaunchKeys, frozen=True, kw_only=True):
    """How to start a trainer, with placeholders for all that differs between runs."""

    @property
    def start(self) -> str:
        """The key that says what to start."""
        return next((key for key in STARTS if getattr(self, key)), "command")

    def problems(self, axes: Collection[str] = ()) -> Iterator[tuple[KeyPath, str]]:
        """List all that is wrong with the entry, by key path; templates may hold the ``axes``."""
        yield from self._start_problems()
        names = [("variables", name) for name in self.variables]
        names += [("values", name) for name in self.values]
        for kind, name in names:
            if name in (*_RESERVED, *axes) or (kind == "values" and name in self.variables):
                message = f"has the name {name!r}, which has a meaning already; use another"
                yield ("launch", kind, name), message
        for name, variable in self.variables.items():
            if problem := variable.problem(variable.default or ""):
                yield ("launch", "variables", name, "default"), problem
        for path, text, _ in self.templates():
            # Values are put in once, so they cannot hold each other.
            others = () if path[1] == "values" else self.values
            allowed = (*FIELDS, *axes, *self.variables, *others)
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
        values, fields = self.values_of(case), case_fields(case)
        for name in self.values:
            if name not in values and self.uses(name, case):
                message = f"has no choice for {case.id}; a last one without 'when' is for all"
                yield ("launch", "values", name), message
        if not next(iter(self.arguments(case)), None):
            yield ("launch", "command"), f"names no program for {case.id}"
        for path, text in self._templates_of(case):
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
        for name in ("working_directory", "log_file"):
            if text := getattr(self, name):
                yield ("launch", name), text, ALWAYS
        if self.server is not None:
            yield ("launch", "server", "ready_address"), self.server.ready_address or "", ALWAYS
            for index, text in enumerate(self.server.command):
                yield ("launch", "server", "command", index), text, ALWAYS

    @property
    def _words(self) -> tuple[str | ConditionalArguments, ...]:
        words: tuple[str | ConditionalArguments, ...] = getattr(self, self.start)
        return words

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
        chosen: dict[tuple[object, ...], tuple[KeyPath, str]] = {}
        for number, (path, text, when) in enumerate(self.templates()):
            if when.holds(case):
                key = path[:3] if path[1] in ("environment", "values") else (number,)
                chosen.setdefault(key, (path, text))
        direct = [(path, text) for path, text in chosen.values() if path[1] != "values"]
        used = frozenset[str]().union(*(names_in(text) for _, text in direct))
        values = ((path, text) for path, text in chosen.values() if path[1] == "values")
        return [*direct, *((path, text) for path, text in values if path[2] in used)]

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


def checked_launch(file: YamlFile, launch: Launch, cases: Sequence[Case]) -> Launch:
    """Make the paths of a launch absolute; report what is wrong with it and with its cases."""
    variables = {}
    for name, variable in launch.variables.items():
        if (default := variable.default) and variable.kind.is_path:
            # It starts from the folder of the file that says it.
            said_in = file.place(("launch", "variables", name, "default")).file
            default = os.path.normpath(said_in.absolute().parent / default)
        variables[name] = replace(variable, default=default)
    launch = replace(launch, variables=variables)
    axes = tuple(cases[0].free_axes) if cases else ()
    for key in file.value["launch"] if cases and cases[0].work is None else ():
        if key in _OF_STEPS:
            message = f"{key!r} is of trainings, which have steps; this is a probe"
            file.error(("launch", key), message)
    problems = list(launch.problems(axes))
    if cases:
        problems += _never_held(file, launch, cases, axes)
    if not problems:
        # What speedups are taken over is launched as well, declared or not.
        references = (case.reference for case in cases if case.is_scaled)
        launched = dict.fromkeys(case for case in (*cases, *references) if case)
        problems = [problem for case in launched for problem in launch.case_problems(case)]
    for path, message in problems:
        file.error(path, message)
    return launch


def _never_held(
    file: YamlFile, launch: Launch, cases: Sequence[Case], axes: Collection[str]
) -> Iterator[tuple[KeyPath, str]]:
    """Find conditions on a misspelt option or an unknown axis.

    A base has some for other cases, and so has a file whose cases were left out.
    """
    options = sorted({option for case in cases for option in case.options})
    conditions = {
        (*path[: -2 if path[-2] == "arguments" else -1], "when"): condition
        for path, _, condition in launch.templates()
        if file.place(path).file == file.file
    }
    for path, condition in conditions.items():
        for option in condition.options:
            others = [name for name in options if _DIGITS.sub("", name) != _DIGITS.sub("", option)]
            if option not in options and (near := nearest(option, others)):
                yield path, f"no case has the option {option!r}{near}"
        for axis in condition.axes:
            if axis not in axes:
                there_are = f"there are: {', '.join(axes) or 'none'}"
                yield path, f"no case has the axis {axis!r}{nearest(axis, axes)}; {there_are}"
