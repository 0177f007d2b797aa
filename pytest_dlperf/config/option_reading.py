"""Options of one session: declared to pytest, looked up in all places, checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pytest

from pytest_dlperf.config.options import OPTIONS, Settings
from pytest_dlperf.model.errors import UsageError

_PREFIX: Final = "DLPERF_"
_OF_RUNS: Final = ("DLPERF_LOCK", "DLPERF_RUN_ID", "DLPERF_STEPS", "DLPERF_STEPS_SYNCHRONIZE")
"""Set for runs of a session, and so in a session inside a run."""


def add_options(parser: pytest.Parser) -> None:
    """Declare the options with their ini keys."""
    group = parser.getgroup("dlperf", "performance regression of distributed training")
    for declared in OPTIONS.values():
        declared.add_to(group, parser)


def read_settings(config: pytest.Config, environment: Mapping[str, str] = os.environ) -> Settings:
    """Merge command line, environment and ini file.

    Paths on the command line and in the environment start from the folder that pytest was started
    in, those of the ini file from its own, defaults from the root folder.
    """
    values, places = {}, {}
    for name, declared in OPTIONS.items():
        texts = declared.texts(config, environment)
        values[name] = declared.value(texts, config.rootpath)
        if texts:
            places[name] = texts[0].place
    from pytest_dlperf.files.ci import find_engine, step_summary

    engine, summary = find_engine(environment), step_summary(environment)
    settings = Settings(
        **values,
        places=places,
        in_allocation=bool(environment.get("SLURM_JOB_NODELIST")),
        step_summary=config.invocation_params.dir / summary if summary else None,
        annotate=engine is not None and engine.annotates,
        unknown_variables=tuple(_unknown_variables(environment)),
    )
    _check_together(settings)
    return settings


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
        flag = argument.partition("=")[0]
        if flag.startswith("--dlperf-") and flag not in flags:
            from difflib import get_close_matches

            for meant in get_close_matches(flag, flags, n=1):
                yield flag, meant


def _unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    variables = {*_OF_RUNS, *(option.variable or "" for option in OPTIONS.values())}
    for name in sorted(environment):
        if name.startswith(_PREFIX) and name not in variables:
            from pytest_dlperf.files.mistakes import nearest

            yield f"the environment variable {name} is unknown{nearest(name, variables)}"


# ----------------------------------------------------------------- combinations of options


def _check_together(settings: Settings) -> None:
    """Check combinations that need no suite."""
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
