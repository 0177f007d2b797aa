"""What the user sets for a system's launches: its variables, extra arguments and environment.

Said on the command line (``--dlperf-set SYSTEM.name=value``) or by a cluster (``vars`` in its
``cluster.yaml``). Values reach the trainer as they are: no shell reads them and nothing is split,
but for the text of ``extra_args``.
"""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.config.launch_spec import (
    EVERY_SYSTEM_TAKES,
    LaunchSpec,
    VariableKind,
    value_problem,
)
from pytest_dlperf.files.shapes import ByKind, Key, ListOf, MapOf, Record, Scalar, Shape
from pytest_dlperf.files.yamlfile import nearest
from pytest_dlperf.model.errors import CannotMeasureError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.files.yamlfile import YamlValue
    from pytest_dlperf.model.case import Case

    _Given = tuple[str | tuple[str, ...], YamlValue]

ALL_SYSTEMS: Final = "*"
_ASSIGNMENT = re.compile(
    r"(?P<system>[^.=]+)\.(?P<name>[^.=]+)(?:\.(?P<key>[^=]*))?=(?P<text>.*)", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariableProblem:
    """Something that was set and cannot be; ``place`` is where it was said."""

    place: str
    message: str

    def __str__(self) -> str:
        """One line: where, then what and what is allowed."""
        return f"{self.place}: {self.message}"


class VariableError(UsageError):
    """Things were set that cannot be; the message has one line for each."""

    def __init__(self, problems: Iterable[VariableProblem]) -> None:
        """Keep the problems, each once, in their order."""
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__("\n".join(map(str, self.problems)))


class MissingVariableError(CannotMeasureError):
    """A launch needs what the user has not set; the message says what it is and how to set it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One thing that the user set for one system, or for all (``system`` is ``*``).

    ``name`` is a variable's, or one of ``EVERY_SYSTEM_TAKES``; with ``env`` the ``key`` is the
    environment variable. ``value`` is one text, with ``extra_args`` the arguments. ``place`` is
    where it was said, for messages; they never hold the value of an environment variable.
    ``key_path`` is where in a file, empty where it was said elsewhere.
    """

    system: str
    name: str
    key: str = ""
    value: str | tuple[str, ...]
    place: str
    key_path: str = ""

    def __post_init__(self) -> None:
        """Refuse what no launch could use.

        Raises:
            ValueError: The value holds a NUL character, the key is no name of an environment
                variable, or the pause is no number.
        """
        texts = (self.value,) if isinstance(self.value, str) else self.value
        for text in (*texts, self.key):
            if "\0" in text:
                raise ValueError("it holds a NUL character, which no program can be given")
        if self.name == "env" and (not self.key or "=" in self.key):
            raise ValueError(
                f"{self.key!r} is no name of an environment variable; write env.NAME=value"
            )
        if self.name == "pause_s":
            _pause(self.value)
        if self.name == "python" and not self.value:
            raise ValueError("python is empty; it is the path or name of an interpreter")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchVariables:
    """All that the user, or a default, says about the launches of one system.

    ``python`` and ``pause_s`` are ``None`` where nothing was said.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    extra_arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    pause_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededPath:
    """A folder or file that has to be on every node of a case before it is launched."""

    name: str
    kind: VariableKind
    path: str


def parse_assignment(text: str) -> Assignment:
    """Read ``SYSTEM.name=value``, ``SYSTEM.env.NAME=value`` or the same with ``*`` as the system.

    Raises:
        ValueError: The text is anything else, or its value cannot be used.
    """
    match = _ASSIGNMENT.fullmatch(text)
    # Never the value: it may be a password.
    said = text.partition("=")[0]
    if match is None or (match["key"] is not None and match["name"] != "env"):
        raise ValueError(
            f"{said!r} sets nothing; write SYSTEM.name=value (SYSTEM may be *), or "
            "SYSTEM.env.NAME=value for the environment"
        )
    name = match["name"]
    try:
        return Assignment(
            system=match["system"],
            name=name,
            key=match["key"] or "",
            value=split_arguments(match["text"]) if name == "extra_args" else match["text"],
            place=f"--dlperf-set {said}",
        )
    except ValueError as error:
        raise ValueError(f"{said}: {error}") from error


def split_arguments(text: str) -> tuple[str, ...]:
    """Split arguments as a shell does, and do nothing else that a shell does.

    Raises:
        ValueError: A quotation is not closed.
    """
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        # The text may hold a secret.
        raise ValueError(f"the arguments cannot be told apart: {error}") from error


def check_assignments(
    specs: Mapping[str, LaunchSpec | None], sources: Iterable[Sequence[Assignment]]
) -> None:
    """Refuse what is set for no system that there is, or to what it cannot be.

    ``specs`` are the launch entries of all systems, by system id.

    Raises:
        VariableError: With all mistakes, one per line.
    """
    problems = []
    for given in (assignment for source in sources for assignment in source):
        if given.system == ALL_SYSTEMS:
            known = tuple(name for spec in specs.values() for name in _names(spec))
        elif given.system in specs:
            known = _names(specs[given.system])
            if specs[given.system] is None:
                problems.append(
                    _problem(given, f"{given.system} has no launch to set anything for")
                )
                continue
        else:
            close = nearest(given.system, specs)
            there_are = f"there are: {', '.join(specs) or 'none'}"
            unknown = f"there is no system {given.system!r}{close}; {there_are}"
            problems.append(_problem(given, unknown))
            continue
        if given.name not in known:
            problems.append(_unknown_name(given, known))
        for name, spec in specs.items():
            if given.system in (name, ALL_SYSTEMS) and spec and given.name in spec.variables:
                problems += _value_problems(spec, name, given)
    if problems:
        raise VariableError(problems)


def resolve(
    spec: LaunchSpec,
    system_id: str,
    sources: Iterable[Sequence[Assignment]],
    *,
    case: Case | None = None,
) -> LaunchVariables:
    """Say what holds for a system's launches.

    ``sources`` are what was set, the strongest first: the command line, then the cluster. Within
    one, what was said for the system goes before what was said for all, and the last before the
    first. With a ``case`` only the variables that it makes use of are needed.

    Raises:
        VariableError: Something is set for the system that it does not have, or to a value that
            it cannot have.
        MissingVariableError: A variable that is needed is not set.
    """
    strongest: dict[tuple[str, str], Assignment] = {}
    known = _names(spec)
    problems = []
    for given in _in_order(system_id, sources):
        if given.name in known:
            strongest.setdefault((given.name, given.key), given)
        elif given.system != ALL_SYSTEMS:
            problems.append(_unknown_name(given, known))
    values: dict[str, str] = {}
    for name, variable in spec.variables.items():
        found = strongest.get((name, ""))
        value = variable.default if found is None else _text(found)
        if value is None:
            continue
        if found is not None:
            problems += _value_problems(spec, system_id, found)
        values[name] = value
    if problems:
        raise VariableError(problems)
    needed = spec.variables if case is None else spec.variables_of(case)
    missing = [name for name in needed if name not in values]
    if missing:
        raise MissingVariableError(
            _missing(spec, case.id if case else system_id, system_id, missing)
        )
    extra = strongest.get(("extra_args", ""))
    python = strongest.get(("python", ""))
    pause = strongest.get(("pause_s", ""))
    return LaunchVariables(
        values=values,
        extra_arguments=() if extra is None else _texts(extra),
        environment={
            key: _text(given) for (name, key), given in sorted(strongest.items()) if name == "env"
        },
        python=None if python is None else _text(python),
        pause_s=None if pause is None else _pause(pause.value),
    )


def needed_paths(
    spec: LaunchSpec, variables: LaunchVariables, case: Case
) -> tuple[NeededPath, ...]:
    """The folders and files that a case needs on each of its nodes."""
    return tuple(
        NeededPath(name=name, kind=spec.variables[name].kind, path=variables.values[name])
        for name in spec.variables_of(case)
        if spec.variables[name].kind.is_path
    )


def _in_order(system_id: str, sources: Iterable[Sequence[Assignment]]) -> Iterator[Assignment]:
    """What was set for a system, the strongest first."""
    for source in sources:
        for system in (system_id, ALL_SYSTEMS):
            yield from (given for given in reversed(source) if given.system == system)


def _problem(given: Assignment, message: str) -> VariableProblem:
    where = f"{given.key_path}: " if given.key_path else ""
    return VariableProblem(place=given.place, message=f"{where}{message}")


def _value_problems(
    spec: LaunchSpec, system_id: str, given: Assignment
) -> Iterator[VariableProblem]:
    variable = spec.variables[given.name]
    if problem := value_problem(variable, _text(given)):
        yield _problem(given, f"{problem}; {system_id}.{given.name} is: {variable.meaning}")


def _names(spec: LaunchSpec | None) -> tuple[str, ...]:
    return () if spec is None else (*spec.variables, *EVERY_SYSTEM_TAKES)


def _text(given: Assignment) -> str:
    if not isinstance(given.value, str):
        raise VariableError([_problem(given, f"{given.name} is one text, not a list")])
    return given.value


def _texts(given: Assignment) -> tuple[str, ...]:
    return split_arguments(given.value) if isinstance(given.value, str) else given.value


def _pause(value: str | tuple[str, ...]) -> float:
    try:
        seconds = float(value) if isinstance(value, str) else math.nan
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"pause_s is a number of seconds from zero on, not {value!r}")
    return seconds


def _unknown_name(given: Assignment, known: Sequence[str]) -> VariableProblem:
    allowed = ", ".join(dict.fromkeys(known))
    return _problem(
        given,
        f"{given.system} has no variable {given.name!r}{nearest(given.name, known)}; what can be "
        f"set: {allowed}",
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


# ------------------------------------------------------------------------- in cluster.yaml


def _given(value: str | tuple[str, ...], place: YamlValue) -> _Given:
    return value, place


def _one_value(name: str = "") -> Shape[_Given]:
    return Scalar(f"text or a number{f' ({name} is one value)' if name else ''}").placed(_given)


def _assignments(given: Mapping[str, Mapping[str, Any]], _: YamlValue) -> tuple[Assignment, ...]:
    found = (
        _assignment(system, name, key, one)
        for system, names in given.items()
        for name, value in names.items()
        for key, one in (value if name == "env" else {"": value}).items()
    )
    return tuple(assignment for assignment in found if assignment is not None)


def _assignment(system: str, name: str, key: str, given: _Given) -> Assignment | None:
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
                refused="is no name of an environment variable; it holds no '='",
            ),
            "Environment variables of the trainer.",
        ),
        Key(
            "extra_args",
            ByKind(
                scalar=Scalar("a list of arguments, or text that is split as by a shell").parsed(
                    split_arguments
                ),
                sequence=ListOf(Scalar(), "a list of arguments"),
            ).placed(_given),
            "Arguments behind those of the system: a list, or text that is split as by a shell.",
        ),
        Key("python", _one_value("python"), "The trainer's Python."),
        Key("pause_s", _one_value("pause_s"), "Seconds between two runs."),
        allowed="a mapping of names to values",
        others=_one_value(),
    ),
    "a mapping of system ids, or '*', to what is set",
).placed(_assignments)
"""What is set for launches, by system id or ``*``. Which systems and variables there are is not
known here: see ``check_assignments``."""
