"""Locks between processes, and what they share under them: filelock's only home."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.model.errors import BrokenError
from pytest_dlperf.model.plain import from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

T = TypeVar("T")


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
