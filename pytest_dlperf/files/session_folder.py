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
        self._mark, owner = _locked(folder)
        if [*folder.iterdir()] != [folder / MARK]:
            if not owner:
                (folder / MARK).unlink()
                raise UsageError(f"{folder} is not empty; {_REMEDY}")
            if _ENDED in owner:
                raise UsageError(f"{folder} holds the logs of {owner}; {_REMEDY}")
            names = (Path(f"{folder}.interrupted{number}") for number in count(1))
            kept = folder.rename(next(name for name in names if not name.exists()))
            self.set_aside = f"{kept}: left by {owner}, which was interrupted"
            os.close(self._mark)
            self._mark, _ = _locked(folder)
        os.ftruncate(self._mark, 0)
        self._write(f"the session of process {os.getpid()} on {socket.gethostname()}, begun ")

    def release(self, *, is_whole: bool) -> None:
        """Give the folder back; the logs of a session that ``is_whole`` stay there for good."""
        with suppress(OSError):
            if is_whole:
                self._write(_ENDED)
            os.close(self._mark)

    def _write(self, text: str) -> None:
        now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
        os.write(self._mark, f"{text}{now}".encode())


def _locked(folder: Path) -> tuple[int, str]:
    """Open and lock the mark of a folder; also return whose it was."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = open_ours(str(folder / MARK), os.O_RDWR | os.O_CREAT | os.O_APPEND)
    is_free = True
    try:
        fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        is_free = False
    except OSError:
        pass  # some network disks have no locks
    owner = os.pread(mark, 1024, 0).decode(errors="replace")
    if not is_free:
        os.close(mark)
        raise UsageError(f"{folder} is in use by {owner or 'a session'}; name another folder")
    return mark, owner
