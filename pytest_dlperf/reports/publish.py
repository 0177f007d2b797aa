"""The reports that a session was asked for, written one after the other.

A report that cannot be written is told and makes the session fail; it keeps none of the others
from being written. Whatever a report needs is imported when it is asked for.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dlperf.reports.note import Note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_dlperf.config.options import Settings
    from pytest_dlperf.history.series import CaseHistory
    from pytest_dlperf.model.results import Results


def publish(settings: Settings, results: Results, *, any_report: bool) -> Iterator[Note]:
    """Write what the user asked for, and yield what is to be told of it.

    ``any_report`` is false when no test has run: then only files that were named are written.
    """
    # The file for machines comes first: what cannot be shown can still be made from it.
    if settings.json_file is not None:
        yield _written("the results", "results", settings.json_file, _json, results)
    if settings.history_file is not None and any_report:
        yield from _keep(settings.history_file, results)
    if settings.markdown_file is not None:
        yield _written("the Markdown page", "markdown", settings.markdown_file, _markdown, results)
    if settings.html_file is not None:
        yield from _page(settings.html_file, settings.history_file, results)
    if settings.tables_directory is not None:
        yield _written("the tables", "tables", settings.tables_directory, _tables, results)
    if settings.step_summary is not None and any_report:
        yield from _step_summary(settings.step_summary, results)


def _written(
    what: str, name: str, place: Path, write: Callable[[Path, Results], None], results: Results
) -> Note:
    """Write one report. That it failed is told in a line, for all else is still to be told."""
    try:
        write(place, results)
    except OSError as error:
        text = f"{what} could not be written to {place}: {error.strerror or error}"
        return Note(text, is_bad=True)
    except Exception as error:  # noqa: BLE001 - hours of training must not be lost to a report
        return Note(f"{what} could not be made: {_fault(error)}", is_bad=True)
    # Tables are made of what was measured.
    return Note(f"{name}: {place}" if place.exists() else f"no {name}: nothing was measured")


def not_written_by_others(error: OSError) -> Note:
    """What another plugin could not write at the end of a session, such as JUnit's file."""
    place = f" to {error.filename}" if error.filename else ""
    text = f"a report of another plugin could not be written{place}: {error.strerror or error}"
    return Note(f"{text} ({_place(error)})", is_bad=True)


def _fault(error: Exception) -> str:
    """A mistake of this package, with the line that whoever reports it will be asked for."""
    return f"{type(error).__name__}: {error} ({_place(error)}); this is a fault of pytest-dlperf"


def _place(error: Exception) -> str:
    """The line of Python that has raised it."""
    *_, last = traceback.extract_tb(error.__traceback__)
    return f"{Path(last.filename).name}, line {last.lineno}"


def _json(file: Path, results: Results) -> None:
    from pytest_dlperf.results.writing import write_json

    write_json(file, results)


def _markdown(file: Path, results: Results) -> None:
    from pytest_dlperf.files.locks import write_whole
    from pytest_dlperf.reports.markdown import markdown_page

    write_whole(file, markdown_page(results))


def _tables(folder: Path, results: Results) -> None:
    from pytest_dlperf.reports.benchmark_tables import write_tables

    write_tables(folder, results)


def _keep(file: Path, results: Results) -> Iterator[Note]:
    """Put the session into the history, and tell what drifts.

    What cannot be kept is told; no verdict depends on it.
    """
    from pytest_dlperf.history.case_history import drifts_of
    from pytest_dlperf.history.faults import HistoryError
    from pytest_dlperf.history.store import History
    from pytest_dlperf.reports import history_words

    try:
        with History.open(file) as history:
            history.add(results)
            for case_id, drift in drifts_of(history, results):
                yield Note(f"history: {case_id} {history_words.drift(drift)}")
    except HistoryError as error:
        yield Note(f"the history was not kept: {error}")
    except Exception as error:  # noqa: BLE001 - as for the files
        yield Note(f"the history was not kept: {_fault(error)}")


def _page(file: Path, history_file: Path | None, results: Results) -> Iterator[Note]:
    from pytest_dlperf.files.locks import write_whole
    from pytest_dlperf.history.faults import HistoryError
    from pytest_dlperf.reports.html.page import html_page

    histories: Mapping[str, CaseHistory] = {}
    if history_file is not None and history_file.exists():
        from pytest_dlperf.history.case_history import histories_of

        try:
            histories = histories_of(history_file, results)
        except HistoryError as error:
            yield Note(f"the page shows no history: {error}")
        except Exception as error:  # noqa: BLE001 - as for the files
            yield Note(f"the page shows no history: {_fault(error)}")
    yield _written(
        "the page",
        "page",
        file,
        lambda place, _: write_whole(place, html_page(results, histories)),
        results,
    )


def _step_summary(file: Path, results: Results) -> Iterator[Note]:
    """Append to the summary that GitHub shows. No verdict depends on whether it can be."""
    from pytest_dlperf.reports.github import append_step_summary

    try:
        if not append_step_summary(file, results):
            yield Note(f"GitHub's summary has no room left: {file}")
    except OSError as error:
        yield Note(f"GitHub's summary was not written: {file}: {error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - as for the files
        yield Note(f"GitHub's summary could not be made: {_fault(error)}")
