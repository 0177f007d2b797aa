"""The folder of one session's logs, which no other session may use."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Final, final

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from pytest_dlperf.files.writing import open_ours
from pytest_dlperf.model.errors import UsageError

MARK: Final = ".dlperf-session"
"""The file that names the session whose logs a folder holds."""

_REMEDY: Final = "name a new folder, or judge the logs that are there with --dlperf-logs"


class Owner(Struct, frozen=True, kw_only=True):
    """The session that a folder belongs to."""

    process: int
    host: str
    began: str
    ended: str | None = None
    """When it ended normally; ``None`` while it lives, or if it was interrupted."""

    @property
    def words(self) -> str:
        """The session, for messages."""
        return f"the session of process {self.process} on {self.host}, begun {self.began}"


@final
class SessionFolder:
    """A folder for the logs of this session alone, locked until it is released."""

    def __init__(self, folder: Path) -> None:
        """Take a folder; make it if it is missing, and set aside logs of an interrupted session.

        Raises:
            UsageError: The folder belongs to a living session, or holds results, or other files.
            OSError: It cannot be made or written.
        """
        self.set_aside: str | None = None
        """What was found there and where it is now, for messages."""
        self._folder = folder
        self._me = Owner(process=os.getpid(), host=socket.gethostname(), began=_now())
        self._mark = self._locked_mark()
        if self._holds_logs():
            try:
                self._move_aside()
            finally:
                os.close(self._mark)
            self._mark = self._locked_mark()
        self._write(self._me)

    def release(self, *, is_whole: bool) -> None:
        """Give the folder back; the logs of a session that ``is_whole`` stay there for good."""
        with suppress(OSError):
            if is_whole:
                self._write(replace(self._me, ended=_now()))
            os.close(self._mark)

    def _locked_mark(self) -> int:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._folder / MARK
        if not file.exists() and self._holds_logs():
            raise UsageError(f"{self._folder} is not empty; {_REMEDY}")
        mark = open_ours(str(file), os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            whose = _whose(mark)
            os.close(mark)
            raise UsageError(
                f"{self._folder} is in use by {whose}; name another folder, or wait for its end"
            ) from error
        except OSError:
            pass  # some network disks have no locks
        return mark

    def _holds_logs(self) -> bool:
        return any(file.name != MARK for file in self._folder.iterdir())

    def _move_aside(self) -> None:
        owner, whose = _read(self._mark), _whose(self._mark)
        if owner is not None and owner.ended is not None:
            raise UsageError(
                f"{self._folder} holds the logs of {whose}, which ended {owner.ended}; {_REMEDY}"
            )
        number = 1
        while (kept := Path(f"{self._folder}.interrupted{number}")).exists():
            number += 1
        try:
            self._folder.rename(kept)
        except OSError as error:
            raise UsageError(
                f"{self._folder} holds the logs of {whose}, and cannot be renamed: "
                f"{error.strerror}; {_REMEDY}"
            ) from error
        self.set_aside = f"{kept}: left by {whose}, which was interrupted"

    def _write(self, owner: Owner) -> None:
        text = json.dumps(to_builtins(owner)) + "\n"
        os.ftruncate(self._mark, 0)
        os.pwrite(self._mark, text.encode("utf-8"), 0)


def _read(mark: int) -> Owner | None:
    try:
        return convert(json.loads(os.pread(mark, 4096, 0)), Owner)
    except (OSError, ValueError, RecursionError):
        return None


def _whose(mark: int) -> str:
    owner = _read(mark)
    return "a session" if owner is None else owner.words


def _now() -> str:
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
