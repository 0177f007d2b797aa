"""Folders that a session has to itself, and what becomes of those that a killed one has left.

A session and its workers hold a lock in such a folder. The kernel ends it with them: so a folder
without one is over, whatever is in it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.files.writing import destination
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.plain import from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Mapping

MARK: Final = ".dlperf-session"
"""The file that says whose logs a folder holds."""
END_S: Final = 10.0
"""The workers of a session that was killed may take so long to end what they run."""

_SHARED: Final = "pytest-dlperf-workers-"
_POLL_S: Final = 0.1
_HELD: Final = (errno.EAGAIN, errno.EACCES)
_REMEDY: Final = "name a new folder, or judge the logs that are there with --dlperf-logs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The session that has taken a folder."""

    process: int
    host: str
    began: str
    ended: str | None = None
    """When it came to its end in order; ``None`` while it lives, and if it was broken off."""
    slurm_job: str | None = None
    slurm_restarts: str | None = None

    @property
    def words(self) -> str:
        """The session, for people."""
        return f"the session of process {self.process} on {self.host}, begun {self.began}"


@final
class TakenFolder:
    """A folder for the logs of this session alone."""

    def __init__(self, folder: Path, environment: Mapping[str, str] = os.environ) -> None:
        """Take a folder, which is made where there is none.

        What a session has left there that was broken off is set aside, and so is what an earlier
        start of this job of Slurm's has.

        Raises:
            UsageError: Another session has it, or has left its results there, or nobody knows what
                it holds.
            OSError: It cannot be made or written.
        """
        self.set_aside: str | None = None
        """What was found there and where it is now, for people."""
        self._folder = destination(folder, is_folder=True)
        self._me = Owner(
            process=os.getpid(),
            host=socket.gethostname(),
            began=_now(),
            slurm_job=environment.get("SLURM_JOB_ID"),
            slurm_restarts=environment.get("SLURM_RESTART_COUNT", "0"),
        )
        try:
            while not self._is_taken_now():
                pass
        except UsageError as error:
            # Another session may have been quicker.
            told = "" if self.set_aside is None else f". Set aside: {self.set_aside}"
            raise UsageError(f"{error}{told}") from error

    def release(self, *, is_whole: bool) -> None:
        """Give the folder back; what a session has left that ``is_whole`` stays where it is."""
        with suppress(OSError):
            if is_whole:
                self._write(replace(self._me, ended=_now()))
            os.close(self._mark)

    def _is_taken_now(self) -> bool:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._mark = self._opened()
        except FileNotFoundError:
            return False  # another session has set it aside meanwhile
        is_taken = False
        try:
            is_taken = self._is_taken()
        finally:
            if not is_taken:
                os.close(self._mark)
        return is_taken

    def _opened(self) -> int:
        mark = self._folder / MARK
        # Another session may make the mark meanwhile.
        if not mark.exists() and self._holds_logs():
            raise UsageError(f"{self._folder} is not empty; {_REMEDY}")
        return os.open(mark, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)

    def _holds_logs(self) -> bool:
        return any(file.name != MARK for file in self._folder.iterdir())

    def _is_taken(self) -> bool:
        """Take the folder whose mark was opened; false if it is another one by now."""
        owner = self._previous()
        if not _is_at(self._folder / MARK, self._mark):
            return False
        if self._holds_logs():
            self._rename(owner)
            return False
        self._write(self._me)
        with suppress(OSError):
            fcntl.flock(self._mark, fcntl.LOCK_SH)  # with the workers, from here on
        return True

    def _previous(self) -> Owner | None:
        """Lock the mark, and say whose it was; wait for workers that are about to end."""
        deadline = time.monotonic() + END_S
        while True:
            owner = _read(self._mark)
            # Of a node that was lost, a network's file system keeps the locks for a while.
            is_over = owner is not None and self._is_earlier_start(owner)
            try:
                fcntl.flock(self._mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return _read(self._mark)
            except OSError as error:
                if is_over:
                    return owner
                # Or it locks nothing at all.
                if error.errno not in _HELD and (owner is None or self._has_ended(owner)):
                    return owner
            if time.monotonic() > deadline or (owner is not None and self._is_alive(owner)):
                who = "a session" if owner is None else owner.words
                raise UsageError(
                    f"{self._folder} is in use by {who}; name another folder, or wait for its end"
                )
            time.sleep(_POLL_S)

    def _rename(self, owner: Owner | None) -> None:
        """Set aside what another session has left."""
        whose = "a session" if owner is None else owner.words
        is_whole = owner is not None and owner.ended is not None
        if owner is not None and is_whole and not self._is_earlier_start(owner):
            raise UsageError(
                f"{self._folder} holds what {whose}, has left, which ended {owner.ended}; {_REMEDY}"
            )
        kind, number = "earlier" if is_whole else "interrupted", 1
        while (kept := Path(f"{self._folder}.{kind}{number}")).exists():
            number += 1
        try:
            self._folder.rename(kept)
        except OSError as error:
            raise UsageError(
                f"{self._folder} holds what {whose}, has left, and cannot be renamed: "
                f"{error.strerror}; {_REMEDY}"
            ) from error
        why = "" if is_whole else ", which was broken off"
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
        text = json.dumps(to_plain(owner)) + "\n"
        os.ftruncate(self._mark, 0)
        os.pwrite(self._mark, text.encode("utf-8"), 0)


@final
class SharedFolder:
    """A folder in which the processes of a session keep things for each other."""

    def __init__(self) -> None:
        """Make a new one, and remove those that killed sessions have left."""
        _remove_left(Path(tempfile.gettempdir()))
        self._lock: int | None = None
        is_ours = False
        while not is_ours:
            self.path = Path(tempfile.mkdtemp(prefix=_SHARED))
            try:
                self._lock = _held(self.path)
            except OSError as error:
                # Another session takes it for left; or nothing can be locked there.
                is_ours = error.errno not in {*_HELD, errno.ENOENT}
            else:
                is_ours = self.path.exists()

    def remove(self) -> None:
        """Remove it with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def hold(path: Path) -> None:
    """Hold a file or folder of this session for as long as this process lives, if that can be."""
    with suppress(OSError):
        _held(path)


def _held(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _remove_left(parent: Path) -> None:
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(_SHARED):
                _remove_unless_held(entry.path)


def _remove_unless_held(folder: str) -> None:
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)


def _read(mark: int) -> Owner | None:
    try:
        return from_plain(Owner, json.loads(os.pread(mark, 4096, 0)))
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
