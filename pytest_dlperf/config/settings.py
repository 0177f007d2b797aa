"""Settings of launches: ``--dlperf-set``, ``vars`` of a ``cluster.yaml``, and what a system says.

Values reach the trainer as they are: no shell reads them and nothing is split, but for the text of
``extra_args``, and of the lists of ``container`` and of engines. A stronger setting replaces a
weaker one, a list as a whole.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from pytest_dlperf.config.container import Container
from pytest_dlperf.files.mistakes import mistakes_of
from pytest_dlperf.files.yamlfile import Diagnostic, YamlFile, dotted
from pytest_dlperf.model.keys import Arguments, Part, Scalar, Text, VariableName, words

ALL_SYSTEMS: Final = "*"
ENVIRONMENT: Final = "env"
SLURM: Final = "slurm"
CONTAINER: Final = "container"
_SINGLE_VALUES: Final = ("runtime", "image")
"""The keys of ``container`` that are no lists."""
_SETTING: Final = re.compile(
    r"(?P<system>[^.=]+)\.(?P<name>[^.=]+)(?:\.(?P<key>[^=]*))?=(?P<text>.*)", re.DOTALL
)


class SlurmKeys(Part, frozen=True, kw_only=True):
    """Options of Slurm's commands."""

    srun: Arguments | None = None
    """Options of the srun that starts a node's step."""
    job: Arguments | None = None
    """Options of the salloc or sbatch that holds nodes for a case."""


class Vars(Struct, frozen=True, kw_only=True):
    """What can be set for any system, beside its own variables.

    Which systems and variables there are is not known here: see ``check_settings``.
    """

    extra_args: Arguments = ()
    """Arguments behind those of the system: a list, or text that is split as by a shell."""
    env: dict[VariableName, Scalar] = {}
    """Environment variables of the trainer."""
    python: Text | None = None
    """The trainer's Python."""
    working_directory: (
        Annotated[str, Meta(pattern="^/", title="the absolute path of a folder")] | None
    ) = None
    """The folder that a trainer starts in whose system names none."""
    pause_s: Annotated[float, Meta(ge=0, le=10**6)] | None = None
    """Seconds between two runs."""
    slurm: SlurmKeys = SlurmKeys()
    """Options of Slurm's commands."""
    container: Container = Container()
    """The container that the trainer runs in."""


EVERY_SYSTEM_TAKES: Final = Vars.__struct_fields__


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

    def error(self, message: str) -> Diagnostic:
        """Make an error of it, with its place."""
        where = f"{self.path}: " if self.path else ""
        return Diagnostic(place=self.place, message=f"{where}{message}")


def _checked(setting: Setting) -> Setting:
    """Return a setting with its list split."""
    name, key, value = setting.name, setting.key, setting.value
    is_single = name == ENVIRONMENT or (name == CONTAINER and key in _SINGLE_VALUES)
    if name == "extra_args" or (key and not is_single):
        try:
            value = words(value)
        except ValueError as error:
            raise ValueError(f"the arguments cannot be told apart: {error}") from error
    elif not isinstance(value, str):
        raise ValueError(f"{name} is one text, not a list")
    if "\0" in "".join(value):
        raise ValueError("the value holds a NUL, which no program can be given")
    if name in (ENVIRONMENT, SLURM, CONTAINER) and not key:
        raise ValueError(f"{name} has keys; write {name}.KEY=value")
    if name in EVERY_SYSTEM_TAKES:
        plain = value if isinstance(value, str) else [*value]
        said = {name: {key: plain} if key else plain}
        for _, message in mistakes_of(said, Vars, private=(name,)):
            raise ValueError(message)
    return replace(setting, value=value)


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
        place = f"{option} {target}"
        return _checked(Setting(system, name, key or "", value, place))
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
                yield _checked(Setting(system, name, key, value, place, dotted(node)))
            except ValueError as error:
                file.error(node, str(error))
