"""What holds for a system's launches: its variables, extra arguments and environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_dlperf.config.assignments import EVERY_SYSTEM_TAKES, parse_pause
from pytest_dlperf.config.launch_spec import LaunchSpec, value_problem
from pytest_dlperf.config.slurm_container import (
    CONTAINER,
    SLURM,
    Container,
    SlurmOptions,
    container,
    slurm_options,
)
from pytest_dlperf.files.yamlfile import Problem, nearest
from pytest_dlperf.model.errors import CannotMeasureError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.config.assignments import Assignment
    from pytest_dlperf.config.slurm_container import Part
    from pytest_dlperf.model.case import Case

ALL_SYSTEMS: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchVariables:
    """Settings, by the user or by default, for the launches of one system."""

    values: Mapping[str, str] = field(default_factory=dict)
    extra_arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str | None = None
    working_directory: str | None = None
    """Of a system that names none."""
    pause_s: float | None = None
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    container: Container | None = None


def check_assignments(
    specs: Mapping[str, LaunchSpec | None], sources: Iterable[Sequence[Assignment]]
) -> Iterator[Problem]:
    """Find what is set for no system that there is, or to what it cannot be."""
    for given in (assignment for source in sources for assignment in source):
        if given.system != ALL_SYSTEMS and given.system not in specs:
            close = nearest(given.system, specs)
            there_are = f"there are: {', '.join(specs) or 'none'}"
            yield given.problem(f"there is no system {given.system!r}{close}; {there_are}")
            continue
        meant = specs if given.system == ALL_SYSTEMS else {given.system: specs[given.system]}
        launched = {name: spec for name, spec in meant.items() if spec is not None}
        if not launched and given.system != ALL_SYSTEMS:
            yield given.problem(f"{given.system} has no launch to set anything for")
            continue
        known = dict.fromkeys(name for spec in launched.values() for name in _names(spec))
        if given.name not in known:
            yield _unknown_name(given, known)
        for name, spec in launched.items():
            yield from _value_problems(spec, name, given)


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
        UsageError: Something is set that the system does not have, or to what it cannot be.
        CannotMeasureError: A variable that is needed is not set.
    """
    strongest: dict[tuple[str, str], Assignment] = {}
    known = _names(spec)
    problems: list[Problem] = []
    for given in _in_order(system_id, sources):
        if given.name in known:
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
        around = container(_parts(CONTAINER, spec.container, strongest))
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
            key: given.text for (name, key), given in sorted(strongest.items()) if name == "env"
        },
        python=None if python is None else python.text,
        working_directory=None if folder is None or spec.working_directory else folder.text,
        pause_s=None if pause is None else parse_pause(pause.text),
        slurm=slurm_options(_parts(SLURM, spec.slurm, strongest)),
        container=around,
    )


def _parts(
    name: str, own: Mapping[str, Part], strongest: Mapping[tuple[str, str], Assignment]
) -> dict[str, Part]:
    """Put what the user has said of ``slurm`` or ``container`` over what the system says itself."""
    return {**own, **{key: given.value for (said, key), given in strongest.items() if said == name}}


def _in_order(system_id: str, sources: Iterable[Sequence[Assignment]]) -> Iterator[Assignment]:
    for source in sources:
        for system in (system_id, ALL_SYSTEMS):
            yield from (given for given in reversed(source) if given.system == system)


def _value_problems(spec: LaunchSpec, system_id: str, given: Assignment) -> Iterator[Problem]:
    variable = spec.variables.get(given.name)
    if variable and (problem := value_problem(variable, given.text)):
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
