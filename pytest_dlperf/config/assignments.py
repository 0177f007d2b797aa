"""What the user sets for launches: on the command line, or under ``vars`` in a ``cluster.yaml``.

Values reach the trainer as they are: no shell reads them and nothing is split, but for the text of
``extra_args``, and of the lists of ``slurm`` and ``container``.
"""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.config.slurm_container import (
    ARGUMENTS_SHAPE,
    CONTAINER,
    SLURM,
    checked_part,
    is_list,
    slurm_container_keys,
    split_arguments,
)
from pytest_dlperf.files.shapes import Key, MapOf, Record, Scalar, Shape
from pytest_dlperf.files.yamlfile import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.files.yamlfile import YamlValue

    _Given = tuple[str | tuple[str, ...], YamlValue]

EVERY_SYSTEM_TAKES: Final = (
    "extra_args",
    "env",
    "python",
    "working_directory",
    "pause_s",
    SLURM,
    CONTAINER,
)
"""What the user can set for any system, beside the system's own variables."""
_BY_KEY: Final = ("env", SLURM, CONTAINER)
"""Those of them that have keys of their own."""

_ASSIGNMENT = re.compile(
    r"(?P<system>[^.=]+)\.(?P<name>[^.=]+)(?:\.(?P<key>[^=]*))?=(?P<text>.*)", re.DOTALL
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One thing that the user set for one system, or for all (``system`` is ``*``).

    ``name`` is a variable's, or one of ``EVERY_SYSTEM_TAKES``. ``key`` is the variable of ``env``,
    or the part of ``slurm`` and ``container``. Messages name ``place`` and ``key_path``, never the
    value: it may be a secret.
    """

    system: str
    name: str
    key: str = ""
    value: str | tuple[str, ...]
    place: str
    key_path: str = ""

    def __post_init__(self) -> None:
        """Refuse what no launch could use, with a ``ValueError``."""
        if self.name in (SLURM, CONTAINER):
            checked_part(self.name, self.key, self.value)
        if isinstance(self.value, tuple) != _is_list(self.name, self.key):
            raise ValueError(f"{self.name} is one text, not a list")
        if self.name == "env" and (not self.key or "=" in self.key):
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
    def text(self) -> str:
        """The value of anything that is no list."""
        return self.value if isinstance(self.value, str) else shlex.join(self.value)

    @property
    def texts(self) -> tuple[str, ...]:
        """The value of a list."""
        return (self.value,) if isinstance(self.value, str) else self.value

    def problem(self, message: str) -> Problem:
        """Say what is wrong with it, and where."""
        where = f"{self.key_path}: " if self.key_path else ""
        return Problem(place=self.place, message=f"{where}{message}")


def parse_assignment(text: str) -> Assignment:
    """Read ``SYSTEM.name=value`` or ``SYSTEM.env.NAME=value``; the system may be ``*``."""
    match = _ASSIGNMENT.fullmatch(text)
    # Never the value: it may be a password.
    said = text.partition("=")[0]
    if match is None or (match["key"] is not None and match["name"] not in _BY_KEY):
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
            place=f"--dlperf-set {said}",
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


def _given(value: str | tuple[str, ...], place: YamlValue) -> _Given:
    return value, place


def _one_value(name: str = "") -> Shape[_Given]:
    return Scalar(f"text or a number{f' ({name} is one value)' if name else ''}").placed(_given)


def _assignments(given: Mapping[str, Mapping[str, Any]], _: YamlValue) -> tuple[Assignment, ...]:
    found = (
        _assignment(system, name, key, one)
        for system, names in given.items()
        for name, value in names.items()
        for key, one in (value if name in _BY_KEY else {"": value}).items()
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
                refused="is not the name of an environment variable, which holds no '='",
            ),
            "Environment variables of the trainer.",
        ),
        Key(
            "extra_args",
            ARGUMENTS_SHAPE.placed(_given),
            "Arguments behind those of the system: a list, or text that is split as by a shell.",
        ),
        Key("python", _one_value("python"), "The trainer's Python."),
        Key(
            "working_directory",
            _one_value("working_directory"),
            "The folder that a trainer starts in whose system names none.",
        ),
        Key("pause_s", _one_value("pause_s"), "Seconds between two runs."),
        *slurm_container_keys(
            lambda name, key, value, place: (checked_part(name, key, value), place)
        ),
        allowed="a mapping of names to values",
        others=_one_value(),
    ),
    "a mapping of system ids, or '*', to what is set",
).placed(_assignments)
"""What is set for launches, by system id or ``*``. Which systems and variables there are is not
known here: see ``check_assignments``."""
