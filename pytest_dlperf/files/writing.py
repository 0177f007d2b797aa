"""Files that are written: whole, or at their end, and never where another user leads them.

Whoever may write into a folder may put a link there, and so choose the file that is written to: for
root, any file of the machine. So links are followed here one by one, and only our own and root's.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import BinaryIO

OWN_FOLDER: Final = ".dlperf"
"""Holds what sessions keep for themselves: the logs of their runs, and the history."""

_UNFINISHED: Final = re.compile(r"\.dlperf-new-\w{8}")
_MAX_LINKS: Final = 40  # as on Linux
_ANYBODY: Final = 0o002
_OTHERS: Final = 0o022
looked_through: Final[set[Path]] = set()
"""Folders in which this process has looked for what killed ones have left."""


def user_name(number: int) -> str:
    """Name a user for a message, by number too."""
    try:
        return f"{pwd.getpwuid(number).pw_name} ({number})"
    except KeyError:
        return f"number {number}"


def destination(path: Path, *, is_folder: bool = False) -> Path:
    """Return where a file or folder lies that is to be written, behind all links of ours.

    Raises:
        OSError: Another user has put a link there, or a pipe. A link to a folder on the way is
            followed, unless we are root or it lies where anybody may put one.
    """
    here, rest, links = Path("/"), [*path.absolute().parts[1:]], 0
    while rest:
        name = rest.pop(0)
        if name == "..":
            here = here.parent
            continue
        place = here / name
        try:
            status = place.lstat()
        except FileNotFoundError:
            here = place
            continue
        if not stat.S_ISLNK(status.st_mode):
            here = place
            continue
        _check_link(place, status, names_file=not (rest or is_folder))
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = place.readlink()
        if place.exists() and not (here / target).exists():
            here = place  # the kernel's own, to what has no path: an unnamed pipe
            continue
        here = Path("/") if target.is_absolute() else here
        rest[:0] = target.parts[1:] if target.is_absolute() else target.parts
    _check_pipe(here)
    return here


def _check_link(link: Path, status: os.stat_result, *, names_file: bool) -> None:
    if not _is_foreign(status.st_uid):
        return
    folder = link.parent.stat()
    is_planted = folder.st_mode & _ANYBODY and folder.st_uid != status.st_uid
    if names_file or is_planted or os.geteuid() == 0:
        raise PermissionError(
            errno.EPERM,
            f"{link} is a link of user {user_name(status.st_uid)}, which is not followed; name the "
            "place itself, or have the link removed",
            str(link),
        )


def _check_pipe(path: Path) -> None:
    with suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISFIFO(status.st_mode) and _is_foreign(status.st_uid):
            raise PermissionError(
                errno.EPERM,
                f"{path} is a pipe of user {user_name(status.st_uid)}; name another place, or have "
                "it removed",
                str(path),
            )


def _is_foreign(owner: int) -> bool:
    return owner not in {0, os.geteuid()}


def is_stream(path: Path) -> bool:
    """Say whether it is neither file nor folder: a pipe, a terminal, ``/dev/null``."""
    return path.exists() and not path.is_file() and not path.is_dir()


def make_folder(folder: Path) -> None:
    """Make a folder with its parents; ``.dlperf`` keeps itself out of git."""
    destination(folder, is_folder=True)
    folder.mkdir(parents=True, exist_ok=True)
    for ours in (folder, *folder.parents):
        if ours.name == OWN_FOLDER:
            with suppress(FileExistsError), (ours / ".gitignore").open("xb") as file:
                file.write(b"*\n")


def open_at_end(path: Path, *, reads: bool = False) -> BinaryIO:
    """Open a file to add to it, and make it where there is none; ``reads`` allows reading too.

    Raises:
        OSError: It cannot be written, or another user may have chosen what is written to.
    """
    place = destination(path)
    flags = (os.O_RDWR if reads else os.O_WRONLY) | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    # A pipe that nobody reads is not waited for.
    descriptor = os.open(place, flags | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    file = os.fdopen(descriptor, "ab+" if reads else "ab")
    try:
        _check_names(place, os.fstat(descriptor))
        os.set_blocking(descriptor, True)
    except BaseException:
        file.close()
        raise
    return file


def _check_names(path: Path, status: os.stat_result) -> None:
    """Refuse a second name of some file, where another user may have given it that name."""
    if status.st_nlink < 2 or not stat.S_ISREG(status.st_mode):  # noqa: PLR2004 - one is its own
        return
    folder = path.parent.stat()
    if _is_foreign(folder.st_uid) or folder.st_mode & _OTHERS:
        raise PermissionError(
            errno.EPERM,
            f"{path} is a second name (a hard link) of a file, and others may write into its "
            "folder; have it removed",
            str(path),
        )


def write_into(path: Path, text: str) -> None:
    """Write to the end of what is no regular file; a pipe that nobody reads is not waited for."""
    try:
        descriptor = os.open(destination(path), os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(errno.ENXIO, "nobody reads this pipe", str(path)) from error
    # Somebody reads, however slowly.
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
        stream.write(text)


def write_whole(path: Path, text: str, *, is_private: bool = False) -> None:
    """Replace a file's content in one step: a reader sees the old text or the new one.

    A link of ours is followed, and what is no regular file (a pipe, ``/dev/stdout``) is written
    into. What ``is_private`` is the user's alone from its first byte on, and takes the place of a
    link.

    Raises:
        OSError: The folder cannot be made or written, or another user leads elsewhere; the old file
            stands. Or nobody reads a pipe.
    """
    if is_private:
        path = destination(path.parent, is_folder=True) / path.name
    else:
        path = destination(path)
        if is_stream(path):
            write_into(path, text)
            return
    if path.exists() and not os.access(path, os.W_OK):
        # The folder would allow it; who has protected the file would not.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    make_folder(path.parent)
    _remove_unfinished(path.parent)
    descriptor, temporary = _unfinished(path.parent)
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


def _mode_for(path: Path) -> int:
    """Give the rights that a file has, or that a new one usually gets; mkstemp's are private."""
    with suppress(FileNotFoundError):
        status = path.stat()
        # Whoever made the file may not have everybody write to the one that replaces it.
        return status.st_mode & (0o775 if _is_foreign(status.st_uid) else 0o777)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _unfinished(folder: Path) -> tuple[int, Path]:
    """Make a file that is locked for as long as it is written."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".dlperf-new-")
        file = Path(name)
        # A network's file system may lock no files; what is left of a kill stays there.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if file.exists():
            return descriptor, file
        os.close(descriptor)  # taken for left before it was locked


def _remove_unfinished(folder: Path) -> None:
    """Remove what processes have left in a folder that were killed while they wrote, once."""
    if folder in looked_through:
        return
    looked_through.add(folder)
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if _UNFINISHED.fullmatch(entry.name):
                _remove_unless_locked(Path(entry.path))


def _remove_unless_locked(file: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                file.unlink()
        finally:
            os.close(descriptor)
