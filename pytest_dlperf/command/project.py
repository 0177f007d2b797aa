"""The user's project as a session would find it: settings, system files and log formats."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_dlperf.config import values
from pytest_dlperf.config.option_reading import read_settings
from pytest_dlperf.config.systems import system_files
from pytest_dlperf.config.values import Given
from pytest_dlperf.formats.shipped import merged_formats
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.plugin.errors import ending_session
from pytest_dlperf.plugin.packaged import arguments_of, folder_to_name, runs_them

if TYPE_CHECKING:
    import argparse
    from collections.abc import Generator, Iterable, Mapping

    from pytest_dlperf.config.options import Settings
    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.notices.notice import Notifier

SUITE_FOLDER: Final = "bench_tests"
"""Given to pytest where the user gives nothing, as the documented sessions do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tests:
    """What asks for the cases in a session that is started like this."""

    folders: tuple[Path, ...]
    """What the session collects."""
    come_with_package: bool
    """Whether the package's own tests are run, unless others in these folders ask for cases."""
    named_by: str
    """The folder that is to be named for that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What sessions in this folder work with.

    ``more_files``, ``more_formats`` and ``notifiers`` are what other plugins and ``conftest.py``
    files add.
    """

    settings: Settings
    tests: Tests
    more_files: tuple[Path, ...]
    more_formats: tuple[LogFormat, ...]
    notifiers: tuple[Notifier, ...]

    @property
    def system_files(self) -> list[Path]:
        """All system files, in the order in which a session reads them."""
        return [*system_files(self.settings.systems_directories), *self.more_files]

    @property
    def formats(self) -> Mapping[str, LogFormat]:
        """The log formats by name."""
        try:
            return merged_formats(self.more_formats)
        except ValueError as error:
            raise UsageError(str(error)) from error


def read_project(options: argparse.Namespace) -> Project:
    """Start pytest as far as its configuration, and read the project from that.

    So options come from the same ini file, environment, ``addopts``, plugins and ``conftest.py``
    files as those of a session, and in the same order. No test is collected.
    """
    reader = _Reader()
    code = pytest.main(
        [
            # There without being looked for, in case the user's environment loads no plugins.
            *("-p", "pytest_dlperf.plugin"),
            # This package has been imported by the command, which is pytest's only reason to warn.
            *("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"),
            *_named(options),
            *(options.for_pytest or ([SUITE_FOLDER] if Path(SUITE_FOLDER).is_dir() else [])),
        ],
        plugins=[reader],
    )
    if reader.project is None:
        raise UsageError(
            f"pytest could not be configured (its exit code is {int(code)}); what it says stands "
            "above"
        )
    return reader.project


def named_history(given: str, place: str) -> Path | None:
    """The database that a text of this place names, by the rules of sessions; ``None`` for none."""
    return values.history(Given(given, place, Path()))


def _named(options: argparse.Namespace) -> list[str]:
    """What the command's own options are called in a session."""
    arguments = [f"--dlperf-systems={folder}" for folder in options.systems or ()]
    if options.baselines is not None:
        arguments.append(f"--dlperf-baselines={options.baselines}")
    if getattr(options, "gate", None) is not None:
        arguments.append(f"--dlperf-gate={options.gate}")
    return arguments


def _tests(config: pytest.Config) -> Tests:
    return Tests(
        folders=tuple(arguments_of(config)),
        come_with_package=runs_them(config),
        named_by=folder_to_name(config),
    )


class _Reader:
    """Reads the project in the moment in which a session would begin, and has none begin."""

    def __init__(self) -> None:
        self.project: Project | None = None

    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
        """Have the last word on options, which whoever is registered last has."""
        early_config.pluginmanager.register(_InOneProcess(), "dlperf-command-in-one-process")

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Read settings and what plugins add, instead of running a session."""
        hook = config.hook
        with ending_session():
            settings = read_settings(config)
        self.project = Project(
            settings=settings,
            tests=_tests(config),
            more_files=_flat(hook.pytest_dlperf_system_files(config=config)),
            more_formats=_flat(hook.pytest_dlperf_log_formats(config=config)),
            notifiers=_flat(hook.pytest_dlperf_notifiers(config=config)),
        )
        return int(pytest.ExitCode.OK)


class _InOneProcess:
    """Sets what would make a session look at its hosts: they may be out of reach from here."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, object, object]:
        """Have no workers, neither as many as there are hosts nor any other number."""
        config.option.numprocesses = None
        config.option.tx = []
        config.option.dist = "no"
        config.option.maxschedchunk = 1
        return (yield)


def _flat(lists: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    return tuple(item for items in lists for item in items)
