"""A run's own folder on a node: made, locked, filled, and removed with all that is in it."""

import contextlib
import errno
import fcntl
import os
import re
import stat
import time

_NEW = ".new"
_NAME = re.compile(r"pytest-dlperf-[0-9a-f]{32}-[0-9]+(?:\.new)?$")
_STALE_S = 60.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_LONGEST_NAME = 256
_LONGEST_TEMPORARY = 70
"""Bytes of a TMPDIR in which programs still find room for a socket, whose path has at most 107."""
_HOST = "host"
"""File in a run's folder: whose it is, where several hosts see the same disk."""


def made_folder(folder: str, files: "dict[str, str]") -> int:
    """Make a run's folder on this host, locked while this process lives, which the lock is of.

    In it are an empty folder ``scratch``, and these files, where there are any, in ``steps``. What
    runs have left whose supervisors are gone is removed first.
    """
    parent, name = os.path.split(folder)
    with contextlib.suppress(OSError):
        for other in os.listdir(parent):  # noqa: PTH208 - importing pathlib takes long
            if _NAME.match(other) and other != name:
                # One that is new may not be locked yet.
                least_age_s = _STALE_S if other.endswith(_NEW) else 0.0
                _remove_stale(os.path.join(parent, other), least_age_s)  # noqa: PTH118 - as above
    if os.path.lexists(folder):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), folder)
    os.mkdir(folder + _NEW, 0o700)  # noqa: PTH102 - as above
    lock = os.open(folder + _NEW, _FOLDER)
    # A network's file system may lock no folders; then no other run takes this one for left.
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    _write(lock, _HOST, os.uname().nodename)
    os.rename(folder + _NEW, folder)  # noqa: PTH104 - as above
    for name in ("scratch", "steps") if files else ("scratch",):
        os.mkdir(name, 0o700, dir_fd=lock)
    if files:
        steps = os.open("steps", _FOLDER, dir_fd=lock)
        for name, text in files.items():
            _write(steps, name, text)
        os.close(steps)
    return lock


def _write(folder: int, name: str, text: str) -> None:
    """Write a new file of an open folder."""
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=folder)
    with os.fdopen(file, "w", encoding="ascii") as opened:
        opened.write(text)


def shorten_temporary(environment: "dict[bytes, bytes]", folder: "bytes | None") -> None:
    """Move a TMPDIR that is too long for the sockets of a program into the run's folder.

    The workers of PyTorch's DataLoader hand over their batches by such sockets. Where one cannot be
    made, they print an error and the training waits for ever.
    """
    given = environment.get(b"TMPDIR", b"")
    if folder is None or len(given) <= max(_LONGEST_TEMPORARY, len(folder) + len(b"/tmp")):
        return
    environment[b"TMPDIR"] = folder + b"/tmp"
    os.mkdir(environment[b"TMPDIR"], 0o700)  # noqa: PTH102 - importing pathlib takes long


def put_in_front(environment: "dict[bytes, bytes]", folders: "list[bytes]") -> None:
    """Have Python look into these folders before those that ``PYTHONPATH`` names already."""
    if folders:
        own = environment.get(b"PYTHONPATH")
        environment[b"PYTHONPATH"] = b":".join([*folders, own] if own else folders)


def _remove_stale(folder: str, least_age_s: float) -> None:
    """Remove a run's folder of this user's on this host that is not locked."""
    with contextlib.suppress(OSError):
        lock = os.open(folder, _FOLDER)
        try:
            status = os.fstat(lock)
            # Nothing is read of what another user has put there.
            is_old = time.time() - status.st_ctime >= least_age_s
            if status.st_uid == os.geteuid() and is_old and _host_of(lock) == os.uname().nodename:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(folder)
        finally:
            os.close(lock)


def _host_of(folder: int) -> str:
    """Read whose a run's folder is; one of a run that ended before it said so was made here.

    Nothing is believed that another user may have put there, such as a link to a file of ours.
    """
    try:
        file = os.open(_HOST, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return os.uname().nodename
    try:
        status = os.fstat(file)
        is_ours = status.st_uid == os.geteuid() and status.st_nlink == 1
        if is_ours and stat.S_ISREG(status.st_mode):
            return os.fsdecode(os.read(file, _LONGEST_NAME)) or os.uname().nodename
    finally:
        os.close(file)
    return ""


def remove(folder: str) -> "str | None":
    """Remove a folder of ours with all that is in it; where some of it has to stay, say why.

    A link is removed, wherever it leads to: nothing is touched that lies elsewhere.
    """
    mounted = _mounted_below(folder)
    if mounted:
        return "{} is left: {} is mounted there".format(folder, ", ".join(mounted))
    parent, name = os.path.split(folder)
    try:
        above = os.open(parent or ".", os.O_RDONLY | os.O_DIRECTORY)
        kept = _remove_below(above, [name])
    except FileNotFoundError:
        return None
    except OSError as error:
        kept = error
    return None if kept is None else f"{folder} is left: {kept.filename}: {kept.strerror}"


def _remove_below(here: int, names: "list[str]") -> "OSError | None":
    """Remove these entries of a folder, which is closed, and all below; say why one had to stay.

    Only the innermost folder is open: a tree may be deeper than a process may have files.
    """
    kept = []  # type: list[OSError]
    levels = [_folders_among(here, names, kept)]
    above = []  # type: list[tuple[int, int]]
    try:
        while levels[0]:
            if levels[-1]:
                try:
                    below = _entered(here, levels[-1][-1])
                except OSError as error:
                    kept.append(error)
                    levels[-1].pop()
                    continue
                above.append(_identity(here))
                os.close(here)
                here = below
                levels.append(_folders_among(here, os.listdir(here), kept))  # noqa: PTH208 - as above
            else:
                up = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
                os.close(here)
                here = up
                if _identity(here) != above.pop():
                    raise OSError(errno.ESTALE, "it was moved", levels[-2][-1])
                levels.pop()
                try:
                    os.rmdir(levels[-1].pop(), dir_fd=here)
                except OSError as error:
                    kept.append(error)
    finally:
        os.close(here)
    return kept[0] if kept else None


def _folders_among(folder: int, names: "list[str]", kept: "list[OSError]") -> "list[str]":
    """Remove those entries of an open folder that are no folders, and return the others."""
    return [name for name in names if not _is_removed(folder, name, kept)]


def _is_removed(folder: int, name: str, kept: "list[OSError]") -> bool:
    """Remove an entry unless it is a folder; false where it is one."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError as error:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                return False
            kept.append(error)
    return True


def _entered(above: int, name: str) -> int:
    """Open a folder in another one, with the right to empty it."""
    try:
        folder = os.open(name, _FOLDER, dir_fd=above)
    except PermissionError:
        # Ours, and closed even to us. Linux alone opens it nevertheless, to have it changed.
        known = os.open(name, os.O_PATH | _FOLDER, dir_fd=above)
        try:
            os.chmod(f"/proc/self/fd/{known}", 0o700)  # noqa: PTH101 - as above
        finally:
            os.close(known)
        folder = os.open(name, _FOLDER, dir_fd=above)
    with contextlib.suppress(OSError):
        os.fchmod(folder, 0o700)
    return folder


def _identity(folder: int) -> "tuple[int, int]":
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _mounted_below(folder: str) -> "list[str]":
    """List what is mounted at or below a folder: its files lie elsewhere, and must stay."""
    points = []
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as file:  # noqa: PTH123
        for line in file:
            # Blanks, backslashes and the like are written as octal numbers.
            written = line.split()[4].decode("unicode_escape")
            points.append(os.fsdecode(written.encode("latin-1")))
    parent, name = os.path.split(folder)
    real = os.path.join(os.path.realpath(parent), name)  # noqa: PTH118 - as above
    return [point for point in points if point == real or point.startswith(real + "/")]
