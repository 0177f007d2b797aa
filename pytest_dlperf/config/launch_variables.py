"""What holds for the launches of a system, of all that was set for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.config.assignments import ALL_SYSTEMS, parse_pause
from pytest_dlperf.config.slurm_container import (
    CONTAINER,
    ENVIRONMENT,
    EVERY_SYSTEM_TAKES,
    Container,
    container,
    pyxis_image,
)
from pytest_dlperf.files.yamlfile import Problem, nearest
from pytest_dlperf.model.errors import CannotMeasureError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.config.assignments import Assignment
    from pytest_dlperf.config.launch_spec import LaunchSpec
    from pytest_dlperf.model.case import Case


_READ_BY_LIBRARIES: Final = re.compile(
    r"(?:NCCL|RCCL|CUDA|HIP|HSA|ROC[A-Z]*|OMP|KMP|MKL|TORCH[A-Z]*|PYTORCH|XLA|JAX|UCX|FI|GLOO)_.*"
)
"""Names of variables that tune a library, and hold nothing of the user's."""
_PATHS: Final = ("python", "working_directory")


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


def published(
    spec: LaunchSpec, given: Iterable[Assignment], word: Callable[[str], str]
) -> Iterator[Assignment]:
    """Yield what was set, as others may read it: ``word`` gives what they read of other words."""
    for one in given:
        if _is_public(spec, one):
            yield one
        elif isinstance(one.value, str):
            yield replace(one, value=word(one.value))
        else:
            yield replace(one, value=tuple(map(word, one.value)))


def unpublished(
    specs: Mapping[str, LaunchSpec | None], given: Iterable[Assignment]
) -> Iterator[str]:
    """Yield the words of what was set that others may not read."""
    for one in given:
        for name, spec in specs.items():
            if spec is not None and one.system in (name, ALL_SYSTEMS) and not _is_public(spec, one):
                yield from one.texts


def _is_public(spec: LaunchSpec, given: Assignment) -> bool:
    """Whether a value stands in a file that others read, names a place, or tunes a library.

    So do the options of what gives hosts: a partition, or the size of a job.
    """
    variable = spec.variables.get(given.name)
    if variable is not None:
        is_open = variable.public or variable.kind.is_path
    elif given.name == ENVIRONMENT:
        is_open = _READ_BY_LIBRARIES.fullmatch(given.key) is not None
    elif given.name == CONTAINER:
        is_open = given.key != "options"
    else:
        is_open = given.name in _PATHS or bool(given.engine_option)
    return is_open or given.stands_in_file


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
    for given in _in_order(system_id, (*sources, spec.assignments)):
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
    parts = {key: given for (name, key), given in strongest.items() if name == CONTAINER}
    try:
        around = container({key: given.value for key, given in parts.items()})
    except ValueError as error:
        problems.append(next(iter(parts.values())).problem(f"{system_id}: {error}"))
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
        engine={option: one.texts for one in strongest.values() if (option := one.engine_option)},
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
