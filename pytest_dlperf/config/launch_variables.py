"""What holds for the launches of a system, of all that was set for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, convert
from msgspec.structs import replace

from pytest_dlperf.config.container import Container, Runtime, pyxis_image
from pytest_dlperf.config.launch_spec import LaunchSpec
from pytest_dlperf.config.settings import (
    ALL_SYSTEMS,
    CONTAINER,
    ENVIRONMENT,
    EVERY_SYSTEM_TAKES,
    Setting,
)
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.yamlfile import Diagnostic
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import CannotMeasureError, UsageError

_READ_BY_LIBRARIES: Final = re.compile(
    r"(?:NCCL|RCCL|CUDA|HIP|HSA|ROC[A-Z]*|OMP|KMP|MKL|TORCH[A-Z]*|PYTORCH|XLA|JAX|UCX|FI|GLOO)_.*"
)
"""Names of variables that tune a library, and hold nothing of the user's."""


# ------------------------------------------------------------------------------- checks


def check_settings(
    specs: Mapping[str, LaunchSpec | None], settings: Iterable[Setting]
) -> Iterator[Diagnostic]:
    """Find values that are set for an unknown system or variable, or are malformed."""
    for setting in settings:
        system = setting.system
        if system != ALL_SYSTEMS and specs.get(system) is None:
            message = f"{system} has no launch to set anything for"
            if system not in specs:
                there_are = f"there are: {', '.join(specs) or 'none'}"
                message = f"unknown system {system!r}{nearest(system, specs)}; {there_are}"
            yield setting.error(message)
            continue
        launches = {
            name: spec
            for name, spec in specs.items()
            if spec is not None and system in (name, ALL_SYSTEMS)
        }
        variables = (name for spec in launches.values() for name in spec.variables)
        names = dict.fromkeys((*variables, *EVERY_SYSTEM_TAKES))
        if setting.name not in names and not setting.engine_option:
            yield setting.error(
                f"{system} has no variable {setting.name!r}{nearest(setting.name, names)}; what "
                f"can be set: {', '.join(names)}"
            )
        for name, spec in launches.items():
            variable = spec.variables.get(setting.name)
            if variable and (problem := variable.problem(setting.text)):
                yield setting.error(f"{problem}; {name}.{setting.name} is: {variable.meaning}")
            if (setting.name, system) == ("working_directory", name) and spec.working_directory:
                yield setting.error(f"{name} says itself where it starts: {spec.working_directory}")


def unknown_engine_options(
    settings: Iterable[Setting], options: Collection[str]
) -> Iterator[Diagnostic]:
    """Find settings for options that none of a session's engines takes."""
    for setting in settings:
        option = setting.engine_option
        if option and option not in options:
            yield setting.error(
                f"there is no option {option!r} of a launcher{nearest(option, options)}; "
                f"there are: {', '.join(sorted(options))}"
            )


# ---------------------------------------------------------------------------- resolving


class LaunchVariables(Struct, frozen=True, kw_only=True):
    """What is set for the launches of one system, by the user or by default."""

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


def strongest(
    system_id: str, sources: Iterable[Sequence[Setting]]
) -> dict[tuple[str, str], Setting]:
    """Return what holds for a system, by name and key.

    ``sources`` come strongest first: the command line, then the cluster. Within one, the system
    goes before ``*``, and the last value before the first.
    """
    holding: dict[tuple[str, str], Setting] = {}
    for source in sources:
        for system in (system_id, ALL_SYSTEMS):
            for setting in reversed(source):
                if setting.system == system:
                    holding.setdefault((setting.name, setting.key), setting)
    return holding


def resolve(
    spec: LaunchSpec,
    system_id: str,
    sources: Iterable[Sequence[Setting]],
    *,
    case: Case | None = None,
) -> LaunchVariables:
    """Merge all that was set for a system's launches, as ``strongest`` says.

    With a ``case`` only the variables that it uses are needed.

    Raises:
        UsageError: A container has no image.
        CannotMeasureError: A needed variable is not set.
    """
    holding = strongest(system_id, (*sources, spec.settings))
    texts = {name: setting.text for (name, key), setting in holding.items() if not key}
    defaults = {name: variable.default for name, variable in spec.variables.items()}
    values = {
        name: value for name in defaults if (value := texts.get(name, defaults[name])) is not None
    }
    needed = spec.variables if case is None else spec.variables_of(case)
    if missing := [name for name in needed if name not in values]:
        raise CannotMeasureError(_missing(spec, case.id if case else system_id, system_id, missing))
    parts = {key: setting for (name, key), setting in holding.items() if name == CONTAINER}
    around = convert({key: setting.value for key, setting in parts.items()}, Container)
    if parts and around.runtime is not Runtime.NONE and not around.image:
        key, setting = next(iter(parts.items()))
        problem = f"{system_id}: container.{key} is set, and no container.image: name the image"
        raise UsageError(str(setting.error(problem)))
    extra = holding.get(("extra_args", ""))
    return LaunchVariables(
        values=values,
        extra_arguments=() if extra is None else extra.texts,
        environment={
            key: setting.text
            for (name, key), setting in sorted(holding.items())
            if name == ENVIRONMENT
        },
        python=texts.get("python"),
        working_directory=None if spec.working_directory else texts.get("working_directory"),
        pause_s=float(texts["pause_s"]) if "pause_s" in texts else None,
        engine={
            option: setting.texts
            for setting in holding.values()
            if (option := setting.engine_option)
        },
        container=around if around.image and around.runtime is not Runtime.NONE else None,
    )


def _missing(spec: LaunchSpec, who: str, system_id: str, names: Sequence[str]) -> str:
    settings = "; ".join(
        f"{name} ({spec.variables[name].meaning}): "
        f"--dlperf-set {system_id}.{name}={spec.variables[name].kind.value.upper()}"
        for name in names
    )
    return f"{who} needs {settings}; or under vars, {system_id} in the cluster's cluster.yaml"


# --------------------------------------------------------------------------- publishing


def published(
    spec: LaunchSpec, settings: Iterable[Setting], word: Callable[[str], str]
) -> Iterator[Setting]:
    """Yield what was set, as others may read it: ``word`` gives what they read of other words."""
    for setting in settings:
        if _is_public(spec, setting):
            yield setting
        elif isinstance(setting.value, str):
            yield replace(setting, value=word(setting.value))
        else:
            yield replace(setting, value=tuple(map(word, setting.value)))


def unpublished(
    specs: Mapping[str, LaunchSpec | None], settings: Iterable[Setting]
) -> Iterator[str]:
    """Yield the words of what was set that others may not read."""
    for setting in settings:
        for name, spec in specs.items():
            if (
                spec is not None
                and setting.system in (name, ALL_SYSTEMS)
                and not _is_public(spec, setting)
            ):
                yield from setting.texts


def _is_public(spec: LaunchSpec, setting: Setting) -> bool:
    """Whether a value stands in a file that others read, names a place, or tunes a library.

    So do the options of what gives hosts: a partition, or the size of a job.
    """
    if setting.path:
        return True
    if variable := spec.variables.get(setting.name):
        return variable.public or variable.kind.is_path
    if setting.name == ENVIRONMENT:
        return _READ_BY_LIBRARIES.fullmatch(setting.key) is not None
    if setting.name == CONTAINER:
        return setting.key != "options"
    return setting.name in ("python", "working_directory") or bool(setting.engine_option)
