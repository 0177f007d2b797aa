"""Have all reports written at a session's end.

A report that cannot be written makes the session fail, unless it only informs; it keeps none of
the others from being written.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dlperf.model.errors import DlperfError
from pytest_dlperf.reports.report import FileReport, Line, Note

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.model.results import Results
    from pytest_dlperf.reports.report import Report


def publish(reports: Iterable[Report], results: Results, *, any_report: bool) -> Iterator[Note]:
    """Write each report in turn, and yield what to tell of it.

    ``any_report`` is false when no test of a case ran: then only files that were named are written.
    """
    for report in reports:
        if any_report or not report.needs_tests:
            yield from _written(report, results)


def _written(report: Report, results: Results) -> Iterator[Note]:
    try:
        yield from report.write(results)
    except (OSError, DlperfError) as error:
        place = report.place if isinstance(report, FileReport) else _file_of(error)
        to = f" to {place}" if place else ""
        text = f"the {report.name} could not be written{to}: {_said(error)}"
        yield Note(text, is_bad=report.is_required)
    except Exception as error:  # noqa: BLE001 - hours of training must not be lost to a report
        yield Note(
            f"the {report.name} could not be made: {fault(error)}", is_bad=report.is_required
        )


def summaries(reports: Iterable[Report], results: Results, notes: Sequence[Note]) -> Iterator[Line]:
    """Yield what the reports print in the terminal's summary."""
    for report in reports:
        yield from _summary(report, results, notes)


def _summary(report: Report, results: Results, notes: Sequence[Note]) -> Iterator[Line]:
    try:
        yield from report.summary(results, notes)
    except Exception as error:  # noqa: BLE001 - as above
        yield Line(f"the {report.name} could not be made: {fault(error)}", ("red",))


def not_written_by_others(error: OSError) -> Note:
    """Say what another plugin could not write at the end of a session, such as JUnit's file."""
    place = f" to {error.filename}" if error.filename else ""
    text = f"a report of another plugin could not be written{place}: {_said(error)}"
    return Note(f"{text} ({_line_of(error)})", is_bad=True)


def fault(error: Exception) -> str:
    """Describe an unforeseen error, with the line that whoever looks into it asks for."""
    return f"{type(error).__name__}: {error} ({_line_of(error)})"


def _said(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def _file_of(error: Exception) -> str | None:
    return getattr(error, "filename", None)


def _line_of(error: Exception) -> str:
    """Name the line of Python that raised an error."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{Path(last.filename).name}, line {last.lineno}"
