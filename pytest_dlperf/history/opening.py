"""Open a database: find out whether it is one of ours, make it where there is none.

SQLite is imported here alone. What it says becomes a message that names the file and the remedy.
It keeps its rollback journal, which also works on network disks: writes are few and short.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from pytest_dlperf.files.writing import destination, make_folder
from pytest_dlperf.history.schema import APPLICATION_ID, FORM, TABLES
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Connection = sqlite3.Connection
"""One open database."""

_OTHER_TABLES: Final = (
    "{file} has other tables than this version of pytest-dlperf makes ({error}); delete it, or "
    "name another file with --dlperf-history"
)
_MESSAGES: Final = {
    "file is not a database": "{file} is no database; move it away, or name another file with "
    "--dlperf-history",
    "malformed": "{file} is damaged ({error}); move it away: a new one is made, and `pytest-dlperf "
    "history import` fills it from results files",
    "no such": _OTHER_TABLES,
    "has no column": _OTHER_TABLES,
    "full": "there is no space left for {file}",
    "readonly": "{file} may not be written",
    "locked": "{file} is held by another process",
}


class HistoryError(BrokenError):
    """The history cannot be read or written; the message says what and where."""


def open_database(file: Path, busy_s: float, *, create: bool) -> Connection:
    """Open a database, and make its tables where they are missing.

    Another process may hold it for ``busy_s`` seconds. A file that may not be written is opened to
    be read.
    """
    with named_errors(file):
        if create:
            make_folder(file.parent)
        connection = sqlite3.connect(
            f"{destination(file).as_uri()}?mode={'rwc' if create else 'rw'}",
            timeout=busy_s,
            isolation_level=None,  # transactions begin where we say
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
def transaction(connection: Connection) -> Iterator[None]:
    """Write all of the block or nothing of it, whatever ends it."""
    # Taken at once: a transaction that turns from reading to writing may have to be given up.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk has rolled it back already
            connection.execute("ROLLBACK")
        raise


def _is_empty(connection: Connection, file: Path) -> bool:
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    form: int = connection.execute("PRAGMA user_version").fetchone()[0]
    # Last of all: another session may create the tables, with this, between the questions.
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


def _make_tables(connection: Connection, file: Path) -> None:
    with transaction(connection):
        # Asked again: another session may have been faster.
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
    except OSError as error:
        raise HistoryError(
            f"{error.filename or file}: {error.strerror or error}; name another file with "
            "--dlperf-history"
        ) from error
    except OverflowError as error:
        raise HistoryError(f"{file} cannot hold so large a number: {error}") from error


def _message(file: Path, error: sqlite3.Error) -> str:
    for part, message in _MESSAGES.items():
        if part in str(error):
            return message.format(file=file, error=error)
    if file.is_dir():
        return f"{file} is a folder; name a file"
    if "unable to open" in str(error) and not os.access(file.parent, os.W_OK):
        return f"{file} may not be written"
    return f"{file}: {error}"
