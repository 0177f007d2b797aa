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
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.results import CaseResult, IgnoredLog
from pytest_dlperf.plugin.cases import MEASURING, case_of, tests_of
from pytest_dlperf.plugin.explaining import Explainer
from pytest_dlperf.plugin.finish import finish
from pytest_dlperf.plugin.fixtures import (
    RESULT,
    UNFIT_HOSTS,
    VerdictError,
    case_and_metric,
    result_of,
)
from pytest_dlperf.plugin.named import selects_tests
from pytest_dlperf.plugin.notices import Notices, faults_of
from pytest_dlperf.plugin.records import SessionRecords, excused, failed, judged
from pytest_dlperf.plugin.suite import Suite
from pytest_dlperf.plugin.workers import WorkerInput, WorkerOutput, hand_over, handed_over
from pytest_dlperf.report.failure import FailureText, fact_lines, failure_message, why_facts
from pytest_dlperf.report.junit import junit_properties
from pytest_dlperf.report.printing import plain
from pytest_dlperf.report.reports import Note, Reports, builtin_reports
from pytest_dlperf.report.session import SessionReport, session_report
from pytest_dlperf.report.status import decisive
from pytest_dlperf.report.terminal import Line, TestStatus, note_lines, summary, verdict_status
from pytest_dlperf.report.words import subject
from pytest_dlperf.results.file import encodable, write_json

if TYPE_CHECKING:
    from pytest_dlperf.report.live import LiveReport

_REPORTED: Final = pytest.StashKey[CaseResult]()
"""What a test has reported so far."""
WHOLE: Final = (
    pytest.ExitCode.OK,
    pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED,
)
"""How a session ends that came to its end."""


class Reporting:
    """Reports what tests say of their cases, in sessions that run tests."""

    def __init__(
        self,
        config: pytest.Config,
        suite: Suite,
        session: WorkerInput,
        ignored_logs: Sequence[IgnoredLog],
        live: LiveReport | None,
    ) -> None:
        self._config = config
        self._suite = suite
        self._settings = suite.settings
        self._ignored_logs = ignored_logs
        self._live = live
        self._started = session.started
        self._explainer = Explainer(suite, session)
        self._is_worker = hasattr(config, "workerinput")
        self._is_interrupted = False
        self._current: tuple[pytest.TestReport, CaseResult, str] | None = None
        """The report that pytest logs just now, with its case and metric."""
        self._records = SessionRecords()
        self._host_faults: list[tuple[str, str]] = []
        self._notes = [Note(text) for text in self._settings.unknown_variables]
        self._session: SessionReport | None = None
        """What the session has come to, on the controller."""
        of_others = () if self._is_worker else config.hook.pytest_dlperf_reports(config=config)
        ours = builtin_reports(config, self._settings)
        self._reports = Reports(chain(ours, *of_others), self._notes)
        self._notices = None if self._is_worker else Notices(config, self._settings)

    # ------------------------------------------------------------------ each test

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take what a worker tells at its end."""
        output = handed_over(node, "workeroutput", WorkerOutput)
        if output is not None:
            self._records.select(output.selected)
            self._records.deselected |= output.deselected
            self._explainer.fault = output.history_fault or self._explainer.fault
            self._host_faults += output.host_faults
            keep_quiet(output.unspoken)

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Note the metrics that the user does not want to be judged."""
        self._records.deselected.update((case.id, metric) for case, metric in tests_of(items))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the selected cases: reports list each of them."""
        self._records.select(tests_of(session.items))

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
            reason = str(report.longrepr)
            if isinstance(report.longrepr, tuple):
                reason = report.longrepr[2].removeprefix("Skipped: ")
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
        item.stash[RESULT] = item.stash[_REPORTED] = result
        report.dlperf = (result, metric.name)  # type: ignore[attr-defined]
        return report

    def _excused(self, result: CaseResult, report: pytest.TestReport) -> CaseResult:
        """Excuse failures that were announced: by ``xfail``, or in the cluster's file."""
        strict, announced = self._settings.strict, getattr(report, "wasxfail", None)
        if announced is not None:  # strict mode takes no announcements of tests
            return result if strict else excused(result, lambda _: announced, strict=False)
        if not report.failed:
            return result
        day, expects = date.fromisoformat(self._started[:10]), self._suite.cluster.expect

        def why_expected(judgement: Judgement) -> str | None:
            whys = (one.why(result.case.id, judgement, day) for one in expects)
            return next(filter(None, whys), None)

        result = excused(result, why_expected, strict=strict)
        judgements = result.judgements.values()
        whys = [judgement.expected for judgement in judgements if judgement.expected]
        if whys and not any(judgement.status.fails(strict=strict) for judgement in judgements):
            report.outcome, report.wasxfail = "skipped", "; ".join(whys)
        return result

    def _failure(self, known: CaseResult, metric: str, failure: BaseException | str) -> str:
        """Write the message of a failed test: of its verdict, or of its own failure."""
        now = self._started
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
        """Turn what a test knows into builtins where its report leaves the process."""
        data = yield
        reported = getattr(report, "dlperf", None)
        if data is not None and isinstance(reported, tuple):
            result, metric = reported
            data["dlperf"] = [to_builtins(encodable(result)), metric]
        return data

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Merge what tests know of their cases."""
        # The result of a test is printed where its progress stood.
        if self._live is not None:
            self._live.clear()
        self._current = None
        reported = getattr(report, "dlperf", None)
        if self._notices is None:
            return
        if reported is None:
            if report.failed:  # its worker was killed, so its case is not whole
                self._records.lose(report.nodeid)
            return
        if not self._records.has_any:
            self._notes += self._notices.begin()
        result, metric = convert(reported, tuple[CaseResult, str])
        self._records.add(result)
        with self._reports.faults_noted("JUnit properties"):
            cluster = self._settings.cluster
            report.user_properties += junit_properties(result, metric, cluster=cluster)
        if report.when == "teardown":
            self._records.ended.add((result.case.id, metric))
        if report.failed and isinstance(report.longrepr, str):
            judgement = decisive(result, metric)
            report.longrepr = FailureText(report.longrepr, report.location, judgement)  # type: ignore[assignment]
        if type(report) is pytest.TestReport:  # a part of a test has words of its own
            self._current = report, result, metric

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport | pytest.CollectReport
    ) -> Generator[None, Any, Any]:
        """Show the status of a test's case in place of pytest's; in the summary beside it."""
        given = yield
        category, letter, word = given
        if self._is_worker or not isinstance(word, str):
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
        faults = self._config.stash[MEASURING].host_faults
        self._host_faults += [(one.host, one.fault) for one in faults]
        if self._is_worker:
            output = WorkerOutput(
                selected=[*self._records.selected],
                deselected=self._records.deselected,
                history_fault=self._explainer.fault,
                host_faults=self._host_faults,
                unspoken=unspoken(),
            )
            hand_over(self._config.workeroutput, output)  # type: ignore[attr-defined]
        elif not self._settings.dry_run:
            self._finish(session)
            is_green = session.exitstatus == pytest.ExitCode.OK
            if is_green and any(note.is_bad for note in self._notes):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return (yield)

    def _finish(self, session: pytest.Session) -> None:
        settings, any_test = self._settings, self._records.has_any
        self._is_interrupted |= session.exitstatus not in WHOLE
        unfit_hosts: dict[str, tuple[str, ...]] = {}
        for host, why in dict.fromkeys(self._host_faults):
            unfit_hosts[host] = (*unfit_hosts.get(host, ()), why)
        for host, faults in sorted(unfit_hosts.items()):
            self._notes.append(Note(f"host {host} cannot be used: {'; '.join(faults)}"))
        results, notes = finish(
            self._suite,
            self._records,
            self._explainer.current,
            is_green=session.exitstatus == pytest.ExitCode.OK,
            is_interrupted=self._is_interrupted,
            selects_tests=selects_tests(self._config),
        )
        self._notes += notes
        results = encodable(
            replace(
                results,
                unfit_hosts=unfit_hosts,
                ignored_logs=tuple(self._ignored_logs),
                faults=faults_of(self._notes),
            )
        )
        self._session = report = session_report(results, settings.history_file, may_read_logs=True)
        if self._explainer.fault is not None:
            text = f"since when and what differs is not told: {self._explainer.fault}"
            self._notes.append(Note(text))
        self._reports.write(report, any_test=any_test)
        if settings.json_file is not None and faults_of(self._notes) != results.faults:
            # It was written first; what the others came to is known only now.
            with suppress(OSError):
                write_json(settings.json_file, replace(results, faults=faults_of(self._notes)))
        if self._notices is not None and any_test:
            self._notes += self._notices.send(report, self._notes)
        if not settings.log_sources and settings.session_dir.exists():
            self._notes.append(Note(f"logs: {settings.session_dir}"))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what the session has come to."""

        def show(lines: Iterable[Line]) -> None:
            for line in lines:
                markup = dict.fromkeys(line.markup, True)
                terminalreporter.write_line(plain(line.text), **markup)

        told = tuple(self._notes)
        if self._session is None or not self._records.has_any:
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
