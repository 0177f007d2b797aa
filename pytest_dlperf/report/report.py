"""The protocol of all reports, and how they take part in a session without one costing another."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from pytest_dlperf.model.errors import DlperfError
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.report.session import SessionReport


class Note(Struct, frozen=True):
    """One line for the end of a session; a bad one makes the session fail."""

    text: str
    is_bad: bool = False


class Line(Struct, frozen=True):
    """A line for pytest's terminal and its markup (names that pytest's terminal writer knows).

    Whatever it holds is shown as text, unless ``is_command`` says that a CI's engine is to obey it.
    """

    text: str
    markup: tuple[str, ...] = ()
    is_command: bool = False


class TestStatus(Struct, frozen=True):
    """The status that pytest prints for a test: ``letter`` by default, ``word`` with ``-v``.

    ``category`` is what pytest counts the test as; ``markup`` colours both.
    """

    __test__ = False  # no test, whatever pytest makes of the name

    category: str
    letter: str
    word: str
    markup: tuple[str, ...] = ()


class Report:
    """A report of a session. Override the moments that it takes part in.

    At its end there is one ``SessionReport`` for all reports: its numbers and words. The methods
    are called in the order in which they stand here, on xdist's controller only.
    """

    name: str = "report"
    """What messages call the report: ``the <name> could not be written``."""
    needs_tests: bool = True
    """Whether there is nothing to write where no test of a case ran."""
    is_required: bool = True
    """Whether the session fails if the report cannot be written."""

    def status(self, result: CaseResult, metric: str, given: TestStatus) -> TestStatus:
        """Return what pytest prints for a test of a metric; ``given`` is what it would print."""
        del result, metric
        return given

    def properties(self, result: CaseResult, metric: str) -> Iterable[tuple[str, str]]:
        """Return names and values for the test's ``user_properties``, which JUnit's file has."""
        del result, metric
        return ()

    def write(self, session: SessionReport) -> Iterable[Note]:
        """Write the report at the session's end, and return what to tell of it.

        Raises:
            OSError: It cannot be written. This is told; the other reports are written.
        """
        del session
        return ()

    def summary(self, session: SessionReport, notes: Sequence[Note]) -> Iterable[Line]:
        """Return lines for the terminal's summary; ``notes`` are those of all reports."""
        del session, notes
        return ()


class FileReport(Report):
    """A report that is one file or folder, named by the user: written even if no test ran."""

    needs_tests = False

    def __init__(self, place: Path) -> None:
        self.place = place

    def text(self, session: SessionReport) -> str:
        """Return what the file holds; a report that is more than a text overrides ``save``."""
        raise NotImplementedError

    def save(self, session: SessionReport) -> None:
        """Write ``self.place``, and make the folders above it."""
        from pytest_dlperf.files.writing import write_whole

        write_whole(self.place, self.text(session))

    def write(self, session: SessionReport) -> Iterable[Note]:
        """Write the file, and say where it is and whether its folder is new."""
        is_new = not self.place.parent.exists()
        self.save(session)
        if not self.place.exists():
            return [Note(f"no {self.name}: nothing was measured")]
        return [Note(f"{self.name}: {self.place}{', in a new folder' if is_new else ''}")]


class Reports:
    """All reports of a session, in their order.

    One that fails is noted and makes the session fail, unless it only informs; it keeps none of
    the others from being written.
    """

    def __init__(self, reports: Iterable[Report], notes: list[Note]) -> None:
        self._reports = tuple(reports)
        self._notes = notes
        self._noted: set[tuple[Report, str]] = set()

    def status(self, result: CaseResult, metric: str, given: TestStatus) -> TestStatus:
        """Return what pytest prints for a test of a case."""
        for report in self._reports:
            with self._faults_noted(report):
                given = report.status(result, metric, given)
        return given

    def properties(self, result: CaseResult, metric: str) -> list[tuple[str, str]]:
        """Return what stands with a test of a case in JUnit's file."""
        found: list[tuple[str, str]] = []
        for report in self._reports:
            with self._faults_noted(report):
                found += report.properties(result, metric)
        return found

    def write(self, session: SessionReport, *, any_report: bool) -> None:
        """Write the reports; without ``any_report`` of a test only the files that were named."""
        for report in self._reports:
            if any_report or not report.needs_tests:
                with self._faults_noted(report):
                    self._notes.extend(report.write(session))

    def summary(self, session: SessionReport) -> Iterator[Line]:
        """Yield what the reports print in the terminal's summary."""
        told = len(self._notes)
        notes = tuple(self._notes)
        for report in self._reports:
            with self._faults_noted(report):
                yield from report.summary(session, notes)
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


def fault(error: Exception) -> str:
    """Describe an unforeseen error, with the line of code that raised it."""
    return f"{type(error).__name__}: {error} ({_line_of(error)})"


def _said(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _line_of(error: Exception) -> str:
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{Path(last.filename).name}, line {last.lineno}"
