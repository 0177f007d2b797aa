"""A database is opened: made where there is none, and brought to this version's form."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING

from pytest_dlperf.files.databasehead import APPLICATION_ID
from pytest_dlperf.history.faults import HistoryError, told
from pytest_dlperf.history.place import is_shared
from pytest_dlperf.history.schema import MIGRATIONS, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Connection = sqlite3.Connection
"""One open database."""


def open_to_write(file: Path, busy_s: float) -> Connection:
    """Open a database, made where there is none, brought to this version's form.

    Raises:
        HistoryError: It cannot be opened, or a newer version or another program has written it.
    """
    with told(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        connection = _connect(str(file), busy_s)
        began = monotonic()
        try:
            version = _version(connection, file)
            # All steps together wait no longer than that.
            wait_at_most(connection, busy_s - (monotonic() - began))
            _choose_journal(connection, shared=is_shared(file.parent))
            wait_at_most(connection, busy_s - (monotonic() - began))
            connection.execute("PRAGMA foreign_keys = ON")
            if version < VERSION:
                _migrate(connection, file)
        except BaseException:
            connection.close()
            raise
    return connection


def open_to_read(file: Path, busy_s: float) -> Connection:
    """Open a database that exists, where nothing may be written.

    Raises:
        HistoryError: It cannot be read, or has not this version's form.
    """
    with told(file):
        connection = _connect_to_read(file, busy_s)
        try:
            _check_is_of_this_form(_version(connection, file), file)
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """All of the block or nothing of it, whatever ends it."""
    # Taken at once: a transaction that turns from reading to writing may have to be given up.
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):  # a full disk has rolled it back already
            connection.execute("ROLLBACK")
        raise


def close(connection: Connection) -> None:
    """Close it; nothing more can be asked."""
    with suppress(sqlite3.Error):
        connection.close()


def _connect(place: str, busy_s: float, *, uri: bool = False) -> Connection:
    connection = sqlite3.connect(
        place,
        timeout=busy_s,
        isolation_level=None,  # transactions begin where we say
        check_same_thread=False,  # whichever thread collects a recorder closes it
        uri=uri,
    )
    connection.row_factory = sqlite3.Row
    return connection


def wait_at_most(connection: Connection, busy_s: float) -> None:
    """From now on, let another process hold the database for so many seconds."""
    connection.execute(f"PRAGMA busy_timeout = {max(round(1000 * busy_s), 0)}")


def _connect_to_read(file: Path, busy_s: float) -> Connection:
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


def _version(connection: Connection, file: Path) -> int:
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


def _check_is_of_this_form(version: int, file: Path) -> None:
    if version < VERSION:
        raise HistoryError(
            f"{file} may not be written; that it has to be once, to bring it from form {version} "
            f"to form {VERSION}, which this version reads"
        )


def _choose_journal(connection: Connection, *, shared: bool) -> None:
    """Have readers and a writer at the same time, where the disk allows it."""
    wanted = "delete" if shared else "wal"
    now = connection.execute("PRAGMA journal_mode").fetchone()[0]
    if now != wanted:
        # Somebody else may have it open: then it stays as it is, which works as well.
        with suppress(sqlite3.OperationalError):
            now = connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]
    # A log is never torn: the last sessions may be lost with the machine's power, no more.
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if now == 'wal' else 'FULL'}")


def _migrate(connection: Connection, file: Path) -> None:
    """Bring the database to this version's form, each step whole or not at all."""
    version = 0
    while version < VERSION:
        with transaction(connection):
            # Asked again: another session may have been faster.
            version = _version(connection, file)
            if version < VERSION:
                for statement in MIGRATIONS[version]:
                    connection.execute(statement)
                version += 1
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {version}")
