"""What holds for a system's launches: its variables, extra arguments and environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_dlperf.config.assignments import EVERY_SYSTEM_TAKES, parse_pause, split_arguments
from pytest_dlperf.config.launch_spec import LaunchSpec, VariableKind, value_problem
from pytest_dlperf.files.yamlfile import nearest
from pytest_dlperf.model.errors import CannotMeasureError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.config.assignments import Assignment
    from pytest_dlperf.model.case import Case

ALL_SYSTEMS: Final = "*"


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
class LaunchVariables:
    """Settings, by the user or by default, for the launches of one system.

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
        pause_s=None if pause is None else parse_pause(pause.value),
    )


def needed_paths(
    spec: LaunchSpec, variables: LaunchVariables, case: Case
) -> tuple[NeededPath, ...]:
    """List the folders and files that a case needs on each of its nodes."""
    return tuple(
        NeededPath(name=name, kind=spec.variables[name].kind, path=variables.values[name])
        for name in spec.variables_of(case)
        if spec.variables[name].kind.is_path
    )


def _in_order(system_id: str, sources: Iterable[Sequence[Assignment]]) -> Iterator[Assignment]:
    """List what was set for a system, the strongest first."""
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
