"""The table of options: each is declared once, with the setting that comes of it.

Every start of pytest imports this module, so its values are named tuples: msgspec would cost a
project without tests of ours more than all the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


class Option(NamedTuple):
    """An option of the command line, with its ini key and its environment variable."""

    name: str
    metavar: str | None
    """The value's name in help; ``None`` for a flag."""
    help: str
    """What the option is for, in Markdown."""
    read: Callable[[OptionText], Any] = attrgetter("text")
    """Turns a text into the setting, or raises a ``UsageError``."""
    default: str | None = None
    """Read from the root folder where none is given; without it the setting is ``None``."""
    environment: bool = False
    ini: bool = True
    many: bool = False
    """Whether it may be given several times: then the setting is a tuple."""
    names_a_report: bool = False
    """Whether it says where a report goes; sessions that `bisect` starts write none."""

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return f"--dlperf-{self.name}"

    @property
    def key(self) -> str:
        """The ini key, and the name of the parsed option."""
        return f"dlperf_{self.name.replace('-', '_')}"

    @property
    def variable(self) -> str | None:
        """The environment variable, if there is one."""
        return self.key.upper() if self.environment else None

    @property
    def meaning(self) -> str:
        """The help, with repetition and default, in Markdown."""
        repeated = "; may be repeated" if self.many else ""
        default = f"; default `{self.default}`" if self.metavar and self.default else ""
        return f"{self.help}{repeated}{default}"

    def add_to(self, group: pytest.OptionGroup, parser: pytest.Parser) -> None:
        """Declare option and ini key."""
        variable = f" (environment: {self.variable})" if self.variable else ""
        kwargs: dict[str, Any] = (
            {"action": "append" if self.many else "store", "metavar": self.metavar}
            if self.metavar
            else {"action": "store_true"}
        )
        text = self.meaning.replace("`", "").replace("%", "%%") + variable
        group.addoption(self.flag, dest=self.key, default=None, help=text, **kwargs)
        if self.ini:
            kind: Any = "linelist" if self.many else "string"
            parser.addini(self.key, f"default of {self.flag}", type=kind, default=None)

    def texts(self, config: pytest.Config, environment: Mapping[str, str]) -> list[OptionText]:
        """Look on the command line, then in the environment, then in the ini file."""
        # Paths in the environment start where the user is, like those of the command line.
        here = config.invocation_params.dir
        value = config.getoption(self.key)
        if value is not None:
            texts = value if self.many else [str(value)]
            if not all(text.strip() for text in texts):
                raise UsageError(f"{self.flag} is empty; give a value or leave it out")
            return [OptionText(text, self.flag, here) for text in texts]
        text = environment.get(self.variable, "").strip() if self.variable else ""
        if self.variable and text:
            return [OptionText(text, self.variable, here)]
        value = config.getini(self.key) if self.ini else None
        folder = config.inipath.parent if config.inipath is not None else config.rootpath
        texts = (value if self.many else [value]) if value else []
        return [OptionText(text, f"ini key {self.key}", folder) for text in texts]

    def value(self, texts: list[OptionText], root: Path) -> Any:
        """Read the texts, or else the default."""
        if not texts and self.default is not None:
            texts = [OptionText(self.default, "", root)]
        if self.many:
            return tuple(map(self.read, texts))
        return self.read(texts[0]) if texts else None


option: Final[Any] = Option
"""As the default of a field: whatever the type of the setting is."""


def flag(name: str, meaning: str, **more: bool) -> Any:
    """Declare an option without a value."""
    return Option(name, None, meaning, read=values.yes, default="no", **more)


def report(name: str, meaning: str) -> Any:
    """Declare an option that names the file of a report."""
    return Option(name, "FILE", meaning, read=values.file_to_write, names_a_report=True)


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
        "cluster",
        "NAME",
        "whose numbers count: a folder below `baselines/`, or `local` for this machine's own",
        default=LOCAL_CLUSTER,
        environment=True,
    )
    hosts: OptionText | None = option(
        "hosts",
        "LIST",
        "where to launch: `host[:devices]`, `node[01-04]:8`, …, or `--dlperf-hosts=@FILE`; by "
        "default the nodes of a Slurm allocation, else this machine",
        read=values.as_written,
        environment=True,
    )
    launcher: str | None = option(
        "launcher",
        "NAME",
        "how hosts are reached: `local`, `ssh`, `slurm` or a plugin's; by default slurm inside an "
        "allocation, ssh with hosts, else local. `salloc`, `sbatch` and `kubernetes` hold hosts "
        "for each case",
        environment=True,
    )
    wait_limit_s: float | None = option(
        "wait-limit",
        "SECONDS",
        "how long a run may wait for its hosts, or in a queue; by default a day, and an hour for "
        "this machine if no hosts are named",
        read=values.seconds,
        environment=True,
    )
    launch_settings: tuple[Setting, ...] = option(
        "set",
        "SYSTEM.name=value",
        "what a trainer needs here: a variable such as its checkout, `extra_args`, `env.NAME`, "
        "`python`, `working_directory`, `pause_s`, `slurm.srun` or `container.image`; "
        "SYSTEM may be `*`",
        read=values.setting,
        many=True,
    )
    dry_run: bool = flag(
        "dry-run",
        "print what each node of each selected case would execute, and run nothing",
        ini=False,
    )
    ssh_command: tuple[str, ...] = option(
        "ssh",
        "COMMAND",
        "the OpenSSH client with its options, as in `ssh -F cluster.conf`",
        read=values.command,
        default="ssh",
        environment=True,
    )
    log_sources: tuple[NamedLogs, ...] = option(
        "logs",
        "WHAT=PATH",
        "launch nothing, and judge existing logs: those of a system below a folder, "
        "`SYSTEM[/OPTIONS]=DIR`, or one case's, `CASE=FILE[,FILE]`",
        read=values.log_source,
        many=True,
    )
    metric_lists: tuple[tuple[str, ...], ...] = option(
        "metric",
        "NAME[,NAME]",
        "judge only these metrics; with `--dlperf-update-baselines`, accept only these",
        read=values.metric_names,
        environment=True,
        many=True,
    )
    repeats: int | None = option(
        "repeats", "N", "runs per case, instead of the system's own number", read=values.count
    )
    control: ControlArm = option(
        "control",
        "WHEN",
        "interleave runs of the accepted software, which `cluster.yaml` names: "
        "`on-regression` or `never`",
        read=partial(values.member, values.ControlArm),
        default="on-regression",
    )
    create_baselines: bool = flag("create-baselines", "record numbers that have no baseline yet")
    update_baselines: bool = flag(
        "update-baselines", "also accept numbers outside their tolerance; worse ones need a reason"
    )
    reason: str | None = option(
        "reason", "TEXT", "why numbers are accepted; kept with them", read=values.reason, ini=False
    )
    extend_baselines: bool = flag(
        "extend-baselines",
        "add the runs of cases that pass to those that later sessions are compared with; accepted "
        "numbers stay",
    )
    strict: bool = flag(
        "strict",
        "fail what would be skipped, and metrics that no test judges: for nightly gates",
        environment=True,
    )
    html_file: Path | None = report("html", "the results as a page that opens offline")
    markdown_file: Path | None = report(
        "markdown", "the results as Markdown; GitHub's step summary needs no option"
    )
    json_file: Path | None = report("json", "the results as JSON")
    openmetrics_file: Path | None = report(
        "openmetrics",
        "the numbers for Prometheus: a file `*.prom` for node_exporter's textfile collector",
    )
    tables_directory: Path | None = option(
        "tables",
        "DIR",
        "the tables and the JSON of the original benchmark, by system",
        read=values.folder_to_write,
        names_a_report=True,
    )
    history_file: Path | None = option(
        "history",
        "FILE",
        f"the database of all sessions, or `{values.NO_HISTORY}`",
        read=values.history,
        default=".dlperf/history.sqlite3",
        environment=True,
        names_a_report=True,
    )
    notify_lists: tuple[tuple[Target, ...], ...] = option(
        "notify",
        "WHAT=WHERE",
        "send a notice at the end: `apprise=VARIABLE` (which holds addresses of Apprise) or "
        "`apprise=@FILE`, `apprise+page` with the page; likewise `json`, `ping`, `healthchecks`; "
        "`github`, `gitlab`: a comment of the pull or merge request",
        read=notices.targets,
        environment=True,
        many=True,
    )
    notify_on: NotifyOn = option(
        "notify-on",
        "WHEN",
        "send it after a red session (`failure`), if other cases, metrics or verdicts fail than in "
        "the last one (`change`), or `always`",
        read=partial(values.member, values.NotifyOn),
        default="failure",
        environment=True,
    )
    session_dir: Path = option(
        "run-dir",
        "DIR",
        "where this session's logs go; it sets aside the logs of an interrupted session there",
        read=values.session_folder,
        default=f".dlperf/runs/{START_TIME}-{PROCESS}",
    )
    systems_directories: tuple[Path, ...] = option(
        "systems",
        "DIR",
        "folder of system files",
        read=values.folder,
        default="bench_tests/systems",
        many=True,
    )
    baselines_directory: Path = option(
        "baselines", "DIR", "folder of the clusters", read=attrgetter("path"), default="baselines"
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
        """Why notices cannot be sent, or are no secret; none where nothing runs."""
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
