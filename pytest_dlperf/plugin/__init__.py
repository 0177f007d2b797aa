"""The pytest plugin's entry: its options, hooks and fixtures.

A project without tests of ours pays for nothing else: everything expensive is imported, read and
registered when a collected test asks for one of these fixtures, or an option of ours is given.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_dlperf.config.options import (
    add_options,
    is_any_given,
    join_host_files,
    misspelt_options,
)
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.plugin.named import (
    WITHOUT_CASES,
    is_named,
    may_have_suite,
    settings_of,
    stands_for_suite,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.plugin.fixtures import Gate
    from pytest_dlperf.plugin.packaged import SystemFile


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(args: list[str], parser: pytest.Parser) -> None:
    """Keep pytest from taking ``--dlperf-hosts @FILE`` for arguments of its own.

    A misspelt option gets a line in pytest's own error, unless a ``conftest.py`` declares it.
    """
    join_host_files(args)
    for flag, meant in misspelt_options(args):
        parser.extra_info[flag] = f"did you mean {meant}?"


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Declare the hooks that other plugins may implement."""
    from pytest_dlperf.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker; remove the empty folder that pytest-benchmark makes at each start."""
    config.addinivalue_line(
        "markers",
        "dlperf(system, framework, model, precision, batch_per_replica, global_batch, "
        "sequence_length, parallel, tp, pp, cp, ep, options, topology, nodes, devices_per_node, "
        "AXIS=VALUE): "
        "the exact values of a case, for -m \"dlperf(framework='paddle', topology='4n8g')\"",
    )
    benchmarks = getattr(config, "_benchmarksession", None)
    folder = getattr(getattr(benchmarks, "storage", None), "path", None)
    if folder is not None:
        with suppress(OSError):  # it is not empty, or gone
            folder.rmdir()


@pytest.hookimpl(wrapper=True)
def pytest_report_header() -> Generator[None, list[object], list[object]]:
    """Keep pytest-benchmark's line until a test that it times is collected."""
    return [line for line in (yield) if not str(line).startswith("benchmark: ")]


def pytest_report_collectionfinish(config: pytest.Config, items: Sequence[pytest.Item]) -> Any:
    """Print that line where there is such a test."""
    benchmark = config.pluginmanager.get_plugin("benchmark")
    if benchmark and any("benchmark" in getattr(item, "fixturenames", ()) for item in items):
        return benchmark.pytest_report_header(config)
    return []


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Disable workers for a dry run; with hosts, hand out tests one by one."""
    option = config.option
    if option.dlperf_dry_run:
        option.numprocesses = None
        option.tx = []
        option.dist = "no"
    elif (
        getattr(option, "numprocesses", None)
        and getattr(option, "maxschedchunk", 0) is None
        and _number_of_hosts(config)
    ):
        # Tests of long trainings are handed out one by one, in the order in which they were sorted.
        option.maxschedchunk = 1
    return (yield)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """One worker per host for ``-n auto``, where hosts were named."""
    return _number_of_hosts(config) or None


def _number_of_hosts(config: pytest.Config) -> int:
    """Count the hosts to launch on: 0 for this machine alone, and after a mistake."""
    try:
        settings = settings_of(config)
        if not (settings.may_launch_on_hosts and may_have_suite(config)):
            return 0
        from pytest_dlperf.launch.hosts import parse_hosts, slurm_hosts

        if given := settings.hosts:
            return len(parse_hosts(given.text, place=given.place, folder=given.folder))
        return len(slurm_hosts(os.environ))
    except UsageError:
        return 0


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Start at once if an option asks for it, so that mistakes come before anything runs.

    The controller of workers collects nothing itself, so it starts where there may be a suite.
    """
    config = session.config
    is_asked = is_any_given(config)
    with suppress(UsageError):  # a worker says it if its tests ask for cases
        is_asked |= config.pluginmanager.has_plugin("dsession") and may_have_suite(config)
    if is_asked:
        from pytest_dlperf.plugin.session import start

        start(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Start when the first test asks for a fixture of ours; give it all cases it is about."""
    asked = _FIXTURES.intersection(metafunc.fixturenames)
    if asked:
        from pytest_dlperf.plugin.session import parametrize

        parametrize(metafunc, asked)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """End the session with a mistake found while collecting, before what follows from it."""
    try:
        return (yield)
    finally:
        started = session.config.pluginmanager.get_plugin("dlperf-session")
        if started is not None:
            started.end_collection()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Add the tests that come with the package to a folder of system files that was named.

    Leave out tests without a case: nobody named their folder, or no system has what they judge.
    """
    report = yield
    if report.result is None:
        return report
    if (
        isinstance(collector, pytest.Directory)
        and is_named(collector.path, collector.session)
        and stands_for_suite(collector.path, collector.config)
    ):
        from pytest_dlperf.plugin.packaged import files_of_folder

        report.result += files_of_folder(collector)
    if collector.path in collector.config.stash.get(WITHOUT_CASES, ()):
        from pytest_dlperf.plugin.cases import lacks_case

        report.result = [one for one in report.result if not lacks_case(one)]
    return report


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> SystemFile | None:
    """Collect those tests of a single system file that was named."""
    if file_path.suffix in (".yaml", ".yml") and is_named(file_path, parent.session):
        from pytest_dlperf.plugin.packaged import named_file

        return named_file(file_path, parent)
    return None


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Explain a session that ran no test but may have meant to run cases."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not terminalreporter.stats:
        from pytest_dlperf.plugin.packaged import why_nothing_ran

        for line in why_nothing_ran(config):
            terminalreporter.write_line(line, yellow=True)


# Parametrizing replaces the first three: they are declared for `pytest --fixtures`.


@pytest.fixture
def dlperf_case(request: pytest.FixtureRequest) -> Case:
    """One case after the other: every case that the system files declare."""
    case: Case = request.param
    return case


@pytest.fixture
def dlperf_scaled_case(request: pytest.FixtureRequest) -> Case:
    """Like ``dlperf_case``, without cases that are their own reference: they have no speedup."""
    case: Case = request.param
    return case


@pytest.fixture
def dlperf_metric(request: pytest.FixtureRequest) -> Metric:
    """Each metric that the case's system has judged, beside throughput and speedup."""
    metric: Metric = request.param
    return metric


@pytest.fixture
def dlperf_measure(request: pytest.FixtureRequest) -> Callable[[Case | None], Measurement]:
    """Measure a case: launch its runs or read its logs, once per session.

    A case that cannot be measured here skips the test and says what is missing.
    """
    from pytest_dlperf.plugin.fixtures import measure_for

    return measure_for(request)


@pytest.fixture
def dlperf_gate(request: pytest.FixtureRequest) -> Gate:
    """Judge measurements against the cluster's baselines; a verdict that is not good fails."""
    from pytest_dlperf.plugin.fixtures import gate_for

    return gate_for(request)


_FIXTURES: Final = frozenset(
    {"dlperf_case", "dlperf_scaled_case", "dlperf_metric", "dlperf_measure", "dlperf_gate"}
)
