"""Locks between processes, and writing a file whole: filelock's only home."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from pytest_dlperf.model.errors import BrokenError
from pytest_dlperf.model.plain import from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")

OWN_FOLDER: Final = ".dlperf"
"""Holds what sessions keep for themselves: the logs of their runs, and the history."""


class LockError(BrokenError):
    """A lock cannot be had; the message names its file."""


@contextmanager
def locked(path: Path, *, limit_s: float | None = None) -> Iterator[None]:
    """Hold the lock file ``path`` for the length of the block.

    Wait for it for ``limit_s`` seconds, or for as long as it takes. The lock is the kernel's, so it
    ends with the process that holds it, however that ends.

    Raises:
        LockError: The lock file cannot be made, or is held by somebody else for so long.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock.acquire(timeout=-1 if limit_s is None else limit_s)
    except Timeout as error:  # an OSError too, so it stands first
        raise LockError(
            f"the lock {path} has been held by another process for {limit_s:g} s"
        ) from error
    except OSError as error:
        raise LockError(f"the lock {path} cannot be made: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()


class HeldLock:
    """A lock that shows others that this process lives: taken at once, kept until released.

    The kernel ends it with the process. Programs that the process starts do not inherit it.
    """

    def __init__(self, path: Path) -> None:
        """Take the lock file ``path``, which nobody else may want to take.

        Raises:
            LockError: The lock file cannot be made, or somebody holds it.
        """
        from filelock import FileLock, Timeout

        self.path = path
        # Released by whichever thread comes to it, such as one that ends a run.
        self._lock = FileLock(path, thread_local=False)
        try:
            self._lock.acquire(blocking=False)
        except Timeout as error:
            raise LockError(f"the lock {path} is held by another process") from error
        except OSError as error:
            raise LockError(f"the lock {path} cannot be made: {error.strerror or error}") from error

    def release(self) -> None:
        """Give the lock back; its file stays."""
        self._lock.release()


def is_held(path: Path) -> bool:
    """Say whether any process, this one included, holds the existing lock file ``path``.

    Raises:
        LockError: That cannot be told.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError as error:
        raise LockError(f"the lock {path} cannot be tried: {error.strerror or error}") from error
    lock.release()
    return False


def _mode_for(path: Path) -> int:
    """Give the rights that a file has, or that a new one usually gets; mkstemp's are private."""
    if path.exists():
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def is_stream(path: Path) -> bool:
    """Say whether it is neither file nor folder: a pipe, a terminal, ``/dev/null``."""
    return path.exists() and not path.is_file() and not path.is_dir()


def write_into(path: Path, text: str) -> None:
    """Write to the end of what is no regular file; a pipe that nobody reads is not waited for."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(errno.ENXIO, "nobody reads this pipe", str(path)) from error
    # Somebody reads, however slowly.
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
        stream.write(text)


def shared_once(folder: Path | None, name: str, kind: type[T], take: Callable[[], T]) -> T:
    """Return a value that processes share in ``folder``; the first to ask makes it with ``take``.

    The others wait and read it. Without a folder nothing is shared.
    """
    if folder is None:
        return take()
    file = folder / f"{name}.json"
    with locked(folder / f"{name}.lock"):
        if file.exists():
            return from_plain(kind, json.loads(file.read_text(encoding="utf-8")))
        taken = take()
        write_whole(file, json.dumps(to_plain(taken)))
        return taken


def make_folder(folder: Path) -> None:
    """Make a folder with its parents; ``.dlperf`` keeps itself out of git."""
    folder.mkdir(parents=True, exist_ok=True)
    for ours in (folder, *folder.parents):
        if ours.name == OWN_FOLDER and not (ours / ".gitignore").exists():
            (ours / ".gitignore").write_text("*\n", encoding="utf-8")


def write_whole(path: Path, text: str, *, is_private: bool = False) -> None:
    """Replace a file's content in one step: a reader sees the old text or the new one.

    A link is followed, and what is no regular file (a pipe, ``/dev/stdout``) is written into. What
    ``is_private`` is the user's alone from its first byte on, and takes the place of a link.

    Raises:
        OSError: The folder cannot be made or written; the old file stands. Or nobody reads a pipe.
    """
    # By its own name: that of an unnamed pipe leads to what is no path.
    if is_stream(path) and not is_private:
        write_into(path, text)
        return
    path = path if is_private else path.resolve()
    if path.exists() and not os.access(path, os.W_OK):
        # The folder would allow it; who has protected the file would not.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    make_folder(path.parent)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if not is_private:
            temporary.chmod(_mode_for(path))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
