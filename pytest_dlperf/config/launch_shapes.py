"""The shape of ``launch`` in a system file: its keys, and how it is read and checked."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from pytest_dlperf.config.assignments import (
    ALL_SYSTEMS,
    AROUND_COMMANDS,
    ENGINE_OPTIONS,
    assignments,
)
from pytest_dlperf.config.conditions import CHOICES, CONDITION, WHEN
from pytest_dlperf.config.launch_spec import (
    LOG_FILE,
    ConditionalArguments,
    Devices,
    LaunchSpec,
    Server,
    StartOn,
    Steps,
    Variable,
    VariableKind,
)
from pytest_dlperf.config.template import ARGUMENTS
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
    from collections.abc import Sequence

    from pytest_dlperf.files.yamlfile import YamlValue
    from pytest_dlperf.model.case import Case

_DEFAULT: Final = LaunchSpec(command=())

_NO_NAME: Final = "is not a name; write lower-case letters, digits and underscores, a letter first"

_SECONDS = Number(unit="seconds")


def _python_expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"{text!r} is not a regular expression: {error}") from error
    return text


_PART: Final[ByKind[Any]] = ByKind(
    scalar=Scalar(),
    mapping=Record(
        ConditionalArguments,
        Key("when", CONDITION, WHEN, required=True),
        Key(
            "arguments",
            ListOf(Scalar(), "a list of arguments"),
            "Arguments for these cases only.",
            required=True,
        ),
    ),
)


_KEYS: Final = (
    Key(
        "command",
        ListOf(_PART, "a list: the program and its arguments"),
        "The program and its arguments. No shell reads them.",
        required=True,
    ),
    Key(
        "arguments",
        ListOf(_PART, "a list of arguments"),
        f"More arguments, for a system that extends another one. They stand where the command says "
        f"{ARGUMENTS}, else at its end.",
        argument="more_arguments",
    ),
    Key(
        "devices",
        one_of(Devices),
        f"What the trainer computes on; default: {_DEFAULT.devices.value}, the host's accelerators "
        "whatever their kind. Any host has enough CPUs for cpu, unless declared with a number.",
    ),
    Key(
        "start_on",
        one_of(StartOn),
        "Whether each node starts the command, or node 0 alone; default: "
        f"{_DEFAULT.start_on.value}.",
    ),
    Key(
        "steps", one_of(Steps), "Make this trainer print its steps, without a change to its script."
    ),
    Key(
        "server",
        Record(
            Server,
            Key(
                "command",
                ListOf(Scalar(), "a list: the program and its arguments"),
                "The server and its arguments.",
                required=True,
            ),
            Key(
                "ready_line",
                Text("a regular expression").parsed(_python_expression),
                "What a line of its output has when it is ready.",
            ),
            Key(
                "ready_address",
                Text("http://HOST:PORT/PATH or HOST:PORT"),
                "The address that answers when it is ready.",
            ),
            Key(
                "ready_limit_s",
                _SECONDS,
                "Seconds until it has to be ready; default: 600.",
            ),
        ),
        "A server that runs on the node while the command does, which starts when it is ready.",
    ),
    Key(
        "variables",
        MapOf(
            Record(
                Variable,
                Key(
                    "meaning",
                    Text("what the user has to give"),
                    "What it is. The reason of a skip quotes it.",
                    required=True,
                ),
                Key(
                    "kind",
                    one_of(VariableKind),
                    "What its value names; default: text. A folder or file is an absolute path; "
                    "each node checks it before the first run.",
                ),
                Key(
                    "default",
                    Scalar(),
                    "Its value unless the user sets one, taken literally. A path may be relative "
                    "to the system file.",
                ),
                Key(
                    "public",
                    YesNo(),
                    "Whether results, baselines and reports show the value that an option sets; "
                    "default: no, but for paths, numbers and switches.",
                ),
            ),
            "a mapping of names to what they mean",
            names=NAME_PATTERN,
            refused=_NO_NAME,
        ),
        "What the user sets before the trainer can start, such as paths, by name.",
    ),
    Key(
        "values",
        MapOf(CHOICES, "a mapping of names to choices", names=NAME_PATTERN, refused=_NO_NAME),
        "Values that differ between cases, by name. The first choice that holds is taken.",
    ),
    Key(
        "environment",
        MapOf(
            ByKind(scalar=Scalar(), sequence=CHOICES),
            "a mapping of names to values",
            names="[^=]+",
            refused="is not the name of an environment variable, which holds no '='",
        ),
        "Environment variables: values, or lists of choices. If no choice holds, the variable is "
        "not set.",
    ),
    Key(
        "working_directory",
        Text("a folder"),
        "Where the command runs, relative to the folder that pytest starts in; default: that "
        "folder. {scratch_directory} suits a trainer that leaves files where it runs.",
    ),
    Key(
        "requires_modules",
        ListOf(Scalar(), "a list of Python modules", may_be_empty=True),
        "Modules that pytest's own interpreter must find; otherwise the case is skipped.",
    ),
    Key("install_hint", Text(), "How to get them. The reason of the skip quotes it."),
    Key(
        "time_limit_s",
        _SECONDS,
        f"End a run that takes longer; default: {_DEFAULT.time_limit_s:g}. It is hung, unless "
        "its window is complete.",
    ),
    Key(
        "first_step_limit_s",
        _SECONDS,
        f"A run without a first step by then is hung; default: {_DEFAULT.first_step_limit_s:g}.",
    ),
    Key(
        "step_limit_s",
        _SECONDS,
        f"A run without a new step for so long is hung; default: {_DEFAULT.step_limit_s:g}.",
    ),
    Key(
        "run_to_end",
        YesNo(),
        "Let the trainer end by itself; default: end a run as soon as every rank has printed "
        "what is measured.",
    ),
    Key(
        "retries",
        Integer(0),
        f"How often to repeat a failed or hung run, never a slow one; default: {_DEFAULT.retries}.",
    ),
    Key(
        "pause_s",
        Number(or_zero=True, unit="seconds"),
        f"Pause between two runs of a case; default: {_DEFAULT.pause_s:g}.",
    ),
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

    ``cases`` are ``None`` where not all of them could be read.
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
    if not problems:
        # What speedups are taken over is launched as well, declared or not.
        taken = (case for one in cases or () for case in (one, one.is_scaled and one.reference))
        launched = dict.fromkeys(case for case in taken if case)
        problems = [problem for case in launched for problem in spec.case_problems(case)]
    for path, message in dict(reversed(problems)).items():
        (root if path == LOG_FILE else value).at(path).fault(message)
    return spec
