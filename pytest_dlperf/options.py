"""Every option, ini key and environment variable; all else reads one frozen ``Settings``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_dlperf.logs.tree import LogSource

if TYPE_CHECKING:
    from collections.abc import Mapping

LOCAL_CLUSTER: Final = "local"
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user asked for, from command line, environment and ini file in that order."""

    cluster: str
    """Name of the cluster to compare with: a folder of ``baselines_directory``."""
    systems_directories: tuple[Path, ...]
    """Folders whose ``*.yaml`` declare systems."""
    baselines_directory: Path
    """Folder of the clusters."""
    log_sources: tuple[LogSource, ...]
    """Logs to judge instead of launching; empty: launch."""
    repeats: int | None
    """Runs per case, ``None`` for each system's own number."""
    create_baselines: bool
    """Record what was measured where no baseline exists."""
    strict: bool
    """Nothing selected may end skipped."""
    json_file: Path | None
    """Where the results file goes."""
    run_directory: Path
    """Where the logs of this session go."""
    run_directory_given: bool
    """Whether the user named it."""


def add_options(parser: pytest.Parser) -> None:
    """Declare the options with their ini keys."""
    group = parser.getgroup("dlperf", "performance regression of distributed training")

    def add(name: str, explanation: str, *, ini: str | None = "string", **kwargs: Any) -> None:
        group.addoption(f"--dlperf-{name}", default=None, help=explanation, **kwargs)
        if ini:
            key = f"dlperf_{name.replace('-', '_')}"
            parser.addini(key, f"default of --dlperf-{name}", type=ini, default=None)  # type: ignore[arg-type]

    add(
        "cluster",
        "cluster to compare with, a folder under the baselines (environment: DLPERF_CLUSTER; "
        f"default: {LOCAL_CLUSTER}, this machine's own numbers)",
        metavar="NAME",
    )
    add(
        "logs",
        "judge the logs below DIR instead of launching; may be given several times",
        ini="linelist",
        metavar="SYSTEM[/OPTIONS]=DIR",
        action="append",
    )
    add("repeats", "runs per case instead of the system's own number", metavar="N")
    add(
        "create-baselines",
        "record what is measured as the baseline of every case that has none",
        action="store_true",
    )
    add(
        "strict",
        "fail what would be skipped: for nightly gates (environment: DLPERF_STRICT)",
        action="store_true",
    )
    add("json", "write the results to FILE as JSON, schema 1", metavar="FILE")
    add(
        "run-dir",
        "folder for the logs of this session (default: .dlperf/runs/<start time>-<process>)",
        metavar="DIR",
    )
    add(
        "systems",
        "folder of system files; may be given several times (default: bench_tests/systems)",
        ini="linelist",
        metavar="DIR",
        action="append",
    )
    add("baselines", "folder of the clusters (default: baselines)", metavar="DIR")


def read_settings(config: pytest.Config, environment: Mapping[str, str] = os.environ) -> Settings:
    """Merge command line, environment and ini file.

    Paths on the command line are relative to the folder pytest was started in, those of the ini
    file and the defaults to the root folder.

    Raises:
        pytest.UsageError: A value is malformed; the message names where it was given.
    """
    source = _Source(config, environment)
    run_directory = source.path("run-dir")
    started = datetime.now().astimezone()
    return Settings(
        cluster=source.value("cluster", environment="DLPERF_CLUSTER")[0] or LOCAL_CLUSTER,
        systems_directories=source.folders("systems") or (config.rootpath / "bench_tests/systems",),
        baselines_directory=source.path("baselines") or config.rootpath / "baselines",
        log_sources=tuple(source.log_source(*given) for given in source.values("logs")),
        repeats=source.count("repeats"),
        create_baselines=source.flag("create-baselines"),
        strict=source.flag("strict", environment="DLPERF_STRICT"),
        run_directory_given=run_directory is not None,
        json_file=source.file("json"),
        run_directory=run_directory
        # The process id keeps two sessions of one second apart.
        or config.rootpath / ".dlperf/runs" / f"{started:%Y-%m-%dT%H-%M-%S}-{os.getpid()}",
    )


class _Source:
    """Looks one option up in all three places, and remembers which one answered."""

    def __init__(self, config: pytest.Config, environment: Mapping[str, str]) -> None:
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
            if given == "":
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
        given, place = self.value(name)
        return self._resolve(given, place) if given else None

    def paths(self, name: str) -> tuple[Path, ...]:
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
        if path is not None and path.is_dir():
            raise pytest.UsageError(f"{place}: {given!r} is a folder; name a file")
        return path

    def _resolve(self, given: str, place: str) -> Path:
        base = self._config.invocation_params.dir if place.startswith("--") else self._ini_folder
        return base / Path(given).expanduser()

    def flag(self, name: str, *, environment: str | None = None) -> bool:
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

    def count(self, name: str) -> int | None:
        given, place = self.value(name)
        if given is None:
            return None
        # More digits than any count has; int() itself refuses thousands of them.
        if not (re.fullmatch(r"[0-9]{1,9}", given) and int(given) > 0):
            raise pytest.UsageError(f"{place}: {given!r} is no whole number of at least 1")
        return int(given)

    def log_source(self, given: str, place: str) -> LogSource:
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


def is_dlperf_option_given(config: pytest.Config) -> bool:
    """Whether the command line asks for anything of this plugin."""
    return any(
        name.startswith("dlperf_") and value is not None
        for name, value in vars(config.option).items()
    )
