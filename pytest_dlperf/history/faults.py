"""What is wrong with a database, in words that name the file and say what to do."""

from __future__ import annotations

import os
import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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


class HistoryError(BrokenError):
    """The history cannot be read or written; the message says what and where."""


@contextmanager
def told(file: Path) -> Iterator[None]:
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
    """What lies where a folder above the file should be; a link into nowhere does too."""
    above = reversed(file.parents)
    return next((place for place in above if os.path.lexists(place) and not place.is_dir()), file)


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
