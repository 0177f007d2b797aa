"""The reports that come with the package; what each needs is imported when it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pytest_dlperf.config.options import Settings
from pytest_dlperf.report.report import FileReport, Note, Report
from pytest_dlperf.report.session import SessionReport


def builtin_reports(config: Any, settings: Settings) -> Iterator[Report]:
    """Yield the reports that the session was asked for, in the order in which they are written."""
    from pytest_dlperf.report.benchmark_bridge import BenchmarkBridge
    from pytest_dlperf.report.junit import JUnitReport
    from pytest_dlperf.report.terminal import TerminalReport

    for name, kind in _WITH_A_PLACE.items():
        if (place := getattr(settings, name)) is not None:
            yield kind(place)
    if settings.step_summary is not None:
        from pytest_dlperf.report.github import StepSummary

        yield StepSummary(settings.step_summary)
    yield BenchmarkBridge(config)
    yield JUnitReport(settings.cluster)
    yield TerminalReport(config, strict=settings.strict)
    if settings.annotate:
        from pytest_dlperf.report.github import Annotations

        yield Annotations()


class ResultsFile(FileReport):
    """``--dlperf-json``: all that a session has come to, for programs."""

    name = "results"

    def save(self, session: SessionReport) -> None:
        """Write the results file."""
        from pytest_dlperf.results.file import write_json

        write_json(self.place, session.results)


class HistoryReport(Report):
    """``--dlperf-history``: keep the session, and tell what drifts. No verdict depends on it."""

    name = "history"
    is_required = False

    def __init__(self, file: Path) -> None:
        self._file = file

    def write(self, session: SessionReport) -> Iterator[Note]:
        """Add the session, and look for slow changes."""
        from pytest_dlperf.history.store import History
        from pytest_dlperf.report import trends

        with History.open(self._file) as history:
            history.add(session.results)
        for series, drift in session.past.drifts:
            name = f"{series.case_id}, {series.metric}"
            yield Note(f"history: {name} {trends.drift(drift)}")
        if session.past.fault:
            yield Note(f"history: what drifts is not told: {session.past.fault}")


class MarkdownPage(FileReport):
    """``--dlperf-markdown``: the results as one Markdown page."""

    name = "Markdown page"

    def text(self, session: SessionReport) -> str:
        """Return the page."""
        from pytest_dlperf.report.markdown import markdown_page

        return markdown_page(session)


class Page(FileReport):
    """``--dlperf-html``: the results as one page that opens offline, with the cases' history."""

    name = "page"

    def text(self, session: SessionReport) -> str:
        """Return the page."""
        from pytest_dlperf.report.html.page import html_page

        return html_page(session)

    def write(self, session: SessionReport) -> Iterator[Note]:
        """Write the page; it lacks the history where that cannot be read."""
        yield from super().write(session)
        if session.past.fault:
            yield Note(f"the page shows no history: {session.past.fault}")


class OpenMetrics(FileReport):
    """``--dlperf-openmetrics``: the session's numbers for Prometheus."""

    name = "OpenMetrics file"

    def text(self, session: SessionReport) -> str:
        """Return the file."""
        from pytest_dlperf.report.openmetrics import openmetrics

        return openmetrics(session.results)


class BenchmarkTables(FileReport):
    """``--dlperf-tables``: the tables and the JSON of the original benchmark, a folder."""

    name = "tables"

    def save(self, session: SessionReport) -> None:
        """Write the tables of what was measured."""
        from pytest_dlperf.report.benchmark_tables import write_tables

        write_tables(self.place, session.results)


_WITH_A_PLACE: Final[Mapping[str, Callable[[Path], Report]]] = {
    # The file for machines comes first: what cannot be shown can still be made from it.
    "json_file": ResultsFile,
    "history_file": HistoryReport,
    "markdown_file": MarkdownPage,
    "html_file": Page,
    "openmetrics_file": OpenMetrics,
    "tables_directory": BenchmarkTables,
}
"""By the setting that names their place, in the order in which they are written."""
