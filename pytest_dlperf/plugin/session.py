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
from msgspec.structs import replace

from pytest_dlperf.config.options import Settings, is_any_given
from pytest_dlperf.history.schema import fault_of
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.plugin.cases import (
    CASE_FIXTURES,
    MEASURING,
    METRIC_FIXTURE,
    SUITE,
    Parameters,
    case_of,
    ending_session,
    not_collected,
    sorted_for_packing,
    tests_of,
)
from pytest_dlperf.plugin.named import (
    WITHOUT_CASES,
    is_in_named_folder,
    may_have_suite,
    settings_of,
)
from pytest_dlperf.plugin.suite import load_suite
from pytest_dlperf.plugin.workers import (
    WorkerInput,
    end_with_controller,
    hand_over,
    handed_over,
)
from pytest_dlperf.report.printing import plain

if TYPE_CHECKING:
    from pytest_dlperf.files.session_folder import SessionFolder
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
    if fixtures:
        config.stash.setdefault(WITHOUT_CASES, set()).add(definition.path)
        if system_file is None and not is_in_named_folder(definition.path, definition.session):
            return
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
        metafunc.parametrize(names, [*session.parameters(names, system_file)])


class DlperfSession:
    """One session's part of the plugin, on a controller as on an xdist worker."""

    def __init__(self, config: pytest.Config) -> None:
        self.mistake: UsageError | None = None
        """Why it could not be opened."""
        self._config = config
        self._is_worker = hasattr(config, "workerinput")
        self._settings: Settings
        given = handed_over(config, "workerinput", WorkerInput)
        self._given = given or WorkerInput.of_new_session()
        self._is_announced = False
        self._session_folder: SessionFolder | None = None
        """The folder that the user named for the logs."""
        self._temporary: TemporaryDirectory[str] | None = None
        """Where workers share measurements."""
        self._parameters: Parameters | None = None
        self._deselected: list[pytest.Item] = []
        """Deselected tests, until one is known to be selected."""

    # ------------------------------------------------------------------ the suite

    @property
    def _measuring(self) -> Measuring | None:
        """What measures cases; ``None`` where pytest only looks at tests."""
        return self._config.stash.get(MEASURING, None)

    def open(self) -> None:
        """Read what the suite declares, and get ready to measure.

        Raises:
            UsageError: The user made a mistake, in settings or the suite.
        """
        config, hook, option = self._config, self._config.hook, self._config.option
        given, settings = self._given, settings_of(config)
        if given.mistake is not None:
            raise UsageError(given.mistake)
        if given.session_dir:
            settings = settings._replace(session_dir=Path(given.session_dir))
        self._settings = settings
        if not (is_any_given(config) or may_have_suite(config)):
            return
        # Ten thousand cases and their tests are some hundred thousand objects that all stay;
        # searching them over and over takes a third of the time of making them.
        gc.disable()
        suite = load_suite(
            settings,
            more_files=chain(*hook.pytest_dlperf_system_files(config=config)),
            more_formats=chain(*hook.pytest_dlperf_log_formats(config=config)),
        )
        if not (option.collectonly or option.setuponly or option.setupplan):
            from pytest_dlperf.plugin.measuring import Measuring
            from pytest_dlperf.plugin.reporting import Reporting

            shared = Path(given.shared_folder) if given.shared_folder else None
            measuring, live = Measuring(suite, shared), None
            if settings.log_sources:
                self._check_history()
                measuring.read_logs()
            else:
                self._prepare_launching()
                live = self._live_report()
                measuring.launch(config, live)
            config.stash[MEASURING] = measuring
            ignored_logs = measuring.index.ignored if measuring.index else []
            reporting = Reporting(config, suite, given, ignored_logs, live)
            config.pluginmanager.register(reporting, "dlperf-reporting")
        config.stash[SUITE] = suite

    def end_collection(self) -> None:
        """Resume garbage collection, but not of the tests, which stay; end with a mistake."""
        if not gc.isenabled():
            gc.freeze()
            gc.enable()
        # With workers, their tests tell it if they ask for cases.
        if not (self._is_worker or self._config.pluginmanager.has_plugin("dsession")):
            self.tell_mistake()

    def tell_mistake(self) -> None:
        """End the session if there is a mistake."""
        if self.mistake is not None:
            gc.enable()
            with ending_session():
                raise self.mistake

    def _check_history(self) -> None:
        """Refuse a named file that is not a history; in the default place a note is enough."""
        file, place = self._settings.history_file, self._settings.places.get("history_file")
        fault = fault_of(file) if file is not None and place is not None else None
        if fault is not None:
            raise UsageError(f"{place}: {file} {fault}; move it away, or name another file")

    def _prepare_launching(self) -> None:
        """Take the folder that the user named for the logs; end a worker with its controller."""
        if self._is_worker:
            end_with_controller()
            return
        self._check_history()
        folder = self._settings.session_dir
        # The default has a name that no other session has.
        if self._settings.dry_run or "session_dir" not in self._settings.places:
            return
        from pytest_dlperf.files.session_folder import SessionFolder

        try:
            self._session_folder = SessionFolder(folder)
        except OSError as error:
            raise UsageError(f"--dlperf-run-dir: {folder}: {error.strerror or error}") from error
        except UsageError as error:
            raise UsageError(f"--dlperf-run-dir: {error}") from error

    def _live_report(self) -> LiveReport:
        from pytest_dlperf.report.live import LiveReport

        manager = self._config.pluginmanager

        @contextmanager
        def uncaptured() -> Iterator[Any]:
            """Give the terminal reporter, free to print while a test runs."""
            capture = manager.get_plugin("capturemanager")
            with capture.global_and_fixture_disabled() if capture else nullcontext():
                yield manager.get_plugin("terminalreporter")

        who = os.environ.get("PYTEST_XDIST_WORKER", "main") if self._is_worker else "main"
        has_terminal = manager.has_plugin("terminalreporter") and not self._is_worker
        return LiveReport(uncaptured, who, has_terminal=has_terminal)

    # ------------------------------------------------------------------ collection

    def parameters(self, fixtures: Sequence[str], system_file: Path | None) -> Iterator[Any]:
        """Yield the cases for a fixture, or with another their metrics; with ids and marks.

        They are those of a system file, where one is named.
        """
        if self.mistake is not None:
            return
        suite = self._config.stash.get(SUITE, None)
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
        yield from self._parameters.of(fixtures[0], system_file, with_metric=len(fixtures) > 1)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Deselect by ``--dlperf-metric``; order the rest for hosts, where some are used."""
        if self.mistake is not None:
            return
        wanted = self._settings.metrics
        if wanted is not None:
            others = dict.fromkeys(
                item for item in items if (about := case_of(item)) and about[1] not in wanted
            )
            if others:
                self._config.hook.pytest_deselected(items=[*others])
                items[:] = [item for item in items if item not in others]
        launcher = self._measuring and self._measuring.launcher
        if launcher and not launcher.fleet.is_this_machine:
            workers = self._config.workerinput["workercount"] if self._is_worker else 1  # type: ignore[attr-defined]
            items[:] = sorted_for_packing(items, workers)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Keep deselected tests, in case that none is selected."""
        self._deselected += items

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Forget deselected tests if any is selected; note the metrics to judge."""
        if session.items:
            self._deselected.clear()
        if self._measuring is not None:
            self._measuring.select(tests_of(session.items))

    def pytest_report_header(self) -> list[str]:
        """Say where cases are launched, and what is strange about the settings."""
        self._is_announced = True
        return self._announcement()

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say it after collection, where that started the plugin."""
        return [] if self._is_announced else self._announcement()

    def _announcement(self) -> list[str]:
        if self.mistake is not None:
            return []
        lines = [*self._settings.unknown_variables, *self._settings.notice_warnings]
        if self._session_folder is not None and self._session_folder.set_aside is not None:
            lines.append(self._session_folder.set_aside)
        launcher = self._measuring and self._measuring.launcher
        if launcher and not (launcher.fleet.is_this_machine or self._settings.dry_run):
            lines.append(f"launched {launcher.fleet.description}")
        return [f"dlperf: {line}" for line in lines]

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

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand a new worker of xdist what its controller has decided."""
        if SUITE not in self._config.stash and self.mistake is None:
            return
        if self._temporary is None:
            self._temporary = TemporaryDirectory(
                prefix="pytest-dlperf-workers-", ignore_cleanup_errors=True
            )
        given = replace(
            self._given,
            session_dir=str(self._settings.session_dir),
            shared_folder=self._temporary.name,
            mistake=str(self.mistake) if self.mistake is not None else None,
        )
        hand_over(node.workerinput, given)

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
        suite, option = self._config.stash.get(SUITE, None), self._config.option
        if suite is None or not self._deselected:
            return
        from pytest_dlperf.report.nothing_run import selection_lines

        names = [" ".join((item.nodeid, *item.keywords)).lower() for item in self._deselected]
        lines = [*selection_lines(option.keyword, option.markexpr, suite.cases, names)]
        here = {metric for _, metric in tests_of(self._deselected)}
        lines += [
            f"--dlperf-metric: no test here is about {name}; one that asks for dlperf_metric is"
            for name in sorted((self._settings.metrics or frozenset()) - here)
        ]
        for text in lines:
            terminalreporter.write_line(plain(text), yellow=True)
