"""Put sessions into the database, and query it. SQLite is imported here alone.

Errors of SQLite become messages that name the file and the remedy. The database keeps SQLite's
rollback journal, which also works on network disks: writes are few and short.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final, TypeVar, final

import msgspec

from pytest_dlperf.files.writing import make_folder
from pytest_dlperf.history.rows import (
    Row,
    measurement_rows,
    parts_of,
    reference_results,
    session_row,
)
from pytest_dlperf.history.schema import APPLICATION_ID, FORM, TABLES
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
    """One open database. Several processes may have it open; each writes in short transactions.

    What cannot be read or written, or is not ours, is a ``HistoryError``.
    """

    def __init__(self, file: Path, busy_s: float, mode: str) -> None:
        """Open the database; use ``open`` or ``read``."""
        self.file = file
        with self._named_errors():
            self._connection = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode={mode}",
                timeout=busy_s,
                isolation_level=None,  # transactions are begun explicitly
                uri=True,
            )
            try:
                self._connection.execute("PRAGMA foreign_keys = ON")
                self._check_form()
            except BaseException:
                self.close()
                raise

    @classmethod
    def open(cls, file: Path, *, busy_s: float = BUSY_S) -> History:
        """Open a database, and make it where there is none.

        Another process may hold it for ``busy_s`` seconds.
        """
        try:
            make_folder(file.parent)
        except OSError as error:
            raise HistoryError(
                f"{error.filename}: {error.strerror}; name another file with --dlperf-history"
            ) from error
        return cls(file, busy_s, "rwc")

    @classmethod
    def read(cls, file: Path, *, busy_s: float = BUSY_S) -> History:
        """Open a database that exists, also where nothing may be written."""
        if not file.exists():
            raise HistoryError(f"there is no history {file}")
        return cls(file, busy_s, "rw")

    @classmethod
    def read_if_there(
        cls, file: Path | None, *, busy_s: float = BUSY_S
    ) -> AbstractContextManager[History | None]:
        """Open a database; ``None`` where there is none yet, or none is kept."""
        if file is None or not file.exists():
            return nullcontext()
        return cls.read(file, busy_s=busy_s)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self.close()

    def _check_form(self) -> None:
        """Make the tables in an empty database; refuse what this version does not know."""
        tables, form, program = self._connection.execute(
            "SELECT (SELECT count(*) FROM sqlite_master), user_version, application_id "
            "FROM pragma_user_version, pragma_application_id"
        ).fetchone()
        if not (program or form or tables):
            # Another session may do the same at the same time: then all is there already.
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION_ID};"
                f"PRAGMA user_version = {FORM}; COMMIT"
            )
        elif program != APPLICATION_ID:
            raise HistoryError(
                f"{self.file} is a database of another program; it stays as it is. Name another "
                "file with --dlperf-history"
            )
        elif form > FORM:
            raise HistoryError(
                f"{self.file} was written by a newer version of pytest-dlperf: it has form {form}, "
                f"this one knows {FORM}. It stays as it is. Upgrade, or name another file with "
                "--dlperf-history"
            )

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Turn errors of SQLite into a ``HistoryError`` that names the file and the remedy."""
        file = self.file
        try:
            yield
        except sqlite3.Error as error:
            # Text that is no UTF-8 is an error of Python's own, without a code.
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
            message = _MESSAGES.get(code, "{file}: {error}")
            if code == sqlite3.SQLITE_CANTOPEN and not os.access(file.parent, os.W_OK):
                message = _READ_ONLY
            if file.is_dir():
                message = "{file} is a folder; name a file"
            raise HistoryError(message.format(file=file, error=error)) from error
        except msgspec.MsgspecError as error:
            problem, _, _ = str(error).partition(" - at ")  # the place is that of no row
            raise HistoryError(_DAMAGED.format(file=file, error=problem)) from error
        except OverflowError as error:
            raise HistoryError(f"{file} cannot hold so large a number: {error}") from error

    # ------------------------------------------------------------------------ writing

    def add(self, results: Results) -> bool:
        """Store a session; return false where it is stored already, and leave that."""
        try:
            with self._named_errors(), self._connection:
                # IMMEDIATE: one that turns from reading to writing may have to be given up.
                self._connection.execute("BEGIN IMMEDIATE")
                session = session_row(results)
                known = "SELECT 1 FROM sessions WHERE uid = :uid"
                if self._connection.execute(known, session).fetchone() is not None:
                    return False
                session_id = self._insert("sessions", session)
                for result in (*results.cases, *reference_results(results)):
                    self._add_case(session_id, session["began"], result)
                return True
        except ValueError as error:
            raise HistoryError(f"session {results.session}: {error}") from error

    def _add_case(self, session_id: int, began: float, result: CaseResult) -> None:
        measured = result.measurement
        if measured is None and not self._is_missed(result):
            return
        fingerprint = measured and measured.fingerprint
        keys = {
            "session_id": session_id,
            "case_id": self._id("cases", {"name": result.case.id}),
            "began": began,
            "fingerprint": fingerprint and self._fingerprint_id(fingerprint),
        }
        for row in measurement_rows(result):
            self._insert("measurements", {**keys, **row})

    def _is_missed(self, result: CaseResult) -> bool:
        """Whether the missing measurement matters: not for a case that is always skipped here."""
        verdicts = {judgement.verdict for judgement in result.judgements.values()}
        query = "SELECT 1 FROM cases WHERE name = ?"
        known = self._connection.execute(query, (result.case.id,)).fetchone()
        return bool(verdicts - {Verdict.SKIPPED} or (verdicts and known))

    def _fingerprint_id(self, fingerprint: Fingerprint) -> int:
        parts = {
            part: content and self._id("facts", {"content": content})
            for part, content in parts_of(fingerprint).items()
        }
        return self._id("fingerprints", parts)

    def _id(self, table: str, row: Row) -> int:
        """Return the id of a row; insert it if it is missing."""
        same = " AND ".join(f"{name} IS :{name}" for name in row)
        query = f"SELECT id FROM {table} WHERE {same}"  # noqa: S608 - names of our own
        found = self._connection.execute(query, row).fetchone()
        return self._insert(table, row) if found is None else int(found[0])

    def _insert(self, table: str, row: Row) -> int:
        """Insert a row and return its id. Names are the code's own, values are bound."""
        values = ", ".join(f":{name}" for name in row)
        statement = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({values})"  # noqa: S608
        return self._connection.execute(statement, row).lastrowid or 0

    # ------------------------------------------------------------------------ reading

    def tuples(self, query: str, form: type[T], values: Row | None = None) -> list[T]:
        """Return the rows of a query as tuples of this type, also named ones."""
        with self._named_errors():
            rows = self._connection.execute(query, values or {}).fetchall()
            return msgspec.convert(rows, list[form])  # type: ignore[valid-type]

    def decoded(self, text: str, form: type[T]) -> T:
        """Decode JSON of a column."""
        with self._named_errors():
            return msgspec.json.decode(text, type=form)
