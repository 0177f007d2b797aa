"""Opens regular files, and writes them whole or at their end."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

OWN_FOLDER: Final = ".dlperf"
"""Holds the logs of sessions, and the history."""
SCHEMA_FOLDER: Final = ".schema"
"""Holds the schemas that editors read, beside the folders of the clusters."""


def open_regular(path: str, flags: int) -> int:
    """Open a regular file (``OSError``): the ``opener`` wherever a user names a file.

    A pipe could only be waited for, and a device may have no end.
    """
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    mode = os.fstat(descriptor).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # open() itself refuses folders
        os.close(descriptor)
        raise _not_regular(path)
    return descriptor


def open_at_end(path: Path) -> BinaryIO:
    """Open a file of ours to append to, or make it (``OSError``, also where a link stands)."""
    return open(path, "ab", opener=open_ours)


def open_ours(path: str, flags: int) -> int:
    """Open a file that is ours, and so none that a link leads to; as ``open_regular``."""
    return open_regular(path, flags | os.O_NOFOLLOW)


def _not_regular(path: str | Path) -> OSError:
    return OSError(errno.EINVAL, "it is not a regular file", str(path))


def make_folder(folder: Path) -> None:
    """Make a folder with its parents; ``.dlperf`` gets a ``.gitignore``.

    ``OSError``: it cannot be made, or another user's link stands for a folder of ours.
    """
    for parent in (folder, *folder.parents):
        is_link = parent.name in (OWN_FOLDER, SCHEMA_FOLDER) and parent.is_symlink()
        if is_link and parent.lstat().st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EPERM, f"{parent} is a link of another user; remove it")
    folder.mkdir(parents=True, exist_ok=True)
    for parent in (folder, *folder.parents):
        if parent.name == OWN_FOLDER:
            with suppress(FileExistsError), (parent / ".gitignore").open("xb") as file:
                file.write(b"*\n")


def write_whole(
    path: Path, content: str | bytes, *, is_ours: bool = False, is_private: bool = False
) -> None:
    """Replace a file's content in one step: a reader sees the old one or the new one.

    A link is followed, but replaced where the file ``is_ours`` or ``is_private``. A private file is
    readable by the user alone from its first byte on. What cannot be written, or is protected or
    no regular file, stands (``OSError``).
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if not (is_ours or is_private):
        path = Path(os.path.realpath(path))
    if path.exists():
        if not path.is_file():
            raise _not_regular(path)
        if not os.access(path, os.W_OK):
            # The folder would allow it, but the file is protected.
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    make_folder(path.parent)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".dlperf-new-")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            if not is_private:
                temporary.chmod(_mode_for(path))
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mode_for(path: Path) -> int:
    """Return the permissions of a file, or the usual ones of a new file; mkstemp's are private."""
    with suppress(FileNotFoundError):
        return path.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask
