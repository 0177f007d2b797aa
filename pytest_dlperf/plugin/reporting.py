"""The way of what tests tell: from their reports to records, the history, and the session's end."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pytest

from pytest_dlperf.config.option_reading import files_of_others
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.plain import from_plain, to_plain
from pytest_dlperf.model.records import TestRecord
from pytest_dlperf.plugin.cases import tests_of
from pytest_dlperf.plugin.errors import keep_junit_here
from pytest_dlperf.plugin.explaining import Explaining
from pytest_dlperf.plugin.fixtures import VerdictError, notes_of
from pytest_dlperf.plugin.records import SessionRecords
from pytest_dlperf.reports.report import Note, TestStatus

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_dlperf.history.store import Recorder
    from pytest_dlperf.model.results import IgnoredLog, Results
    from pytest_dlperf.plugin.notices import Notices
    from pytest_dlperf.plugin.records import TestNotes
    from pytest_dlperf.plugin.suite import Suite
    from pytest_dlperf.plugin.workers import Beginning
    from pytest_dlperf.reports.live import LiveReport
    from pytest_dlperf.reports.publish import Reports
    from pytest_dlperf.reports.report import Report

_TESTS_KEY: Final = "dlperf_tests"
_FAULT_KEY: Final = "dlperf_history_fault"
WHOLE: Final = (
    pytest.ExitCode.OK,
    pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED,
)
"""How a session ends that came to its end."""


class Reporting:
    """Has records come to reports, where tests run."""

    def __init__(
        self,
        config: pytest.Config,
        suite: Suite,
        beginning: Beginning,
        ignored_logs: Sequence[IgnoredLog],
        live: LiveReport | None,
    ) -> None:
        """Begin without a record; ``live`` shows what happens while a test runs."""
        self._config = config
        self._suite = suite
        self._settings = suite.settings
        self._ignored_logs = ignored_logs
        self._live = live
        self._beginning = beginning
        self._explaining = Explaining(suite, beginning)
        self._is_worker = hasattr(config, "workerinput")
        self._is_interrupted = False
        self._any_report = False
        """Whether a test of a case has told anything."""
        self._told: tuple[pytest.TestReport, TestRecord] | None = None
        """The report that pytest is being told of, and its record."""
        self._records = SessionRecords()
        self._notes = [Note(text) for text in self._settings.unknown_variables]
        self._reports: Reports | None = None
        """The session's reports, on the controller."""
        self._notices: Notices | None = None
        """Who is told of the session, on the controller."""
        self._results: Results | None = None
        self._recorder: Recorder | None = None

    def register(self) -> None:
        """Take part in what follows."""
        manager = self._config.pluginmanager
        manager.register(self, "dlperf-reporting")
        manager.register(_ReportsOfOthers(self._config, self._notes), "dlperf-reports-of-others")
        if not self._is_worker:
            from pytest_dlperf.plugin.notices import Notices
            from pytest_dlperf.reports.publish import Reports

            found = self._config.hook.pytest_dlperf_reports(config=self._config)
            self._reports = Reports(chain.from_iterable(found), self._notes)
            self._notices = Notices(self._config, self._settings)

    # ------------------------------------------------------------------ each test

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Learn from a worker which cases were selected, and what kept it from explaining."""
        output = getattr(node, "workeroutput", {})
        tests = output.get(_TESTS_KEY, ())
        self._records.select((from_plain(Case, case), metric) for case, metric in tests)
        self._explaining.fault = output.get(_FAULT_KEY) or self._explaining.fault

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the selected cases: each appears in the reports, whatever becomes of it."""
        tests = tests_of(session.items)
        if self._is_worker:
            plain = [(to_plain(case), metric) for case, metric in tests]
            self._config.workeroutput[_TESTS_KEY] = plain  # type: ignore[attr-defined]
        else:
            self._records.select(tests)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach what a test has to tell to its report, which reaches the controller."""
        report = yield
        notes = notes_of(item)
        if notes is None:
            return report
        failure: BaseException | str | None = None
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = _skip_reason(report)
            notes.judged(Judgement(metric=notes.metric, verdict=Verdict.SKIPPED, reason=reason))
            if self._settings.strict:
                report.outcome = "failed"
                failure = f"skipped, which --dlperf-strict does not allow: {reason}"
        elif report.failed and call.excinfo is not None:
            # What has a traceback is told by pytest.
            if getattr(call.excinfo.value, "pytrace", True) is False:
                failure = call.excinfo.value
                notes.failed(str(failure))
            else:
                notes.failed(f"the test itself failed: {call.excinfo.exconly(tryshort=True)}")
        self._explaining.explain(notes)
        if failure is not None:
            report.longrepr = self._failure(notes, failure)
        # A failure that was announced is no surprise, but strict mode takes no announcements.
        if hasattr(report, "wasxfail") and not self._settings.strict:
            notes.excused()
        report.dlperf = notes.record  # type: ignore[attr-defined]
        return report

    def _failure(self, notes: TestNotes, failure: BaseException | str) -> str:
        """Write all that is to be told of a test that failed: the verdict, or its own words."""
        from pytest_dlperf.reports.failure import failure_message, why_lines

        record, tonight = notes.record, self._beginning.at
        if isinstance(failure, VerdictError):
            settled = failure.settled
            explanation = record.explanations.get(settled.judgement.metric.name)
            cluster = self._suite.cluster.name
            return failure_message(settled, explanation, cluster=cluster, tonight=tonight)
        judgement = record.judgements.get(notes.metric.name)
        explanation = record.explanations.get(notes.metric.name)
        why = why_lines(judgement, explanation, tonight) if judgement is not None else ()
        return "\n".join([str(failure), *why])

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
        """Turn the record into builtins where a report leaves the process."""
        data = yield
        record = getattr(report, "dlperf", None)
        if data is not None and isinstance(record, TestRecord):
            data["dlperf"] = to_plain(record)
        return data

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what tests tell, here or on a worker."""
        # The result of a test is printed where its progress stood.
        if self._live is not None:
            self._live.clear()
        self._told = None
        record = getattr(report, "dlperf", None)
        if record is not None and self._reports is not None:
            if not self._any_report and self._notices is not None:
                self._notes += self._notices.begin()
            self._any_report = True
            if not isinstance(record, TestRecord):
                record = from_plain(TestRecord, record)
            self._records.add(record)
            self._keep(record)
            report.user_properties = [*report.user_properties, *self._reports.properties(record)]
            if report.when == "teardown":
                self._records.end(record)
            if report.failed and isinstance(report.longrepr, str):
                from pytest_dlperf.reports.failure import FailureText

                report.longrepr = FailureText(report.longrepr, report.location)  # type: ignore[assignment]
            if type(report) is pytest.TestReport:  # a part of a test has words of its own
                self._told = report, record
        elif report.failed and not self._is_worker:
            # A test whose worker was killed tells nothing; what it stands for is not whole.
            self._records.lose(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> Generator[None, Any, Any]:
        """Say what became of a test while pytest tells of it; its short summary keeps its words."""
        given = yield
        if self._told is None or report is not self._told[0] or self._reports is None:
            return given
        category, letter, word = given
        if not isinstance(word, str):
            return given  # another plugin has a word and a colour of its own
        status = self._reports.status(self._told[1], TestStatus(category, letter, word))
        markup = dict.fromkeys(status.markup, True)
        word = (status.word, markup) if markup else status.word
        return status.category, status.letter, word

    def _keep(self, record: TestRecord) -> None:
        """Put what was measured into the history at once: the session may be killed."""
        file = self._settings.history_file
        # Of logs nothing is lost: they can be judged again.
        if file is None or self._settings.log_sources or not record.measurements:
            return
        if self._recorder is None:
            from pytest_dlperf.history.store import Recorder

            self._recorder = Recorder(
                file,
                session=self._beginning.session,
                cluster=self._suite.cluster.name,
                started=self._beginning.at,
            )
        self._recorder.note(record)

    # ------------------------------------------------------------------ the end

    def pytest_keyboard_interrupt(self) -> None:
        """Note that the session ends before its time: by Ctrl-C, or by ``pytest.exit``."""
        self._is_interrupted = True

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Hand the cases to pytest-benchmark before it ends, and finish what is our own."""
        # What asks for words from now on makes a summary of its own.
        self._told = None
        if self._is_worker:
            self._config.workeroutput[_FAULT_KEY] = self._explaining.fault  # type: ignore[attr-defined]
        elif not self._settings.dry_run:
            self._finish(session)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_dlperf_reports(self, config: pytest.Config) -> list[Report]:
        """Add our own reports, in front of those of other plugins."""
        from pytest_dlperf.reports.builtin import builtin_reports

        return list(builtin_reports(config, self._settings, tell=self._notes.append))

    def _finish(self, session: pytest.Session) -> None:
        from pytest_dlperf.plugin.finish import finish

        self._is_interrupted |= session.exitstatus not in WHOLE
        self._results, notes = finish(
            self._suite,
            self._records,
            self._ignored_logs,
            beginning=self._beginning,
            any_report=self._any_report,
            green_so_far=session.exitstatus == pytest.ExitCode.OK,
            interrupted=self._is_interrupted,
        )
        self._notes += notes
        if self._explaining.fault is not None:
            text = f"since when and what differs is not told: {self._explaining.fault}"
            self._notes.append(Note(text))
        if self._reports is not None:
            self._reports.write(self._results, any_report=self._any_report)
        if self._notices is not None and self._any_report:
            self._notes += self._notices.tell(self._results, self._notes)
        if self._settings.session_dir.exists() and not self._settings.log_sources:
            self._notes.append(Note(f"logs: {self._settings.session_dir}"))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what the reports say at the end."""
        from pytest_dlperf.reports.numbers import plain
        from pytest_dlperf.reports.terminal import note_lines

        if self._reports is None or self._results is None or not self._any_report:
            lines = note_lines(self._notes)
        else:
            cluster = self._suite.cluster
            title = plain(f"dlperf: cluster {cluster.name}, {cluster.estimator.value}")
            terminalreporter.write_sep("=", title)
            lines = self._reports.summary(self._results)
        for line in lines:
            text = line.text if line.is_command else plain(line.text)
            terminalreporter.write_line(text, **dict.fromkeys(line.markup, True))


class _ReportsOfOthers:
    """Ends the session in red where a report could not be written, and keeps the summary."""

    def __init__(self, config: pytest.Config, notes: list[Note]) -> None:
        self._config = config
        self._notes = notes

    # Within the terminal reporter's wrapper, which has no summary when something is raised here.
    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Note what the reports of others raise, and have bad notes count."""
        # The link may be newer than the session.
        fault = keep_junit_here(self._config, files_of_others(self._config))
        if fault is not None:
            from pytest_dlperf.reports.publish import not_written_by_others

            self._notes.append(not_written_by_others(fault))
        try:
            result = yield
        except OSError as error:
            if not self._config.pluginmanager.has_plugin("terminalreporter"):
                raise
            from pytest_dlperf.reports.publish import not_written_by_others

            result = []
            self._notes.append(not_written_by_others(error))
        if session.exitstatus == pytest.ExitCode.OK and any(note.is_bad for note in self._notes):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return result


def _skip_reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)
