"""The database of all sessions: SQLite's only home."""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, final

from pytest_dlperf.history.migrations import APPLICATION_ID, MIGRATIONS, VERSION
from pytest_dlperf.history.place import is_shared
from pytest_dlperf.history.rows import Row, SessionRows, Source, session_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from pytest_dlperf.history.rows import MeasurementRows
    from pytest_dlperf.results.document import Results

BUSY_S: Final = 10.0
"""How long another process may hold the database before it is given up."""


class HistoryError(Exception):
    """The history cannot be read or written; the message says what and where."""


@final
class History:
    """One open database. Several processes may have it open, each writes in short transactions."""

    def __init__(self, file: Path, connection: sqlite3.Connection) -> None:
        """Take over an open connection; use ``open`` or ``read``."""
        self.file = file
        self._connection = connection

    @classmethod
    def open(cls, file: Path, *, busy_s: float = BUSY_S) -> History:
        """Open a database, made where there is none, brought to this version's form.

        Another process may hold it for ``busy_s`` seconds.

        Raises:
            HistoryError: It cannot be opened, or a newer version or another program has written it.
        """
        with _told(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            connection = _connect(str(file), busy_s)
            try:
                version = _version(connection, file)
                _choose_journal(connection, shared=is_shared(file.parent))
                connection.execute("PRAGMA foreign_keys = ON")
                if version < VERSION:
                    _migrate(connection, file)
            except BaseException:
                connection.close()
                raise
        return cls(file, connection)

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
        with _told(file):
            connection = _connect_to_read(file, busy_s)
            try:
                _check_is_ours(_version(connection, file), file)
            except BaseException:
                connection.close()
                raise
        return cls(file, connection)

    def close(self) -> None:
        """Close it; nothing more can be asked."""
        with suppress(sqlite3.Error):
            self._connection.close()

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
        try:
            rows = session_rows(results, _guess_source(results, imported=imported))
        except (ValueError, OverflowError) as error:
            raise HistoryError(f"session {results.session}: {error}") from error
        with _told(self.file), self._transaction():
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

    def note(self, session: Row, measurements: Sequence[MeasurementRows]) -> None:
        """Put in what a session has measured while it still goes on.

        Raises:
            HistoryError: The database cannot be written.
        """
        with _told(self.file), self._transaction():
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

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All of the block or nothing of it, whatever ends it."""
        # Taken at once: a transaction that turns from reading to writing may have to be given up.
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # a full disk has rolled it back already
                self._connection.execute("ROLLBACK")
            raise

    # ------------------------------------------------------------------------ reading

    def rows(self, query: str, values: Row | None = None) -> list[Row]:
        """What a query finds, by the names of its columns.

        Raises:
            HistoryError: The database cannot be read.
        """
        with _told(self.file):
            return [dict(row) for row in self._connection.execute(query, values or {})]

    def tuples(self, query: str, values: Row) -> list[tuple[Any, ...]]:
        """What a query finds, as plain tuples: for many rows.

        Raises:
            HistoryError: The database cannot be read.
        """
        with _told(self.file):
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


# ------------------------------------------------------------------------ opening a file


def _connect(place: str, busy_s: float, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        place,
        timeout=busy_s,
        isolation_level=None,  # transactions begin where we say
        check_same_thread=False,  # whichever thread collects a recorder closes it
        uri=uri,
    )
    connection.row_factory = sqlite3.Row
    return connection


def _connect_to_read(file: Path, busy_s: float) -> sqlite3.Connection:
    place = file.resolve().as_uri()
    connection = _connect(f"{place}?mode=ro", busy_s, uri=True)
    try:
        connection.execute("PRAGMA user_version").fetchone()
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        log = file.with_name(f"{file.name}-wal")
        if log.exists() and log.stat().st_size:
            raise
        # A log cannot be made here, and there is none: nobody is writing.
        return _connect(f"{place}?mode=ro&immutable=1", busy_s, uri=True)
    return connection


def _version(connection: sqlite3.Connection, file: Path) -> int:
    """The version of its form; 0 for a new file.

    Raises:
        HistoryError: It is of a newer version or of another program; it has not been touched.
    """
    program = connection.execute("PRAGMA application_id").fetchone()[0]
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    is_new = not (program or version or tables)
    if program != APPLICATION_ID and not is_new:
        raise HistoryError(
            f"{file} is a database of another program; it stays as it is. Name another file "
            "with --dlperf-history"
        )
    if version > VERSION:
        raise HistoryError(
            f"{file} was written by a newer version of pytest-dlperf: it has form {version}, this "
            f"one knows {VERSION}. It stays as it is. Upgrade, or name another file with "
            "--dlperf-history"
        )
    return version


def _check_is_ours(version: int, file: Path) -> None:
    if version < VERSION:
        raise HistoryError(
            f"{file} may not be written; that it has to be once, to bring it from form {version} "
            f"to form {VERSION}, which this version reads"
        )


def _choose_journal(connection: sqlite3.Connection, *, shared: bool) -> None:
    """Have readers and a writer at the same time, where the disk allows it."""
    wanted = "delete" if shared else "wal"
    now = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if now != wanted:
        # Somebody else may have it open: then it stays as it is, which works as well.
        with suppress(sqlite3.OperationalError):
            now = connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]
    # A log is never torn: the last sessions may be lost with the machine's power, no more.
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if now == 'wal' else 'FULL'}")


def _migrate(connection: sqlite3.Connection, file: Path) -> None:
    """Bring the database to this version's form, each step whole or not at all."""
    while True:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Asked again: another session may have been faster.
            version = _version(connection, file)
            if version < VERSION:
                for statement in MIGRATIONS[version]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        if version >= VERSION - 1:
            return


# ------------------------------------------------------------------------ telling

_FULL_BYTES: Final = 1 << 17

_TOLD: Final = {
    "file is not a database": "{file} is no database; move it away, or name another file with "
    "--dlperf-history",
    "malformed": "{file} is damaged ({error}); move it away: a new one is made, and `pytest-dlperf "
    "history import` fills it from results files",
    "full": "there is no space left for {file}",
    "readonly": "{file} may not be written",
    "locked": "{file} is held by another process",
}


@contextmanager
def _told(file: Path) -> Iterator[None]:
    """Turn what SQLite and the system say into a message that names the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise HistoryError(_message(file, error)) from error
    except OSError as error:
        place = error.filename or file
        raise HistoryError(f"{place}: {error.strerror or error}") from error
    except OverflowError as error:
        raise HistoryError(f"{file} cannot hold so large a number: {error}") from error


def _message(file: Path, error: sqlite3.Error) -> str:
    for part, message in _TOLD.items():
        if part in str(error):
            return message.format(file=file, error=error)
    if "I/O error" in str(error) and _is_full(file.parent):
        # Of a write-ahead log SQLite says no more than that.
        return _TOLD["full"].format(file=file)
    if "unable to open" in str(error):
        if file.is_dir():
            return f"{file} is a folder; name a file"
        if not os.access(file.parent, os.W_OK) or (
            file.exists() and not os.access(file, os.R_OK | os.W_OK)
        ):
            return f"{file} may not be written"
    return f"{file}: {error}"


def _is_full(folder: Path) -> bool:
    with suppress(OSError):
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize < _FULL_BYTES
    return False
