"""One option looked up on the command line, in the environment and in the ini file."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_dlperf.logs.tree import LogSource

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import Enum

    from pytest_dlperf.config.variables import Assignment

_NO_HISTORY: Final = "none"
_IN_MEMORY: Final = ":memory:"
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off", "")


@dataclass(frozen=True, slots=True)
class HostList:
    """A list of hosts as it was given: where, and the folder that a file name in it starts from."""

    text: str
    place: str
    folder: Path


class OptionSource:
    """Looks one option up in all three places, and remembers which one answered.

    What is malformed is a ``pytest.UsageError`` that names the place.
    """

    def __init__(self, config: pytest.Config, environment: Mapping[str, str]) -> None:
        """Look in these two, and in the ini file of the first."""
        self._config = config
        self._environment = environment
        ini_file = config.inipath
        self._ini_folder = ini_file.parent if ini_file is not None else config.rootpath

    def value(self, name: str, *, environment: str | None = None) -> tuple[Any, str]:
        """The value and the place that gave it; ``None`` where nobody did."""
        key = f"dlperf_{name.replace('-', '_')}"
        given = self._config.getoption(key)
        if given is not None:
            place = f"--dlperf-{name}"
            if isinstance(given, str) and not given.strip():
                raise pytest.UsageError(f"{place} is empty; give a value or leave it out")
            return given, place
        if environment and self._environment.get(environment, "").strip():
            return self._environment[environment].strip(), environment
        ini = self._config.getini(key)
        return (ini or None), f"ini key {key}"

    def values(self, name: str) -> list[tuple[str, str]]:
        """The values of an option that may be given several times, each with its place."""
        given, place = self.value(name)
        return [(value, place) for value in given or ()]

    def path(self, name: str) -> Path | None:
        """A path, from the folder that its place stands for; ``None`` where nobody gave one."""
        given, place = self.value(name)
        return self._resolve(given, place) if given else None

    def paths(self, name: str) -> tuple[Path, ...]:
        """The paths of an option that may be given several times."""
        return tuple(self._resolve(value, place) for value, place in self.values(name))

    def folders(self, name: str) -> tuple[Path, ...]:
        """Folders that have to be there."""
        for value, place in self.values(name):
            if not self._resolve(value, place).is_dir():
                raise pytest.UsageError(f"{place}: there is no folder {value!r}")
        return self.paths(name)

    def file(self, name: str) -> Path | None:
        """A file to write: told now if it cannot be one, not after hours of training."""
        given, place = self.value(name)
        path = self.path(name)
        return file_to_write(path, given, place) if path is not None else None

    def history(self) -> Path | None:
        """The database of sessions, ``None`` for none."""
        given, place = self.value("history", environment="DLPERF_HISTORY")
        if not given:
            return self._config.rootpath / ".dlperf/history.sqlite3"
        return history_file(given, place, self._folder(place))

    def history_place(self) -> str:
        """Where the database was named, empty where nobody did."""
        given, place = self.value("history", environment="DLPERF_HISTORY")
        return place if given else ""

    def folder_to_write(self, name: str) -> Path | None:
        """A folder to write into; it need not be there."""
        given, place = self.value(name)
        path = self.path(name)
        return _folder_to_write(path, given, place) if path is not None else None

    def step_summary(self) -> Path | None:
        """The file that GitHub Actions has made for the summary of a step."""
        given = self._environment.get("GITHUB_STEP_SUMMARY", "").strip()
        return self._config.invocation_params.dir / given if given else None

    def _resolve(self, given: str, place: str) -> Path:
        return self._folder(place) / Path(given).expanduser()

    def _folder(self, place: str) -> Path:
        """The folder that paths of a place start from."""
        # What the environment names lies where the user is, like what the command line names.
        in_ini_file = place.startswith("ini key")
        return self._ini_folder if in_ini_file else self._config.invocation_params.dir

    def flag(self, name: str, *, environment: str | None = None) -> bool:
        """Whether something was asked for."""
        given, place = self.value(name, environment=environment)
        if isinstance(given, str):
            if given.lower() in _TRUE:
                return True
            if given.lower() in _FALSE:
                return False
            raise pytest.UsageError(
                f"{place}={given!r} is neither yes nor no; use one of "
                f"{', '.join(_TRUE)} or {', '.join(filter(None, _FALSE))}"
            )
        return bool(given)

    def choice(self, name: str, allowed: type[Enum]) -> str | None:
        """One of the values of an enumeration, ``None`` where nobody chose."""
        found, place = self.value(name)
        given: str | None = found
        words = [item.value for item in allowed]
        if given is not None and given not in words:
            from pytest_dlperf.files.yamlfile import nearest

            raise pytest.UsageError(
                f"{place}: there is no {given!r}{nearest(given, words)}; allowed: "
                f"{', '.join(words)}"
            )
        return given

    def reason(self) -> str | None:
        """Why numbers are accepted: a line of plain text of the command line."""
        given = self._config.getoption("dlperf_reason")
        if given is None:
            return None
        reason = " ".join(given.split())
        if not reason.isprintable() or not reason:
            what = "is empty" if not reason else "holds what cannot be printed"
            raise pytest.UsageError(
                f"--dlperf-reason: {given!r} {what}; write a line of plain text"
            )
        return reason

    def count(self, name: str) -> int | None:
        """A whole number of at least 1."""
        given, place = self.value(name)
        if given is None:
            return None
        # More digits than any count has; int() itself refuses thousands of them.
        if not (re.fullmatch(r"[0-9]{1,9}", given) and int(given) > 0):
            raise pytest.UsageError(f"{place}: {given!r} is no whole number of at least 1")
        return int(given)

    def hosts(self) -> HostList | None:
        """The list of hosts, as it was given."""
        given, place = self.value("hosts", environment="DLPERF_HOSTS")
        if not given:
            return None
        return HostList(given, place, self._folder(place))

    def lock_name(self) -> str:
        """The name of the locks on hosts, empty for the usual one."""
        given, place = self.value("lock", environment="DLPERF_LOCK")
        # Part of the name of a socket, which is short and has parts of its own.
        if given and not re.fullmatch(r"[A-Za-z0-9._-]{1,60}", given):
            raise pytest.UsageError(
                f"{place}: {given!r} is no name of a lock; allowed are up to 60 letters, digits, "
                "'.', '_' and '-'"
            )
        return given or ""

    def command(self, name: str, *, environment: str) -> tuple[str, ...]:
        """A command, split as a shell would."""
        given, place = self.value(name, environment=environment)
        try:
            return tuple(shlex.split(given or ""))
        except ValueError as error:
            raise pytest.UsageError(f"{place}: {given!r} is no command: {error}") from error

    def assignment(self, given: str, place: str) -> Assignment:
        """What a system is told on the command line or in the ini file."""
        from pytest_dlperf.config.variables import parse_assignment

        try:
            # The value may be a secret, which has no place in a message.
            name = given.partition("=")[0]
            return replace(parse_assignment(given), place=f"{place} {name}")
        except ValueError as error:
            raise pytest.UsageError(f"{place}: {error}") from error

    def log_source(self, given: str, place: str) -> LogSource:
        """Logs to judge."""
        named, separator, directory = given.partition("=")
        system, slash, options = named.partition("/")
        if not (separator and system and directory) or (slash and not options):
            raise pytest.UsageError(
                f"{place}: {given!r} is not of the form SYSTEM[/OPTIONS]=DIR, "
                "for instance paddle-resnet50/dali=logs/2026-11-20"
            )
        return LogSource(
            system=system,
            options=tuple(sorted(options.split("+"))) if options else None,
            directory=self._resolve(directory, place),
        )


def history_file(given: str, place: str, folder: Path) -> Path | None:
    """The database that somebody names, from this folder on; ``None`` where none is to be kept.

    Raises:
        pytest.UsageError: It cannot be a database, or is one that nobody sees again.
    """
    name = given.strip()
    if not name:
        raise pytest.UsageError(f"{place} is empty; give a value or leave it out")
    if name.casefold() == _NO_HISTORY:
        return None
    path = file_to_write(folder / Path(name).expanduser(), given, place)
    # SQLite's own word for a database in memory.
    if name.casefold() == _IN_MEMORY or (path.exists() and not path.is_file()):
        raise pytest.UsageError(
            f"{place}: {given!r} keeps nothing; name a file, or {_NO_HISTORY} for no history"
        )
    return path


def file_to_write(path: Path, given: str, place: str) -> Path:
    """A file that a report can go into, as far as can be told before there is one.

    Raises:
        pytest.UsageError: It cannot be a file there.
    """
    if _existing_parent(path, given, place) == path and path.is_dir():
        raise pytest.UsageError(f"{place}: {given!r} is a folder; name a file")
    return path


def _folder_to_write(path: Path, given: str, place: str) -> Path:
    """A folder that reports can go into; it need not be there.

    Raises:
        pytest.UsageError: It cannot be a folder there.
    """
    if _existing_parent(path, given, place) == path and not path.is_dir():
        raise pytest.UsageError(f"{place}: {given!r} is a file; name a folder")
    return path


def _existing_parent(path: Path, given: str, place: str) -> Path | None:
    """The path itself or what of it is there already; missing folders are made later.

    Raises:
        pytest.UsageError: It lies below something that is no folder, or can be no path.
    """
    try:
        found = next((folder for folder in (path, *path.parents) if folder.exists()), None)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise pytest.UsageError(f"{place}: {given!r} cannot be written: {why}") from error
    if found not in {None, path} and not found.is_dir():
        raise pytest.UsageError(f"{place}: {given!r} cannot be written: {found} is no folder")
    return found
