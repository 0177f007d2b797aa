"""How the processes of a run find each other, and agree on what they train, before each step."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

Endpoint = tuple[str, int]

MEETINGS = "SEED_MEETINGS"
"""Environment variable: the file that has one line for each run whose processes have all met."""

_LIMIT_S = 120.0
_RETRY_S = 0.01
# What real steps take is declared; between two there is a moment for others on the machine.
_PAUSE_S = 0.001


class Meeting:
    """The connections between rank 0 and all others."""

    def __init__(self, rank: int, others: Sequence[socket.socket]) -> None:
        """Take rank 0's connections to the others, or another's single one to rank 0."""
        self._rank = rank
        self._others = list(others)

    @classmethod
    def at_master(cls, rank: int, world_size: int, master: Endpoint) -> Meeting:
        """Meet where rank 0 listens, as PyTorch's processes do."""
        if rank:
            return cls(rank, [_connected(master)])
        with _listening(master, world_size) as server:
            return cls(0, [server.accept()[0] for _ in range(world_size - 1)])

    @classmethod
    def at_endpoints(cls, rank: int, endpoints: Sequence[Endpoint]) -> Meeting:
        """Meet where each listens at an endpoint of its own; rank 0 goes to all of them."""
        with _listening(endpoints[rank], 1) as server:
            if rank:
                return cls(rank, [server.accept()[0]])
            return cls(0, [_connected(endpoint) for endpoint in endpoints[1:]])

    def agree(self, said: dict[str, Any], *, place: dict[str, Any]) -> None:
        """Check that all processes train the same, each rank once; rank 0 leaves a record.

        ``said`` has to be the same for all, ``place`` says where this process is.

        Raises:
            RuntimeError: They do not, or there are two of one rank.
        """
        own = {"rank": self._rank, "said": said, "place": place}
        if self._rank:
            _send(self._others[0], own)
            if (problem := _receive(self._others[0])) is not None:
                raise RuntimeError(problem)
            return
        all_of_them = sorted(
            [own, *(_receive(other) for other in self._others)], key=lambda one: int(one["rank"])
        )
        problem = None
        if [one["rank"] for one in all_of_them] != list(range(len(all_of_them))):
            problem = f"these are no ranks: {[one['rank'] for one in all_of_them]}"
        if any(one["said"] != said for one in all_of_them):
            problem = f"not all train the same: {[one['said'] for one in all_of_them]}"
        for other in self._others:
            _send(other, problem)
        if problem is not None:
            raise RuntimeError(problem)
        record = {**said, "places": [one["place"] for one in all_of_them]}
        with Path(os.environ[MEETINGS]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def step(self) -> None:
        """Wait until all have come as far.

        Raises:
            ConnectionError: One of them is gone.
        """
        if not self._rank:
            time.sleep(_PAUSE_S)
        for other in self._others:
            if self._rank:
                other.sendall(b"+")
            _read(other)
        if not self._rank:
            for other in self._others:
                other.sendall(b"+")


def _listening(endpoint: Endpoint, backlog: int) -> socket.socket:
    """A server there, and not at any other address of the machine."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.settimeout(_LIMIT_S)
    server.bind(endpoint)
    server.listen(backlog)
    return server


def _connected(endpoint: Endpoint) -> socket.socket:
    """A connection to a server that need not be there yet."""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        with suppress(ConnectionRefusedError):
            return socket.create_connection(endpoint, timeout=_LIMIT_S)
        if time.monotonic() > deadline:
            raise TimeoutError(f"nobody listens at {endpoint}")
        time.sleep(_RETRY_S)


def _send(to: socket.socket, message: object) -> None:
    to.sendall(json.dumps(message).encode() + b"\n")


def _receive(of: socket.socket) -> Any:
    received = b""
    while not received.endswith(b"\n"):
        received += _read(of)
    return json.loads(received)


def _read(of: socket.socket) -> bytes:
    of.settimeout(_LIMIT_S)
    received = of.recv(1)
    if not received:
        raise ConnectionError("another process of the run is gone")
    return received


def endpoint_of(text: str) -> Endpoint:
    """Read ``address:port``."""
    address, _, port = text.rpartition(":")
    return address, int(port)


def visible_devices() -> list[int]:
    """The devices that this process may use, as CUDA has it."""
    devices = [int(device) for device in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
    if len(set(devices)) != len(devices):
        raise ValueError(f"a device is named twice: {devices}")
    return devices
