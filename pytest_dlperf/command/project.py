"""The user's project as a session finds it: settings, system files and log formats."""

from __future__ import annotations

import argparse
from collections.abc import Generator, Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from msgspec import Struct

from pytest_dlperf.config.options import Settings, read_settings
from pytest_dlperf.config.systems import system_files
from pytest_dlperf.formats.log_format import LogFormat
from pytest_dlperf.formats.shipped import merged_formats
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.plugin.cases import ending_session

if TYPE_CHECKING:
    from pytest_dlperf.notices.notice import Notifier

SUITE_FOLDER: Final = "bench_tests"
"""The default argument of pytest, as in the documented sessions."""


class Project(Struct, frozen=True, kw_only=True):
    """What sessions in this folder work with.

    Other plugins and ``conftest.py`` files add ``more_files``, ``more_formats`` and ``notifiers``.
    """

    settings: Settings
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


def pytest_arguments(options: argparse.Namespace) -> list[str]:
    """Return the arguments of pytest behind ``--``, or the folder of the suite if it is there."""
    given: list[str] = options.for_pytest
    return given or ([SUITE_FOLDER] if Path(SUITE_FOLDER).is_dir() else [])


def read_project(options: argparse.Namespace) -> Project:
    """Configure pytest and read the project from its configuration.

    So options come from the same ini file, environment, ``addopts``, plugins and ``conftest.py``
    files as in a session, in the same order. No test is collected.
    """
    reader = _Reader()
    given = [f"--dlperf-systems={folder}" for folder in getattr(options, "systems", None) or ()]
    if (baselines := getattr(options, "baselines", None)) is not None:
        given.append(f"--dlperf-baselines={baselines}")
    code = pytest.main(
        [
            # In case the user's environment does not load plugins.
            *("-p", "pytest_dlperf.plugin"),
            # pytest warns, as the command has imported this package.
            *("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"),
            *given,
            *pytest_arguments(options),
        ],
        plugins=[reader],
    )
    if reader.project is None:
        raise UsageError(
            f"pytest could not be configured (exit code {int(code)}); its message stands above"
        )
    return reader.project


class _Reader:
    """Reads the project instead of running a session."""

    def __init__(self) -> None:
        self.project: Project | None = None

    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
        """Register last, to have the last word on options."""
        early_config.pluginmanager.register(_InOneProcess(), "dlperf-command-in-one-process")

    @pytest.hookimpl(tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> int:
        """Read the settings and what plugins add."""
        hook = config.hook
        with ending_session():
            settings = read_settings(config)
        self.project = Project(
            settings=settings,
            more_files=tuple(chain.from_iterable(hook.pytest_dlperf_system_files(config=config))),
            more_formats=tuple(chain.from_iterable(hook.pytest_dlperf_log_formats(config=config))),
            notifiers=tuple(chain.from_iterable(hook.pytest_dlperf_notifiers(config=config))),
        )
        return int(pytest.ExitCode.OK)


class _InOneProcess:
    """Turns workers off: they would make a session contact its hosts."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, object, object]:
        option = config.option
        option.numprocesses, option.tx, option.dist, option.maxschedchunk = None, [], "no", 1
        return (yield)
