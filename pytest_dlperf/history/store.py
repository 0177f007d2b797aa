"""Put sessions into the database, and query it. SQLite is imported here alone.

Errors of SQLite become messages that name the file and the remedy. The database keeps SQLite's
rollback journal, which also works on network disks: writes are few and short.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar, final

from msgspec import ValidationError, convert

from pytest_dlperf.files.writing import make_folder
from pytest_dlperf.history.rows import (
    Row,
    case_row,
    measurement_rows,
    of_reference,
    parts_of,
    session_row,
)
from pytest_dlperf.history.schema import APPLICATION_ID, FORM, TABLES
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import BrokenError
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Fingerprint
from pytest_dlperf.model.results import CaseResult, Results

T = TypeVar("T")

BUSY_S: Final = 4.0
"""Seconds to wait for another process that holds the database."""

_DAMAGED: Final = (
    "{file} is damaged ({error}); move it away: a new one is made, and `pytest-dlperf history "
    "import` fills it from results files"
)
_READ_ONLY: Final = "{file} may not be written"
_MESSAGES: Final = {
    sqlite3.SQLITE_BUSY: "{file} is held by another process",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_ERROR: "{file} has other tables than this version of pytest-dlperf makes "
    "({error}); delete it, or name another file with --dlperf-history",
    sqlite3.SQLITE_FULL: "there is no space left for {file}",
    sqlite3.SQLITE_NOTADB: "{file} is not a database; move it away, or name another file with "
    "--dlperf-history",
    sqlite3.SQLITE_READONLY: _READ_ONLY,
}


class HistoryError(BrokenError):
    """The history cannot be read or written; the message says what and where."""


@final
class History(AbstractContextManager["History"]):
    """One open database. Several processes may have it open; each writes in short transactions."""

    def __init__(self, file: Path, connection: sqlite3.Connection) -> None:
        self.file = file
        self._connection = connection

    @classmethod
    def open(cls, file: Path, *, busy_s: float = BUSY_S) -> History:
        """Open a database, and make it where there is none.

        Raises:
            HistoryError: It cannot be opened, or a newer version or another program has written it.
        """
        return cls(file, open_database(file, busy_s, create=True))

    @classmethod
    def read(cls, file: Path, *, busy_s: float = BUSY_S) -> History:
        """Open a database that exists, also where nothing may be written.

        Raises:
            HistoryError: There is none, or it cannot be read.
        """
        if not file.exists():
            raise HistoryError(f"there is no history {file}")
        return cls(file, open_database(file, busy_s, create=False))

    @classmethod
    def read_if_there(
        cls, file: Path | None, *, busy_s: float = BUSY_S
    ) -> AbstractContextManager[History | None]:
        """Open a database; ``None`` where there is none yet, or none is kept.

        Raises:
            HistoryError: It cannot be read.
        """
        if file is None or not file.exists():
            return nullcontext()
        return cls.read(file, busy_s=busy_s)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------ writing

    def add(self, results: Results) -> bool:
        """Store a session; return false where it is stored already, and leave that.

        Raises:
            HistoryError: The database cannot be written, or the results are not those of a session.
        """
        try:
            with named_errors(self.file), transaction(self._connection):
                return self._add(results)
        except ValueError as error:
            raise HistoryError(f"session {results.session}: {error}") from error

    def _add(self, results: Results) -> bool:
        session = session_row(results)
        query = "SELECT 1 FROM sessions WHERE uid = :uid"
        if self._connection.execute(query, session).fetchone() is not None:
            return False
        session_id = self._insert("sessions", session)
        measured = (*results.cases, *map(of_reference, results.reference_measurements))
        self._insert_measurements(session_id, session["began"], measured)
        return True

    def _insert_measurements(
        self, session_id: int, began: float, results: Iterable[CaseResult]
    ) -> None:
        """Store results of cases of which the session has no rows yet."""
        rows = []
        for result in results:
            measured = result.measurement
            if measured is None and not self._is_missed(result):
                continue
            keys = {"session_id": session_id, "case_id": self._case_id(result.case)}
            taken_on = {"began": began, "fingerprint": None}
            if measured is not None and measured.fingerprint is not None:
                taken_on["fingerprint"] = self._fingerprint_id(measured.fingerprint)
            rows += [{**keys, **taken_on, **row} for row in measurement_rows(result, measured)]
        if rows:
            self._connection.executemany(_insertion("measurements", tuple(rows[0])), rows)

    def _case_id(self, case: Case) -> int:
        return self._id("cases", "name", case_row(case))

    def _is_missed(self, result: CaseResult) -> bool:
        """Whether the missing measurement matters: not for a case that is always skipped here."""
        verdicts = {judgement.verdict for judgement in result.judgements.values()}
        query = "SELECT 1 FROM cases WHERE name = ?"
        known = self._connection.execute(query, (result.case.id,)).fetchone()
        return bool(verdicts - {Verdict.SKIPPED} or (verdicts and known))

    def _fingerprint_id(self, fingerprint: Fingerprint) -> int:
        parts = {
            part: None if content is None else self._id("facts", "content", {"content": content})
            for part, content in parts_of(fingerprint).items()
        }
        return self._id("fingerprints", tuple(parts), parts)

    def _id(self, table: str, key: str | tuple[str, ...], row: Row) -> int:
        """Return the id of the row with that key; insert the row if it is missing."""
        names = (key,) if isinstance(key, str) else key
        same = " AND ".join(f"{name} IS :{name}" for name in names)
        query = f"SELECT id FROM {table} WHERE {same}"  # noqa: S608 - names of our own
        found = self._connection.execute(query, row).fetchone()
        return self._insert(table, row) if found is None else found["id"]

    def _insert(self, table: str, row: Row) -> int:
        """Insert a row and return its id."""
        return self._connection.execute(_insertion(table, tuple(row)), row).lastrowid or 0

    # ------------------------------------------------------------------------ reading

    def tuples(self, query: str, form: type[T], values: Row | None = None) -> list[T]:
        """Return the rows of a query as tuples of this type, also named ones.

        Raises:
            HistoryError: They cannot be read, or are of another type.
        """
        with named_errors(self.file):
            cursor = self._connection.cursor()
            cursor.row_factory = None
            return convert(cursor.execute(query, values or {}).fetchall(), list[form])  # type: ignore[valid-type]

    def decoded(self, text: str, form: type[T]) -> T:
        """Decode JSON of a column.

        Raises:
            HistoryError: It has another form.
        """
        try:
            return convert(json.loads(text), form)
        except (ValidationError, ValueError, RecursionError) as error:
            raise HistoryError(_DAMAGED.format(file=self.file, error=error)) from error


@lru_cache
def _insertion(table: str, columns: tuple[str, ...]) -> str:
    """Write the statement that inserts a row. Names are the code's own, values are bound."""
    values = ", ".join(f":{name}" for name in columns)
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})"  # noqa: S608


def open_database(file: Path, busy_s: float, *, create: bool) -> sqlite3.Connection:
    """Open a database, and create its tables where they are missing.

    Another process may hold it for ``busy_s`` seconds. A read-only file is opened for reading.
    """
    with named_errors(file):
        if create:
            make_folder(file.parent)
        connection = sqlite3.connect(
            f"{file.absolute().as_uri()}?mode={'rwc' if create else 'rw'}",
            timeout=busy_s,
            isolation_level=None,  # transactions are begun explicitly
            uri=True,
        )
        try:
            connection.row_factory = sqlite3.Row
            connection.execute("PRAGMA foreign_keys = ON")
            if _is_empty(connection, file):
                _make_tables(connection, file)
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit all that the block writes, or nothing if it raises."""
    # IMMEDIATE: a transaction that turns from reading to writing may have to be given up.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk has rolled it back already
            connection.execute("ROLLBACK")
        raise


def _is_empty(connection: sqlite3.Connection, file: Path) -> bool:
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    form: int = connection.execute("PRAGMA user_version").fetchone()[0]
    # Read last: another session may create the tables, and set this, between the queries.
    program = connection.execute("PRAGMA application_id").fetchone()[0]
    if not (program or form or tables):
        return True
    if program != APPLICATION_ID:
        raise HistoryError(
            f"{file} is a database of another program; it stays as it is. Name another file "
            "with --dlperf-history"
        )
    if form > FORM:
        raise HistoryError(
            f"{file} was written by a newer version of pytest-dlperf: it has form {form}, this one "
            f"knows {FORM}. It stays as it is. Upgrade, or name another file with --dlperf-history"
        )
    return False


def _make_tables(connection: sqlite3.Connection, file: Path) -> None:
    with transaction(connection):
        # Checked again: another session may have been faster.
        if _is_empty(connection, file):
            for statement in TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORM}")


@contextmanager
def named_errors(file: Path) -> Iterator[None]:
    """Turn errors of SQLite and the system into a ``HistoryError`` that names the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise HistoryError(_message(file, error)) from error
    except ValidationError as error:
        problem, _, _ = str(error).partition(" - at ")  # the place is that of no row
        raise HistoryError(_DAMAGED.format(file=file, error=problem)) from error
    except OSError as error:
        raise HistoryError(
            f"{error.filename or file}: {error.strerror or error}; name another file with "
            "--dlperf-history"
        ) from error
    except OverflowError as error:
        raise HistoryError(f"{file} cannot hold so large a number: {error}") from error


def _message(file: Path, error: sqlite3.Error) -> str:
    if file.is_dir():
        return f"{file} is a folder; name a file"
    # Text that is no UTF-8 is an error of Python's own, without a code.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code == sqlite3.SQLITE_CANTOPEN and not os.access(file.parent, os.W_OK):
        return _READ_ONLY.format(file=file)
    return _MESSAGES.get(code, "{file}: {error}").format(file=file, error=error)
