"""The folder of one session's logs, which no other session may use."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Final

from pytest_dlperf.files.writing import open_ours
from pytest_dlperf.model.errors import UsageError

MARK: Final = ".dlperf-session"
"""The file that says whose logs a folder holds, and when that session ended in order."""
_ENDED: Final = ", ended "
_REMEDY: Final = "name a new folder, or judge the logs that are there with --dlperf-logs"


class SessionFolder:
    """A folder for the logs of this session alone, locked until it is released."""

    def __init__(self, folder: Path) -> None:
        """Take a folder; make it if it is missing, and set aside logs of an interrupted session.

        Raises:
            UsageError: The folder belongs to a living session, or holds results, or other files.
            OSError: It cannot be made, written or renamed.
        """
        self.set_aside: str | None = None
        """What was found there and where it is now, for messages."""
        self._mark = _locked(folder)
        if _holds_logs(folder):
            owner = _owner(self._mark)
            os.close(self._mark)
            if _ENDED in owner:
                raise UsageError(f"{folder} holds the logs of {owner}; {_REMEDY}")
            names = (Path(f"{folder}.interrupted{number}") for number in count(1))
            kept = folder.rename(next(name for name in names if not name.exists()))
            self.set_aside = f"{kept}: left by {owner}, which was interrupted"
            self._mark = _locked(folder)
        os.ftruncate(self._mark, 0)
        self._write(
            f"the session of process {os.getpid()} on {socket.gethostname()}, begun {_now()}"
        )

    def release(self, *, is_whole: bool) -> None:
        """Give the folder back; the logs of a session that ``is_whole`` stay there for good."""
        with suppress(OSError):
            if is_whole:
                self._write(f"{_ENDED}{_now()}")
            os.close(self._mark)

    def _write(self, text: str) -> None:
        os.write(self._mark, text.encode())


def _locked(folder: Path) -> int:
    """Open and lock the mark of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / MARK
    if not file.exists() and _holds_logs(folder):
        raise UsageError(f"{folder} is not empty; {_REMEDY}")
    mark = open_ours(str(file), os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = _owner(mark)
        os.close(mark)
        raise UsageError(
            f"{folder} is in use by {owner}; name another folder, or wait for its end"
        ) from error
    except OSError:
        pass  # some network disks have no locks
    return mark


def _holds_logs(folder: Path) -> bool:
    return any(file.name != MARK for file in folder.iterdir())


def _owner(mark: int) -> str:
    return os.pread(mark, 1024, 0).decode(errors="replace") or "a session"


def _now() -> str:
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
