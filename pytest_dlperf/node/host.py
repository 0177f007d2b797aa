"""What a run has of its host: locks that exclude other runs, and a folder of its own."""

import contextlib
import errno
import fcntl
import os
import re
import socket
import struct
import sys
import time
from collections.abc import Mapping

_CONNECT_LIMIT_S = 0.5
_CREDENTIALS = struct.Struct("3i")  # process, user and group
_WAITING = 4096
"""So many may ask one holder who it is, which accepts none of them."""
_NEW = ".new"
_NAME = re.compile(r"pytest-dlperf-[0-9a-f]+-[0-9]+-(.+?)(?:\.new)?$")
_STALE_S = 60.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW


def acquire_socket_lock(name: str) -> "socket.socket | None":
    """Acquire a lock of this machine, which the kernel frees with this process; ``None`` if taken.

    The holder listens at the name, without accepting, so that others can ask for process and user.
    """
    holder = socket.socket(socket.AF_UNIX)
    # No other system has names that end with their process.
    if sys.platform.startswith("linux"):
        try:
            holder.bind(name)
            holder.listen(_WAITING)
        except OSError as error:
            holder.close()
            if error.errno == errno.EADDRINUSE:
                return None
            raise
    return holder


def holder_of(name: str) -> str:
    """Say which process of which user holds a name: the system vouches for who listens there."""
    import pwd  # takes a while, and only where somebody waits

    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_CONNECT_LIMIT_S)
        asking.connect(name)
        answer = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, user, _ = _CREDENTIALS.unpack(answer)
        who, where = f"user number {user}", "in another PID namespace"
        with contextlib.suppress(KeyError):
            who = f"user {pwd.getpwuid(user).pw_name} ({user})"
        if process:
            where = f"process {process}"
            # Its arguments may hold what is nobody's business.
            with contextlib.suppress(OSError), open(f"/proc/{process}/comm", "rb") as file:
                where += f" ({os.fsdecode(file.read().strip())})"
        return f"{who}, {where}"
    return "nobody can say who"


def made_folder(folder: str, files: "Mapping[str, str]") -> int:
    """Make a run's folder on this host, locked while this process lives, which the lock is of.

    In it are an empty folder ``scratch``, and these files, where there are any, in ``steps``. What
    runs have left whose supervisors are gone is removed first, unless it has another host's name:
    where several see the same disk, its lock may not be seen from here.
    """
    parent, name = os.path.split(folder)
    own = _NAME.match(name)
    with contextlib.suppress(OSError):
        for other in os.listdir(parent):
            found = _NAME.match(other)
            if found and own and found.group(1) == own.group(1) and other != name:
                # One that is new may not be locked yet.
                least_age_s = _STALE_S if other.endswith(_NEW) else 0.0
                _remove_stale(os.path.join(parent, other), least_age_s)
    if os.path.lexists(folder):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), folder)
    os.mkdir(folder + _NEW, 0o700)
    lock = os.open(folder + _NEW, _FOLDER)
    # A network's file system may lock no folders; then no other run takes this one for left.
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.rename(folder + _NEW, folder)
    os.mkdir(folder + "/scratch", 0o700)
    if files:
        os.mkdir(folder + "/steps", 0o700)
    for file, text in files.items():
        with open(f"{folder}/steps/{file}", "w", encoding="ascii") as opened:
            opened.write(text)
    return lock


def _remove_stale(folder: str, least_age_s: float) -> None:
    """Remove a run's folder of this user's that is not locked."""
    with contextlib.suppress(OSError):
        lock = os.open(folder, _FOLDER)
        try:
            status = os.fstat(lock)
            if status.st_uid == os.geteuid() and time.time() - status.st_ctime >= least_age_s:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(folder)
        finally:
            os.close(lock)


def remove(folder: str) -> "str | None":
    """Remove a folder of ours with all that is in it; where some of it has to stay, say why.

    Nothing is touched that lies elsewhere, and links lead to.
    """
    import shutil  # takes a while, and only in the end

    points = []
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            # Blanks, backslashes and the like are written as octal numbers.
            written = line.split()[4].decode("unicode_escape")
            points.append(os.fsdecode(written.encode("latin-1")))
    parent, name = os.path.split(folder)
    real = os.path.join(os.path.realpath(parent), name)
    # What is mounted there lies elsewhere.
    mounted = [point for point in points if point == real or point.startswith(real + "/")]
    if mounted:
        return "{} is left: {} is mounted there".format(folder, ", ".join(mounted))
    try:
        shutil.rmtree(folder, ignore_errors=True)
        if os.path.lexists(folder):
            shutil.rmtree(folder)  # for the reason
    except (OSError, RecursionError) as error:
        return f"{folder} is left: {error}"
    return None
