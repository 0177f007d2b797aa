"""A run's own folder on a node: made, locked, filled, and removed with all that is in it.

It is sent to a node as a part of the supervisor: so it imports the standard library only, and runs
on Python 3.6.
"""

import contextlib
import fcntl
import os
import re
import subprocess
import time

_NAME = re.compile(r"pytest-dlperf-[0-9a-f]{32}-[0-9]+$")
_STALE_S = 60.0
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
                _remove_stale(os.path.join(parent, other))  # noqa: PTH118 - as above
    os.mkdir(folder, 0o700)  # noqa: PTH102 - as above
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    # A network's file system may lock no folders. There nobody can take this one for left, either.
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(os.path.join(folder, _HOST), "w") as file:  # noqa: PTH118, PTH123 - as above
        file.write(os.uname().nodename)
    for name in ("scratch", "steps") if files else ("scratch",):
        os.mkdir(os.path.join(folder, name), 0o700)  # noqa: PTH102, PTH118 - as above
    for name, text in files.items():
        path = os.path.join(folder, "steps", name)  # noqa: PTH118 - as above
        with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - as above
            file.write(text)
    return lock


def put_in_front(environment: "dict[bytes, bytes]", folders: "list[bytes]") -> None:
    """Have Python look into these folders before those that ``PYTHONPATH`` names already."""
    if folders:
        own = environment.get(b"PYTHONPATH")
        environment[b"PYTHONPATH"] = b":".join([*folders, own] if own else folders)


def _remove_stale(folder: str) -> None:
    """Remove a run's folder of this user's on this host that nobody has locked."""
    with contextlib.suppress(OSError):
        path = os.path.join(folder, _HOST)  # noqa: PTH118 - as above
        with contextlib.suppress(FileNotFoundError), open(path) as file:  # noqa: PTH123 - as above
            if file.read() != os.uname().nodename:
                return
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            status = os.fstat(lock)
            # One that was made a moment ago may not be locked yet.
            if status.st_uid == os.getuid() and time.time() - status.st_ctime > _STALE_S:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(folder)
        finally:
            os.close(lock)


def remove(folder: str) -> "str | None":
    """Remove a folder of ours with all that is in it; where something is mounted there, say so."""
    mounted = _mounted_below(folder)
    if mounted:
        return "{} is left: {} is mounted there".format(folder, ", ".join(mounted))
    # The system's own tools know folders of any depth, and folders that may not be written.
    nothing = subprocess.DEVNULL
    for command in (["chmod", "-R", "u+rwx", "--", folder], ["rm", "-rf", "--", folder]):
        with contextlib.suppress(OSError):
            subprocess.call(command, stdin=nothing, stdout=nothing, stderr=nothing)  # noqa: S603
    return None


def _mounted_below(folder: str) -> "list[str]":
    """List what is mounted at or below a folder: its files lie elsewhere, and must stay."""
    points = []
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as file:  # noqa: PTH123
        for line in file:
            # Blanks, backslashes and the like are written as octal numbers.
            written = line.split()[4].decode("unicode_escape")
            points.append(os.fsdecode(written.encode("latin-1")))
    real = os.path.realpath(folder)
    return [point for point in points if point == real or point.startswith(real + "/")]
