"""Free ports that two test workers never both take."""

from __future__ import annotations

import os
import socket

# Below the ports that the kernel hands out itself, so that no connection takes one in between.
_FIRST = 10_000
_PER_WORKER = 1_000
_WORKERS = 20


def worker_number(worker_id: str) -> int:
    """The number of an xdist worker: ``gw3`` has 3, and 0 is a process without workers."""
    digits = worker_id.removeprefix("gw")
    return int(digits) if digits.isdigit() else 0


def free_ports(count: int, *, worker: int) -> list[int]:
    """Some ports, in a row, that nobody listens on at any address, out of those of a worker."""
    first = _FIRST + worker % _WORKERS * _PER_WORKER
    # Another session with a worker of the same number most likely begins elsewhere.
    offset = os.getpid() * 16
    for number in range(_PER_WORKER // count):
        start = first + (offset + number * count) % (_PER_WORKER - count)
        ports = list(range(start, start + count))
        if all(_is_free(port) for port in ports):
            return ports
    raise OSError(f"no {count} free ports in a row from {first} to {first + _PER_WORKER}")


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        try:
            candidate.bind(("", port))
        except OSError:
            return False
    return True
