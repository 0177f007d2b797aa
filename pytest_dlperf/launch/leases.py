"""Leases of hosts: whole gangs at once, across all sessions of a user on this machine.

They pack hosts before any is reached; what keeps two runs off a host, whoever starts them, are the
locks on the host itself (``node.host``).

A host is leased by a lock on a file, which the kernel frees with its process; the text in the file
says who holds it. The gang that waits holds the file ``turn`` in the same way. Nobody else takes a
host that it waits for, so that small gangs do not starve a large one.
"""

from __future__ import annotations

import fcntl
import math
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

from pytest_dlperf.launch.hosts import Host, Node
from pytest_dlperf.launch.remote_call import allow_connections
from pytest_dlperf.model.errors import BrokenError

_POLL_S: Final = 0.1


class _Holder(NamedTuple):
    """Who holds a lock, as the text in its file says."""

    session: str
    description: str
    hosts: frozenset[str]
    """Those that it waits for, where it holds the turn."""


class HostPool:
    """The hosts that all processes of a user on this machine share."""

    def __init__(self, folder: Path | None = None, *, session: str = "") -> None:
        """Share the pool in a folder, by default one of the user's among the temporary ones.

        It is in none of a login: that goes with the login, and its sessions may live on.
        ``session`` is what the workers of one have in common.
        """
        temporary = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - a folder that is another's is refused
        self._folder = folder or Path(temporary) / f"pytest-dlperf-hosts-{os.geteuid()}"
        self._session = session

    @contextmanager
    def leased(  # noqa: PLR0913 - what is wanted, by name
        self,
        hosts: Sequence[Host],
        *,
        nodes: int,
        devices: int,
        exclusive: bool = True,
        purpose: str = "",
        limit_s: float = math.inf,
        on_wait: Callable[[str], None] | None = None,
    ) -> Iterator[tuple[Node, ...]]:
        """Hold ``nodes`` of the hosts with ``devices`` devices each for the length of a block.

        They come in the order of ``hosts``, of which each is large enough; one without a number of
        devices has as many as wanted. ``exclusive``: nobody else uses any device of them, and the
        first ones are taken; otherwise the lowest devices that are free. ``purpose`` is for others
        who wait for the hosts. If they are not free at once, ``on_wait`` is called once with what
        is waited for, unless that is only other workers of this session.

        Raises:
            BrokenError: They were not free for ``limit_s`` seconds, or the pool cannot be used.
        """
        allow_connections(nodes)
        wanted = f"waiting for {nodes} of {len(hosts)} hosts with {devices} device(s)"
        deadline, is_told = time.monotonic() + limit_s, False
        with ExitStack() as held:
            with ExitStack() as turn:
                locks = _Locks(_private(self._folder), self._session, purpose, exclusive=exclusive)
                for look in count():
                    leased = locks.take(hosts, nodes, devices, held, turn)
                    if leased:
                        break
                    if time.monotonic() > deadline:
                        raise wait_timeout_error(limit_s, f"{wanted}: {locks.obstacles_text}")
                    # At the first look, another gang may just have been looking too.
                    if on_wait is not None and look and not is_told and locks.waits_for_others:
                        on_wait(f"{wanted}: {locks.obstacles_text}; {wait_hint(limit_s)}")
                        is_told = True
                    time.sleep(_POLL_S)
            yield leased


def wait_hint(limit_s: float) -> str:
    """Say how long a run waits, and how to do without."""
    return f"for {limit_s:g} s at most (--dlperf-wait-limit); --dlperf-hosts names other hosts"


def wait_timeout_error(limit_s: float, reason: str) -> BrokenError:
    """Make the error of a run whose hosts were not free in time."""
    return BrokenError(
        f"no hosts after {limit_s:g} s: {reason}; --dlperf-wait-limit sets how long a run may wait"
    )


class _Locks:
    """The locks of one gang, and who is in its way."""

    def __init__(self, folder: Path, session: str, purpose: str, *, exclusive: bool) -> None:
        self._folder = folder
        self._session = session
        self._who = f"process {os.getpid()}{f' for {purpose}' if purpose else ''}"
        self._exclusive = exclusive
        self._has_turn = False
        self._obstacles: dict[_Holder, list[str]] = {}
        """Who holds which of the hosts; none are of a gang that waits for them."""

    @property
    def obstacles_text(self) -> str:
        return "; ".join(
            f"{', '.join(hosts)} held by {holder.description}"
            if hosts
            else f"{holder.description} waits before it"
            for holder, hosts in self._obstacles.items()
        )

    @property
    def waits_for_others(self) -> bool:
        """Whether it waits for more than other workers of its session."""
        return not self._session or any(one.session != self._session for one in self._obstacles)

    def take(
        self, hosts: Sequence[Host], nodes: int, devices: int, held: ExitStack, turn: ExitStack
    ) -> tuple[Node, ...]:
        """Lock all hosts of the run; none, and give nothing, while others are in the way."""
        by_name = {host.address.lower().replace("/", "_"): host for host in hosts}
        self._obstacles = {}
        leased: list[Node] = []
        try:
            if not self._has_turn:
                waiting = self._taken(turn, "turn", *by_name)
                self._has_turn = waiting is None
                if waiting and (not waiting.hosts or waiting.hosts & by_name.keys()):
                    self._obstacles[waiting] = []
                    return ()
            with ExitStack() as tried:
                for name, host in by_name.items():
                    with ExitStack() as locks:
                        places = self._devices(locks, name, host, devices)
                        if places:
                            leased.append(Node(host=host, device_ids=places))
                            tried.enter_context(locks.pop_all())
                    if len(leased) == nodes:
                        held.enter_context(tried.pop_all())
                        return tuple(leased)
        except OSError as error:
            raise _unusable(error) from error
        return ()

    def _devices(
        self, locks: ExitStack, name: str, host: Host, devices: int
    ) -> tuple[int, ...] | None:
        """Lock as many devices of a host as a node has, if they are free."""
        # Runs that share a host keep away only who wants it alone.
        holder = self._taken(locks, f"{name}.lock", is_shared=not self._exclusive)
        if holder is None and self._exclusive:
            return tuple(range(devices))
        if holder is None:
            places: list[int] = []
            for place in count() if host.devices is None else range(host.devices):
                other = self._taken(locks, f"{name}.{place}.lock")
                holder = other or holder
                if other is None:
                    places.append(place)
                if len(places) == devices:
                    return tuple(places)
        if holder is not None:
            self._obstacles.setdefault(holder, []).append(host.address)
        return None

    def _taken(
        self, locks: ExitStack, name: str, *hosts: str, is_shared: bool = False
    ) -> _Holder | None:
        """Lock a file and write into it who holds it; where it is taken, give who does.

        Of those who share it, that is the last who came.
        """
        with ExitStack() as opened:
            path = self._folder / name
            file = opened.enter_context(path.open("a+", encoding="utf-8", errors="replace"))
            try:
                fcntl.flock(file, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                session, _, rest = file.read().partition("\n")
                description, *waited_for = rest.split("\n")
                return _Holder(session, description or "somebody", frozenset(waited_for))
            now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
            who = f"{self._who} since {now}, started in {Path.cwd()}"
            file.truncate(0)
            file.write("\n".join((self._session, who, *hosts)))
            file.flush()
            locks.enter_context(opened.pop_all())
        return None


def _private(folder: Path) -> Path:
    """Make the folder of the pool, and see that no other user can give hosts away."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid():
            folder.chmod(0o700)
            return folder
    except OSError as error:
        raise _unusable(error) from error
    raise BrokenError(
        f"hosts cannot be leased: {folder} is not a folder of this user; have it removed, or set "
        "TMPDIR to a folder that only you may enter"
    )


def _unusable(error: OSError) -> BrokenError:
    return BrokenError(f"hosts cannot be leased: {error.filename}: {error.strerror}")
