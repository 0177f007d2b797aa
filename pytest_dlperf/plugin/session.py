"""A session's part of the plugin: the suite, xdist's two sides, and the end."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_dlperf.config.options import Settings, is_any_given
from pytest_dlperf.history.schema import fault_of
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.plugin.cases import (
    CASE_FIXTURES,
    MEASURING,
    METRIC_FIXTURE,
    OWN_TESTS,
    SUITE,
    Parameters,
    case_of,
    ending_session,
    has_no_metric_to_judge,
    not_collected,
    sorted_for_packing,
    tests_of,
)
from pytest_dlperf.plugin.launchers import check_launcher_of, engines_of
from pytest_dlperf.plugin.named import (
    UNNAMED,
    is_in_named_folder,
    may_have_suite,
    settings_of,
)
from pytest_dlperf.plugin.suite import Suite, load_suite
from pytest_dlperf.plugin.workers import (
    SessionStart,
    WorkerInput,
    end_with_controller,
    hand_to_worker,
    worker_input,
)
from pytest_dlperf.report.printing import plain

if TYPE_CHECKING:
    from pytest_dlperf.files.session_folder import SessionFolder
    from pytest_dlperf.logs.tree import LogIndex
    from pytest_dlperf.plugin.measuring import Measuring
    from pytest_dlperf.report.live import LiveReport


_NAME: Final = "dlperf-session"


def start(config: pytest.Config) -> DlperfSession:
    """Read the suite and register the session's part of the plugin, at the first call."""
    session: DlperfSession | None = config.pluginmanager.get_plugin(_NAME)
    if session is None:
        session = DlperfSession(config)
        try:
            session.open()
        except UsageError as error:
            session.mistake = error
            if is_any_given(config):
                session.tell_mistake()
        config.pluginmanager.register(session, _NAME)
    return session


def parametrize(metafunc: pytest.Metafunc, asked: AbstractSet[str]) -> None:
    """Parametrize a test that asks for our fixtures with its cases."""
    config, definition = metafunc.config, metafunc.definition
    # Of the tests that come with the package, a system file has those of its own cases.
    system_file = getattr(definition.parent, "system_file", None)
    fixtures = [fixture for fixture in CASE_FIXTURES if fixture in asked]
    if system_file is None and fixtures:
        if not is_in_named_folder(definition.path, definition.session):
            config.stash.setdefault(UNNAMED, set()).add(definition.path)
            return
        config.stash.setdefault(OWN_TESTS, []).append((definition.path, metafunc.function))
    session = start(config)
    if session.mistake is not None and hasattr(config, "workerinput"):
        raise not_collected(session.mistake)
    if METRIC_FIXTURE in asked and not fixtures:
        raise not_collected(
            f"{METRIC_FIXTURE} is a metric of a case: ask for {' or '.join(CASE_FIXTURES)} as well"
        )
    for fixture in fixtures:
        with_metric = METRIC_FIXTURE in asked and fixture == fixtures[0]
        names = [fixture, METRIC_FIXTURE] if with_metric else [fixture]
        metafunc.parametrize(names, session.parameters(names, system_file))


class DlperfSession:
    """One session's part of the plugin, on a controller as on an xdist worker."""

    def __init__(self, config: pytest.Config) -> None:
        self.mistake: UsageError | None = None
        """Why it could not be opened."""
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._settings: Settings
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
    def _measuring(self) -> Measuring | None:
        """What measures cases; ``None`` where pytest only looks at tests."""
        return self._config.stash.get(MEASURING, None)

    def open(self) -> None:
        """Read what the suite declares, and get ready to measure.

        Raises:
            UsageError: The user made a mistake, in settings or the suite.
        """
        given = worker_input(self._config)
        if given is not None and given.mistake is not None:
            raise UsageError(given.mistake)
        config, hook = self._config, self._config.hook
        self._settings = settings_of(config)
        if not (is_any_given(config) or may_have_suite(config)):
            return
        if given is not None:
            self._shared_folder = Path(given.shared_folder)
            self._start = given.session_start
            self._settings = self._settings._replace(session_dir=Path(given.session_dir))
        # Ten thousand cases and their tests are some hundred thousand objects that all stay;
        # searching them over and over takes a third of the time of making them.
        self._gc_is_paused = gc.isenabled()
        gc.disable()
        suite = load_suite(
            self._settings,
            more_files=list(chain.from_iterable(hook.pytest_dlperf_system_files(config=config))),
            more_formats=list(chain.from_iterable(hook.pytest_dlperf_log_formats(config=config))),
        )
        if not self._runs_no_tests:
            if not self._is_worker:
                self._check_history()
            config.stash[MEASURING] = self._prepare(suite)
            from pytest_dlperf.plugin.reporting import Reporting

            ignored_logs = self._index.ignored if self._index else []
            Reporting(config, suite, self._start, ignored_logs, self._live).register()
        config.stash[SUITE] = suite

    def end_collection(self) -> None:
        """Resume garbage collection, but not of the tests, which stay; end with a mistake."""
        self._resume_gc()
        # With workers, their tests tell it if they ask for cases.
        if not (self._is_worker or self._config.pluginmanager.has_plugin("dsession")):
            self.tell_mistake()

    def tell_mistake(self) -> None:
        """End the session if there is a mistake."""
        if self.mistake is not None:
            self._resume_gc()
            with ending_session():
                raise self.mistake

    def _resume_gc(self) -> None:
        if self._gc_is_paused:
            self._gc_is_paused = False
            gc.freeze()
            gc.enable()

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
        fault = fault_of(file)
        if fault is not None:
            raise UsageError(f"{place}: {file} {fault}; move it away, or name another file")

    def _prepare(self, suite: Suite) -> Measuring:
        from pytest_dlperf.plugin.measuring import launching, measuring_from_logs

        if self._settings.log_sources:
            self._index = suite.index_logs()
            check_launcher_of(self._config, suite)
            return measuring_from_logs(suite, self._index, self._shared_folder)
        if self._is_worker:
            end_with_controller()
        elif not self._settings.dry_run:
            self._session_folder = suite.take_session_dir()
        live = self._live = self._live_report()
        return launching(
            suite,
            self._shared_folder,
            engines=engines_of(self._config, suite.cluster),
            say=live.say,
            show=live.show,
        )

    # ------------------------------------------------------- headers and progress

    def pytest_report_header(self) -> list[str]:
        """Say where cases are launched."""
        self._is_announced = True
        return [*self._announcement()]

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say it after collection, where that started the plugin."""
        return [] if self._is_announced else [*self._announcement()]

    def _announcement(self) -> Iterator[str]:
        if self.mistake is not None:
            return
        for text in (*self._settings.unknown_variables, *self._settings.notice_warnings):
            yield f"dlperf: {text}"
        if self._session_folder is not None and self._session_folder.set_aside is not None:
            yield f"dlperf: {self._session_folder.set_aside}"
        launcher = self._measuring and self._measuring.launcher
        if launcher and not (launcher.fleet.is_this_machine or self._settings.dry_run):
            yield f"dlperf: launched {launcher.fleet.description}"

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
        if self.mistake is not None:
            return []
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

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Deselect by ``--dlperf-metric``; order the rest for hosts, where some are used."""
        if self.mistake is not None:
            return
        items[:] = [item for item in items if not has_no_metric_to_judge(item)]
        wanted = self._settings.metrics
        if wanted is not None:
            others = dict.fromkeys(
                item for item in items if (about := case_of(item)) and about[1] not in wanted
            )
            if others:
                self._config.hook.pytest_deselected(items=[*others])
                items[:] = [item for item in items if item not in others]
        if self._measuring is not None and self._measuring.launches_on_hosts:
            workers = self._config.workerinput["workercount"] if self._is_worker else 1  # type: ignore[attr-defined]
            items[:] = sorted_for_packing(items, workers)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Print plans instead of running tests, if that is what was asked for."""
        measuring = self._measuring
        launcher = measuring.launcher if measuring is not None else None
        if measuring is None or launcher is None or not self._settings.dry_run:
            return None
        from pytest_dlperf.report.nothing_run import dry_run_lines

        cases = []
        for case, metric in tests_of(session.items):
            cases.append(case)
            if measuring.suite.metric(case, metric).ratio_of and case.reference is not None:
                cases.append(case.reference)
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(plain(f"dlperf: launched {launcher.fleet.description}"))
            for line in dry_run_lines(
                list(dict.fromkeys(cases)), launcher.plan, launcher.dry_run_text
            ):
                reporter.write_line(plain(line))
        return True

    # ------------------------------------------------------------- xdist's two sides

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand a new worker what the controller has decided."""
        if self._suite is None and self.mistake is None:
            return
        if self._shared_folder is None:
            self._temporary = TemporaryDirectory(
                prefix="pytest-dlperf-workers-", ignore_cleanup_errors=True
            )
            self._shared_folder = Path(self._temporary.name)
        hand_to_worker(
            node,
            WorkerInput(
                self._start,
                str(self._settings.session_dir),
                str(self._shared_folder),
                str(self.mistake) if self.mistake is not None else None,
            ),
        )

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Keep deselected tests, in case that none is selected."""
        if self._suite is not None:
            self._deselected += items

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Forget deselected tests if any is selected; note the metrics to judge."""
        if session.items:
            self._deselected.clear()
        if self._measuring is not None:
            self._measuring.select(tests_of(session.items))

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
