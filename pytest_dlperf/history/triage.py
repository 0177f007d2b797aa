"""Notes on faults that are known: who made them, when, and until when they hold."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Final, NamedTuple

from pytest_dlperf.history.series import Time
from pytest_dlperf.history.store import History
from pytest_dlperf.model.judgement import Note

_NOTE: Final = """
    SELECT text, until, made_by, made_at FROM notes
    WHERE case_id = (SELECT id FROM cases WHERE name = :case_id) AND cluster = :cluster
    AND (metric IS NULL OR metric = :metric)
    ORDER BY id DESC LIMIT 1
"""
_MEASURED: Final = """
    SELECT DISTINCT cluster, cases.name, metric FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    JOIN cases ON cases.id = measurements.case_id
    ORDER BY cluster, cases.name, metric
"""


class _NoteRow(NamedTuple):
    """A row of ``notes``; without a text it removes the note before it."""

    text: str | None
    until: date | None
    made_by: str | None
    made_at: Time


class Measured(NamedTuple):
    """A metric of a case that the history has of a cluster."""

    cluster: str
    case_id: str
    metric: str


def all_measured(history: History) -> list[Measured]:
    """List what a note can be made on."""
    return history.tuples(_MEASURED, Measured)


def note_on(history: History, *, cluster: str, case_id: str, metric: str) -> Note | None:
    """Return the last note on a metric of a case; ``None`` where there is none, or no longer."""
    values = {"cluster": cluster, "case_id": case_id, "metric": metric}
    for row in history.tuples(_NOTE, _NoteRow, values):
        if row.text is not None and row.until is not None:
            return Note(text=row.text, until=row.until, by=row.made_by, at=row.made_at)
    return None


def make_note(  # noqa: PLR0913 - the columns, by name
    history: History,
    case_ids: Iterable[str],
    *,
    cluster: str,
    metric: str | None,
    said: str | None,
    until: date | None,
    by: str | None,
    at: str,
) -> None:
    """Store a note on a metric of cases, or on all their metrics; without text it removes one.

    Raises:
        HistoryError: The database cannot be written.
    """
    row = {
        "cluster": cluster,
        "metric": metric,
        # What was typed may be no text.
        "text": said and said.encode("utf-8", "backslashreplace").decode("utf-8"),
        "until": until.isoformat() if until is not None else None,
        "made_by": by,
        "made_at": at,
    }
    history.add_notes(case_ids, row)
