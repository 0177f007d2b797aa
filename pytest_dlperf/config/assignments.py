"""Settings of launches: on the command line, in a ``cluster.yaml``, or in a system's ``launch``.

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
    SLURM,
    SLURM_HELP,
    checked_part,
    is_list,
    parts_shape,
    split_arguments,
)
from pytest_dlperf.files.shapes import ByKind, Key, MapOf, Record, Scalar, Shape
from pytest_dlperf.files.yamlfile import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.files.yamlfile import YamlValue

    _Placed = tuple[str | tuple[str, ...], YamlValue]

ALL_SYSTEMS: Final = "*"

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
            if self.name == ENVIRONMENT:  # a mapping of options, as an engine's
                raise ValueError("a system file has variables under 'environment', not 'env'")
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
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError("pause_s must be a number of seconds ≥ 0")
    return seconds


# ------------------------------------------------------------------------- in cluster.yaml


def _placed(value: str | tuple[str, ...], place: YamlValue) -> _Placed:
    return value, place


def _one_value(name: str = "") -> Shape[_Placed]:
    return Scalar(f"text or a number{f' ({name} is one value)' if name else ''}").placed(_placed)


def assignments(given: Mapping[str, Mapping[str, Any]]) -> tuple[Assignment, ...]:
    """Make assignments of what was read, by system, name and, where there is one, key."""
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


AROUND_COMMANDS: Final = (
    Key(SLURM, parts_shape(SLURM), SLURM_HELP),
    Key(CONTAINER, parts_shape(CONTAINER), CONTAINER_HELP),
)
"""What is set for that which a trainer's command is started by, read for ``assignments``."""
ENGINE_OPTIONS: Final = MapOf(ARGUMENTS_SHAPE.placed(_placed), "a mapping of an engine's options")
"""The same for launchers and queues that plugins add, below their names."""

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
        *AROUND_COMMANDS,
        allowed="a mapping of names to values",
        others=ByKind(scalar=_one_value(), mapping=ENGINE_OPTIONS),
    ),
    "a mapping of system ids, or '*', to what is set",
).parsed(assignments)
"""What is set for launches, by system id or ``*``. Which systems and variables there are is not
known here: see ``check_assignments``."""
