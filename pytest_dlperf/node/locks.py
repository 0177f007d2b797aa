"""Locks of a host: names that a process holds; who holds one that is taken can be asked."""

import contextlib
import errno
import os
import socket
import struct
import sys

_CONNECT_LIMIT_S = 0.5
_CREDENTIALS = struct.Struct("3i")  # process, user and group
_NETLINK_SOCK_DIAG = 4
_BY_FAMILY = 20  # SOCK_DIAG_BY_FAMILY
_REQUEST = struct.Struct("=IHHII BBHIIIII")  # nlmsghdr, unix_diag_req
_SHOW_UID = 0x40
_ANY = 0xFFFFFFFF
_MESSAGE = struct.Struct("=16x BBBxI8x")  # nlmsghdr, unix_diag_msg
_ATTRIBUTE = struct.Struct("=HH")
_UID = 7  # UNIX_DIAG_UID
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
    """Say which process of which user holds a name, as far as the system lets us see it."""
    inode = _inode_of(name)
    if inode is None:
        return "nobody can say who"
    # A holder is asked once: it hears nobody, and so only so many can ask it.
    if inode not in _known:
        process, user = _by_connection(name)
        if user is None:
            process, user = _process_with(inode), _user_of(inode)
        said = [] if user is None else [f"user {_user_name(user)}"]
        if process:
            said.append(f"process {process}{_program(process)}")
        _known[inode] = ", ".join(said) or "nobody can say who"
    return _known[inode]


def _by_connection(name: str) -> "tuple[int | None, int | None]":
    """Ask whoever listens at the name, as our own do: the system vouches for process and user."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as asking:
        asking.settimeout(_CONNECT_LIMIT_S)
        asking.connect(name)
        answer = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        process, user, _ = _CREDENTIALS.unpack(answer)
        return process, user
    return None, None


def _inode_of(name: str) -> "int | None":
    """Find the socket of a name, which is written with ``@`` for the NUL in front of it."""
    wanted = b"@" + os.fsencode(name[1:])
    with contextlib.suppress(OSError, ValueError), open("/proc/net/unix", "rb") as file:  # noqa: PTH123 - no pathlib
        for line in file:
            fields = line.split(None, 7)
            # Those who have asked the holder stand there as well, without a number.
            if fields[7:] == [wanted + b"\n"] and fields[6] != b"0":
                return int(fields[6])
    return None


def _process_with(inode: int) -> "int | None":
    """Find the process that has a socket open: root finds all, others their own."""
    link = f"socket:[{inode}]"
    for number in os.listdir("/proc"):  # noqa: PTH208 - as above
        with contextlib.suppress(OSError, ValueError):
            folder = f"/proc/{int(number)}/fd"
            for descriptor in os.listdir(folder):  # noqa: PTH208 - as above
                with contextlib.suppress(OSError):
                    if os.readlink(f"{folder}/{descriptor}") == link:  # noqa: PTH115 - as above
                        return int(number)
    return None


def _user_of(inode: int) -> "int | None":
    """Ask the kernel whose socket it is, which it tells everybody, from version 5.3 on."""
    request = _REQUEST.pack(
        *(_REQUEST.size, _BY_FAMILY, 1, 1, 0),
        *(socket.AF_UNIX, 0, 0, _ANY, inode, _SHOW_UID, _ANY, _ANY),
    )
    with contextlib.suppress(OSError, AttributeError, struct.error):
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as asking:
            asking.settimeout(_CONNECT_LIMIT_S)
            asking.send(request)
            answer = asking.recv(8192)
        if _MESSAGE.unpack_from(answer)[0] != socket.AF_UNIX:
            return None
        at = _MESSAGE.size
        while at + _ATTRIBUTE.size <= len(answer):
            length, kind = _ATTRIBUTE.unpack_from(answer, at)
            if kind == _UID:
                return int(struct.unpack_from("=I", answer, at + _ATTRIBUTE.size)[0])
            at += max(4, (length + 3) // 4 * 4)
    return None


def _user_name(number: int) -> str:
    with contextlib.suppress(ImportError, KeyError):
        import pwd

        return f"{pwd.getpwuid(number).pw_name} ({number})"
    return f"number {number}"


def _program(process: int) -> str:
    """Name a process by its program; its arguments may hold what is nobody's business."""
    path = f"/proc/{process}/comm"
    with contextlib.suppress(OSError), open(path, errors="replace") as file:  # noqa: PTH123 - as above
        return f" ({file.read().strip()})"
    return ""
