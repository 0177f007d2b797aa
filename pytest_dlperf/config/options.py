"""Options of a session: each is declared once, in the table ``Settings``, and read by one reader.

Every start of pytest imports this module, so its values are named tuples: msgspec would cost a
project without tests of ours more than all the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from pytest_dlperf.config import notices, values
from pytest_dlperf.config.notices import Target
from pytest_dlperf.config.values import (
    PROCESS,
    START_TIME,
    ControlArm,
    NamedLogs,
    NotifyOn,
    OptionText,
)
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from pytest_dlperf.config.settings import Setting

LOCAL_CLUSTER: Final = "local"
_PREFIX: Final = "DLPERF_"
_OF_RUNS: Final = ("DLPERF_LOCK", "DLPERF_RUN_ID", "DLPERF_STEPS", "DLPERF_STEPS_SYNCHRONIZE")
"""Set for runs of a session, and so in a session inside a run."""


class Option(NamedTuple):
    """An option of the command line, with its ini key and its environment variable."""

    usage: str
    """The name, and that of its value in help; a flag has none."""
    help: str
    """What the option is for, in Markdown."""
    read: Callable[[OptionText], Any] = attrgetter("text")
    """Turns a text into the setting, or raises a ``UsageError``."""
    default: str | None = None
    """Read from the root folder where none is given; without it the setting is ``None``."""
    typed_only: bool = False
    """Whether it has neither an ini key nor an environment variable."""
    many: bool = False
    """Whether it may be given several times: then the setting is a tuple."""
    names_a_report: bool = False
    """Whether it says where a report goes; sessions that `bisect` starts write none."""

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return f"--dlperf-{self.usage.partition(' ')[0]}"

    @property
    def metavar(self) -> str:
        """The value's name in help; nothing for a flag."""
        return self.usage.partition(" ")[2]

    @property
    def key(self) -> str:
        """The ini key, and the name of the parsed option."""
        return self.flag[2:].replace("-", "_")

    @property
    def variable(self) -> str | None:
        """The environment variable, if there is one."""
        return None if self.typed_only else self.key.upper()

    @property
    def meaning(self) -> str:
        """The help, with repetition and default, in Markdown."""
        repeated = "; may be repeated" if self.many else ""
        default = f"; default `{self.default}`" if self.metavar and self.default else ""
        return f"{self.help}{repeated}{default}"

    def add_to(self, group: pytest.OptionGroup, parser: pytest.Parser) -> None:
        """Declare option and ini key."""
        kwargs: dict[str, Any] = {"action": "store_true"}
        if self.metavar:
            kwargs = {"action": "append" if self.many else "store", "metavar": self.metavar}
        text = self.meaning.replace("`", "").replace("%", "%%")
        group.addoption(self.flag, dest=self.key, default=None, help=text, **kwargs)
        if not self.typed_only:
            kind: Any = "linelist" if self.many else "string"
            parser.addini(self.key, f"default of {self.flag}", type=kind, default=None)

    def texts(
        self, config: pytest.Config, environment: Mapping[str, str] = os.environ
    ) -> list[OptionText]:
        """Look on the command line, then in the environment, then in the ini file.

        Paths of the first two start from the folder that pytest was started in, those of the ini
        file from its own, defaults from the root folder.
        """
        here = config.invocation_params.dir
        value = config.getoption(self.key)
        if value is not None:
            texts = value if self.many else [str(value)]
            if not all(text.strip() for text in texts):
                raise UsageError(f"{self.flag} is empty; give a value or leave it out")
            return [OptionText(text, self.flag, here) for text in texts]
        if self.variable and (text := environment.get(self.variable, "").strip()):
            return [OptionText(text, self.variable, here)]
        if value := None if self.typed_only else config.getini(self.key):
            folder = config.inipath.parent if config.inipath is not None else config.rootpath
            texts = value if self.many else [value]
            return [OptionText(text, f"ini key {self.key}", folder) for text in texts]
        return [] if self.default is None else [OptionText(self.default, "", config.rootpath)]

    def value(self, texts: Iterable[OptionText]) -> Any:
        """Read the texts of one place."""
        settings = tuple(map(self.read, texts))
        return settings if self.many else next(iter(settings), None)


option: Final[Any] = Option
"""As the default of a field: whatever the type of the setting is."""


def flag(name: str, meaning: str, **more: bool) -> Any:
    """Declare an option without a value."""
    return Option(name, meaning, read=values.yes, default="no", **more)


def report(name: str, meaning: str) -> Any:
    """Declare an option that names the file of a report."""
    return Option(f"{name} FILE", meaning, read=values.file_to_write, names_a_report=True)


class Settings(NamedTuple):
    """All options of a session: command line before environment before ini file."""

    places: Mapping[str, str]
    """Where options were given, by the name of the field; the others have their defaults."""
    in_allocation: bool
    """Whether the session runs inside an allocation of Slurm."""
    step_summary: Path | None
    """The file that GitHub Actions shows as the summary of a step."""
    annotate: bool
    """Whether GitHub Actions gets failures as annotations."""
    unknown_variables: tuple[str, ...]
    """Messages about environment variables that look like options."""

    cluster: str = option(
        "cluster NAME",
        "whose numbers count: a folder below `baselines/`, or `local` for this machine's own",
        default=LOCAL_CLUSTER,
    )
    hosts: OptionText | None = option(
        "hosts LIST",
        "where to launch: `host[:devices]`, `node[01-04]:8`, …, or `--dlperf-hosts=@FILE`; by "
        "default the nodes of a Slurm allocation, else this machine",
        read=lambda text: text,
    )
    launcher: str | None = option(
        "launcher NAME",
        "how hosts are reached: `local`, `ssh`, `slurm` or a plugin's; by default slurm inside an "
        "allocation, ssh with hosts, else local. `sbatch` and `kubernetes` hold hosts "
        "for each case",
    )
    wait_limit_s: float | None = option(
        "wait-limit SECONDS",
        "how long a run may wait for its hosts, or in a queue; by default a day, and an hour for "
        "this machine if no hosts are named",
        values.seconds,
    )
    launch_settings: tuple[Setting, ...] = option(
        "set SYSTEM.name=value",
        "what a trainer needs here: a variable such as its checkout, `extra_args`, `env.NAME`, "
        "`python`, `working_directory`, `pause_s`, `slurm.srun` or `container.image`; "
        "SYSTEM may be `*`",
        values.setting,
        many=True,
    )
    dry_run: bool = flag(
        "dry-run", "print what each node of each selected case would execute", typed_only=True
    )
    ssh_command: tuple[str, ...] = option(
        "ssh COMMAND",
        "the OpenSSH client with its options, as in `ssh -F cluster.conf`",
        values.command,
        default="ssh",
    )
    log_sources: tuple[NamedLogs, ...] = option(
        "logs WHAT=PATH",
        "launch nothing, and judge existing logs: those of a system below a folder, "
        "`SYSTEM[/OPTIONS]=DIR`, or one case's, `CASE=FILE[,FILE]`",
        values.log_source,
        many=True,
    )
    metric_lists: tuple[tuple[str, ...], ...] = option(
        "metric NAME[,NAME]",
        "judge only these metrics; with `--dlperf-update-baselines`, accept only these",
        values.metric_names,
        many=True,
    )
    repeats: int | None = option(
        "repeats N", "runs per case, instead of the system's own number", values.count
    )
    control: ControlArm = option(
        "control WHEN",
        "interleave runs of the accepted software of `cluster.yaml`: `on-regression` or `never`",
        partial(values.member, values.ControlArm),
        default="on-regression",
    )
    create_baselines: bool = flag("create-baselines", "record numbers that have no baseline yet")
    update_baselines: bool = flag(
        "update-baselines", "also accept numbers outside their tolerance; worse ones need a reason"
    )
    reason: str | None = option(
        "reason TEXT", "why numbers are accepted; kept with them", values.reason, typed_only=True
    )
    extend_baselines: bool = flag(
        "extend-baselines",
        "add the runs of cases that pass to those that later sessions are compared with; accepted "
        "numbers stay",
    )
    strict: bool = flag(
        "strict", "fail what would be skipped, and metrics that no test judges: for nightly gates"
    )
    html_file: Path | None = report("html", "the results as a page that opens offline")
    markdown_file: Path | None = report(
        "markdown", "the results as Markdown; GitHub's step summary needs no option"
    )
    json_file: Path | None = report("json", "the results as JSON")
    openmetrics_file: Path | None = report(
        "openmetrics", "the numbers for Prometheus: a file `*.prom` for its textfile collector"
    )
    tables_directory: Path | None = option(
        "tables DIR",
        "the tables and the JSON of the original benchmark, by system",
        values.folder_to_write,
        names_a_report=True,
    )
    history_file: Path | None = option(
        "history FILE",
        f"the database of all sessions, or `{values.NO_HISTORY}`",
        values.history,
        default=".dlperf/history.sqlite3",
        names_a_report=True,
    )
    notify_lists: tuple[tuple[Target, ...], ...] = option(
        "notify WHAT=WHERE",
        "send a notice at the end: `apprise=VARIABLE` (which holds addresses of Apprise) or "
        "`apprise=@FILE`, `apprise+page` with the page; likewise `json`, `ping`, `healthchecks`; "
        "`github`, `gitlab`: a comment of the pull or merge request",
        notices.targets,
        many=True,
    )
    notify_on: NotifyOn = option(
        "notify-on WHEN",
        "send it after a red session (`failure`), if other cases, metrics or verdicts fail than in "
        "the last one (`change`), or `always`",
        partial(values.member, values.NotifyOn),
        default="failure",
    )
    session_dir: Path = option(
        "run-dir DIR",
        "where this session's logs go; it sets aside the logs of an interrupted session there",
        values.session_folder,
        default=f".dlperf/runs/{START_TIME}-{PROCESS}",
    )
    systems_directories: tuple[Path, ...] = option(
        "systems DIR",
        "folder of system files",
        values.folder,
        default="bench_tests/systems",
        many=True,
    )
    baselines_directory: Path = option(
        "baselines DIR", "folder of the clusters", attrgetter("path"), default="baselines"
    )

    @property
    def metrics(self) -> frozenset[str] | None:
        """The metrics that are judged; ``None`` for all."""
        return frozenset().union(*self.metric_lists) if self.metric_lists else None

    @property
    def targets(self) -> tuple[Target, ...]:
        """All receivers of the session's notices."""
        return tuple(chain.from_iterable(self.notify_lists))

    @property
    def notice_warnings(self) -> tuple[str, ...]:
        """Why notices cannot be sent; none where nothing runs."""
        targets = () if self.dry_run else self.targets
        return tuple(filter(None, (target.warning() for target in targets)))

    @property
    def records_baselines(self) -> bool:
        """Whether the session may change baselines."""
        return self.create_baselines or self.update_baselines or self.extend_baselines

    @property
    def may_launch_on_hosts(self) -> bool:
        """Whether there may be hosts to launch on."""
        return (self.hosts is not None or self.in_allocation) and not self.log_sources


OPTIONS: Final[Mapping[str, Option]] = Settings._field_defaults
"""All options by the name of their field, in the order of help and README."""


def add_options(parser: pytest.Parser) -> None:
    """Declare the options with their ini keys."""
    group = parser.getgroup("dlperf", "performance regression of distributed training")
    for declared in OPTIONS.values():
        declared.add_to(group, parser)


def read_settings(config: pytest.Config, environment: Mapping[str, str] = os.environ) -> Settings:
    """Merge command line, environment and ini file."""
    from pytest_dlperf.files.ci import find_engine, step_summary

    texts = {name: declared.texts(config, environment) for name, declared in OPTIONS.items()}
    engine, summary = find_engine(environment), step_summary(environment)
    settings = Settings(
        **{name: declared.value(texts[name]) for name, declared in OPTIONS.items()},
        places={name: said[0].place for name, said in texts.items() if said and said[0].place},
        in_allocation=bool(environment.get("SLURM_JOB_NODELIST")),
        step_summary=config.invocation_params.dir / summary if summary else None,
        annotate=engine is not None and engine.annotates,
        unknown_variables=tuple(_unknown_variables(environment)),
    )
    if settings.reason and not settings.update_baselines:
        raise UsageError(
            "--dlperf-reason says why numbers are accepted; give --dlperf-update-baselines too"
        )
    if settings.dry_run and settings.log_sources:
        raise UsageError(
            "--dlperf-dry-run prints what would be launched, and with --dlperf-logs nothing is; "
            "leave one of them out"
        )
    if settings.strict and settings.unknown_variables:
        raise UsageError("; ".join(settings.unknown_variables))
    return settings


def _unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    variables = {*_OF_RUNS, *(option.variable or "" for option in OPTIONS.values())}
    for name in sorted(environment):
        if name.startswith(_PREFIX) and name not in variables:
            from pytest_dlperf.files.mistakes import nearest

            yield f"the environment variable {name} is unknown{nearest(name, variables)}"


def is_any_given(config: pytest.Config) -> bool:
    """Whether the command line has an option of this plugin."""
    return any(config.getoption(declared.key) is not None for declared in OPTIONS.values())


def join_host_files(arguments: list[str]) -> None:
    """Join ``--dlperf-hosts`` and ``@FILE`` in place, before the arguments are parsed for good.

    An argument that begins with ``@`` would be replaced with the lines of the file.
    """
    for index in range(len(arguments) - 1, 0, -1):
        if arguments[index - 1] == "--dlperf-hosts" and arguments[index].startswith("@"):
            arguments[index - 1 : index + 1] = ["=".join(arguments[index - 1 : index + 1])]


def misspelt_options(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield options that are none, and the one that each is like."""
    flags = [declared.flag for declared in OPTIONS.values()]
    for argument in arguments:
        given = argument.partition("=")[0]
        if given.startswith("--dlperf-") and given not in flags:
            from difflib import get_close_matches

            for meant in get_close_matches(given, flags, n=1):
                yield given, meant
