"""Readers of options: from the text of a command line, a variable or an ini file to its value.

A reader raises a ``UsageError`` for a malformed text.
"""

from __future__ import annotations

import math
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
    from pytest_dlperf.model.metric import RuleName

E = TypeVar("E", bound=Enum)

START_TIME: Final = "<start time>"
PROCESS: Final = "<process>"
NO_HISTORY: Final = "none"
_IN_MEMORY: Final = ":memory:"
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")


class ControlArm(StrEnum):
    """When the accepted software is run beside what is tested."""

    ON_REGRESSION = "on-regression"
    NEVER = "never"


class NotifyOn(StrEnum):
    """After which sessions a notice is sent."""

    FAILURE = "failure"
    """After a red one."""
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
        return self.folder / os.path.expanduser(text)  # noqa: PTH111 - pathlib refuses unknown users

    def error(self, fault: str) -> UsageError:
        """Make an error that names the option."""
        options = f"/{'+'.join(self.options)}" if self.options else ""
        return UsageError(f"--dlperf-logs {self.of}{options}: {fault}")


class OptionText(NamedTuple):
    """The text of an option, its place for messages, and the folder that paths in it start from."""

    text: str
    place: str
    folder: Path

    @property
    def path(self) -> Path:
        """The text as a path.

        Raises:
            UsageError: It begins with ``~`` and a user without a home folder on this machine.
        """
        try:
            return self.folder / Path(self.text).expanduser()
        except RuntimeError:
            fault = "is below a home folder that is unknown here; write the path in full"
            raise self.error(fault) from None

    def error(self, fault: str) -> UsageError:
        """The error that names place and text."""
        return UsageError(f"{self.place}: {self.text!r} {fault}")


def text(given: OptionText) -> str:
    """Return the text as it is."""
    return given.text


def path(given: OptionText) -> Path:
    """Return the path; whether anything is there does not matter."""
    return given.path


def yes(given: OptionText) -> bool:
    """Read yes or no, in the usual words."""
    word = given.text.lower()
    if word not in _TRUE + _FALSE:
        raise UsageError(
            f"{given.place}={given.text!r} is neither yes nor no; use one of {', '.join(_TRUE)} "
            f"or {', '.join(_FALSE)}"
        )
    return word in _TRUE


def count(given: OptionText) -> int:
    """Read an integer of at least 1."""
    # More digits than any count has; int() itself refuses thousands of them.
    if not (re.fullmatch(r"[0-9]{1,9}", given.text) and int(given.text) > 0):
        raise UsageError(f"{given.place} must be an integer ≥ 1, not {given.text!r}")
    return int(given.text)


def _member(given: OptionText, choices: type[E]) -> E:
    words = [choice.value for choice in choices]
    if given.text not in words:
        from pytest_dlperf.files.mistakes import nearest

        raise UsageError(
            f"{given.place}: unknown value {given.text!r}{nearest(given.text, words)}; allowed: "
            f"{', '.join(words)}"
        )
    return choices(given.text)


def control_arm(given: OptionText) -> ControlArm:
    """Read when the accepted software is run."""
    return _member(given, ControlArm)


def notify_on(given: OptionText) -> NotifyOn:
    """Read after which sessions a notice is sent."""
    return _member(given, NotifyOn)


def rule_name(given: OptionText) -> RuleName:
    """Read the name of a rule of the gate."""
    from pytest_dlperf.model.metric import RuleName

    return _member(given, RuleName)


def metric_names(given: OptionText) -> tuple[str, ...]:
    """Split a list of names at its commas."""
    names = tuple(dict.fromkeys(name.strip() for name in given.text.split(",")))
    if not all(names):
        raise given.error("is not a list of metrics; write names with commas between them")
    return names


def reason(given: OptionText) -> str:
    """Read a line of plain text."""
    line = " ".join(given.text.split())
    if line == "TEXT":
        raise given.error("is not a reason; say what has changed, such as 'NCCL 2.19'")
    if not line.isprintable():
        raise given.error("has unprintable characters; write a line of plain text")
    return line


def seconds(given: OptionText) -> float:
    """Read a time in seconds, above zero."""
    try:
        found = float(given.text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise given.error("is not a number of seconds > 0")
    return found


def command(given: OptionText) -> tuple[str, ...]:
    """Split a command as a shell would."""
    try:
        return tuple(shlex.split(given.text))
    except ValueError as error:
        raise given.error(f"cannot be split as a command: {error}") from error


def as_written(given: OptionText) -> OptionText:
    """Keep text and place: a list of hosts is read when a run is launched."""
    return given


def setting(given: OptionText) -> Setting:
    """Read a value for a system. It may be a secret: no message shows it."""
    from pytest_dlperf.config.settings import parse_setting

    try:
        return parse_setting(given.text, given.place)
    except ValueError as error:
        raise UsageError(f"{given.place}: {error}") from error


def log_source(given: OptionText) -> NamedLogs:
    """Read the place of a system's or a case's logs."""
    named, separator, places = given.text.partition("=")
    of, slash, options = named.partition("/")
    if not (separator and of and places.strip(" ,")) or (slash and not options):
        raise given.error(
            "is not of the form SYSTEM[/OPTIONS]=DIR or CASE=FILE[,FILE], for instance "
            "paddle-resnet50/dali=logs/2026-11-20 or paddle-resnet50-fp32-b128-4n8g=slurm-4711.out"
        )
    return NamedLogs(
        of=of,
        options=tuple(sorted(options.split("+"))) if options else None,
        places=places,
        folder=given.folder,
    )


def folder(given: OptionText) -> Path:
    """Return a folder; one that was named has to exist."""
    # Unlike pathlib's, this takes names that are too long, and paths in a closed folder.
    if given.place and not os.path.isdir(given.path):  # noqa: PTH112 - as above
        raise UsageError(f"{given.place}: there is no folder {given.text!r}")
    return given.path


def session_folder(given: OptionText) -> Path:
    """Return the folder of a session's logs; the process id keeps two of one second apart."""
    started = f"{datetime.now().astimezone():%Y-%m-%dT%H-%M-%S}"
    name = given.text.replace(START_TIME, started).replace(PROCESS, str(os.getpid()))
    return given._replace(text=name).path


def file_to_write(given: OptionText) -> Path:
    """Return a file for a report; refuse, before hours of training, one that cannot be written."""
    parent = _existing_parent(given)
    if given.text.endswith(os.sep) or (parent == given.path and given.path.is_dir()):
        raise given.error("is a folder; name a file")
    if parent == given.path and not given.path.is_file():
        raise given.error("is not a regular file")
    return given.path


def folder_to_write(given: OptionText) -> Path:
    """Return a folder for reports; it need not exist."""
    if _existing_parent(given) == given.path and not given.path.is_dir():
        raise given.error("is a file; name a folder")
    return given.path


def history(given: OptionText) -> Path | None:
    """Return the file of the database; ``None`` where none is kept."""
    name = given.text.strip()
    if not name:
        raise UsageError(f"{given.place} is empty; give a value or leave it out")
    if name.casefold() == NO_HISTORY:
        return None
    named = OptionText(name, given.place, given.folder)
    file = file_to_write(named)
    # SQLite's own word for a database in memory.
    if name.casefold() == _IN_MEMORY:
        raise named.error(f"keeps nothing; name a file, or {NO_HISTORY} for no history")
    return file


def _existing_parent(given: OptionText) -> Path | None:
    """Return the longest part of the path that exists; missing folders are made later."""
    wanted = given.path
    try:
        found = next((place for place in (wanted, *wanted.parents) if place.exists()), None)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise given.error(f"cannot be written: {why}") from error
    if found not in {None, wanted} and not found.is_dir():
        raise given.error(f"cannot be written: {found} is not a folder")
    return found
