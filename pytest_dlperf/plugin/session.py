"""A session's part of the plugin: the suite, xdist's two sides, and the end."""

from __future__ import annotations

import gc
import os
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.plugin.cases import (
    MEASURING,
    SUITE,
    Parameters,
    case_of,
    has_no_metric_to_judge,
    not_collected,
    sorted_for_packing,
    tests_of,
)
from pytest_dlperf.plugin.workers import (
    SessionStart,
    WorkerInput,
    end_with_controller,
    hand_to_worker,
    worker_input,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.config.options import Settings
    from pytest_dlperf.files.session_folder import SessionFolder
    from pytest_dlperf.launch.allocations import Allocator
    from pytest_dlperf.launch.launchers import Launcher
    from pytest_dlperf.logs.tree import LogIndex
    from pytest_dlperf.plugin.measuring import Launching, Measuring
    from pytest_dlperf.plugin.suite import Suite
    from pytest_dlperf.report.live import LiveReport


class DlperfSession:
    """One session's part of the plugin, on a controller as on an xdist worker."""

    def __init__(self, config: pytest.Config, settings: Settings) -> None:
        """Keep the settings; ``open`` reads the suite."""
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._settings = settings
        self._start = SessionStart.now()
        self._gc_is_paused = False
        self._is_announced = False
        self._index: LogIndex | None = None
        """The logs to judge, where there are any."""
        self._live: LiveReport | None = None
        self._session_folder: SessionFolder | None = None
        """The folder that the user named for the logs."""
        self._temporary: TemporaryDirectory[str] | None = None
        self._shared_folder: Path | None = None
        """Where workers share measurements: the controller's temporary folder."""
        self._parameters: Parameters | None = None
        self._deselected: list[pytest.Item] = []
        """Deselected tests, until one is known to be selected."""

    # ------------------------------------------------------------------ the suite

    @property
    def _suite(self) -> Suite | None:
        return self._config.stash.get(SUITE, None)

    @property
    def _launching(self) -> Launching | None:
        """What launches cases; ``None`` with logs, and where pytest only looks at tests."""
        measuring = self._config.stash.get(MEASURING, None)
        if measuring is None:
            return None  # without the imports that measuring costs
        from pytest_dlperf.plugin.measuring import Launching

        return measuring if isinstance(measuring, Launching) else None

    def open(self) -> None:
        """Read what the suite declares, and get ready to measure."""
        from pytest_dlperf.plugin.suite import load_suite

        given = worker_input(self._config)
        if given is not None:
            self._shared_folder, self._index = given.shared_folder, given.index
            self._start = given.session_start
            self._settings = self._settings._replace(session_dir=given.session_dir)
        # Ten thousand cases and their tests are some hundred thousand objects that all stay;
        # searching them over and over takes a third of the time of making them.
        self._gc_is_paused = gc.isenabled()
        gc.disable()
        hook = self._config.hook
        suite = load_suite(
            self._settings,
            more_files=list(
                chain.from_iterable(hook.pytest_dlperf_system_files(config=self._config))
            ),
            more_formats=list(
                chain.from_iterable(hook.pytest_dlperf_log_formats(config=self._config))
            ),
        )
        if not self._runs_no_tests:
            if not self._is_worker:
                self._check_history()
            self._config.stash[MEASURING] = self._prepare(suite)
        self._config.stash[SUITE] = suite

    def register(self) -> None:
        """Register this part of the plugin, and reporting where tests run."""
        suite = self._suite
        if suite is not None and not self._runs_no_tests:
            from pytest_dlperf.plugin.reporting import Reporting

            ignored_logs = self._index.ignored if self._index else []
            reporting = Reporting(self._config, suite, self._start, ignored_logs, self._live)
            reporting.register()
        self._config.pluginmanager.register(self, "dlperf-session")

    @property
    def _runs_no_tests(self) -> bool:
        """Whether this session runs no test: ``--collect-only``, ``--setup-plan``."""
        option = self._config.option
        return bool(option.collectonly or option.setuponly or option.setupplan)

    def _check_history(self) -> None:
        """Refuse a named file that is not a history; in the default place a note is enough."""
        file, place = self._settings.history_file, self._settings.places.get("history_file")
        if file is None or place is None:
            return
        from pytest_dlperf.history.schema import fault_of

        fault = fault_of(file)
        if fault is not None:
            raise UsageError(f"{place}: {file} {fault}; move it away, or name another file")

    def _prepare(self, suite: Suite) -> Measuring:
        from pytest_dlperf.plugin.measuring import Measurements, launching, measuring_from_logs

        measurements = Measurements(self._shared_folder)
        if self._shared_folder is None:
            if self._settings.log_sources:
                self._index = suite.index_logs()
            elif not self._settings.dry_run:
                self._session_folder = suite.take_session_dir()
        if self._index is not None:
            self._check_launcher(suite)
            return measuring_from_logs(suite, self._index, measurements)
        if self._is_worker:
            end_with_controller()
        live = self._live = self._live_report()
        return launching(
            suite,
            measurements,
            launchers=launchers_of(self._config, suite.cluster.python),
            allocators=self._allocators(suite),
            say=live.say,
            show=live.show,
        )

    def _allocators(self, suite: Suite) -> list[Allocator]:
        hook = self._config.hook
        allocators = hook.pytest_dlperf_allocators(config=self._config, cluster=suite.cluster)
        return list(chain.from_iterable(allocators))

    def _check_launcher(self, suite: Suite) -> None:
        """Check the launcher's name, though logs need none."""
        if self._settings.launcher is None:
            return
        from pytest_dlperf.launch.choosing import check_launcher

        every = (*launchers_of(self._config, suite.cluster.python), *self._allocators(suite))
        check_launcher(self._settings, [each.name for each in every])

    # ------------------------------------------------------- headers and progress

    def pytest_report_header(self) -> list[str]:
        """Say where cases are launched."""
        self._is_announced = True
        return [*self._announcement()]

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say it after collection, where that started the plugin."""
        return [] if self._is_announced else [*self._announcement()]

    def _announcement(self) -> Iterator[str]:
        for text in (*self._settings.unknown_variables, *self._settings.notice_warnings):
            yield f"dlperf: {text}"
        if self._session_folder is not None and self._session_folder.set_aside is not None:
            yield f"dlperf: {self._session_folder.set_aside}"
        launching = self._launching
        if launching is not None and launching.launches_on_hosts and not self._settings.dry_run:
            yield f"dlperf: launched {launching.description}"

    def _live_report(self) -> LiveReport:
        from pytest_dlperf.report.live import LiveReport

        who = os.environ.get("PYTEST_XDIST_WORKER", "main") if self._is_worker else "main"
        has_terminal = self._config.pluginmanager.has_plugin("terminalreporter")
        return LiveReport(
            self._uncaptured,
            who,
            has_terminal=has_terminal and not self._is_worker,
        )

    @contextmanager
    def _uncaptured(self) -> Iterator[Any]:
        """The terminal reporter, free to print while a test runs."""
        manager = self._config.pluginmanager
        capture = manager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled() if capture else nullcontext():
            yield manager.get_plugin("terminalreporter")

    def parameters(self, fixtures: Sequence[str], system_file: Path | None) -> list[Any]:
        """The cases for a fixture, or with another their metrics; with ids and marks.

        They are those of a system file, where one is named.
        """
        suite = self._suite
        if suite is None or not suite.cases:
            folders = ", ".join(map(str, self._settings.systems_directories))
            raise not_collected(
                f"{fixtures[0]} has no cases: there is no system file (*.yaml) in {folders}; "
                "--dlperf-systems or the ini key dlperf_systems names another folder"
            )
        if self._parameters is None:
            for name in {mark for system in suite.systems.values() for mark in system.marks}:
                self._config.addinivalue_line("markers", f"{name}: set by a system file")
            self._parameters = Parameters(suite)
        if len(fixtures) > 1:
            return self._parameters.of_metrics(fixtures[0], system_file)
        return self._parameters.of_cases(fixtures[0], system_file)

    def resume_gc(self) -> None:
        """Resume garbage collection, but not of the tests, which stay to the end."""
        if self._gc_is_paused:
            self._gc_is_paused = False
            gc.freeze()
            gc.enable()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Deselect by ``--dlperf-metric``; order the rest for hosts, where some are used."""
        items[:] = [item for item in items if not has_no_metric_to_judge(item)]
        wanted = self._settings.metrics
        if wanted is not None:
            others = dict.fromkeys(
                item for item in items if (about := case_of(item)) and about[1] not in wanted
            )
            if others:
                self._config.hook.pytest_deselected(items=[*others])
                items[:] = [item for item in items if item not in others]
        if self._launching is not None and self._launching.launches_on_hosts:
            workers = self._config.workerinput["workercount"] if self._is_worker else 1  # type: ignore[attr-defined]
            items[:] = sorted_for_packing(items, workers)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Print plans instead of running tests, if that is what was asked for."""
        launching = self._launching
        if not self._settings.dry_run or launching is None:
            return None
        from pytest_dlperf.report.nothing_run import dry_run_lines
        from pytest_dlperf.report.texts import plain

        cases = []
        for case, metric in tests_of(session.items):
            cases.append(case)
            if launching.suite.metric(case, metric).ratio_of and case.reference is not None:
                cases.append(case.reference)
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(plain(f"dlperf: launched {launching.description}"))
            for line in dry_run_lines(
                list(dict.fromkeys(cases)), launching.planned, launching.dry_run_text
            ):
                reporter.write_line(plain(line))
        return True

    # ------------------------------------------------------------- xdist's two sides

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand a new worker what the controller knows."""
        if self._suite is None:
            return
        if self._shared_folder is None:
            self._temporary = TemporaryDirectory(
                prefix="pytest-dlperf-workers-", ignore_cleanup_errors=True
            )
            self._shared_folder = Path(self._temporary.name)
        hand_to_worker(
            node,
            WorkerInput(self._start, self._settings.session_dir, self._shared_folder, self._index),
        )

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Keep deselected tests, in case that none is selected."""
        if self._suite is not None:
            self._deselected += items

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Forget deselected tests if any is selected; note the metrics to judge."""
        if session.items:
            self._deselected.clear()
        measuring = self._config.stash.get(MEASURING, None)
        if measuring is not None:
            measuring.selection.add(tests_of(session.items))

    # --------------------------------------------------------------------- the end

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Remove the workers' shared folder, and unlock the folder of the logs."""
        if self._temporary is not None:
            self._temporary.cleanup()
        if self._session_folder is not None:
            from pytest_dlperf.plugin.reporting import WHOLE

            self._session_folder.release(is_whole=session.exitstatus in WHOLE)

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why no test was selected, as far as ``-k``, ``-m`` and ``--dlperf-metric`` tell."""
        suite = self._suite
        if suite is None or not self._deselected:
            return
        from pytest_dlperf.report.nothing_run import selection_lines
        from pytest_dlperf.report.texts import plain

        names = [" ".join((item.nodeid, *item.keywords)).lower() for item in self._deselected]
        option = self._config.option
        for text in selection_lines(option.keyword, option.markexpr, suite.cases, names):
            terminalreporter.write_line(plain(text), yellow=True)
        for name in sorted(
            {*(self._settings.metrics or ())} - {m for _, m in tests_of(self._deselected)}
        ):
            text = (
                f"--dlperf-metric: no test here is about {name}; one that asks for dlperf_metric is"
            )
            terminalreporter.write_line(plain(text), yellow=True)


def launchers_of(config: pytest.Config, python: str | None = None) -> list[Launcher]:
    """Ask all plugins for their launchers; ``python`` is what the cluster has supervise runs."""
    from pytest_dlperf.launch.launchers import DEFAULT_PYTHON

    return list(
        chain.from_iterable(
            config.hook.pytest_dlperf_launchers(config=config, python=python or DEFAULT_PYTHON)
        )
    )
