"""Locks of a host: names that a process holds; who holds one that is taken can be asked."""

import contextlib
import errno
import os
import socket
import struct
import sys

_CONNECT_LIMIT_S = 0.5
_CREDENTIALS = struct.Struct("3i")  # process, user and group
_WAITING = 128
"""So many may ask one holder who it is."""

_known = {}  # type: dict[int, str]
"""Holders that were asked by now, by the number of their socket."""


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
    """Say which process of which user holds a name, if it is one of ours."""
    inode = _inode_of(name)
    if inode is None:
        return "nobody can say who"
    # Ask once: a holder accepts no connection, and its listen backlog is finite.
    if inode not in _known:
        _known[inode] = _by_connection(name) or "nobody can say who"
    return _known[inode]


def _by_connection(name: str) -> "str | None":
    """Ask whoever listens at the name, as our own do: the system vouches for process and user."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_CONNECT_LIMIT_S)
        asking.connect(name)
        answer = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, user, _ = _CREDENTIALS.unpack(answer)
        who = f"process {process}{_program(process)}" if process else "in another PID namespace"
        return f"user {_user_name(user)}, {who}"
    return None


def _inode_of(name: str) -> "int | None":
    """Find the socket of a name, which is written with ``@`` for the NUL in front of it."""
    wanted = b"@" + os.fsencode(name[1:])
    with contextlib.suppress(OSError, ValueError), open("/proc/net/unix", "rb") as file:
        for line in file:
            fields = line.split(None, 7)
            # Those who have asked the holder stand there as well, without a number.
            if fields[7:] == [wanted + b"\n"] and fields[6] != b"0":
                return int(fields[6])
    return None


def _user_name(number: int) -> str:
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        return f"{pwd.getpwuid(number).pw_name} ({number})"
    return f"number {number}"


def _program(process: int) -> str:
    """Name a process by its program; its arguments may hold what is nobody's business."""
    path = f"/proc/{process}/comm"
    with contextlib.suppress(OSError), open(path, errors="replace") as file:
        return f" ({file.read().strip()})"
    return ""
