"""What a host keeps for a run: ports, until a server of the run takes them."""

import errno
import socket


def held_port(*, ipv6: bool) -> "socket.socket":
    """Hold any port that is free.

    Bound, but without listening: the kernel gives the port to no process that asks for any, but to
    a server that asks for this one with SO_REUSEADDR, as such servers do.
    """
    holder = _socket(ipv6=ipv6)
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("", 0))
    return holder


def held_range(first: int, count: int, address: str, *, ipv6: bool) -> "list[socket.socket] | None":
    """Hold so many ports in a row, all of which have to be free; ``None`` if one is not.

    They are held at one ``address``, or at all where it is empty.
    """
    holders = []
    for port in range(first, first + count):
        holder = _socket(ipv6=ipv6)
        holders.append(holder)
        try:
            # Without SO_REUSEADDR first: what another run holds is not free either.
            holder.bind((address, port))
        except OSError as error:
            for one in holders:
                one.close()
            if error.errno == errno.EADDRINUSE:
                return None
            raise
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return holders


def _socket(*, ipv6: bool) -> "socket.socket":
    return socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET)
