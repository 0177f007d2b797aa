"""Settings of launches: on the command line, in a ``cluster.yaml``, or in a system's ``launch``.

Values reach the trainer as they are: no shell reads them and nothing is split, but for the text of
``extra_args``, and of the lists of ``container`` and of engines.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from pytest_dlperf.config.parts import Arguments, Scalar, VariableName, doc
from pytest_dlperf.config.slurm_container import (
    CONTAINER,
    ENVIRONMENT,
    ContainerKeys,
    SlurmKeys,
    checked_part,
    is_list,
    split_arguments,
)
from pytest_dlperf.files.yamlfile import Problem, dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.config.slurm_container import Value
    from pytest_dlperf.files.yamlfile import YamlFile

ALL_SYSTEMS: Final = "*"
MAX_PAUSE_S: Final = 10**6

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ASSIGNMENT = re.compile(
    r"(?P<system>[^.=]+)\.(?P<name>[^.=]+)(?:\.(?P<key>[^=]*))?=(?P<text>.*)", re.DOTALL
)


class Assignment(Struct, frozen=True, kw_only=True):
    """One setting of one system, or of all (``system`` is ``*``).

    ``name`` is a variable's, one of ``EVERY_SYSTEM_TAKES``, or an engine's. ``key`` is the variable
    of ``env``, the part of ``container``, or an option of the engine. Messages name ``place`` and
    ``key_path``, and no value but a path: it may be a secret.
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
        if self.name == ENVIRONMENT and not _VARIABLE.fullmatch(self.key):
            raise ValueError(
                f"{self.key!r} is not the name of an environment variable; write env.NAME=value"
            )
        if any("\0" in text for text in self.texts):
            raise ValueError("the value holds a NUL, which no program can be given")
        if self.name == "pause_s":
            parse_pause(self.text)
        if self.name == "python" and not self.value:
            raise ValueError("python is empty; it is the path or name of an interpreter")
        if self.name == "working_directory" and not self.text.startswith("/"):
            raise ValueError("working_directory must be an absolute path")

    @property
    def stands_in_file(self) -> bool:
        """Whether it is literally in a system file or a cluster's."""
        return bool(self.key_path)

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
    if not 0 <= seconds <= MAX_PAUSE_S:
        raise ValueError(f"pause_s must be a number of seconds ≥ 0 and ≤ {MAX_PAUSE_S}")
    return seconds


# ---------------------------------------------------------------------------------- in files


_Pause = Annotated[float, Meta(ge=0, le=MAX_PAUSE_S)]


class Vars(Struct, frozen=True, kw_only=True):
    """What ``vars`` sets for the launches of a system, or of all by ``*``, beside its variables.

    Which systems and variables there are is not known here: see ``check_assignments``.
    """

    env: Annotated[dict[VariableName, Scalar], doc("Environment variables of the trainer.")] = {}
    extra_args: Annotated[
        Arguments,
        doc("Arguments behind those of the system: a list, or text that is split as by a shell."),
    ] = ()
    python: Annotated[Scalar | None, doc("The trainer's Python.")] = None
    working_directory: Annotated[
        Scalar | None, doc("The folder that a trainer starts in whose system names none.")
    ] = None
    pause_s: Annotated[_Pause | None, doc("Seconds between two runs.")] = None
    slurm: Annotated[SlurmKeys, doc("Options of Slurm's commands.")] = SlurmKeys()
    container: Annotated[ContainerKeys, doc("The container that the trainer runs in.")] = (
        ContainerKeys()
    )


def assignments_of(file: YamlFile, path: tuple[str, ...]) -> tuple[Assignment, ...]:
    """Make the assignments of ``vars``, by system; mistakes are reported."""
    found = file.read(dict[str, dict[str, Arguments | dict[str, Arguments]]], path)
    return tuple(
        assignment
        for system in found
        for assignment in assignments_at(file, (*path, system), system, found[system])
    )


def assignments_at(
    file: YamlFile,
    path: tuple[str, ...],
    system: str,
    given: Mapping[str, Value | Mapping[str, Value]],
) -> Iterator[Assignment]:
    """Make the assignments of one system, by name and, where there is one, key."""
    for name, said in given.items():
        for key, value in said.items() if isinstance(said, Mapping) else (("", said),):
            place = (*path, name, key) if key else (*path, name)
            try:
                yield Assignment(
                    system=system,
                    name=name,
                    key=key,
                    value=_split(name, key, value),
                    place=f"{file.file_of(place)}:{file.line(place)}",
                    key_path=dotted(place),
                )
            except ValueError as error:
                file.fault(place, str(error))


def _split(name: str, key: str, value: Value) -> Value:
    return split_arguments(value) if isinstance(value, str) and _is_list(name, key) else value
