"""Reads the texts of options. Each reader raises a ``UsageError`` for a malformed one."""

from __future__ import annotations

import os
import re
import shlex
from datetime import datetime
from enum import Enum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from pytest_dlperf.config.settings import Setting

E = TypeVar("E", bound=Enum)

START_TIME: Final = "<start time>"
PROCESS: Final = "<process>"
NO_HISTORY: Final = "none"
_MAX_COUNT: Final = 1000
_MAX_SECONDS: Final = 10**8
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")


class ControlArm(StrEnum):
    """When the accepted software is run beside what is tested."""

    ON_REGRESSION = "on-regression"
    NEVER = "never"


class NotifyOn(StrEnum):
    """After which sessions a notice is sent."""

    FAILURE = "failure"
    CHANGE = "change"
    """Where something is newly red, newly green or worse than in the sessions before."""
    ALWAYS = "always"


class NamedLogs(NamedTuple):
    """Existing logs of a system, maybe with options, or of one of its cases."""

    of: str
    options: tuple[str, ...] | None
    places: str
    """A system's folder; a case's pattern of files, or the files of a run's nodes with commas."""
    folder: Path
    """Where relative paths start from."""

    @property
    def is_of_case(self) -> bool:
        """Whether they are of a case: a system's id has one hyphen, a case's has more."""
        return self.options is None and self.of.count("-") > 1

    def path(self, text: str) -> Path:
        """Return one of the places as a path."""
        return _path(self.folder, text)

    def error(self, message: str) -> UsageError:
        """Make an error that names the option."""
        options = f"/{'+'.join(self.options)}" if self.options else ""
        return UsageError(f"--dlperf-logs {self.of}{options}: {message}")


class OptionText(NamedTuple):
    """The text of an option, its place for messages, and the folder that paths in it start from."""

    text: str
    place: str
    folder: Path

    @property
    def path(self) -> Path:
        """The text as a path."""
        return _path(self.folder, self.text)

    def error(self, message: str) -> UsageError:
        """Make an error that names place and text."""
        return UsageError(f"{self.place}: {self.text!r} {message}")


def _path(folder: Path, text: str) -> Path:
    return folder / os.path.expanduser(text)  # noqa: PTH111 - pathlib refuses unknown users


def yes(option: OptionText) -> bool:
    """Read yes or no, in the usual words."""
    word = option.text.lower()
    if word not in _TRUE + _FALSE:
        words = f"one of {', '.join(_TRUE)} or {', '.join(_FALSE)}"
        raise UsageError(f"{option.place}={option.text!r} is neither yes nor no; use {words}")
    return word in _TRUE


def count(option: OptionText) -> int:
    """Read a number of runs."""
    # int() itself refuses thousands of digits.
    if not (re.fullmatch(r"[0-9]{1,4}", option.text) and 0 < int(option.text) <= _MAX_COUNT):
        raise option.error(f"is not an integer ≥ 1 and ≤ {_MAX_COUNT}")
    return int(option.text)


def seconds(option: OptionText) -> float:
    """Read a time in seconds, above zero."""
    is_number = re.fullmatch(r"[0-9]{0,9}\.?[0-9]{1,9}", option.text)
    if not (is_number and 0 < float(option.text) <= _MAX_SECONDS):
        raise option.error(f"is not a number of seconds > 0 and ≤ {_MAX_SECONDS}")
    return float(option.text)


def member(choices: type[E], option: OptionText) -> E:
    """Read one of several words."""
    words = [choice.value for choice in choices]
    if option.text not in words:
        from pytest_dlperf.files.mistakes import nearest

        allowed = f"{nearest(option.text, words)}; allowed: {', '.join(words)}"
        raise UsageError(f"{option.place}: unknown value {option.text!r}{allowed}")
    return choices(option.text)


def metric_names(option: OptionText) -> tuple[str, ...]:
    """Split a list of names at its commas."""
    names = tuple(dict.fromkeys(name.strip() for name in option.text.split(",")))
    if not all(names):
        raise option.error("is not a list of metrics; write names with commas between them")
    return names


def reason(option: OptionText) -> str:
    """Read a line of plain text."""
    line = " ".join(option.text.split())
    if line == "TEXT" or not line.isprintable():
        raise option.error("is not a reason; say in plain text what has changed, as in 'NCCL 2.19'")
    return line


def command(option: OptionText) -> tuple[str, ...]:
    """Split a command as a shell would."""
    try:
        return tuple(shlex.split(option.text))
    except ValueError as error:
        raise option.error(f"cannot be split as a command: {error}") from error


def setting(option: OptionText) -> Setting:
    """Read a value for a system. It may be a secret: no message shows it."""
    from pytest_dlperf.config.settings import parse_setting

    try:
        return parse_setting(option.text, option.place)
    except ValueError as error:
        raise UsageError(f"{option.place}: {error}") from error


def log_source(option: OptionText) -> NamedLogs:
    """Read the place of a system's or a case's logs."""
    match = re.fullmatch(r"([^/=]+)(?:/([^=]+))?=([, ]*[^, ].*)", option.text, re.DOTALL)
    if match is None:
        raise option.error(
            "is not of the form SYSTEM[/OPTIONS]=DIR or CASE=FILE[,FILE], for instance "
            "paddle-resnet50/dali=logs/2026-11-20 or paddle-resnet50-fp32-b128-4n8g=slurm-4711.out"
        )
    options = tuple(sorted(match[2].split("+"))) if match[2] else None
    return NamedLogs(of=match[1], options=options, places=match[3], folder=option.folder)


def folder(option: OptionText) -> Path:
    """Return a folder; one that was named has to exist."""
    # Unlike pathlib's, this takes names that are too long, and paths in a closed folder.
    if option.place and not os.path.isdir(option.path):  # noqa: PTH112 - as above
        raise UsageError(f"{option.place}: there is no folder {option.text!r}")
    return option.path


def session_folder(option: OptionText) -> Path:
    """Return the folder of a session's logs; the process id keeps two of one second apart."""
    started = f"{datetime.now().astimezone():%Y-%m-%dT%H-%M-%S}"
    name = option.text.replace(START_TIME, started).replace(PROCESS, str(os.getpid()))
    return option._replace(text=name).path


def file_to_write(option: OptionText) -> Path:
    """Return a file for a report; refuse, before hours of training, one that cannot be written."""
    _check_writable(option)
    if option.text.endswith(os.sep) or option.path.is_dir():
        raise option.error("is a folder; name a file")
    if option.path.exists() and not option.path.is_file():
        raise option.error("is not a regular file")
    return option.path


def folder_to_write(option: OptionText) -> Path:
    """Return a folder for reports; it need not exist."""
    _check_writable(option)
    if option.path.exists() and not option.path.is_dir():
        raise option.error("is a file; name a folder")
    return option.path


def history(option: OptionText) -> Path | None:
    """Return the file of the database; ``None`` where none is kept."""
    option = option._replace(text=option.text.strip())
    return None if option.text.casefold() == NO_HISTORY else file_to_write(option)


def _check_writable(option: OptionText) -> None:
    """Refuse a path that cannot be made: missing folders are made later."""
    try:
        parent = next(filter(Path.exists, option.path.parents))
        option.path.exists()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise option.error(f"cannot be written: {why}") from error
    if not parent.is_dir():
        raise option.error(f"cannot be written: {parent} is not a folder")
