"""Every option, ini key and environment variable; all else reads one frozen ``Settings``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_dlperf.config.option_source import OptionSource, file_to_write
from pytest_dlperf.model.judgement import RuleName

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from pytest_dlperf.config.option_source import HostList
    from pytest_dlperf.config.variables import Assignment
    from pytest_dlperf.logs.tree import LogSource

LOCAL_CLUSTER: Final = "local"
_BENCHMARK_JSON: Final = "--benchmark-json"


class ControlArm(str, Enum):
    """When the accepted software is run beside what is tested."""

    ALWAYS = "always"
    ON_REGRESSION = "on-regression"
    NEVER = "never"


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
    markdown_file: Path | None
    """Where the Markdown page goes."""
    html_file: Path | None
    """Where the HTML page goes."""
    tables_directory: Path | None
    """Where the tables of the original benchmark go."""
    history_file: Path | None
    """The database of all sessions, ``None`` for none."""
    history_place: str
    """Where it was named, empty where nobody did."""
    step_summary: Path | None
    """The file that GitHub Actions shows as the summary of a step."""
    annotate: bool
    """Whether failures are told to GitHub Actions as annotations."""
    session_dir: Path
    """Where the logs of this session go."""
    session_dir_given: bool
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
        "markdown",
        "write the results to FILE as Markdown, the regressions first; GitHub's summary of a step "
        "gets them by itself (environment: GITHUB_STEP_SUMMARY)",
        metavar="FILE",
    )
    add("html", "write the results to FILE as one page that opens offline", metavar="FILE")
    add(
        "tables",
        "write the tables and the JSON of the original benchmark into DIR, by system",
        metavar="DIR",
    )
    add(
        "history",
        "database that every session is added to, or none for no database (environment: "
        "DLPERF_HISTORY; default: .dlperf/history.sqlite3)",
        metavar="FILE",
    )
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
    source = OptionSource(config, environment)
    if config.getoption("dlperf_dry_run") and source.values("logs"):
        raise pytest.UsageError(
            "--dlperf-dry-run prints what would be launched, and with --dlperf-logs nothing is; "
            "leave one of them out"
        )
    _check_gate(source)
    _check_reports(source, _files_of_others(config))
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
        session_dir_given=run_directory is not None,
        json_file=source.file("json"),
        markdown_file=source.file("markdown"),
        html_file=source.file("html"),
        tables_directory=source.folder_to_write("tables"),
        history_file=source.history(),
        history_place=source.history_place(),
        step_summary=source.step_summary(),
        annotate=environment.get("GITHUB_ACTIONS") == "true",
        session_dir=run_directory
        # The process id keeps two sessions of one second apart.
        or config.rootpath / ".dlperf/runs" / f"{started:%Y-%m-%dT%H-%M-%S}-{os.getpid()}",
    )


def _check_gate(source: OptionSource) -> None:
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


def check_places(config: pytest.Config, settings: Settings, systems: Container[str]) -> None:
    """Refuse places of reports that are wrong where there is a suite of these ``systems``.

    Raises:
        pytest.UsageError: A report of another plugin cannot be written, or a report lies where a
            table of a system goes.
    """
    others = _files_of_others(config)
    for option, path in others.items():
        file_to_write(path, str(path), option)
    saved = others.get(_BENCHMARK_JSON)
    if saved is not None and not saved.parent.is_dir():
        raise pytest.UsageError(
            f"{_BENCHMARK_JSON}: {str(saved)!r} cannot be written: there is no folder "
            f"{saved.parent}, and pytest-benchmark makes none"
        )
    if settings.tables_directory is None:
        return
    tables = settings.tables_directory.resolve()
    ours = {
        "--dlperf-json": settings.json_file,
        "--dlperf-markdown": settings.markdown_file,
        "--dlperf-html": settings.html_file,
        "--dlperf-history": settings.history_file,
    }
    for option, file in (ours | others).items():
        path = (file or Path()).resolve()
        is_page = path.parent == tables and path.suffix == ".md" and path.stem in systems
        if is_page or (path.parent.parent == tables and path.parent.name in systems):
            raise pytest.UsageError(
                f"{option} names {file}, where --dlperf-tables writes a table; give it another name"
            )


def _files_of_others(config: pytest.Config) -> dict[str, Path]:
    """The files that pytest itself and pytest-benchmark were told to write, by option."""
    found = {}
    for option, name in (("--junitxml", "xmlpath"), (_BENCHMARK_JSON, "benchmark_json")):
        given: Any = getattr(config.option, name, None)
        if given:
            # Before 5.3 pytest-benchmark opens its file at once.
            text = str(given) if isinstance(given, str | Path) else given.name
            path = Path(os.path.expandvars(text)).expanduser() if name == "xmlpath" else Path(text)
            found[option] = config.invocation_params.dir / path
    return found


def _check_reports(source: OptionSource, others: Mapping[str, Path]) -> None:
    """Refuse two reports in one place: the second would take the place of the first.

    Raises:
        pytest.UsageError: Two options name one file.
    """
    named = {f"--dlperf-{name}": source.file(name) for name in ("json", "markdown", "html")}
    named["--dlperf-tables"] = source.folder_to_write("tables")
    named["--dlperf-history"] = source.history()
    first: dict[Path, str] = {}
    for option, path in named.items():
        # A pipe or a terminal takes one report after the other.
        if path is None or (path.exists() and not (path.is_file() or path.is_dir())):
            continue
        earlier = first.setdefault(path.resolve(), option)
        if earlier != option:
            raise pytest.UsageError(
                f"{earlier} and {option} both name {path}; give each a file of its own"
            )
    for option, path in others.items():
        earlier = first.get(path.resolve(), option)
        if earlier != option:
            raise pytest.UsageError(
                f"{earlier} and {option} both name {path}; give each a file of its own"
            )
    summary = source.step_summary()
    if summary is not None and summary.resolve() in first:
        raise pytest.UsageError(
            f"{first[summary.resolve()]} names {summary}, the summary of GitHub Actions, which "
            "gets the Markdown page by itself; leave the option out"
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
