"""Writes files whole or at their end, and never where another user leads.

A user who may write to a folder can put a link there, and so choose which file is written: for
root, any file of the machine. So links are followed one by one, and only our own and root's.
"""

from __future__ import annotations

import errno
import fcntl
import grp
import os
import pwd
import re
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing import BinaryIO

OWN_FOLDER: Final = ".dlperf"
"""Holds the logs of sessions, and the history."""

_UNFINISHED: Final = re.compile(r"\.dlperf-new-\w{8}")
_MAX_LINKS: Final = 40  # as on Linux
_WRITABLE_BY_ALL: Final = 0o002
_OTHERS: Final = 0o022
cleaned_up: Final[set[Path]] = set()
"""Folders in which this process has removed the unfinished files of killed ones."""


def user_name(number: int) -> str:
    """Name a user for a message, with the number."""
    try:
        return f"{pwd.getpwuid(number).pw_name} ({number})"
    except KeyError:
        return f"number {number}"


def destination(path: Path, *, is_folder: bool = False) -> Path:
    """Return where a file or folder to be written lies, behind all links.

    Raises:
        OSError: Another user owns one of the links, or a pipe there. A link to a folder on the way
            may be another user's, unless we are root or anybody may write to the folder it is in.
    """
    place = path.absolute()
    for _ in range(_MAX_LINKS + 1):
        link = next(filter(_is_link, (*reversed(place.parents), place)), None)
        if link is None:
            _check_pipe(place)
            return Path(os.path.normpath(place))
        _check_link(link, names_file=link == place and not is_folder)
        place = link.parent / link.readlink() / place.relative_to(link)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def destination_in_place(path: Path) -> Path:
    """Return ``destination`` of a file whose content is replaced, by others' code, not the file.

    Raises:
        OSError: As of ``destination``, or another user may have given the file this name.
    """
    place = destination(path)
    with suppress(FileNotFoundError):
        _check_names(place, place.lstat())
    return place


def _is_link(place: Path) -> bool:
    """Whether a place is a link to a path; the kernel's own to an unnamed pipe is none."""
    return place.is_symlink() and (not place.exists() or (place.parent / place.readlink()).exists())


def _check_link(link: Path, *, names_file: bool) -> None:
    owner, folder = link.lstat().st_uid, link.parent.stat()
    is_planted = folder.st_mode & _WRITABLE_BY_ALL and folder.st_uid != owner
    if _is_foreign(owner) and (names_file or is_planted or os.geteuid() == 0):
        raise PermissionError(
            errno.EPERM,
            f"{link} is a link of user {user_name(owner)}, which is not followed; name the place "
            "itself, or remove the link",
            str(link),
        )


def _check_pipe(path: Path) -> None:
    with suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISFIFO(status.st_mode) and _is_foreign(status.st_uid):
            raise PermissionError(
                errno.EPERM,
                f"{path} is a pipe of user {user_name(status.st_uid)}; name another place, or "
                "remove it",
                str(path),
            )


def _is_foreign(owner: int) -> bool:
    return owner not in {0, os.geteuid()}


def check_own(*places: Path) -> None:
    """Refuse what another user has made or may write to, before it decides what is run.

    Raises:
        PermissionError: One of the places is such; those that are missing are none.
    """
    for place in places:
        with suppress(FileNotFoundError):
            status = place.stat()
            mode = status.st_mode & (_WRITABLE_BY_ALL if _is_private(status.st_gid) else _OTHERS)
            if _is_foreign(status.st_uid):
                problem = f"belongs to user {user_name(status.st_uid)}"
            elif mode:
                problem = f"may be written by others; if you trust its content: chmod go-w {place}"
            else:
                continue
            text = f"{place} decides what is run as you, and {problem}"
            raise PermissionError(errno.EPERM, text, str(place))


def _is_private(group: int) -> bool:
    """Whether a group has only its user, as many systems make one for each, which may write."""
    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return False
    is_users = (found.gr_gid, found.gr_name) == (user.pw_gid, user.pw_name)
    return is_users and set(found.gr_mem) <= {user.pw_name}


def is_stream(path: Path) -> bool:
    """Whether it is neither file nor folder: a pipe, a terminal, ``/dev/null``."""
    return path.exists() and not path.is_file() and not path.is_dir()


def make_folder(folder: Path) -> None:
    """Make a folder with its parents; ``.dlperf`` gets a ``.gitignore``."""
    destination(folder, is_folder=True)
    folder.mkdir(parents=True, exist_ok=True)
    for ours in (folder, *folder.parents):
        if ours.name == OWN_FOLDER:
            with suppress(FileExistsError), (ours / ".gitignore").open("xb") as file:
                file.write(b"*\n")


def open_at_end(path: Path, *, reads: bool = False) -> BinaryIO:
    """Open a file to append to; make it if it is missing. ``reads`` allows reading too.

    Raises:
        OSError: It cannot be written, or another user may have chosen it.
    """
    place = destination(path)
    flags = (os.O_RDWR if reads else os.O_WRONLY) | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    # Do not wait for the reader of a pipe.
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
    """Refuse a hard link that another user may have made."""
    if status.st_nlink < 2 or not stat.S_ISREG(status.st_mode):  # noqa: PLR2004 - one is its own
        return
    folder = path.parent.stat()
    if _is_foreign(folder.st_uid) or folder.st_mode & _OTHERS:
        raise PermissionError(
            errno.EPERM,
            f"{path} is a second name (a hard link) of a file, and others may write into its "
            "folder; remove it",
            str(path),
        )


def write_into(path: Path, content: bytes) -> None:
    """Append to what is not a regular file, without waiting for the reader of a pipe."""
    try:
        descriptor = os.open(destination(path), os.O_WRONLY | os.O_NONBLOCK | os.O_APPEND)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise OSError(errno.ENXIO, "no process reads this pipe", str(path)) from error
    # There is a reader, however slow.
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)


def write_whole(path: Path, content: str | bytes, *, is_private: bool = False) -> None:
    """Replace a file's content in one step: a reader sees the old one or the new one.

    Links of ours are followed; a pipe or a device such as ``/dev/stdout`` is written to. A file
    that ``is_private`` is readable by the user alone from its first byte on, and replaces a link.

    Raises:
        OSError: The folder cannot be made or written, or another user leads elsewhere; the old file
            stands. Or a pipe has no reader.
    """
    data = content.encode("utf-8") if isinstance(content, str) else content
    if is_private:
        path = destination(path.parent, is_folder=True) / path.name
    else:
        path = destination(path)
        if is_stream(path):
            write_into(path, data)
            return
    if path.exists() and not os.access(path, os.W_OK):
        # The folder would allow it, but the file is protected.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    make_folder(path.parent)
    if path.parent not in cleaned_up:
        cleaned_up.add(path.parent)
        remove_left_over(path.parent, _UNFINISHED)
    descriptor, temporary = _unfinished(path.parent)
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
        status = path.stat()
        # A foreign owner may not have made it writable for all users.
        return status.st_mode & (0o775 if _is_foreign(status.st_uid) else 0o777)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _unfinished(folder: Path) -> tuple[int, Path]:
    """Make a file that is locked while it is written."""
    while True:
        descriptor, name = tempfile.mkstemp(dir=folder, prefix=".dlperf-new-")
        file = Path(name)
        # Without locks, as on some network disks, an unfinished file stays after a kill.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if file.exists():
            return descriptor, file
        os.close(descriptor)  # removed by another process before it was locked


def remove_left_over(folder: Path, names: re.Pattern[str]) -> None:
    """Remove our files and folders of these names that no process locks: a kill left them."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if names.fullmatch(entry.name):
                _remove_unless_locked(Path(entry.path))


def _remove_unless_locked(place: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if status.st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISDIR(status.st_mode):
                    shutil.rmtree(place, ignore_errors=True)
                else:
                    place.unlink()
        finally:
            os.close(descriptor)
