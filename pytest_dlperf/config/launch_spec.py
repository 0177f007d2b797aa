"""How a trainer is started: the values of ``launch`` in a system file.

An entry is written once for all cases of its system. What differs between them is chosen by
conditions on the case; what differs between runs and nodes stands as ``{field}`` in templates.
"""

from __future__ import annotations

import importlib.util
import os
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.assignments import (
    ALL_SYSTEMS,
    AROUND_COMMANDS,
    ENGINE_OPTIONS,
    assignments,
)
from pytest_dlperf.config.conditions import (
    ALWAYS,
    CHOICES,
    CONDITION,
    WHEN,
    Choice,
    Condition,
    chosen,
    misspelt_words,
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
from pytest_dlperf.files.shapes import (
    ByKind,
    Integer,
    Key,
    ListOf,
    MapOf,
    Number,
    Record,
    Scalar,
    Text,
    YesNo,
    one_of,
)
from pytest_dlperf.files.yamlfile import nearest
from pytest_dlperf.model.case import NAME_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_dlperf.config.assignments import Assignment
    from pytest_dlperf.files.yamlfile import YamlValue
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
    requires_modules: tuple[str, ...] = ()
    install_hint: str | None = None
    time_limit_s: float = 1800.0
    first_step_limit_s: float = 900.0
    step_limit_s: float = 300.0
    run_to_end: bool = False
    retries: int = 0
    pause_s: float = 0.0
    public_environment: tuple[str, ...] = ()
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
        used = self._names_of(case)
        for name, choices in self.values.items():
            if name in used and chosen(choices, case) is None:
                yield (
                    f"values.{name}",
                    f"has no choice for {case.id}; a last one without 'when' is for all others",
                )
        if not any(self.arguments(case)[:1]):
            yield "command", f"names no program for {case.id}"
        fields = case_fields(case)
        values = ((f"values.{name}", text) for name, text in self.values_of(case).items())
        for path, text in (*self._templates_of(case), *values):
            for name in names_in(text):
                if fields.get(name, "") is None:
                    why = WHY_MISSING.get(name, "is a probe") if case.work else "is a probe"
                    yield path, f"uses {{{name}}}, and {case.id} {why}"

    def arguments(self, case: Case) -> tuple[str, ...]:
        """Return the command's templates for this case, program first."""
        found: list[str] = []
        for _, part in self._parts():
            if isinstance(part, str):
                found.append(part)
            elif part.when.holds(case):
                found += part.arguments
        return tuple(found)

    def environment_of(self, case: Case) -> dict[str, str]:
        """Return the environment's templates for this case."""
        found = {}
        for name, value in self.environment.items():
            template = value if isinstance(value, str) else chosen(value, case)
            if template is not None:
                found[name] = template
        return found

    def values_of(self, case: Case) -> dict[str, str]:
        """Return the templates of the named values that this case's plan uses."""
        used = self._names_of(case)
        return {
            name: template
            for name, choices in self.values.items()
            if name in used and (template := chosen(choices, case)) is not None
        }

    def variables_of(self, case: Case) -> tuple[str, ...]:
        """Name the variables that this case's plan uses, in the order of the file."""
        return tuple(name for name in self.variables if self.uses(name, case))

    def uses(self, name: str, case: Case) -> bool:
        """Whether this case's plan makes use of a variable or field."""
        values = self.values_of(case).values()
        return name in self._names_of(case).union(*map(names_in, values))

    def templates(self) -> Iterator[tuple[str, str, Condition]]:
        """List all templates with their key paths, and which cases they are for."""
        for path, part in self._parts():
            if isinstance(part, str):
                yield path, part, ALWAYS
            else:
                for inner, argument in enumerate(part.arguments):
                    yield f"{path}.arguments[{inner}]", argument, part.when
        for kind, named in (("environment", self.environment), ("values", self.values)):
            for name, value in named.items():
                if isinstance(value, str):
                    yield f"{kind}.{name}", value, ALWAYS
                    continue
                for index, choice in enumerate(value):
                    yield f"{kind}.{name}[{index}].value", choice.value, choice.when
        if self.working_directory is not None:
            yield "working_directory", self.working_directory, ALWAYS
        if self.log_file is not None:
            yield LOG_FILE, self.log_file, ALWAYS

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
        if self.working_directory is not None:
            yield "working_directory", self.working_directory
        if self.log_file is not None:
            yield LOG_FILE, self.log_file

    def _names_of(self, case: Case) -> frozenset[str]:
        return frozenset().union(*(names_in(text) for _, text in self._templates_of(case)))


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


# ------------------------------------------------------------------------------ in a file

_NO_NAME: Final = "is not a name; write lower-case letters, digits and underscores, a letter first"

_SECONDS = Number(unit="seconds")

_PART: Final[ByKind[Any]] = ByKind(
    scalar=Scalar(),
    mapping=Record(
        ConditionalArguments,
        Key("when", CONDITION, WHEN, required=True),
        Key(
            "arguments",
            ListOf(Scalar(), "a list of arguments"),
            "Arguments that only these cases have.",
            required=True,
        ),
    ),
)


PUBLIC_ENVIRONMENT: Final = Key(
    "public_environment",
    ListOf(
        Text("the name of a variable, or how names begin and '*'", pattern=r"^\w+\*?$"),
        "a list of names",
    ),
    "Variables whose values others may read: they stand in results, baselines and reports.",
)

_KEYS: Final = (
    Key(
        "command",
        ListOf(_PART, "a list: the program and its arguments"),
        "The program and its arguments; no shell reads them.",
        required=True,
    ),
    Key(
        "arguments",
        ListOf(_PART, "a list of arguments"),
        f"More arguments of the command, where it says {ARGUMENTS}, else behind its own.",
        argument="more_arguments",
    ),
    Key("devices", one_of(Devices), "What the trainer computes on."),
    Key("start_on", one_of(StartOn), "Where the command is started."),
    Key("steps", one_of(Steps), "The trainer that is to print its steps, by a callback of ours."),
    Key(
        "variables",
        MapOf(
            Record(
                Variable,
                Key("meaning", Text("what the user has to give"), "What it is.", required=True),
                Key("kind", one_of(VariableKind), "What its value names; default: text."),
                Key(
                    "default",
                    Scalar(),
                    "Its value where the user sets none; a path may be relative to the file.",
                ),
            ),
            "a mapping of names to what they mean",
            names=NAME_PATTERN,
            refused=_NO_NAME,
        ),
        "Settings that the user has to give before the trainer can start, by name.",
    ),
    Key(
        "values",
        MapOf(CHOICES, "a mapping of names to choices", names=NAME_PATTERN, refused=_NO_NAME),
        "Values that differ between cases, by name: the first choice that holds is taken.",
    ),
    Key(
        "environment",
        MapOf(
            ByKind(scalar=Scalar(), sequence=CHOICES),
            "a mapping of names to values",
            names="[^=]+",
            refused="is not the name of an environment variable, which holds no '='",
        ),
        "Environment variables, beside those that the node has: values, or lists of choices.",
    ),
    PUBLIC_ENVIRONMENT,
    Key("working_directory", Text("a folder"), "The folder that the command starts in."),
    Key(
        "requires_modules",
        ListOf(Scalar(), "a list of Python modules"),
        "Python modules without which a run makes no sense.",
    ),
    Key("install_hint", Text(), "How to get them."),
    Key("time_limit_s", _SECONDS, "Seconds after which a run is ended."),
    Key("first_step_limit_s", _SECONDS, "Seconds without a first step after which it hangs."),
    Key("step_limit_s", _SECONDS, "Seconds without a further step after which it hangs."),
    Key("run_to_end", YesNo(), "Whether a run goes on once it has what is measured."),
    Key("retries", Integer(0), "How often a run that failed or hung is run again."),
    Key("pause_s", Number(or_zero=True, unit="seconds"), "Seconds between two runs."),
)


def _spec(**given: Any) -> LaunchSpec:
    own = {key.argument or key.name for key in _KEYS}
    around = {name: given.pop(name) for name in set(given) - own}
    return LaunchSpec(**given, assignments=assignments({ALL_SYSTEMS: around}))


def _is_engine(name: str, place: YamlValue) -> bool:
    """Whether a key may be the name of a plugin's engine, as opposed to a mistyped key."""
    known = [key.name for key in (*_KEYS, *AROUND_COMMANDS)]
    is_mistyped = nearest(name, known) and not name.startswith(tuple(known))
    return place.kind == "mapping" and not is_mistyped


_OF_STEPS: Final = ("steps", "first_step_limit_s", "step_limit_s", "run_to_end")

LAUNCH: Final = Record(_spec, *_KEYS, *AROUND_COMMANDS, others=ENGINE_OPTIONS, is_other=_is_engine)


def _beside(place: YamlValue, path: str) -> str:
    """Take a relative path from the folder of the file that says it."""
    return os.path.normpath(place.file.absolute().parent / path)


def read_launch(
    root: YamlValue, cases: Sequence[Case] | None, log_file: str | None
) -> LaunchSpec | None:
    """Read a system's ``launch`` and check it, with its ``log.file``, against its cases.

    ``cases`` are ``None`` where not all of them could be read: then conditions go unchecked.
    """
    value = root.at("launch")
    spec = LAUNCH.read(value)
    if spec is None:
        return None
    beside = {
        name: replace(one, default=_beside(value.at(f"variables.{name}.default"), one.default))
        for name, one in spec.variables.items()
        if one.default and one.kind.is_path
    }
    axes = tuple(cases[0].free_axes) if cases else ()
    spec = replace(spec, log_file=log_file, axes=axes, variables={**spec.variables, **beside})
    for key, place in value.entries() if cases and cases[0].work is None else ():
        if key in _OF_STEPS:
            place.fault(f"{key!r} is of trainings, which have steps; this is a probe")
    problems = list(spec.problems())
    for path, _, when in spec.templates():
        condition = f"{path.rpartition('.')[0]}.when"
        # A base is there for the cases of other files as well.
        if cases is not None and value.at(condition).file == root.file:
            problems += [(condition, message) for message in misspelt_words(when, cases)]
    if not problems:
        # What speedups are taken over is launched as well, declared or not.
        taken = (case for one in cases or () for case in (one, one.is_scaled and one.reference))
        launched = dict.fromkeys(case for case in taken if case)
        problems = [problem for case in launched for problem in spec.case_problems(case)]
    for path, message in dict(reversed(problems)).items():
        (root if path == LOG_FILE else value).at(path).fault(message)
    return spec
