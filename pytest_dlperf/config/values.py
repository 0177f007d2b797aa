"""Values of options: from the text that somebody gave, wherever it stood, to what it means.

A reader raises a ``UsageError`` for a text that is malformed.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_dlperf.config.assignments import Assignment
    from pytest_dlperf.model.metric import RuleName

START_TIME: Final = "<start time>"
PROCESS: Final = "<process>"
NO_HISTORY: Final = "none"
_IN_MEMORY: Final = ":memory:"
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off")


class ControlArm(str, Enum):
    """When the accepted software is run beside what is tested."""

    ALWAYS = "always"
    ON_REGRESSION = "on-regression"
    NEVER = "never"


class NotifyOn(str, Enum):
    """After which sessions a notice is sent."""

    FAILURE = "failure"
    """After a red one."""
    CHANGE = "change"
    """Where something is newly red, newly green or worse than in the sessions before."""
    ALWAYS = "always"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenLogs:
    """Logs that exist, and what they are of: a system, maybe with options, or one of its cases."""

    of: str
    options: tuple[str, ...] | None
    places: str
    """A folder, a file, files of a run's nodes with commas between them, or a pattern."""
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
        """Make the error of what the user named."""
        options = f"/{'+'.join(self.options)}" if self.options else ""
        return UsageError(f"--dlperf-logs {self.of}{options}: {fault}")


@dataclass(frozen=True)
class Given:
    """The text of an option, its place for messages, and the folder that paths in it start from."""

    text: str
    place: str
    folder: Path

    @property
    def path(self) -> Path:
        """The text as a path."""
        return self.folder / Path(self.text).expanduser()

    def error(self, fault: str) -> UsageError:
        """The error that names place and text."""
        return UsageError(f"{self.place}: {self.text!r} {fault}")


def text(given: Given) -> str:
    """Return the text as it is."""
    return given.text


def path(given: Given) -> Path:
    """Return the path; whether anything is there does not matter."""
    return given.path


def yes(given: Given) -> bool:
    """Read yes or no, in the usual words."""
    word = given.text.lower()
    if word not in _TRUE + _FALSE:
        raise UsageError(
            f"{given.place}={given.text!r} is neither yes nor no; use one of {', '.join(_TRUE)} "
            f"or {', '.join(_FALSE)}"
        )
    return word in _TRUE


def count(given: Given) -> int:
    """Read an integer of at least 1."""
    # More digits than any count has; int() itself refuses thousands of them.
    if not (re.fullmatch(r"[0-9]{1,9}", given.text) and int(given.text) > 0):
        raise UsageError(f"{given.place} must be an integer ≥ 1, not {given.text!r}")
    return int(given.text)


def _word(given: Given, words: Iterable[str]) -> str:
    allowed = list(words)
    if given.text not in allowed:
        from pytest_dlperf.files.yamlfile import nearest

        raise UsageError(
            f"{given.place}: there is no {given.text!r}{nearest(given.text, allowed)}; allowed: "
            f"{', '.join(allowed)}"
        )
    return given.text


def control_arm(given: Given) -> ControlArm:
    """Read when the accepted software is run."""
    return ControlArm(_word(given, (word.value for word in ControlArm)))


def notify_on(given: Given) -> NotifyOn:
    """Read after which sessions a notice is sent."""
    return NotifyOn(_word(given, (word.value for word in NotifyOn)))


def rule_name(given: Given) -> RuleName:
    """Read the name of a rule of the gate."""
    from pytest_dlperf.model.metric import RuleName

    return RuleName(_word(given, (word.value for word in RuleName)))


def metric_names(given: Given) -> tuple[str, ...]:
    """Split a list of names at its commas."""
    names = tuple(dict.fromkeys(name.strip() for name in given.text.split(",")))
    if not all(names):
        raise given.error("is no list of metrics; write names with commas between them")
    return names


def reason(given: Given) -> str:
    """Read a line of plain text."""
    line = " ".join(given.text.split())
    if line == "TEXT":
        raise given.error("is no reason; say what has changed, such as 'NCCL 2.19'")
    if not line.isprintable():
        raise given.error("holds what cannot be printed; write a line of plain text")
    return line


def seconds(given: Given) -> float:
    """Read a time in seconds, above zero."""
    try:
        found = float(given.text)
    except ValueError:
        found = math.nan
    if not 0 < found < math.inf:
        raise given.error("is no number of seconds > 0")
    return found


def lock_name(given: Given) -> str:
    """Read the name of a lock: part of the name of a socket, which is short."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,60}", given.text):
        raise given.error(
            "is no name of a lock; allowed are up to 60 letters, digits, '.', '_' and '-'"
        )
    return given.text


def command(given: Given) -> tuple[str, ...]:
    """Split a command as a shell would."""
    try:
        return tuple(shlex.split(given.text))
    except ValueError as error:
        raise given.error(f"is no command: {error}") from error


def as_given(given: Given) -> Given:
    """Keep text and place: a list of hosts is read by who launches, and names its place then."""
    return given


def assignment(given: Given) -> Assignment:
    """Read what a system is told. The value may be a secret, which has no place in a message."""
    from dataclasses import replace

    from pytest_dlperf.config.assignments import parse_assignment

    try:
        parsed = parse_assignment(given.text)
    except ValueError as error:
        raise UsageError(f"{given.place}: {error}") from error
    return replace(parsed, place=f"{given.place} {given.text.partition('=')[0]}")


def log_source(given: Given) -> GivenLogs:
    """Read which system's or case's logs lie where."""
    named, separator, places = given.text.partition("=")
    of, slash, options = named.partition("/")
    if not (separator and of and places.strip(" ,")) or (slash and not options):
        raise given.error(
            "is not of the form SYSTEM[/OPTIONS]=DIR or CASE=FILE, for instance "
            "paddle-resnet50/dali=logs/2026-11-20 or paddle-resnet50-fp32-b128-4n8g=slurm-4711.out"
        )
    return GivenLogs(
        of=of,
        options=tuple(sorted(options.split("+"))) if options else None,
        places=places,
        folder=given.folder,
    )


def folder(given: Given) -> Path:
    """Return a folder, which has to be there if somebody has named it."""
    # Unlike pathlib's, this takes names that are too long, and what lies in a closed folder.
    if given.place and not os.path.isdir(given.path):  # noqa: PTH112 - as above
        raise UsageError(f"{given.place}: there is no folder {given.text!r}")
    return given.path


def session_folder(given: Given) -> Path:
    """Return the folder of a session's logs; the process keeps two of one second apart."""
    started = f"{datetime.now().astimezone():%Y-%m-%dT%H-%M-%S}"
    name = given.text.replace(START_TIME, started).replace(PROCESS, str(os.getpid()))
    return given.folder / Path(name).expanduser()


def file_to_write(given: Given) -> Path:
    """Return a file that a report can go into, as far as can be told before hours of training."""
    if _existing_parent(given) == given.path and given.path.is_dir():
        raise given.error("is a folder; name a file")
    _check_links(given, is_folder=False)
    return given.path


def folder_to_write(given: Given) -> Path:
    """Return a folder that reports can go into; it need not be there."""
    if _existing_parent(given) == given.path and not given.path.is_dir():
        raise given.error("is a file; name a folder")
    _check_links(given, is_folder=True)
    return given.path


def history(given: Given) -> Path | None:
    """Return the database that somebody names; ``None`` where none is to be kept."""
    name = given.text.strip()
    if not name:
        raise UsageError(f"{given.place} is empty; give a value or leave it out")
    if name.casefold() == NO_HISTORY:
        return None
    named = Given(name, given.place, given.folder)
    file = file_to_write(named)
    # SQLite's own word for a database in memory.
    if name.casefold() == _IN_MEMORY or (file.exists() and not file.is_file()):
        raise named.error(f"keeps nothing; name a file, or {NO_HISTORY} for no history")
    return file


def _check_links(given: Given, *, is_folder: bool) -> None:
    from pytest_dlperf.files.writing import destination

    try:
        destination(given.path, is_folder=is_folder)
    except OSError as error:
        raise given.error(f"cannot be written: {error.strerror}") from error


def _existing_parent(given: Given) -> Path | None:
    """Return the path itself or what of it is there already; missing folders are made later."""
    wanted = given.path
    try:
        found = next((place for place in (wanted, *wanted.parents) if place.exists()), None)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise given.error(f"cannot be written: {why}") from error
    if found not in {None, wanted} and not found.is_dir():
        raise given.error(f"cannot be written: {found} is no folder")
    return found
