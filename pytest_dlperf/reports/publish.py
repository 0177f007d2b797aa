"""Have all reports of a session take part in it, without one costing another."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dlperf.model.errors import DlperfError
from pytest_dlperf.reports.report import FileReport, Line, Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_dlperf.model.results import TestRecord
    from pytest_dlperf.night.night import Night
    from pytest_dlperf.reports.report import Report, TestStatus


class Reports:
    """All reports of a session, in their order.

    One that fails is noted and makes the session fail, unless it only informs; it keeps none of
    the others from being written.
    """

    def __init__(self, reports: Iterable[Report], notes: list[Note]) -> None:
        """Take the reports; ``notes``, what the session tells at its end, grows."""
        self._reports = tuple(reports)
        self._notes = notes
        self._noted: set[tuple[Report, str]] = set()

    def status(self, record: TestRecord, given: TestStatus) -> TestStatus:
        """Return what pytest prints for a test of a case."""
        for report in self._reports:
            with self._faults_noted(report):
                given = report.status(record, given)
        return given

    def properties(self, record: TestRecord) -> list[tuple[str, str]]:
        """Return what stands with a test of a case in JUnit's file."""
        found: list[tuple[str, str]] = []
        for report in self._reports:
            with self._faults_noted(report):
                found += report.properties(record)
        return found

    def write(self, night: Night, *, any_report: bool) -> None:
        """Write the reports; without ``any_report`` of a test only the files that were named."""
        for report in self._reports:
            if any_report or not report.needs_tests:
                with self._faults_noted(report):
                    self._notes.extend(report.write(night))

    def summary(self, night: Night) -> Iterator[Line]:
        """Yield what the reports print in the terminal's summary."""
        told = len(self._notes)
        notes = tuple(self._notes)
        for report in self._reports:
            with self._faults_noted(report):
                yield from report.summary(night, notes)
        yield from (Line(note.text, ("red",)) for note in self._notes[told:])

    @contextmanager
    def _faults_noted(self, report: Report) -> Iterator[None]:
        try:
            yield
        except (OSError, DlperfError) as error:
            place = (
                report.place if isinstance(report, FileReport) else getattr(error, "filename", None)
            )
            to = f" to {place}" if place else ""
            self._note(report, error, f"be written{to}: {_said(error)}")
        except Exception as error:  # noqa: BLE001 - hours of training must not be lost to a report
            self._note(report, error, f"be made: {fault(error)}")

    def _note(self, report: Report, error: Exception, said: str) -> None:
        fault_of = (report, _line_of(error))
        if fault_of not in self._noted:  # not again for each test
            self._noted.add(fault_of)
            text = f"the {report.name} could not {said}"
            self._notes.append(Note(text, is_bad=report.is_required))


def not_written_by_others(error: OSError) -> Note:
    """Say what another plugin could not write at the end of a session, such as JUnit's file."""
    place = f" to {error.filename}" if error.filename else ""
    text = f"a report of another plugin could not be written{place}: {_said(error)}"
    return Note(f"{text} ({_line_of(error)})", is_bad=True)


def fault(error: Exception) -> str:
    """Describe an unforeseen error, with the line of code that raised it."""
    return f"{type(error).__name__}: {error} ({_line_of(error)})"


def _said(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _line_of(error: Exception) -> str:
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{Path(last.filename).name}, line {last.lineno}"
