"""Settings of launches: on the command line, or under ``vars`` in a ``cluster.yaml``.

Values reach the trainer as they are: no shell reads them and nothing is split, but for the text of
``extra_args``, and of the lists of ``container`` and of engines.
"""

from __future__ import annotations

import math
import re
import shlex
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from pytest_dlperf.config.slurm_container import (
    ARGUMENTS_SHAPE,
    CONTAINER,
    CONTAINER_HELP,
    ENVIRONMENT,
    EVERY_SYSTEM_TAKES,
    SLURM,
    SLURM_HELP,
    Container,
    checked_part,
    container,
    is_list,
    parts_shape,
    pyxis_image,
    split_arguments,
)
from pytest_dlperf.files.shapes import ByKind, Key, MapOf, Record, Scalar, Shape
from pytest_dlperf.files.yamlfile import Problem, nearest
from pytest_dlperf.model.errors import CannotMeasureError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.config.launch_spec import LaunchSpec
    from pytest_dlperf.files.yamlfile import YamlValue
    from pytest_dlperf.model.case import Case

    _Placed = tuple[str | tuple[str, ...], YamlValue]

ALL_SYSTEMS: Final = "*"

_ASSIGNMENT = re.compile(
    r"(?P<system>[^.=]+)\.(?P<name>[^.=]+)(?:\.(?P<key>[^=]*))?=(?P<text>.*)", re.DOTALL
)


class Assignment(Struct, frozen=True, kw_only=True):
    """One setting of one system, or of all (``system`` is ``*``).

    ``name`` is a variable's, one of ``EVERY_SYSTEM_TAKES``, or an engine's. ``key`` is the variable
    of ``env``, the part of ``container``, or an option of the engine. Messages name ``place`` and
    ``key_path``, never the value: it may be a secret.
    """

    system: str
    name: str
    key: str = ""
    value: str | tuple[str, ...]
    place: str
    key_path: str = ""

    def __post_init__(self) -> None:
        """Raise a ``ValueError`` for a value that no launch could use."""
        checked_part(self.name, self.key, self.value)
        if isinstance(self.value, tuple) != _is_list(self.name, self.key):
            raise ValueError(f"{self.name} is one text, not a list")
        if self.name == ENVIRONMENT and (not self.key or "=" in self.key):
            raise ValueError(
                f"{self.key!r} is not the name of an environment variable; write env.NAME=value"
            )
        if self.name == "pause_s":
            parse_pause(self.text)
        if self.name == "python" and not self.value:
            raise ValueError("python is empty; it is the path or name of an interpreter")
        if self.name == "working_directory" and not self.text.startswith("/"):
            raise ValueError(f"working_directory must be an absolute path, not {self.text!r}")

    @property
    def engine_option(self) -> str:
        """The option of an engine that it sets, as in ``slurm.srun``."""
        is_other = not self.key or self.name in (ENVIRONMENT, CONTAINER)
        return "" if is_other else f"{self.name}.{self.key}"

    @property
    def text(self) -> str:
        """The value of anything but a list."""
        return self.value if isinstance(self.value, str) else shlex.join(self.value)

    @property
    def texts(self) -> tuple[str, ...]:
        """The value of a list."""
        return (self.value,) if isinstance(self.value, str) else self.value

    def problem(self, message: str) -> Problem:
        """Make a problem of it, with its place."""
        where = f"{self.key_path}: " if self.key_path else ""
        return Problem(place=self.place, message=f"{where}{message}")


def parse_assignment(text: str, option: str = "--dlperf-set") -> Assignment:
    """Read ``SYSTEM.name=value`` or ``SYSTEM.env.NAME=value``; the system may be ``*``."""
    match = _ASSIGNMENT.fullmatch(text)
    # Never the value: it may be a password.
    said = text.partition("=")[0]
    if match is None:
        raise ValueError(
            f"{said!r} sets nothing; write SYSTEM.name=value (SYSTEM may be *), or "
            "SYSTEM.env.NAME=value for the environment"
        )
    name, key = match["name"], match["key"] or ""
    try:
        return Assignment(
            system=match["system"],
            name=name,
            key=key,
            value=split_arguments(match["text"]) if _is_list(name, key) else match["text"],
            place=f"{option} {said}",
        )
    except ValueError as error:
        raise ValueError(f"{said}: {error}") from error


def _is_list(name: str, key: str) -> bool:
    return name == "extra_args" or is_list(name, key)


def parse_pause(text: str) -> float:
    """Read a pause in seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"pause_s must be a number of seconds ≥ 0, not {text!r}")
    return seconds


# ------------------------------------------------------------------------- in cluster.yaml


def _placed(value: str | tuple[str, ...], place: YamlValue) -> _Placed:
    return value, place


def _placed_part(name: str, key: str, value: str | tuple[str, ...], place: YamlValue) -> _Placed:
    return checked_part(name, key, value), place


def _one_value(name: str = "") -> Shape[_Placed]:
    return Scalar(f"text or a number{f' ({name} is one value)' if name else ''}").placed(_placed)


def _assignments(given: Mapping[str, Mapping[str, Any]], _: YamlValue) -> tuple[Assignment, ...]:
    found = (
        _assignment(system, name, key, one)
        for system, names in given.items()
        for name, value in names.items()
        for key, one in (value if isinstance(value, dict) else {"": value}).items()
    )
    return tuple(assignment for assignment in found if assignment is not None)


def _assignment(system: str, name: str, key: str, given: _Placed) -> Assignment | None:
    value, place = given
    said_at = f"{place.file}:{place.line}"
    try:
        return Assignment(
            system=system, name=name, key=key, value=value, place=said_at, key_path=place.path
        )
    except ValueError as error:
        place.fault(str(error))
        return None


VARS: Final = MapOf(
    Record(
        dict[str, Any],
        Key(
            "env",
            MapOf(
                _one_value(),
                "a mapping of names to values",
                names="[^=]+",
                refused="is not the name of an environment variable, which holds no '='",
            ),
            "Environment variables of the trainer.",
        ),
        Key(
            "extra_args",
            ARGUMENTS_SHAPE.placed(_placed),
            "Arguments behind those of the system: a list, or text that is split as by a shell.",
        ),
        Key("python", _one_value("python"), "The trainer's Python."),
        Key(
            "working_directory",
            _one_value("working_directory"),
            "The folder that a trainer starts in whose system names none.",
        ),
        Key("pause_s", _one_value("pause_s"), "Seconds between two runs."),
        Key(SLURM, parts_shape(SLURM, _placed_part), SLURM_HELP),
        Key(CONTAINER, parts_shape(CONTAINER, _placed_part), CONTAINER_HELP),
        allowed="a mapping of names to values",
        others=ByKind(
            scalar=_one_value(),
            mapping=MapOf(ARGUMENTS_SHAPE.placed(_placed), "a mapping of an engine's options"),
        ),
    ),
    "a mapping of system ids, or '*', to what is set",
).placed(_assignments)
"""What is set for launches, by system id or ``*``. Which systems and variables there are is not
known here: see ``check_assignments``."""


# ------------------------------------------------------------------------- for a system


class LaunchVariables(Struct, frozen=True, kw_only=True):
    """Settings for the launches of one system, by the user or by default."""

    values: Mapping[str, str] = {}
    extra_arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}
    python: str | None = None
    working_directory: str | None = None
    """Of a system that names none."""
    pause_s: float | None = None
    engine: Mapping[str, tuple[str, ...]] = {}
    """Options of engines that start runs, by name as in ``slurm.srun``."""
    container: Container | None = None

    @property
    def image(self) -> str | None:
        """The image that steps of Slurm's run in, by pyxis."""
        return pyxis_image(self.engine.get("slurm.srun", ()))

    def taken_by(self, takes: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Give the options of an engine that takes these, as far as they are set."""
        return {name: self.engine[name] for name in takes if name in self.engine}


def check_assignments(
    specs: Mapping[str, LaunchSpec | None], sources: Iterable[Sequence[Assignment]]
) -> Iterator[Problem]:
    """Find values that are set for an unknown system or variable, or are malformed."""
    for given in (assignment for source in sources for assignment in source):
        if given.system != ALL_SYSTEMS and given.system not in specs:
            close = nearest(given.system, specs)
            there_are = f"there are: {', '.join(specs) or 'none'}"
            yield given.problem(f"unknown system {given.system!r}{close}; {there_are}")
            continue
        meant = specs if given.system == ALL_SYSTEMS else {given.system: specs[given.system]}
        launched = {name: spec for name, spec in meant.items() if spec is not None}
        if not launched and given.system != ALL_SYSTEMS:
            yield given.problem(f"{given.system} has no launch to set anything for")
            continue
        known = dict.fromkeys(name for spec in launched.values() for name in _names(spec))
        if given.name not in known and not given.engine_option:
            yield _unknown_name(given, known)
        for name, spec in launched.items():
            yield from _value_problems(spec, name, given)


def unknown_engine_options(
    sources: Iterable[Sequence[Assignment]], known: Collection[str]
) -> Iterator[Problem]:
    """Find options that none of a session's engines takes; they take those that are ``known``."""
    for given in (assignment for source in sources for assignment in source):
        if given.engine_option and given.engine_option not in known:
            yield given.problem(
                f"there is no option {given.engine_option!r} of a launcher"
                f"{nearest(given.engine_option, known)}; there are: {', '.join(sorted(known))}"
            )


def resolve(
    spec: LaunchSpec,
    system_id: str,
    sources: Iterable[Sequence[Assignment]],
    *,
    case: Case | None = None,
) -> LaunchVariables:
    """Merge all that was set for a system's launches.

    ``sources`` come strongest first: the command line, then the cluster. Within one, the system
    goes before ``*``, and the last value before the first. With a ``case`` only the variables that
    it uses are needed.

    Raises:
        UsageError: A variable is unknown, or its value malformed.
        CannotMeasureError: A needed variable is not set.
    """
    strongest: dict[tuple[str, str], Assignment] = {}
    known = _names(spec)
    problems: list[Problem] = []
    for given in _in_order(system_id, sources):
        if given.name in known or given.engine_option:
            strongest.setdefault((given.name, given.key), given)
        elif given.system != ALL_SYSTEMS:
            problems.append(_unknown_name(given, known))
    values = {
        name: variable.default
        for name, variable in spec.variables.items()
        if variable.default is not None
    }
    for (name, _), given in strongest.items():
        problems += _value_problems(spec, system_id, given)
        if name in spec.variables:
            values[name] = given.text
    around = None
    try:
        own = {key: given.value for (name, key), given in strongest.items() if name == CONTAINER}
        around = container({**spec.container, **own})
    except ValueError as error:
        said = next((given for (name, _), given in strongest.items() if name == CONTAINER), None)
        message = f"{system_id}: {error}"
        problems.append(
            Problem(place="launch", message=message) if said is None else said.problem(message)
        )
    if problems:
        raise UsageError("\n".join(dict.fromkeys(map(str, problems))))
    needed = spec.variables if case is None else spec.variables_of(case)
    missing = [name for name in needed if name not in values]
    if missing:
        raise CannotMeasureError(_missing(spec, case.id if case else system_id, system_id, missing))
    extra = strongest.get(("extra_args", ""))
    python = strongest.get(("python", ""))
    folder = strongest.get(("working_directory", ""))
    pause = strongest.get(("pause_s", ""))
    return LaunchVariables(
        values=values,
        extra_arguments=() if extra is None else extra.texts,
        environment={
            key: given.text
            for (name, key), given in sorted(strongest.items())
            if name == ENVIRONMENT
        },
        python=None if python is None else python.text,
        working_directory=None if folder is None or spec.working_directory else folder.text,
        pause_s=None if pause is None else parse_pause(pause.text),
        engine={
            **spec.engine,
            **{option: one.texts for one in strongest.values() if (option := one.engine_option)},
        },
        container=around,
    )


def _in_order(system_id: str, sources: Iterable[Sequence[Assignment]]) -> Iterator[Assignment]:
    for source in sources:
        for system in (system_id, ALL_SYSTEMS):
            yield from (given for given in reversed(source) if given.system == system)


def _value_problems(spec: LaunchSpec, system_id: str, given: Assignment) -> Iterator[Problem]:
    variable = spec.variables.get(given.name)
    if variable and (problem := variable.problem(given.text)):
        yield given.problem(f"{problem}; {system_id}.{given.name} is: {variable.meaning}")
    if (given.name, given.system) == ("working_directory", system_id) and spec.working_directory:
        yield given.problem(f"{system_id} says itself where it starts: {spec.working_directory}")


def _names(spec: LaunchSpec) -> tuple[str, ...]:
    return (*spec.variables, *EVERY_SYSTEM_TAKES)


def _unknown_name(given: Assignment, known: Collection[str]) -> Problem:
    return given.problem(
        f"{given.system} has no variable {given.name!r}{nearest(given.name, known)}; what can be "
        f"set: {', '.join(known)}"
    )


def _missing(spec: LaunchSpec, who: str, system_id: str, names: Sequence[str]) -> str:
    lines = []
    for name in names:
        variable = spec.variables[name]
        value = variable.kind.value.upper()
        lines.append(f"{name} ({variable.meaning}): --dlperf-set {system_id}.{name}={value}")
    return (
        f"{who} needs {'; '.join(lines)}; or under vars, {system_id} in the cluster's cluster.yaml"
    )
