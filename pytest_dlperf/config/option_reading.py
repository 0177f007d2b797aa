"""Options of one session: declared to pytest, looked up in all places, checked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.config.notices import SMTP_VARIABLE
from pytest_dlperf.config.options import DIGEST_KEY_VARIABLE, OPTIONS, Settings
from pytest_dlperf.config.values import (
    ControlArm,
    OptionText,
    file_to_write,
    folder_to_write,
    history,
)
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    import pytest

_PREFIX: Final = "DLPERF_"
_OF_RUNS: Final = ("DLPERF_RUN_ID", "DLPERF_STEPS", "DLPERF_STEPS_SYNCHRONIZE")
"""Set for runs of a session, and so in a session inside a run."""
_MIN_SEQUENTIAL_RUNS: Final = 3


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
    from pytest_dlperf.files.ci import find_engine, step_summary

    engine, summary = find_engine(environment), step_summary(environment)
    settings = Settings(
        **read,
        places=places,
        in_allocation=bool(environment.get("SLURM_JOB_NODELIST")),
        step_summary=config.invocation_params.dir / summary if summary else None,
        annotate=engine is not None and engine.annotates,
        unknown_variables=tuple(_unknown_variables(environment)),
    )
    _check_together(settings, files_of_others(config))
    return settings


def is_any_given(config: pytest.Config) -> bool:
    """Whether the command line has an option of this plugin."""
    return any(config.getoption(declared.key) is not None for declared in OPTIONS.values())


def files_of_others(config: pytest.Config) -> dict[str, Path]:
    """The files that pytest itself and pytest-benchmark were told to write, by option."""
    found = {}
    for name, key in (("--junitxml", "xmlpath"), ("--benchmark-json", "benchmark_json")):
        given: Any = getattr(config.option, key, None)
        if given:
            # Before 5.3 pytest-benchmark opens its file at once.
            text = str(given) if isinstance(given, str | Path) else given.name
            if key == "xmlpath":  # as pytest does
                text = os.path.expanduser(os.path.expandvars(text))  # noqa: PTH111 - as it says
            found[name] = config.invocation_params.dir / text
    return found


def join_host_files(arguments: list[str]) -> None:
    """Join ``--dlperf-hosts`` and ``@FILE`` in place, before the arguments are parsed for good.

    An argument that begins with ``@`` would be replaced with the lines of the file.
    """
    for index in range(len(arguments) - 1, 0, -1):
        if arguments[index - 1] == "--dlperf-hosts" and arguments[index].startswith("@"):
            arguments[index - 1 : index + 1] = ["=".join(arguments[index - 1 : index + 1])]


def misspelt_options(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield options that are none, and the one that each is like."""
    known = [declared.flag for declared in OPTIONS.values()]
    for argument in arguments:
        flag = argument.partition("=")[0]
        if flag.startswith("--dlperf-") and flag not in known:
            from difflib import get_close_matches

            for meant in get_close_matches(flag, known, n=1):
                yield flag, meant


def _unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    options = filter(None, (one.variable for one in OPTIONS.values()))
    known = {DIGEST_KEY_VARIABLE, SMTP_VARIABLE, *_OF_RUNS, *options}
    for name in sorted(environment):
        if name.startswith(_PREFIX) and name not in known:
            from pytest_dlperf.files.yamlfile import nearest

            yield f"the environment variable {name} is unknown{nearest(name, known)}"


# ----------------------------------------------------------------- combinations of options


def _check_together(settings: Settings, others: Mapping[str, Path]) -> None:
    """Check combinations that need no suite.

    ``others`` are the files that pytest and other plugins were told to write, by option.
    """
    if settings.reason and not settings.update_baselines:
        raise UsageError(
            "--dlperf-reason says why numbers are accepted; give --dlperf-update-baselines too"
        )
    _check_sequential(settings)
    _check_launching(settings)
    _check_reports(settings, others)
    if settings.strict and settings.unknown_variables:
        raise UsageError("; ".join(settings.unknown_variables))


def check_places(settings: Settings, others: Mapping[str, Path], systems: Container[str]) -> None:
    """Check places of reports where there is a suite of these ``systems``."""
    from pytest_dlperf.files.writing import destination_in_place

    for option, path in others.items():
        given = OptionText(str(path), option, Path())
        file_to_write(given)
        try:
            destination_in_place(path)
        except OSError as error:
            raise given.error(f"cannot be written: {error.strerror}") from error
        if option == "--benchmark-json" and not path.parent.is_dir():
            raise UsageError(
                f"{option}: {str(path)!r} cannot be written: there is no folder {path.parent}, "
                "and pytest-benchmark makes none"
            )
    _check_tables(settings, others, systems)


def _check_sequential(settings: Settings) -> None:
    repeats = settings.repeats
    is_sequential = settings.gate is not None and settings.gate.value == "sequential"
    if is_sequential and repeats is not None and repeats < _MIN_SEQUENTIAL_RUNS:
        raise UsageError(
            f"--dlperf-gate sequential needs {_MIN_SEQUENTIAL_RUNS} runs at least, and {repeats} "
            "were asked for; leave --dlperf-repeats out"
        )


def _check_launching(settings: Settings) -> None:
    if not settings.log_sources:
        return
    if settings.dry_run:
        raise UsageError(
            "--dlperf-dry-run prints what would be launched, and with --dlperf-logs nothing is; "
            "leave one of them out"
        )
    if settings.control is ControlArm.ALWAYS:
        raise UsageError(
            "--dlperf-control always launches runs, and with --dlperf-logs nothing is launched; "
            "leave one of them out"
        )


def _check_reports(settings: Settings, others: Mapping[str, Path]) -> None:
    """Refuse two reports in one file: the second would replace the first."""
    first: dict[Path, str] = {}
    for option, path in _reports(settings).items():
        # A pipe or a terminal takes one report after the other.
        if not path.exists() or path.is_file() or path.is_dir():
            _take(first, option, path)
    for option, path in others.items():
        if path.resolve() in first:
            _take(first, option, path)
    summary = settings.step_summary
    if summary is not None and summary.resolve() in first:
        raise UsageError(
            f"{first[summary.resolve()]} names {summary}, the summary of GitHub Actions, which "
            "gets the Markdown page by itself; leave the option out"
        )


def _take(first: dict[Path, str], option: str, path: Path) -> None:
    earlier = first.setdefault(path.resolve(), option)
    if earlier != option:
        raise UsageError(f"{earlier} and {option} both name {path}; give each a file of its own")


def _check_tables(settings: Settings, others: Mapping[str, Path], systems: Container[str]) -> None:
    if settings.tables_directory is None:
        return
    tables = settings.tables_directory.resolve()
    for option, file in (_reports(settings) | dict(others)).items():
        path = file.resolve()
        is_page = path.parent == tables and path.suffix == ".md" and path.stem in systems
        if is_page or (path.parent.parent == tables and path.parent.name in systems):
            raise UsageError(
                f"{option} names {file}, where --dlperf-tables writes a table; give it another name"
            )


def _reports(settings: Settings) -> dict[str, Path]:
    """The places of our own reports, by option."""
    written = (file_to_write, folder_to_write, history)
    places = {
        option.flag: getattr(settings, name)
        for name, option in OPTIONS.items()
        if option.read in written
    }
    return {flag: path for flag, path in places.items() if path is not None}
