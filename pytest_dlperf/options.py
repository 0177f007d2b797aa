"""Every option, ini key and environment variable; all else reads one frozen ``Settings``."""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_dlperf.gate.verdict import RuleName
from pytest_dlperf.logs.tree import LogSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.launch.variables import Assignment

LOCAL_CLUSTER: Final = "local"
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off", "")


class ControlArm(str, Enum):
    """When the accepted software is run beside what is tested."""

    ALWAYS = "always"
    ON_REGRESSION = "on-regression"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class HostList:
    """A list of hosts as it was given: where, and the folder that a file name in it starts from."""

    text: str
    place: str
    folder: Path


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
    hosts: HostList | None
    """Hosts to launch on, ``None`` for Slurm's own inside an allocation, else this machine."""
    launcher: str | None
    """Name of the way to the hosts, ``None`` to choose by what there is."""
    launcher_place: str
    """Where the launcher was named."""
    ssh_command: tuple[str, ...]
    """The OpenSSH client, with options."""
    in_allocation: bool
    """Whether the session runs inside an allocation of Slurm."""
    share_hosts: bool
    """Whether several runs may use one host at once, each with devices of its own."""
    lock: str
    """Name of the locks on hosts; runs under another name do not wait for it."""
    assignments: tuple[Assignment, ...]
    """What systems are told on the command line or in the ini file."""
    dry_run: bool
    """Print what would be executed, and run nothing."""
    repeats: int | None
    """Runs per case, ``None`` for each system's own number."""
    gate: RuleName | None
    """The rule to judge by, ``None`` for the one that each baseline allows."""
    control: ControlArm
    """When the accepted software is run beside what is tested."""
    create_baselines: bool
    """Record what was measured where no baseline exists."""
    update_baselines: bool
    """Accept what was measured, where it differs from the baseline."""
    extend_baselines: bool
    """Add the runs of cases that pass to those that later sessions are held against."""
    reason: str | None
    """Why numbers are accepted."""
    strict: bool
    """Nothing selected may end skipped."""
    json_file: Path | None
    """Where the results file goes."""
    run_directory: Path
    """Where the logs of this session go."""
    run_directory_given: bool
    """Whether the user named it."""

    @property
    def records_baselines(self) -> bool:
        """Whether the session may change baselines."""
        return self.create_baselines or self.update_baselines or self.extend_baselines

    @property
    def may_launch_on_hosts(self) -> bool:
        """Whether there may be hosts to launch on, and a suite to launch."""
        are_named = self.hosts is not None or self.in_allocation
        has_suite = any(folder.is_dir() for folder in self.systems_directories)
        return are_named and has_suite and not self.log_sources


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
    add(
        "hosts",
        "hosts to launch on: host[:devices],node[01-04]:8,... or @FILE (environment: DLPERF_HOSTS; "
        "default: the nodes of a Slurm allocation, else this machine)",
        metavar="LIST",
    )
    add(
        "launcher",
        "how hosts are reached: local, ssh, slurm, or what a plugin adds (environment: "
        "DLPERF_LAUNCHER; default: slurm inside an allocation, ssh with hosts, else local)",
        metavar="NAME",
    )
    add(
        "ssh",
        "the OpenSSH client with its options, as in 'ssh -F cluster.conf' (environment: "
        "DLPERF_SSH; default: ssh)",
        metavar="COMMAND",
    )
    add(
        "share-hosts",
        "let several runs use a host at once, each with devices of its own; they slow each other "
        "down",
        action="store_true",
    )
    add(
        "lock",
        "name of the lock that a run holds on each of its hosts; runs under different names do not "
        "wait for each other (environment: DLPERF_LOCK)",
        metavar="NAME",
    )
    add(
        "set",
        "what a system's launch needs or takes: a variable, extra_args, env.NAME, python or "
        "pause_s; SYSTEM may be *; may be given several times",
        ini="linelist",
        metavar="SYSTEM.name=value",
        action="append",
    )
    add(
        "dry-run",
        "print what each node of each selected case would execute, and run nothing",
        ini=None,
        action="store_true",
    )
    add("repeats", "runs per case instead of the system's own number", metavar="N")
    add(
        "gate",
        "judge every case by this rule: tolerance or sequential (default: sequential where a "
        "baseline has enough runs)",
        metavar="RULE",
    )
    add(
        "control",
        "when to run the accepted software, which cluster.yaml names, in turn with what is "
        "tested: always, on-regression or never (default: on-regression)",
        metavar="WHEN",
    )
    add(
        "create-baselines",
        "record what is measured as the baseline of every case that has none",
        action="store_true",
    )
    add(
        "update-baselines",
        "accept what is measured where it lies outside the tolerance, and where there is no "
        "baseline; a lower number needs --dlperf-reason",
        action="store_true",
    )
    add(
        "extend-baselines",
        "add the runs of cases that pass to those that later sessions are held against; the "
        "accepted number stays",
        action="store_true",
    )
    add("reason", "why numbers are accepted; kept with them", ini=None, metavar="TEXT")
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
    if config.getoption("dlperf_dry_run") and source.values("logs"):
        raise pytest.UsageError(
            "--dlperf-dry-run prints what would be launched, and with --dlperf-logs nothing is; "
            "leave one of them out"
        )
    _check_gate(source)
    run_directory = source.path("run-dir")
    launcher, launcher_place = source.value("launcher", environment="DLPERF_LAUNCHER")
    started = datetime.now().astimezone()
    return Settings(
        cluster=source.value("cluster", environment="DLPERF_CLUSTER")[0] or LOCAL_CLUSTER,
        systems_directories=source.folders("systems") or (config.rootpath / "bench_tests/systems",),
        baselines_directory=source.path("baselines") or config.rootpath / "baselines",
        log_sources=tuple(source.log_source(*given) for given in source.values("logs")),
        hosts=source.hosts(),
        launcher=launcher,
        launcher_place=launcher_place,
        ssh_command=source.command("ssh", environment="DLPERF_SSH") or ("ssh",),
        in_allocation=bool(environment.get("SLURM_JOB_NODELIST")),
        share_hosts=source.flag("share-hosts"),
        lock=source.lock_name(),
        assignments=tuple(source.assignment(*given) for given in source.values("set")),
        dry_run=bool(config.getoption("dlperf_dry_run")),
        repeats=source.count("repeats"),
        gate=RuleName(gate) if (gate := source.choice("gate", RuleName)) else None,
        control=ControlArm(source.choice("control", ControlArm) or ControlArm.ON_REGRESSION),
        create_baselines=source.flag("create-baselines"),
        update_baselines=source.flag("update-baselines"),
        extend_baselines=source.flag("extend-baselines"),
        reason=source.reason(),
        strict=source.flag("strict", environment="DLPERF_STRICT"),
        run_directory_given=run_directory is not None,
        json_file=source.file("json"),
        run_directory=run_directory
        # The process id keeps two sessions of one second apart.
        or config.rootpath / ".dlperf/runs" / f"{started:%Y-%m-%dT%H-%M-%S}-{os.getpid()}",
    )


def _check_gate(source: _Source) -> None:
    """Refuse what cannot be done together.

    Raises:
        pytest.UsageError: Two options contradict each other.
    """
    if source.reason() and not (source.flag("update-baselines")):
        raise pytest.UsageError(
            "--dlperf-reason says why numbers are accepted; give --dlperf-update-baselines too"
        )
    repeats = source.count("repeats")
    if source.choice("gate", RuleName) == RuleName.SEQUENTIAL.value and repeats in (1, 2):
        raise pytest.UsageError(
            f"--dlperf-gate sequential needs 3 runs at least, and {repeats} were asked for; leave "
            "--dlperf-repeats out"
        )
    if source.choice("control", ControlArm) == ControlArm.ALWAYS.value and source.values("logs"):
        raise pytest.UsageError(
            "--dlperf-control always launches runs, and with --dlperf-logs nothing is launched; "
            "leave one of them out"
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

    def choice(self, name: str, allowed: type[Enum]) -> str | None:
        found, place = self.value(name)
        given: str | None = found
        words = [item.value for item in allowed]
        if given is not None and given not in words:
            from pytest_dlperf.yamlfile import nearest

            raise pytest.UsageError(
                f"{place}: there is no {given!r}{nearest(given, words)}; allowed: "
                f"{', '.join(words)}"
            )
        return given

    def reason(self) -> str | None:
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
        given, place = self.value(name)
        if given is None:
            return None
        # More digits than any count has; int() itself refuses thousands of them.
        if not (re.fullmatch(r"[0-9]{1,9}", given) and int(given) > 0):
            raise pytest.UsageError(f"{place}: {given!r} is no whole number of at least 1")
        return int(given)

    def hosts(self) -> HostList | None:
        given, place = self.value("hosts", environment="DLPERF_HOSTS")
        if not given:
            return None
        # A file that the environment names lies where the user is, like one on the command line.
        in_ini_file = place.startswith("ini key")
        folder = self._ini_folder if in_ini_file else self._config.invocation_params.dir
        return HostList(given, place, folder)

    def lock_name(self) -> str:
        given, place = self.value("lock", environment="DLPERF_LOCK")
        # Part of the name of a socket, which is short and has parts of its own.
        if given and not re.fullmatch(r"[A-Za-z0-9._-]{1,60}", given):
            raise pytest.UsageError(
                f"{place}: {given!r} is no name of a lock; allowed are up to 60 letters, digits, "
                "'.', '_' and '-'"
            )
        return given or ""

    def command(self, name: str, *, environment: str) -> tuple[str, ...]:
        given, place = self.value(name, environment=environment)
        try:
            return tuple(shlex.split(given or ""))
        except ValueError as error:
            raise pytest.UsageError(f"{place}: {given!r} is no command: {error}") from error

    def assignment(self, given: str, place: str) -> Assignment:
        from pytest_dlperf.launch.variables import parse_assignment

        try:
            # The value may be a secret, which has no place in a message.
            name = given.partition("=")[0]
            return replace(parse_assignment(given), place=f"{place} {name}")
        except ValueError as error:
            raise pytest.UsageError(f"{place}: {error}") from error

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


def keep_host_files(arguments: list[str]) -> None:
    """Join ``--dlperf-hosts`` and ``@FILE`` in place, before the arguments are parsed for good.

    An argument that begins with ``@`` would be replaced with the lines of the file.
    """
    for index in range(len(arguments) - 1, 0, -1):
        if arguments[index - 1] == "--dlperf-hosts" and arguments[index].startswith("@"):
            arguments[index - 1 : index + 1] = ["=".join(arguments[index - 1 : index + 1])]


def is_dlperf_option_given(config: pytest.Config) -> bool:
    """Whether the command line asks for anything of this plugin."""
    return any(
        name.startswith("dlperf_") and value is not None
        for name, value in vars(config.option).items()
    )
