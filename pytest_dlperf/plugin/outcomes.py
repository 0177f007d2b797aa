"""What became of each test of a case: from its report to the records, and to pytest's words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.plain import from_plain, to_plain
from pytest_dlperf.model.records import TestRecord
from pytest_dlperf.plugin.cases import SUITE
from pytest_dlperf.plugin.fixtures import VerdictError, notes_of
from pytest_dlperf.reports.report import TestStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pytest_dlperf.config.options import Settings
    from pytest_dlperf.plugin.records import SessionRecords
    from pytest_dlperf.reports.live import LiveReport
    from pytest_dlperf.reports.publish import Reports


class Outcomes:
    """Attaches records to reports where tests run; collects and shows them on the controller."""

    def __init__(
        self,
        config: pytest.Config,
        records: SessionRecords,
        settings: Settings,
        *,
        keep: Callable[[TestRecord], None],
    ) -> None:
        """Begin without a report; ``keep`` is given each record that reaches the controller."""
        self._config = config
        self._records = records
        self._settings = settings
        self._keep = keep
        self._is_worker = hasattr(config, "workerinput")
        self._told: tuple[pytest.TestReport, TestRecord] | None = None
        """The report that pytest is being told of, and its record."""
        self.any_report = False
        """Whether a test of a case has told anything."""
        self.reports: Reports | None = None
        """The session's reports, on the controller."""
        self.live: LiveReport | None = None
        """What is shown while a test runs, where cases are launched."""

    def all_told(self) -> None:
        """No report is told of any more: what asks for words now makes a summary of its own."""
        self._told = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach what a test has to tell to its report, which reaches the controller."""
        report = yield
        notes = notes_of(item)
        if notes is None:
            return report
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = _skip_reason(report)
            quantity = notes.record.quantity
            notes.judged(Judgement(quantity=quantity, verdict=Verdict.SKIPPED, reason=reason))
            if self._settings.strict:
                report.outcome = "failed"
                report.longrepr = f"skipped, which --dlperf-strict does not allow: {reason}"
        elif report.failed and call.excinfo is not None:
            error = call.excinfo.value
            if isinstance(error, VerdictError):
                from pytest_dlperf.reports.failure import failure_message

                cluster = item.config.stash[SUITE].cluster.name
                report.longrepr = failure_message(error.settled, cluster=cluster)
            elif getattr(error, "pytrace", True) is False:
                report.longrepr = str(error)  # all that is to be told
            notes.failed(f"the test itself failed: {call.excinfo.exconly(tryshort=True)}")
        # A failure that was announced is no surprise, but strict mode takes no announcements.
        if hasattr(report, "wasxfail") and not self._settings.strict:
            notes.excused()
        report.dlperf = notes.record  # type: ignore[attr-defined]
        return report

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
        if self.live is not None:
            self.live.clear()
        self._told = None
        record = getattr(report, "dlperf", None)
        if record is not None and self.reports is not None:
            self.any_report = True
            if not isinstance(record, TestRecord):
                record = from_plain(TestRecord, record)
            self._records.add(record)
            self._keep(record)
            report.user_properties = [*report.user_properties, *self.reports.properties(record)]
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
        """Say in a word what became of a test of a case, and of what it measured.

        Only while the test is told of: pytest asks again for its short summary, whose words stay.
        """
        given = yield
        if self._told is None or report is not self._told[0] or self.reports is None:
            return given
        category, letter, word = given
        if not isinstance(word, str):
            return given  # another plugin has a word and a colour of its own
        status = self.reports.status(self._told[1], TestStatus(category, letter, word))
        markup = dict.fromkeys(status.markup, True)
        word = (status.word, markup) if markup else status.word
        return status.category, status.letter, word


def _skip_reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)
