"""Test reports become records, then results, reports and notices at the session's end."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from datetime import date
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import convert, to_builtins
from msgspec.structs import replace

from pytest_dlperf.files.masking import keep_quiet, unspoken
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.results import CaseResult, IgnoredLog
from pytest_dlperf.plugin.cases import MEASURING, case_of, tests_of
from pytest_dlperf.plugin.finish import finish
from pytest_dlperf.plugin.fixtures import (
    UNFIT_HOSTS,
    VerdictError,
    case_and_metric,
    note,
    result_of,
)
from pytest_dlperf.plugin.named import selects_tests
from pytest_dlperf.plugin.notices import Notices, faults_of
from pytest_dlperf.plugin.records import Explainer, SessionRecords, excused, failed, judged
from pytest_dlperf.plugin.workers import SessionStart
from pytest_dlperf.report.failure import fact_lines, failure_message, why_facts
from pytest_dlperf.report.junit import junit_properties
from pytest_dlperf.report.printing import plain
from pytest_dlperf.report.reports import Note, Report, Reports, builtin_reports
from pytest_dlperf.report.session import SessionReport, session_report
from pytest_dlperf.report.terminal import (
    Line,
    TestStatus,
    note_lines,
    summary,
    verdict_status,
)
from pytest_dlperf.report.words import subject
from pytest_dlperf.results.file import write_json

if TYPE_CHECKING:
    from pytest_dlperf.plugin.suite import Suite
    from pytest_dlperf.report.live import LiveReport

_TESTS_KEY: Final = "dlperf_tests"
_DESELECTED_KEY: Final = "dlperf_deselected"
_FAULT_KEY: Final = "dlperf_history_fault"
_HOSTS_KEY: Final = "dlperf_host_faults"
_UNSPOKEN_KEY: Final = "dlperf_unspoken"
_REPORTED: Final = pytest.StashKey[CaseResult]()
"""What a test has reported so far."""
WHOLE: Final = (
    pytest.ExitCode.OK,
    pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED,
)
"""How a session ends that came to its end."""


class Reporting:
    """Merges what tests know of their cases and writes reports, in sessions that run tests."""

    def __init__(
        self,
        config: pytest.Config,
        suite: Suite,
        session_start: SessionStart,
        ignored_logs: Sequence[IgnoredLog],
        live: LiveReport | None,
    ) -> None:
        self._config = config
        self._suite = suite
        self._settings = suite.settings
        self._ignored_logs = ignored_logs
        self._live = live
        self._start = session_start
        self._explainer = Explainer(suite, session_start)
        self._is_worker = hasattr(config, "workerinput")
        self._is_interrupted = False
        self._any_report = False
        """Whether a test of a case has reported."""
        self._current: tuple[pytest.TestReport, CaseResult, str] | None = None
        """The report that pytest logs just now, with its case and metric."""
        self._records = SessionRecords()
        self._unfit_hosts: dict[str, list[str]] = {}
        """Faults of hosts that workers found, by host."""
        self._notes = [Note(text) for text in self._settings.unknown_variables]
        self._reports: Reports | None = None
        """The session's reports, on the controller."""
        self._notices: Notices | None = None
        """The session's notifiers, on the controller."""
        self._session: SessionReport | None = None

    def register(self) -> None:
        """Take part in what follows."""
        self._config.pluginmanager.register(self, "dlperf-reporting")
        if not self._is_worker:
            found = self._config.hook.pytest_dlperf_reports(config=self._config)
            self._reports = Reports(chain.from_iterable(found), self._notes)
            self._notices = Notices(self._config, self._settings)

    # ------------------------------------------------------------------ each test

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take a worker's selected and deselected cases, its hosts' and its history's faults."""
        output = getattr(node, "workeroutput", {})
        tests = output.get(_TESTS_KEY, ())
        self._records.select((convert(case, Case), metric) for case, metric in tests)
        self._records.deselected.update(map(tuple, output.get(_DESELECTED_KEY, ())))
        self._explainer.fault = output.get(_FAULT_KEY) or self._explainer.fault
        for host, why in output.get(_HOSTS_KEY, ()):
            self._unfit_hosts.setdefault(host, []).append(why)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note the metrics that the user does not want to be judged."""
        self._records.deselected.update((case.id, metric) for case, metric in tests_of(items))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the selected cases: reports list each of them."""
        tests = tests_of(session.items)
        if self._is_worker:
            output = self._config.workeroutput  # type: ignore[attr-defined]
            output[_TESTS_KEY] = [(to_builtins(case), metric) for case, metric in tests]
            selected = {case.id for case, _ in tests}
            output[_DESELECTED_KEY] = [
                pair for pair in self._records.deselected if pair[0] in selected
            ]
        else:
            self._records.select(tests)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach what a test knows of its case to its report, which reaches the controller."""
        report = yield
        if case_of(item) is None:
            return report
        result, (_, metric) = result_of(item), case_and_metric(item)
        before = item.stash.get(_REPORTED, CaseResult(case=result.case))
        failure: BaseException | str | None = None
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = _skip_reason(report)
            skipped = Judgement(metric=metric, verdict=Verdict.SKIPPED, reason=reason)
            result = judged(result, skipped)
            if self._settings.strict:
                report.outcome = "failed"
                failure = f"skipped, which --dlperf-strict does not allow: {reason}"
        elif report.failed and call.excinfo is not None:
            # Pytest itself reports what has a traceback.
            if getattr(call.excinfo.value, "pytrace", True) is False:
                failure = call.excinfo.value
                result = failed(result, metric, str(failure))
            else:
                text = f"the test itself failed: {call.excinfo.exconly(tryshort=True)}"
                result = failed(result, metric, text)
        result = self._explainer.explain(
            result, before, has_unfit_hosts=item.stash.get(UNFIT_HOSTS, False)
        )
        if failure is not None:
            report.longrepr = self._failure(result, metric.name, failure)
        result = self._excused(result, report)
        note(item, result)
        item.stash[_REPORTED] = result
        report.dlperf = (result, metric.name)  # type: ignore[attr-defined]
        return report

    def _excused(self, result: CaseResult, report: pytest.TestReport) -> CaseResult:
        """Excuse failures that were announced: by ``xfail``, or in the cluster's file."""
        strict, day = self._settings.strict, date.fromisoformat(self._start.at[:10])
        announced = getattr(report, "wasxfail", None)
        if announced is not None:  # strict mode takes no announcements of tests
            return result if strict else excused(result, lambda _: announced, strict=False)
        if not report.failed:
            return result
        expects = self._suite.cluster.expect

        def why_expected(judgement: Judgement) -> str | None:
            whys = (one.why(result.case.id, judgement, day) for one in expects)
            return next(filter(None, whys), None)

        result = excused(result, why_expected, strict=strict)
        whys = [judgement.expected for judgement in result.judgements.values()]
        if any(whys) and not any(j.status.fails(strict=strict) for j in result.judgements.values()):
            report.outcome = "skipped"
            report.wasxfail = "; ".join(filter(None, whys))
        return result

    def _failure(self, known: CaseResult, metric: str, failure: BaseException | str) -> str:
        """Write the message of a failed test: of its verdict, or of its own failure."""
        now = self._start.at
        if isinstance(failure, VerdictError):
            explanation = known.explanations.get(failure.result.judgement.metric.name)
            return failure_message(failure.result, explanation, now)
        said, judgement = str(failure), known.judgements.get(metric)
        if judgement is None:
            return said
        explanation = known.explanations.get(metric)
        if judgement.verdict is Verdict.FAILED:
            reason = said.removeprefix(known.case.id).lstrip(", :")
            said = f"{subject(judgement, explanation, now)}: {reason}"
        return "\n".join([said, *fact_lines(why_facts(judgement, explanation, now))])

    @pytest.hookimpl(wrapper=True)
    def pytest_report_to_serializable(
        self, report: pytest.CollectReport | pytest.TestReport
    ) -> Generator[None, dict[str, Any] | None, dict[str, Any] | None]:
        """Turn what a test knows into builtins where its report leaves the process.

        The controller writes the page, and has to keep quiet what this worker has launched with.
        """
        data = yield
        reported = getattr(report, "dlperf", None)
        if data is not None and isinstance(reported, tuple):
            from pytest_dlperf.results.file import encodable

            result, metric = reported
            data["dlperf"] = [to_builtins(encodable(result)), metric]
            if self._is_worker:
                data[_UNSPOKEN_KEY] = unspoken()
        return data

    @pytest.hookimpl(wrapper=True)
    def pytest_report_from_serializable(
        self, data: dict[str, Any]
    ) -> Generator[None, pytest.CollectReport | pytest.TestReport | None, Any]:
        """Take what a worker keeps quiet, so that nothing finds it at the report."""
        keep_quiet(data.pop(_UNSPOKEN_KEY, ()))
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Merge what tests know of their cases."""
        # The result of a test is printed where its progress stood.
        if self._live is not None:
            self._live.clear()
        self._current = None
        reported = getattr(report, "dlperf", None)
        if reported is not None and self._reports is not None:
            if not self._any_report and self._notices is not None:
                self._notes += self._notices.begin()
            self._any_report = True
            result, metric = convert(reported, tuple[CaseResult, str])
            self._records.add(result)
            with self._reports.faults_noted("JUnit properties"):
                cluster = self._settings.cluster
                report.user_properties += junit_properties(result, metric, cluster=cluster)
            if report.when == "teardown":
                self._records.end(result.case.id, metric)
            if report.failed and isinstance(report.longrepr, str):
                from pytest_dlperf.report.columns import decisive
                from pytest_dlperf.report.failure import FailureText

                text, judgement = report.longrepr, decisive(result, metric)
                report.longrepr = FailureText(text, report.location, judgement)  # type: ignore[assignment]
            if type(report) is pytest.TestReport:  # a part of a test has words of its own
                self._current = report, result, metric
        elif report.failed and not self._is_worker:
            # Its worker was killed, so its case is not whole.
            self._records.lose(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> Generator[None, Any, Any]:
        """Show the status of a test's case in place of pytest's; in the summary beside it."""
        given = yield
        category, letter, word = given
        if self._reports is None or not isinstance(word, str):
            return given  # another plugin has a word and a colour of its own
        if self._current is None or report is not self._current[0]:
            gist = getattr(report.longrepr, "gist", "")
            return (category, letter, f"{word} ({gist})") if gist else given
        _, result, metric = self._current
        status = TestStatus(category, letter, word)
        with self._reports.faults_noted("summary"):
            status = verdict_status(result, metric, status, strict=self._settings.strict)
        markup = dict.fromkeys(status.markup, True)
        word = (status.word, markup) if markup else status.word
        return status.category, status.letter, word

    # ------------------------------------------------------------------ the end

    def pytest_keyboard_interrupt(self) -> None:
        """Note that Ctrl-C or ``pytest.exit`` ends the session early."""
        self._is_interrupted = True

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, object, object]:
        """Finish before pytest-benchmark does, which takes the cases."""
        # Whatever asks for a status from now on makes a summary of its own.
        self._current = None
        if self._is_worker:
            output = self._config.workeroutput  # type: ignore[attr-defined]
            output[_FAULT_KEY] = self._explainer.fault
            output[_HOSTS_KEY] = self._faults_found_here()
        elif not self._settings.dry_run:
            self._finish(session)
            is_green = session.exitstatus == pytest.ExitCode.OK
            if is_green and any(note.is_bad for note in self._notes):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_dlperf_reports(self, config: pytest.Config) -> list[Report]:
        """Add our own reports, in front of those of other plugins."""
        return list(builtin_reports(config, self._settings))

    def _faults_found_here(self) -> list[tuple[str, str]]:
        return [(one.host, one.fault) for one in self._config.stash[MEASURING].host_faults]

    def _finish(self, session: pytest.Session) -> None:

        self._is_interrupted |= session.exitstatus not in WHOLE
        for host, why in self._faults_found_here():
            self._unfit_hosts.setdefault(host, []).append(why)
        results, notes = finish(
            self._suite,
            self._records,
            self._ignored_logs,
            unfit_hosts={
                host: tuple(dict.fromkeys(faults)) for host, faults in self._unfit_hosts.items()
            },
            session_start=self._start,
            any_report=self._any_report,
            green_so_far=session.exitstatus == pytest.ExitCode.OK,
            interrupted=self._is_interrupted,
            selects_tests=selects_tests(self._config),
        )
        self._notes += notes
        results = replace(results, faults=faults_of(self._notes))
        file = self._settings.history_file
        self._session = report = session_report(results, file, may_read_logs=True)
        if self._explainer.fault is not None:
            text = f"since when and what differs is not told: {self._explainer.fault}"
            self._notes.append(Note(text))
        if self._reports is not None:
            self._reports.write(report, any_test=self._any_report)
            faults = faults_of(self._notes)
            if self._settings.json_file is not None and faults != results.faults:
                # It was written first; what the others came to is known only now.
                with suppress(OSError):
                    write_json(self._settings.json_file, replace(results, faults=faults))
        if self._notices is not None and self._any_report:
            self._notes += self._notices.send(report, self._notes)
        if not self._settings.log_sources and self._settings.session_dir.exists():
            self._notes.append(Note(f"logs: {self._settings.session_dir}"))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what the session has come to."""

        def show(lines: Iterable[Line]) -> None:
            for line in lines:
                markup = dict.fromkeys(line.markup, True)
                terminalreporter.write_line(plain(line.text), **markup)

        told = tuple(self._notes)
        if self._reports is None or self._session is None or not self._any_report:
            show(note_lines(told))
            return
        cluster = self._suite.cluster
        title = plain(f"dlperf: cluster {cluster.name}, {cluster.estimator.value}")
        terminalreporter.write_sep("=", title)
        with self._reports.faults_noted("summary"):
            show(summary(self._session, told, self._config))
        if self._settings.annotate:
            from pytest_dlperf.report.github import annotation_lines

            with self._reports.faults_noted("annotations"):
                for command in annotation_lines(self._session, faults_of(told)):
                    terminalreporter.write_line(command)
        show(note_lines(self._notes[len(told) :]))


def _skip_reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)
