"""The pytest plugin: hooks that wire the rooms together and decide nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from pytest_dlperf.config.options import add_options, keep_host_files, read_settings
from pytest_dlperf.plugin.fixtures import (
    CASE_FIXTURES,
    dlperf_case,
    dlperf_gate,
    dlperf_measure,
    dlperf_multi_device_case,
)
from pytest_dlperf.plugin.session import DlperfSession, launchers_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_dlperf.launch.launchers import Launcher

__all__ = ["dlperf_case", "dlperf_gate", "dlperf_measure", "dlperf_multi_device_case"]

_SESSION: Final = pytest.StashKey[DlperfSession]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(args: list[str]) -> None:
    """Have ``--dlperf-hosts @FILE`` mean the host file, not a file of arguments for pytest."""
    keep_host_files(args)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks that other plugins may implement."""
    from pytest_dlperf.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers and register the session's own part of the plugin."""
    config.addinivalue_line(
        "markers",
        "dlperf(system, framework, model, precision, batch, topology, nodes, devices, options): "
        "the exact values of a case, for -m \"dlperf(framework='paddle', topology='4n8g')\"",
    )
    session = config.stash[_SESSION] = DlperfSession(config)
    config.pluginmanager.register(session, "dlperf-session")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Have one process print a dry run, whatever number of workers is usual here."""
    if config.option.dlperf_dry_run:
        config.option.numprocesses = None
        config.option.tx = []
        config.option.dist = "no"
    elif getattr(config.option, "maxschedchunk", 0) is None and _launches_on_hosts(config):
        # Tests of long trainings are handed out one by one, in the order in which they were sorted.
        config.option.maxschedchunk = 1
    return (yield)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One worker per host for ``-n auto``, where hosts were named."""
    return _launches_on_hosts(config) or None


@pytest.hookimpl(tryfirst=True)
def pytest_dlperf_launchers(config: pytest.Config, python: str) -> list[Launcher]:
    """Offer the launchers that come with the package."""
    from pytest_dlperf.launch.launchers import built_in_launchers

    return built_in_launchers(read_settings(config).ssh_command, python)


def _launches_on_hosts(config: pytest.Config) -> int:
    """How many hosts the session launches on; 0 where it has this machine alone, or no suite."""
    settings = read_settings(config)
    if not settings.may_launch_on_hosts:
        return 0  # without the imports that reading a list of hosts costs
    from pytest_dlperf.launch.choosing import launcher_and_hosts
    from pytest_dlperf.model.errors import UsageError

    try:
        return len(launcher_and_hosts(settings, launchers_of(config))[1])
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each test of a case all cases it is about."""
    for fixture in CASE_FIXTURES:
        if fixture in metafunc.fixturenames:
            metafunc.parametrize(fixture, metafunc.config.stash[_SESSION].parameters(fixture))
