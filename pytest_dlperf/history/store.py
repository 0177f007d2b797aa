"""Put sessions into the database, and ask it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dlperf.history.opening import (
    HistoryError,
    close,
    named_errors,
    open_to_read,
    open_to_write,
    transaction,
    wait_at_most,
)
from pytest_dlperf.history.rows import Row, SessionRows, Source, session_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import TracebackType

    from pytest_dlperf.history.opening import Connection
    from pytest_dlperf.history.rows import MeasurementRows
    from pytest_dlperf.model.results import Results

BUSY_S: Final = 4.0
"""How long another process may hold the database before it is given up."""

_HELD: Final = """
    SELECT name, unit, verdict FROM measurements
    JOIN cases ON cases.id = case_id JOIN sessions ON sessions.id = session_id WHERE uid = :uid
"""
_HELD_RUNS: Final = """
    SELECT name, arm, number, throughput, runs.status FROM runs
    JOIN measurements ON measurements.id = measurement_id
    JOIN cases ON cases.id = case_id JOIN sessions ON sessions.id = session_id WHERE uid = :uid
"""


@final
class History:
    """One open database. Several processes may have it open, each writes in short transactions."""

    def __init__(self, file: Path, connection: Connection) -> None:
        """Take over an open connection; use ``open`` or ``read``."""
        self.file = file
        self._connection = connection

    @classmethod
    def open(cls, file: Path, *, busy_s: float = BUSY_S) -> History:
        """Open a database, and make it where there is none.

        Another process may hold it for ``busy_s`` seconds.

        Raises:
            HistoryError: It cannot be opened, or a newer version or another program has written it.
        """
        return cls(file, open_to_write(file, busy_s))

    @classmethod
    def read(cls, file: Path, *, busy_s: float = BUSY_S) -> History:
        """Open a database that exists, also where nothing may be written.

        Raises:
            HistoryError: There is none, or it cannot be read.
        """
        if not file.exists():
            raise HistoryError(f"there is no history {file}")
        if os.access(file, os.W_OK) and os.access(file.parent, os.W_OK):
            return cls.open(file, busy_s=busy_s)
        return cls(file, open_to_read(file, busy_s))

    def wait_at_most(self, busy_s: float) -> None:
        """From now on, let another process hold the database for so many seconds."""
        wait_at_most(self._connection, busy_s)

    def close(self) -> None:
        """Close it; nothing more can be asked."""
        close(self._connection)

    def __enter__(self) -> History:
        """Keep it open."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    # ------------------------------------------------------------------------ writing

    def add(self, results: Results, *, imported: bool = False) -> bool:
        """Put a whole session in, over what was noted of it before; false if it was there.

        Of a whole session that is there, an import changes nothing.

        Raises:
            HistoryError: The database cannot be written.
        """
        rows = self._rows_of(results, imported=imported)
        with named_errors(self.file), transaction(self._connection):
            known = self._connection.execute(
                "SELECT id, ended, digest, source FROM sessions WHERE uid = ?",
                (rows.session["uid"],),
            ).fetchone()
            if known is not None:
                is_whole = known["ended"] is not None
                if is_whole and (imported or known["digest"] == rows.session["digest"]):
                    return False
                if not imported:
                    rows.session["source"] = known["source"]  # who noted it knew
                self._connection.execute("DELETE FROM sessions WHERE id = ?", (known["id"],))
            self._insert_session(rows)
        return True

    def differs(self, results: Results) -> bool:
        """Say whether the session is there with other measurements or verdicts than these.

        Raises:
            HistoryError: The database cannot be read, or the results are no session.
        """
        rows = self._rows_of(results, imported=True)
        given = {
            (part.case["name"], part.measurement["unit"], part.measurement["verdict"])
            for part in rows.measurements
        }
        given_runs = {
            (part.case["name"], run["arm"], run["number"], run["throughput"], run["status"])
            for part in rows.measurements
            for run in part.runs
        }
        uid = {"uid": rows.session["uid"]}
        held = set(self.tuples(_HELD, uid))
        return (held, set(self.tuples(_HELD_RUNS, uid))) != (given, given_runs)

    def _rows_of(self, results: Results, *, imported: bool) -> SessionRows:
        try:
            return session_rows(results, _guess_source(results, imported=imported))
        except (ValueError, OverflowError) as error:
            raise HistoryError(f"session {results.session}: {error}") from error

    def note(self, session: Row, measurements: Sequence[MeasurementRows]) -> None:
        """Put in what a session has measured while it still goes on.

        Raises:
            HistoryError: The database cannot be written.
        """
        with named_errors(self.file), transaction(self._connection):
            self._insert("sessions", session, or_ignore=True)
            session_id = self._id("sessions", "uid", session["uid"])
            for rows in measurements:
                self._insert_measurement(session_id, session["began"], rows)

    def _insert_session(self, rows: SessionRows) -> None:
        session_id = self._insert("sessions", rows.session)
        for measurement in rows.measurements:
            self._insert_measurement(session_id, rows.session["began"], measurement)
        for case, change in rows.changes:
            keys = {"session_id": session_id, "case_id": self._case_id(case)}
            self._insert("baseline_changes", {**keys, **change}, or_ignore=True)

    def _insert_measurement(self, session_id: int, began: float, rows: MeasurementRows) -> None:
        """Put a measurement in, instead of what the session had of this case."""
        if rows.facts is not None:
            digest, facts = rows.facts
            self._insert("fingerprints", {"digest": digest, "facts": facts}, or_ignore=True)
        case_id = self._case_id(rows.case)
        keys = {"session_id": session_id, "case_id": case_id}
        self._connection.execute(
            "DELETE FROM measurements WHERE session_id = :session_id AND case_id = :case_id", keys
        )
        row = {**keys, "began": began, **rows.measurement}
        measurement_id = self._insert("measurements", row)
        for run in rows.runs:
            self._insert("runs", {"measurement_id": measurement_id, **run})

    def _case_id(self, case: Row) -> int:
        self._insert("cases", case, or_ignore=True)
        return self._id("cases", "name", case["name"])

    def _insert(self, table: str, row: Row, *, or_ignore: bool = False) -> int:
        """Insert a row and give its id. The names are the code's own, the values are bound."""
        columns, values = ", ".join(row), ", ".join(f":{name}" for name in row)
        verb = "INSERT OR IGNORE" if or_ignore else "INSERT"
        done = self._connection.execute(f"{verb} INTO {table} ({columns}) VALUES ({values})", row)
        return done.lastrowid or 0

    def _id(self, table: str, column: str, value: str) -> int:
        query = f"SELECT id FROM {table} WHERE {column} = ?"  # noqa: S608 - names of our own
        found: int = self._connection.execute(query, (value,)).fetchone()["id"]
        return found

    # ------------------------------------------------------------------------ reading

    def rows(self, query: str, values: Row | None = None) -> list[Row]:
        """Give what a query finds, by the names of its columns.

        Raises:
            HistoryError: The database cannot be read.
        """
        with named_errors(self.file):
            return [dict(row) for row in self._connection.execute(query, values or {})]

    def tuples(self, query: str, values: Row) -> list[tuple[Any, ...]]:
        """Give what a query finds, as plain tuples: for many rows.

        Raises:
            HistoryError: The database cannot be read.
        """
        with named_errors(self.file):
            cursor = self._connection.cursor()
            cursor.row_factory = None
            return cursor.execute(query, values).fetchall()


def _guess_source(results: Results, *, imported: bool) -> Source:
    """Logs may be of any machine, so only launches have a fingerprint."""
    if imported:
        return Source.IMPORTED
    measured = [result.measurement for result in results.cases if result.measurement is not None]
    looked = any(measurement.fingerprint is not None for measurement in measured)
    return Source.LAUNCHED if looked or not measured else Source.LOGS
