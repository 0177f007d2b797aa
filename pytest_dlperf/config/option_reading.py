"""Options of one session: declared to pytest, looked up in all places, checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.config.notices import SMTP_VARIABLE
from pytest_dlperf.config.option_checks import check_together
from pytest_dlperf.config.options import OPTIONS, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

_PREFIX: Final = "DLPERF_"
_OF_RUNS: Final = ("DLPERF_RUN_ID", "DLPERF_STEPS", "DLPERF_STEPS_SYNCHRONIZE")
"""Set for what a session launches, and so in a session that another one launches."""


def add_options(parser: pytest.Parser) -> None:
    """Declare the options with their ini keys."""
    group = parser.getgroup("dlperf", "performance regression of distributed training")
    for declared in OPTIONS.values():
        declared.add_to(group, parser)


def read_settings(config: pytest.Config, environment: Mapping[str, str] = os.environ) -> Settings:
    """Merge command line, environment and ini file.

    Paths on the command line and in the environment start from the folder that pytest was started
    in, those of the ini file from its own, defaults from the root folder.

    Raises:
        UsageError: A value is malformed, or two contradict each other; the message names them.
    """
    read, places = {}, {}
    for name, declared in OPTIONS.items():
        given = declared.given(config, environment)
        read[name] = declared.value(given, config.rootpath)
        if given:
            places[name] = given[0].place
    summary = environment.get("GITHUB_STEP_SUMMARY", "").strip()
    settings = Settings(
        **read,
        places=places,
        in_allocation=bool(environment.get("SLURM_JOB_NODELIST")),
        step_summary=config.invocation_params.dir / summary if summary else None,
        annotate=environment.get("GITHUB_ACTIONS") == "true",
        unknown_variables=tuple(_unknown_variables(environment)),
    )
    check_together(settings, files_of_others(config))
    return settings


def is_any_given(config: pytest.Config) -> bool:
    """Whether the command line asks for anything of this plugin."""
    return any(config.getoption(declared.key) is not None for declared in OPTIONS.values())


def files_of_others(config: pytest.Config) -> dict[str, Path]:
    """The files that pytest itself and pytest-benchmark were told to write, by option."""
    found = {}
    for name, key in (("--junitxml", "xmlpath"), ("--benchmark-json", "benchmark_json")):
        given: Any = getattr(config.option, key, None)
        if given:
            # Before 5.3 pytest-benchmark opens its file at once.
            text = str(given) if isinstance(given, str | Path) else given.name
            path = Path(os.path.expandvars(text)).expanduser() if key == "xmlpath" else Path(text)
            found[name] = config.invocation_params.dir / path
    return found


def keep_host_files(arguments: list[str]) -> None:
    """Join ``--dlperf-hosts`` and ``@FILE`` in place, before the arguments are parsed for good.

    An argument that begins with ``@`` would be replaced with the lines of the file.
    """
    for index in range(len(arguments) - 1, 0, -1):
        if arguments[index - 1] == "--dlperf-hosts" and arguments[index].startswith("@"):
            arguments[index - 1 : index + 1] = ["=".join(arguments[index - 1 : index + 1])]


def _unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    known = {SMTP_VARIABLE, *_OF_RUNS, *filter(None, (one.variable for one in OPTIONS.values()))}
    for name in sorted(environment):
        if name.startswith(_PREFIX) and name not in known:
            from pytest_dlperf.files.yamlfile import nearest

            yield f"the environment variable {name} means nothing here{nearest(name, known)}"
