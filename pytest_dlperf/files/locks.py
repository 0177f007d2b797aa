"""Locks between processes, and values that they share under one. The only home of filelock."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import convert, to_builtins

from pytest_dlperf.files.writing import write_whole
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from filelock import AcquireReturnProxy, FileLock

T = TypeVar("T")


class LockError(BrokenError):
    """A lock cannot be acquired; the message names its file."""


def locked(path: Path, *, limit_s: float = -1) -> AcquireReturnProxy[FileLock]:
    """Acquire a lock file, for a ``with`` block or until its ``lock`` is released.

    Wait ``limit_s`` seconds for it, or forever. The kernel frees the lock with its process.

    Raises:
        LockError: The lock file cannot be made, or another process holds it that long.
    """
    from filelock import FileLock, Timeout

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Another thread may release it, such as one that ends a run.
        return FileLock(path, thread_local=False).acquire(timeout=limit_s)
    except Timeout as error:
        raise LockError(f"the lock {path} is held by another process") from error
    except OSError as error:
        raise LockError(f"the lock {path} cannot be acquired: {error.strerror or error}") from error


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
