"""Locks between processes, and values that they share under one. The only home of filelock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import convert, to_builtins

from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from filelock import FileLock

T = TypeVar("T")


class LockError(BrokenError):
    """A lock cannot be acquired; the message names its file."""


@contextmanager
def locked(path: Path, *, limit_s: float | None = None) -> Iterator[None]:
    """Hold the lock file ``path`` for the length of the block.

    Wait ``limit_s`` seconds for it, or forever. The kernel frees the lock with its process.

    Raises:
        LockError: The lock file cannot be made, or another process holds it that long.
    """
    lock = _acquire(path, -1 if limit_s is None else limit_s, makes_folder=True)
    if lock is None:
        raise LockError(f"the lock {path} has been held by another process for {limit_s:g} s")
    try:
        yield
    finally:
        lock.release()


class HeldLock:
    """A lock that shows that this process lives: acquired at once, held until released.

    The kernel frees it with the process. Child processes do not inherit it.
    """

    def __init__(self, path: Path) -> None:
        """Acquire the lock file ``path``.

        Raises:
            LockError: The lock file cannot be made, or another process holds it.
        """
        lock = _acquire(path)
        if lock is None:
            raise LockError(f"the lock {path} is held by another process")
        self._lock = lock

    def release(self) -> None:
        """Release the lock; its file stays."""
        self._lock.release()


def _acquire(path: Path, limit_s: float = 0, *, makes_folder: bool = False) -> FileLock | None:
    """Acquire a lock file within so many seconds; ``None`` if another process holds it."""
    from filelock import FileLock, Timeout

    # Another thread may release it, such as one that ends a run.
    lock = FileLock(path, thread_local=False)
    try:
        if makes_folder:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock.acquire(timeout=limit_s)
    except Timeout:  # an OSError too
        return None
    except OSError as error:
        raise LockError(f"the lock {path} cannot be acquired: {error.strerror or error}") from error
    return lock


def shared_once(folder: Path | None, name: str, kind: type[T], take: Callable[[], T]) -> T:
    """Return a value that processes share in ``folder``.

    The first to ask makes it with ``take``; the others wait and read it. Without a folder nothing
    is shared.
    """
    if folder is None:
        return take()
    file = folder / f"{name}.json"
    with locked(folder / f"{name}.lock"):
        if file.exists():
            return convert(json.loads(file.read_text(encoding="utf-8")), kind)
        taken = take()
        write_whole(file, json.dumps(to_builtins(taken)))
        return taken
