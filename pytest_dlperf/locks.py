"""Short locks between processes, and writing a file whole: filelock's only home."""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` for the length of the block; wait for it as long as it takes.

    The lock is the kernel's, so it ends with the process that holds it, however that ends.
    """
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path):
        yield


def write_whole(path: Path, text: str) -> None:
    """Replace a file's content in one step: a reader sees the old text or the new one.

    Raises:
        OSError: The folder cannot be made or written; the old file stands.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes the file private; a results file has the usual rights.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
