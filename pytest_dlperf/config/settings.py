"""Settings of launches: ``--dlperf-set``, ``vars`` of a ``cluster.yaml``, and what a system says.

Values reach the trainer as they are: no shell reads them and nothing is split, but for the text of
``extra_args``, and of the lists of ``container`` and of engines. A stronger setting replaces a
weaker one, a list as a whole.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from pytest_dlperf.config.launch import Launch
from pytest_dlperf.config.launch_keys import EVERY_SYSTEM_TAKES, Container, Runtime, Vars
from pytest_dlperf.files.mistakes import mistakes_of, nearest
from pytest_dlperf.files.yamlfile import Diagnostic, YamlFile, dotted
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import CannotMeasureError, UsageError
from pytest_dlperf.model.keys import (
    Arguments,
    words,
)

ALL_SYSTEMS: Final = "*"
_SETTING: Final = re.compile(
    r"(?P<system>[^.=]+)\.(?P<name>[^.=]+)(?:\.(?P<key>[^=]*))?=(?P<text>.*)", re.DOTALL
)
_READ_BY_LIBRARIES: Final = re.compile(
    r"(?:NCCL|RCCL|CUDA|HIP|HSA|ROC[A-Z]*|OMP|KMP|MKL|TORCH[A-Z]*|PYTORCH|XLA|JAX|UCX|FI|GLOO)_.*"
)
"""Names of variables that tune a library, and hold nothing of the user's."""


class Setting(Struct, frozen=True):
    """One value that is set for one system, or for all (``system`` is ``*``).

    ``name`` is a variable's, one of ``EVERY_SYSTEM_TAKES``, or an engine's; ``key`` is what is set
    of ``env``, ``container`` or an engine. Messages never hold the value: it may be a secret.
    """

    system: str
    name: str
    key: str
    value: str | tuple[str, ...]
    place: str
    path: str = ""
    """The key path, if it stands in a file."""

    @property
    def engine_option(self) -> str:
        """The option of an engine that it sets, as in ``slurm.srun``."""
        is_other = not self.key or self.name in ("env", "container")
        return "" if is_other else f"{self.name}.{self.key}"

    @property
    def text(self) -> str:
        """The value of anything but a list."""
        return self.value if isinstance(self.value, str) else shlex.join(self.value)

    @property
    def texts(self) -> tuple[str, ...]:
        """The value of a list."""
        return (self.value,) if isinstance(self.value, str) else self.value

    def is_for(self, system: str) -> bool:
        """Whether it is for a system, maybe among all."""
        return self.system in (system, ALL_SYSTEMS)

    def error(self, message: str) -> Diagnostic:
        """Make an error of it, with its place."""
        where = f"{self.path}: " if self.path else ""
        return Diagnostic(place=self.place, message=f"{where}{message}")

    def checked(self) -> Setting:
        """Split a list, and raise a ``ValueError`` for what no launch could use."""
        name, key, value = self.name, self.key, self.value
        is_list = self.engine_option or key in ("mounts", "devices", "options")
        if name == "extra_args" or (is_list and name != "env"):
            try:
                value = tuple(words(value))
            except ValueError as error:
                raise ValueError(f"the arguments cannot be told apart: {error}") from error
        elif not isinstance(value, str):
            raise ValueError(f"{name} is one text, not a list")
        if "\0" in "".join(value):
            raise ValueError("the value holds a NUL, which no program can be given")
        if name in ("env", "slurm", "container") and not key:
            raise ValueError(f"{name} has keys; write {name}.KEY=value")
        if name in EVERY_SYSTEM_TAKES:
            plain = value if isinstance(value, str) else [*value]
            for _, message in mistakes_of(
                {name: {key: plain} if key else plain}, Vars, private=(name,)
            ):
                raise ValueError(message)
        return replace(self, value=value)


def parse_setting(text: str, option: str = "--dlperf-set") -> Setting:
    """Read ``SYSTEM.name=value`` or ``SYSTEM.name.key=value``; the system may be ``*``."""
    match = _SETTING.fullmatch(text)
    target = text.partition("=")[0]
    if match is None:
        raise ValueError(
            f"{target!r} sets nothing; write SYSTEM.name=value (SYSTEM may be *), or "
            "SYSTEM.env.NAME=value for the environment"
        )
    system, name, key, value = match.groups()
    try:
        return Setting(system, name, key or "", value, f"{option} {target}").checked()
    except ValueError as error:
        raise ValueError(f"{target}: {error}") from error


def settings_of(file: YamlFile, path: tuple[str, ...]) -> tuple[Setting, ...]:
    """Make the settings of ``vars``, by system; mistakes are reported."""
    by_system = file.read(dict[str, dict[str, Arguments | dict[str, Arguments]]], path)
    return tuple(
        setting
        for system, values in by_system.items()
        for setting in settings_at(file, (*path, system), system, values)
    )


def settings_at(
    file: YamlFile,
    path: tuple[str, ...],
    system: str,
    values: Mapping[str, Arguments | Mapping[str, Arguments]],
) -> Iterator[Setting]:
    """Make the settings of one system; mistakes are reported."""
    for name, keyed in values.items():
        for key, value in keyed.items() if isinstance(keyed, Mapping) else (("", keyed),):
            node = (*path, name, key) if key else (*path, name)
            place = f"{file.place(node).file}:{file.place(node).line}"
            try:
                yield Setting(system, name, key, value, place, dotted(node)).checked()
            except ValueError as error:
                file.error(node, str(error))


def own_settings(launch: Launch) -> tuple[Setting, ...]:
    """Return what a system says of engines and its container, which is the weakest."""
    own = to_builtins({"slurm": launch.slurm, "container": launch.container, **launch.engines})
    return tuple(
        Setting(ALL_SYSTEMS, name, key, value, "system file", f"$.launch.{name}").checked()
        for name, keys in own.items()
        for key, value in keys.items()
        if value
    )


def check_own_settings(file: YamlFile) -> None:
    """Report what a system file says of engines and its container that no launch could use."""
    launch = file.value["launch"]
    around = {key: launch[key] for key in ("slurm", "container") if key in launch}
    list(settings_at(file, ("launch",), ALL_SYSTEMS, around))
    list(settings_at(file, ("launch", "engines"), ALL_SYSTEMS, launch.get("engines", {})))


def check_settings(
    launches: Mapping[str, Launch | None], settings: Iterable[Setting]
) -> Iterator[Diagnostic]:
    """Find values that are set for an unknown system or variable, or are malformed."""
    for setting in settings:
        system = setting.system
        if system != ALL_SYSTEMS and launches.get(system) is None:
            message = f"{system} has no launch to set anything for"
            if system not in launches:
                there_are = f"there are: {', '.join(launches) or 'none'}"
                message = f"unknown system {system!r}{nearest(system, launches)}; {there_are}"
            yield setting.error(message)
            continue
        meant = {name: it for name, it in launches.items() if it and setting.is_for(name)}
        variables = (name for launch in meant.values() for name in launch.variables)
        names = dict.fromkeys((*variables, *EVERY_SYSTEM_TAKES))
        if setting.name not in names and not setting.engine_option:
            yield setting.error(
                f"{system} has no variable {setting.name!r}{nearest(setting.name, names)}; what "
                f"can be set: {', '.join(names)}"
            )
        for name, launch in meant.items():
            variable = launch.variables.get(setting.name)
            if variable and (problem := variable.problem(setting.text)):
                yield setting.error(f"{problem}; {name}.{setting.name} is: {variable.meaning}")
            folder = launch.working_directory
            if folder and (setting.name, system) == ("working_directory", name):
                yield setting.error(f"{name} says itself where it starts: {folder}")


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


# ----------------------------------------------------------------------- which one holds


class LaunchVariables(Struct, frozen=True, kw_only=True):
    """What is set for the launches of one system, by the user or by default."""

    values: Mapping[str, str] = {}
    extra_args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
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


def pyxis_image(srun: Sequence[str]) -> str | None:
    """Find the image that steps with these options run in, where Slurm has pyxis."""
    image = None
    for option, following in zip(srun, (*srun[1:], ""), strict=False):
        name, equals, value = option.partition("=")
        if name == "--container-image":
            image = value if equals else following
    return image


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
    launch: Launch,
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
    holding = strongest(system_id, (*sources, own_settings(launch)))
    values = {name: it.default for name, it in launch.variables.items() if it.default is not None}
    engine: dict[str, tuple[str, ...]] = {}
    said: dict[str, Any] = {"values": values, "engine": engine}
    for (name, key), setting in sorted(holding.items()):
        if setting.engine_option:
            engine[setting.engine_option] = setting.texts
        elif name in launch.variables:
            values[name] = setting.text
        elif key:
            said.setdefault(name, {})[key] = setting.value
        else:
            said[name] = setting.value
    needed = launch.variables if case is None else launch.variables_of(case)
    if missing := [name for name in needed if name not in values]:
        raise CannotMeasureError(
            f"{case.id if case else system_id} needs "
            + "; ".join(
                f"{name} ({variable.meaning}): "
                f"--dlperf-set {system_id}.{name}={variable.kind.value.upper()}"
                for name, variable in launch.variables.items()
                if name in missing
            )
            + f"; or under vars, {system_id} in the cluster's cluster.yaml"
        )
    variables = convert(said, LaunchVariables, strict=False)
    container = variables.container
    if container is not None and container.runtime is Runtime.NONE:
        container = None
    elif container is not None and not container.image:
        key = next(iter(said["container"]))
        problem = f"{system_id}: container.{key} is set, and no container.image: name the image"
        raise UsageError(str(holding["container", key].error(problem)))
    folder = None if launch.working_directory else variables.working_directory
    return replace(variables, container=container, working_directory=folder)


# --------------------------------------------------------------------------- publishing


def published(
    launch: Launch, settings: Iterable[Setting], word: Callable[[str], str]
) -> Iterator[Setting]:
    """Yield what was set, as others may read it: ``word`` gives what they read of other words."""
    for setting in settings:
        if _is_public(launch, setting):
            yield setting
        elif isinstance(setting.value, str):
            yield replace(setting, value=word(setting.value))
        else:
            yield replace(setting, value=tuple(map(word, setting.value)))


def unpublished(
    launches: Mapping[str, Launch | None], settings: Iterable[Setting]
) -> Iterator[str]:
    """Yield the words of what was set that others may not read."""
    for setting in settings:
        for name, launch in launches.items():
            if launch and setting.is_for(name) and not _is_public(launch, setting):
                yield from setting.texts


def _is_public(launch: Launch, setting: Setting) -> bool:
    """Whether a value stands in a file that others read, names a place, or tunes a library.

    So do the options of what gives hosts: a partition, or the size of a job.
    """
    if setting.path:
        return True
    if variable := launch.variables.get(setting.name):
        return variable.public or variable.kind.is_path
    if setting.name == "env":
        return _READ_BY_LIBRARIES.fullmatch(setting.key) is not None
    if setting.name == "container":
        return setting.key != "options"
    return setting.name in ("python", "working_directory") or bool(setting.engine_option)
