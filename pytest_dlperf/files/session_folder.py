"""Folders of one session: for its logs, and for what its processes share.

A session and its workers lock such a folder. The kernel frees the lock with them, so a folder
without one is left over, whatever it holds.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from pytest_dlperf.files.writing import destination, remove_left_over
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

MARK: Final = ".dlperf-session"
"""The file that names the session whose logs a folder holds."""
MAX_END_S: Final = 10.0
"""Seconds that workers of a killed session may take to end what they run."""

_SHARED_PREFIX: Final = "pytest-dlperf-workers-"
_SHARED_NAMES: Final = re.compile(rf"{_SHARED_PREFIX}\w{{8}}")
_POLL_S: Final = 0.1
_LOCKED_ERRORS: Final = (errno.EAGAIN, errno.EACCES)
_REMEDY: Final = "name a new folder, or judge the logs that are there with --dlperf-logs"


class Owner(Struct, frozen=True, kw_only=True):
    """The session that a folder belongs to."""

    process: int
    host: str
    began: str
    ended: str | None = None
    """When it ended normally; ``None`` while it lives, or if it was interrupted."""
    slurm_job: str | None = None
    slurm_restarts: str | None = None

    @property
    def words(self) -> str:
        """The session, for messages."""
        return f"the session of process {self.process} on {self.host}, begun {self.began}"


@final
class SessionFolder:
    """A folder for the logs of this session alone."""

    def __init__(self, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        """Take a folder; make it if it is missing.

        Logs of an interrupted session, or of an earlier start of the same Slurm job, are set aside.

        Raises:
            UsageError: The folder belongs to a living session, or holds results, or other files.
            OSError: It cannot be made or written.
        """
        self.set_aside: str | None = None
        """What was found there and where it is now, for messages."""
        self._folder = destination(folder, is_folder=True)
        self._me = Owner(
            process=os.getpid(),
            host=socket.gethostname(),
            began=_now(),
            slurm_job=environment.get("SLURM_JOB_ID"),
            slurm_restarts=environment.get("SLURM_RESTART_COUNT", "0"),
        )
        try:
            while not self._try_to_take():
                pass
        except UsageError as error:
            # Another session may have been quicker.
            moved = "" if self.set_aside is None else f". Set aside: {self.set_aside}"
            raise UsageError(f"{error}{moved}") from error

    def release(self, *, is_whole: bool) -> None:
        """Give the folder back; the logs of a session that ``is_whole`` stay there for good."""
        with suppress(OSError):
            if is_whole:
                self._write(replace(self._me, ended=_now()))
            os.close(self._mark)

    def _try_to_take(self) -> bool:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            # pathlib looks later whether it is a folder: another session may have set it aside.
            with suppress(FileNotFoundError):
                if not stat.S_ISDIR(self._folder.lstat().st_mode):
                    raise
            return False
        try:
            self._mark = self._open_mark()
        except FileNotFoundError:
            return False  # another session has set it aside meanwhile
        is_taken = False
        try:
            is_taken = self._take_marked()
        finally:
            if not is_taken:
                os.close(self._mark)
        return is_taken

    def _open_mark(self) -> int:
        mark = self._folder / MARK
        # Another session may make the mark meanwhile.
        if not mark.exists() and self._holds_logs():
            raise UsageError(f"{self._folder} is not empty; {_REMEDY}")
        return os.open(mark, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)

    def _holds_logs(self) -> bool:
        return any(file.name != MARK for file in self._folder.iterdir())

    def _take_marked(self) -> bool:
        """Take the folder whose mark is open; ``False`` if it has been replaced meanwhile."""
        owner = self._lock_mark()
        if not _is_at(self._folder / MARK, self._mark):
            return False
        if self._holds_logs():
            self._move_aside(owner)
            return False
        self._write(self._me)
        with suppress(OSError):
            fcntl.flock(self._mark, fcntl.LOCK_SH)  # with the workers, from here on
        return True

    def _lock_mark(self) -> Owner | None:
        """Lock the mark and return its previous owner; wait for workers that are about to end."""
        deadline = time.monotonic() + MAX_END_S
        while True:
            owner = _read(self._mark)
            # A network file system keeps the locks of a lost node for a while.
            is_over = owner is not None and self._is_earlier_start(owner)
            try:
                fcntl.flock(self._mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return _read(self._mark)
            except OSError as error:
                if is_over:
                    return owner
                # A disk without locks.
                if error.errno not in _LOCKED_ERRORS and (owner is None or self._has_ended(owner)):
                    return owner
            if time.monotonic() > deadline or (owner is not None and self._is_alive(owner)):
                who = "a session" if owner is None else owner.words
                raise UsageError(
                    f"{self._folder} is in use by {who}; name another folder, or wait for its end"
                )
            time.sleep(_POLL_S)

    def _move_aside(self, owner: Owner | None) -> None:
        whose = "a session" if owner is None else owner.words
        is_whole = owner is not None and owner.ended is not None
        if owner is not None and is_whole and not self._is_earlier_start(owner):
            raise UsageError(
                f"{self._folder} holds the logs of {whose}, which ended {owner.ended}; {_REMEDY}"
            )
        kind, number = "earlier" if is_whole else "interrupted", 1
        while (kept := Path(f"{self._folder}.{kind}{number}")).exists():
            number += 1
        try:
            self._folder.rename(kept)
        except OSError as error:
            raise UsageError(
                f"{self._folder} holds the logs of {whose}, and cannot be renamed: "
                f"{error.strerror}; {_REMEDY}"
            ) from error
        why = "" if is_whole else ", which was interrupted"
        self.set_aside = f"{kept}: left by {whose}{why}"

    def _is_earlier_start(self, owner: Owner) -> bool:
        is_same_job = owner.slurm_job is not None and owner.slurm_job == self._me.slurm_job
        return is_same_job and owner.slurm_restarts != self._me.slurm_restarts

    def _has_ended(self, owner: Owner) -> bool:
        is_here = owner.host == self._me.host
        return owner.ended is not None or (is_here and not _lives(owner.process))

    def _is_alive(self, owner: Owner) -> bool:
        return owner.host == self._me.host and _lives(owner.process)

    def _write(self, owner: Owner) -> None:
        text = json.dumps(to_builtins(owner)) + "\n"
        os.ftruncate(self._mark, 0)
        os.pwrite(self._mark, text.encode("utf-8"), 0)


@final
class SharedFolder:
    """A folder that the processes of a session share."""

    def __init__(self) -> None:
        """Make a new one, and remove those of killed sessions."""
        remove_left_over(Path(tempfile.gettempdir()), _SHARED_NAMES)
        self._lock: int | None = None
        is_ours = False
        while not is_ours:
            self.path = Path(tempfile.mkdtemp(prefix=_SHARED_PREFIX))
            try:
                self._lock = _lock(self.path)
            except OSError as error:
                # Another session cleans it up just now, or the disk has no locks.
                is_ours = error.errno not in {*_LOCKED_ERRORS, errno.ENOENT}
            else:
                is_ours = self.path.exists()

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def lock_for_session(path: Path) -> None:
    """Lock a file or folder of this session while this process lives, on a disk with locks."""
    with suppress(OSError):
        _lock(path)


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _read(mark: int) -> Owner | None:
    try:
        return convert(json.loads(os.pread(mark, 4096, 0)), Owner)
    except (OSError, ValueError, RecursionError):
        return None


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _now() -> str:
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
