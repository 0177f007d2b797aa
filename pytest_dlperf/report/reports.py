"""The reports of a session: rows, to which plugins add, written so that none costs another."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import Struct

from pytest_dlperf.config.options import Settings
from pytest_dlperf.model.errors import DlperfError
from pytest_dlperf.report import trends
from pytest_dlperf.report.session import SessionReport


class Note(Struct, frozen=True):
    """One line for the end of a session; a bad one makes the session fail."""

    text: str
    is_bad: bool = False


class Report(Struct, frozen=True):
    """What is written at a session's end, on xdist's controller only."""

    name: str
    """What messages call it: ``the <name> could not be written``."""
    write: Callable[[SessionReport], Iterable[Note]]
    """Writes it, and returns what to tell of it."""
    needs_tests: bool = True
    """Whether there is nothing to write where no test of a case ran."""
    is_required: bool = True
    """Whether the session fails if it cannot be written."""


def file_report(name: str, place: Path, text: Callable[[SessionReport], str]) -> Report:
    """Return the row of a report that is one file."""

    def save(session: SessionReport) -> None:
        from pytest_dlperf.files.writing import write_whole

        write_whole(place, text(session))

    return _report_at(name, place, save)


def _report_at(name: str, place: Path, save: Callable[[SessionReport], object]) -> Report:
    def write(session: SessionReport) -> Iterator[Note]:
        is_new = not place.parent.exists()
        try:
            save(session)
        except OSError as error:
            error.filename = str(place)
            raise
        if place.exists():
            yield Note(f"{name}: {place}{', in a new folder' if is_new else ''}")
        else:
            yield Note(f"no {name}: nothing was measured")

    return Report(name, write, needs_tests=False)


# ------------------------------------------------------------------------------- built in


def builtin_reports(config: Any, settings: Settings) -> Iterator[Report]:
    """Yield the reports that the session was asked for, in the order in which they are written."""
    # The file for machines comes first: what cannot be shown can still be made from it.
    if place := settings.json_file:
        yield _report_at("results", place, _of_results("results.file", "write_json", place))
    if place := settings.history_file:
        yield Report("history", partial(_keep, place), is_required=False)
    if place := settings.markdown_file:
        yield file_report("Markdown page", place, _late("report.markdown", "markdown_page"))
    if place := settings.html_file:
        yield file_report("page", place, _late("report.html.page", "html_page"))
    if place := settings.openmetrics_file:
        text = _of_results("report.openmetrics", "openmetrics")
        yield file_report("OpenMetrics file", place, text)
    if place := settings.tables_directory:
        save = _of_results("report.benchmark_tables", "write_tables", place)
        yield _report_at("tables", place, save)
    if place := settings.step_summary:
        yield Report("GitHub summary", partial(_step_summary, place), is_required=False)
    yield Report("benchmarks of pytest-benchmark", partial(_bridge, config), needs_tests=False)


def _late(module: str, function: str) -> Callable[..., Any]:
    """Return a function of a module that only a session with its option imports."""

    def call(*given: Any) -> Any:
        return getattr(import_module(f"pytest_dlperf.{module}"), function)(*given)

    return call


def _of_results(module: str, function: str, *first: Path) -> Callable[[SessionReport], Any]:
    call = _late(module, function)
    return lambda session: call(*first, session.results)


def _keep(place: Path, session: SessionReport) -> Iterator[Note]:
    from pytest_dlperf.history.store import History

    with History.open(place) as history:
        history.add(session.results)
    for series, drift in session.past.drifts:
        yield Note(f"history: {series.case_id}, {series.metric} {trends.drift(drift)}")
    if session.past.fault:
        yield Note(f"history: past sessions are not shown: {session.past.fault}")


def _step_summary(place: Path, session: SessionReport) -> Iterator[Note]:
    if not _late("report.github", "append_summary")(place, session):
        yield Note(f"the GitHub summary has no room left: {place}")


def _bridge(config: Any, session: SessionReport) -> Iterator[Note]:
    yield from map(Note, _late("report.benchmark_bridge", "hand_over")(config, session))


# ------------------------------------------------------------------------------ taking part


class Reports:
    """All reports of a session. One that fails is noted, and costs none of the others."""

    def __init__(self, reports: Iterable[Report], notes: list[Note]) -> None:
        """Take the reports; ``notes``, what the session tells at its end, grows."""
        self._reports = tuple(reports)
        self._notes = notes
        self._noted: set[tuple[str, str]] = set()

    def write(self, session: SessionReport, *, any_test: bool) -> None:
        """Write the reports; without ``any_test`` of a case only what needs none."""
        for report in self._reports:
            if any_test or not report.needs_tests:
                with self.faults_noted(report.name, is_required=report.is_required):
                    self._notes.extend(report.write(session))

    @contextmanager
    def faults_noted(self, name: str, *, is_required: bool = True) -> Iterator[None]:
        """Make a note of any fault inside, once for each line of code."""
        try:
            yield
        except (OSError, DlperfError) as error:
            file, why = getattr(error, "filename", None), getattr(error, "strerror", None)
            said = f"be written{f' to {file}' if file else ''}: {why or error}"
        except Exception as error:  # noqa: BLE001 - hours of training must not be lost to a report
            said = f"be made: {fault(error)}"
        else:
            return
        if (name, said) not in self._noted:
            self._noted.add((name, said))
            self._notes.append(Note(f"the {name} could not {said}", is_bad=is_required))


def fault(error: Exception) -> str:
    """Describe an unforeseen error, with the line of code that raised it."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno})"
