"""Open a database: find out whether it is one of ours, make it where there is none.

SQLite is imported here alone. What it says becomes a message that names the file and the remedy.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from pytest_dlperf.files.locks import make_folder
from pytest_dlperf.history.schema import APPLICATION_ID, FORM, TABLES
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Iterator

Connection = sqlite3.Connection
"""One open database."""

_MOUNTS: Final = Path("/proc/self/mountinfo")
_SHARED: Final = frozenset(
    (
        *("9p", "acfs", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "gpfs", "lustre", "ncpfs"),
        *("nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vboxsf"),
        *("virtiofs", "wekafs"),
    )
)

_FULL_BYTES: Final = 1 << 17

_MESSAGES: Final = {
    "file is not a database": "{file} is no database; move it away, or name another file with "
    "--dlperf-history",
    "malformed": "{file} is damaged ({error}); move it away: a new one is made, and `pytest-dlperf "
    "history import` fills it from results files",
    "full": "there is no space left for {file}",
    "readonly": "{file} may not be written",
    "locked": "{file} is held by another process",
}


class HistoryError(BrokenError):
    """The history cannot be read or written; the message says what and where."""


def open_to_write(file: Path, busy_s: float) -> Connection:
    """Open a database, and make it where there is none.

    Raises:
        HistoryError: It cannot be opened, or a newer version or another program has written it.
    """
    with named_errors(file):
        make_folder(file.parent)
        connection = _connect(str(file), busy_s)
        began = monotonic()
        try:
            is_empty = _is_empty(connection, file)
            # All steps together wait no longer than that.
            wait_at_most(connection, busy_s - (monotonic() - began))
            _choose_journal(connection, shared=is_shared(file.parent))
            wait_at_most(connection, busy_s - (monotonic() - began))
            connection.execute("PRAGMA foreign_keys = ON")
            if is_empty:
                _make_tables(connection, file)
        except BaseException:
            connection.close()
            raise
    return connection


def open_to_read(file: Path, busy_s: float) -> Connection:
    """Open a database that exists, where nothing may be written.

    Raises:
        HistoryError: It cannot be read, holds nothing, or a newer version or another program has
            written it.
    """
    with named_errors(file):
        connection = _connect_to_read(file, busy_s)
        try:
            is_empty = _is_empty(connection, file)
        except BaseException:
            connection.close()
            raise
    if is_empty:
        connection.close()
        raise HistoryError(f"{file} is empty, and may not be written")
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


def _is_empty(connection: Connection, file: Path) -> bool:
    """Say whether it is a new file, still without tables.

    Raises:
        HistoryError: It is of a newer version or of another program; it has not been touched.
    """
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


def _make_tables(connection: Connection, file: Path) -> None:
    with transaction(connection):
        # Asked again: another session may have been faster.
        if _is_empty(connection, file):
            for statement in TABLES:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {FORM}")


def is_shared(folder: Path, mounts: Path = _MOUNTS) -> bool:
    """Say whether other machines may have the folder's file system open at the same time.

    SQLite's write-ahead log needs memory that all its readers share, so it works on one machine
    only. ``False`` where the system does not tell.
    """
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        real = folder.resolve()
    except OSError:
        return False
    longest, kind = -1, ""
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields, facts = before.split(), after.split()
        if not separator or len(fields) < 5 or not facts:  # noqa: PLR2004 - the mount point is the fifth
            continue
        point = Path(_unescaped(fields[4]))
        # Of two mounts at one point the later one is seen.
        if real.is_relative_to(point) and len(point.parts) >= longest:
            longest, kind = len(point.parts), facts[0]
    return kind in _SHARED or kind.startswith("fuse.")


def _unescaped(point: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        point = point.replace(code, character)
    return point


@contextmanager
def named_errors(file: Path) -> Iterator[None]:
    """Turn what SQLite and the system say into a message that names the file.

    Raises:
        HistoryError: With that message.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise HistoryError(_message(file, error)) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise HistoryError(
            f"{_no_folder(file)} is no folder; move it away, or name another file with "
            "--dlperf-history"
        ) from error
    except OSError as error:
        place = error.filename or file
        raise HistoryError(f"{place}: {error.strerror or error}") from error
    except OverflowError as error:
        raise HistoryError(f"{file} cannot hold so large a number: {error}") from error


def _no_folder(file: Path) -> Path:
    """Find what lies where a folder above the file should be, also a link into nowhere."""
    above = reversed(file.parents)
    return next((place for place in above if os.path.lexists(place) and not place.is_dir()), file)


def _message(file: Path, error: sqlite3.Error) -> str:
    for part, message in _MESSAGES.items():
        if part in str(error):
            return message.format(file=file, error=error)
    if "I/O error" in str(error) and _is_full(file.parent):
        # Of a write-ahead log SQLite says no more than that.
        return _MESSAGES["full"].format(file=file)
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
