"""Leases of hosts: whole gangs at once, first come first served, across all sessions of a user.

They keep order and pack hosts before any is reached; what keeps two runs off a host, whoever starts
them, are the locks on the host itself (``node.locks``).

The pool is a folder. Each claim on hosts is a file in it, locked by its process from the first
moment to the last: the kernel ends the lock with the process, and a claim whose lock is free is
void. The names of the files give the order of arrival. Each process grants itself what is free, in
its turn, and holds ``pool.lock`` for that moment. Polling for a file lock is unfair, so nobody
waits for hosts with it.

A process that is killed between two steps leaves nothing that needs mending.
"""

from __future__ import annotations

import fcntl
import math
import os
import pwd
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.files.locks import LockError, locked
from pytest_dlperf.launch.claims import Claim, are_workers, grantable, waited_for
from pytest_dlperf.model.errors import BrokenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_dlperf.launch.hosts import Host

_NAME: Final = "pytest-dlperf-hosts"
_NAMES: Final = 20
"""So many names another user would have to take to have nothing leased any more."""
_POLL_S: Final = 0.01
"""Each waiting process looks so often whether a claim has changed; that is all it costs."""
_CHECK_S: Final = 0.5
"""All waiting processes together look so often for processes that have died."""
_LOCK_LIMIT_S: Final = 60.0
"""A process holds the pool for a moment; one that was stopped may hold it for ever."""


class Lease(Struct, frozen=True, kw_only=True):
    """A host that is this run's for a while, and which of its devices."""

    host: Host
    device_ids: tuple[int, ...]


class HostPool:
    """The hosts that all processes of a user on this machine share."""

    def __init__(
        self, place: Path | Callable[[], Path], *, lock: str = "", session: str = ""
    ) -> None:
        """Share the pool in a folder, which is made when needed and belongs to the pool alone.

        ``place`` may be a function that finds it, for one that may go while this process lives.
        Leases under another ``lock`` are no reason to wait. ``session`` is what the workers of one
        have in common.
        """
        self._lock = lock
        self._session = session
        self._find = place if callable(place) else lambda: place

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
    ) -> Iterator[tuple[Lease, ...]]:
        """Hold ``nodes`` of the hosts with ``devices`` devices each for the length of a block.

        They come in the order of ``hosts``; one without a number of devices has as many as wanted.
        ``exclusive``: nobody else uses any device of them, and the first ones are taken; otherwise
        the lowest devices that are free. Who waits comes before who asks later for any of the same
        hosts. ``purpose`` is for others who wait for it. If the hosts are not free at once,
        ``on_wait`` is called once with what is waited for, unless these are but the other workers
        of this session.

        Raises:
            BrokenError: They were not free for ``limit_s`` seconds, or the pool cannot be used.
        """
        usable = _usable(hosts, nodes, devices, self._lock)
        claim = Claim(
            pid=os.getpid(),
            since=time.time(),
            purpose=purpose,
            started_in=os.getcwd(),  # noqa: PTH109 - text is what is kept
            session=self._session,
            nodes=nodes,
            devices=devices,
            exclusive=exclusive,
            candidates={key: host.devices for key, host in usable.items()},
        )
        own = _ClaimFile()
        try:
            granted = self._granted(own, claim, limit_s, on_wait)
            yield tuple(
                Lease(host=host, device_ids=granted[key])
                for key, host in usable.items()
                if key in granted
            )
        finally:
            own.remove()

    def _granted(
        self,
        own: _ClaimFile,
        claim: Claim,
        limit_s: float,
        on_wait: Callable[[str], None] | None,
    ) -> Mapping[str, tuple[int, ...]]:
        deadline = time.monotonic() + limit_s
        what_for, seen = "", -1
        while True:
            # A change while this process looks is seen the next time.
            before, seen = seen, _changed_at(own.folder)
            if before != seen or _check_is_due(own.folder):
                is_first = not what_for
                granted, what_for, is_news = self._look(own, claim)
                if granted is not None:
                    return granted
                if is_first and is_news and on_wait is not None:
                    on_wait(f"{what_for}; {how_to_go_on(limit_s)}")
            if time.monotonic() > deadline:
                raise waited_in_vain(limit_s, what_for)
            time.sleep(_POLL_S)

    def _look(
        self, own: _ClaimFile, claim: Claim
    ) -> tuple[Mapping[str, tuple[int, ...]] | None, str, bool]:
        """Look at all claims, and take what is free in this one's turn.

        Gives what was granted, or for what it waits, and whether people should know.
        """
        if own.folder is not None and not own.folder.exists():
            # The system removes the folder that it keeps for a user who has logged out.
            own.remove()
        folder = own.folder or self._find()
        try:
            _make_private(folder)
            with locked(folder / "pool.lock", limit_s=_LOCK_LIMIT_S):
                os.utime(folder / "pool.lock")  # for _check_is_due
                if own.folder is None:
                    own.make(folder, claim)
                claims = _living(folder)
                others = [each for name, each in claims.items() if name != own.name]
                earlier = [each for name, each in claims.items() if name < own.name]
                granted = grantable(claim, earlier, others)
                if granted is None:
                    what_for = waited_for(claim, earlier, others)
                    return None, what_for, not are_workers(claim, others)
                own.write(replace(claim, since=time.time(), granted=granted))
                return granted, "", False
        except LockError as error:
            raise BrokenError(f"hosts cannot be leased: {error}") from error
        except OSError as error:
            raise BrokenError(
                f"hosts cannot be leased: {error.filename or folder}: {error.strerror or error}"
            ) from error


def how_to_go_on(limit_s: float) -> str:
    """Say how long a run waits, and how to do without."""
    return f"for {limit_s:g} s at most (--dlperf-wait-limit); --dlperf-hosts names other hosts"


def waited_in_vain(limit_s: float, what_for: str) -> BrokenError:
    """Make the error of a run whose hosts were not free in time."""
    return BrokenError(
        f"no hosts after {limit_s:g} s: {what_for}; --dlperf-wait-limit sets how long a run may "
        "wait"
    )


class _ClaimFile:
    """The file of a claim of this process, locked as long as it is there."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.name = ""
        self._file = -1

    def make(self, folder: Path, claim: Claim) -> None:
        """Make the file, behind all that are there."""
        name = f"claim-{time.time_ns():020d}-{os.getpid()}"
        self._file = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        self.folder, self.name = folder, name
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.write(claim)

    def write(self, claim: Claim) -> None:
        """Write the claim, while no other process reads it."""
        text = msgspec.json.encode(claim)
        os.pwrite(self._file, text, 0)
        os.ftruncate(self._file, len(text))
        self._show_change()

    def remove(self) -> None:
        """Remove the file, and with it the claim."""
        if self.folder is not None:
            with suppress(OSError):
                (self.folder / self.name).unlink()
                self._show_change()
            os.close(self._file)
            self.folder = None

    def _show_change(self) -> None:
        """Set the time of the folder: the kernel's own is the same for some milliseconds."""
        if self.folder is not None:
            now = time.time_ns()
            os.utime(self.folder, ns=(now, now))


def _living(folder: Path) -> dict[str, Claim]:
    """Read the claims of processes that live, in their order; remove those of others.

    A claim that is not legible keeps no place: the locks on the hosts hold all the same.
    """
    claims = {}
    for path in sorted(folder.glob("claim-*")):
        with suppress(FileNotFoundError), path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink()
            except BlockingIOError:
                with suppress(msgspec.MsgspecError):
                    claims[path.name] = msgspec.json.decode(file.read(), type=Claim)
    return claims


def _changed_at(folder: Path | None) -> int:
    """Give the time at which a claim has changed last; 0 where there is no folder."""
    with suppress(OSError):
        return 0 if folder is None else folder.stat().st_mtime_ns
    return 0


def _check_is_due(folder: Path | None) -> bool:
    """Say whether nobody has looked for a while, so that many who wait cost as one."""
    with suppress(OSError):
        if folder is not None:
            return not 0 <= time.time() - (folder / "pool.lock").stat().st_mtime < _CHECK_S
    return True


def _usable(hosts: Sequence[Host], nodes: int, devices: int, lock: str) -> dict[str, Host]:
    if nodes < 1 or devices < 1:
        raise BrokenError(f"{nodes} host(s) with {devices} device(s) cannot be leased")
    under = f" under the lock {lock}" if lock else ""
    by_address = {f"{host.address.lower()}{under}": host for host in hosts}
    if len(by_address) < len(hosts):
        raise BrokenError(f"of {len(hosts)} hosts to lease, some have the same address")
    usable = {
        address: host
        for address, host in by_address.items()
        if host.devices is None or host.devices >= devices
    }
    if len(usable) < nodes:
        raise BrokenError(
            f"{nodes} host(s) with {devices} device(s) are wanted, "
            f"but only {len(usable)} of {len(hosts)} host(s) have as many"
        )
    return usable


def _make_private(folder: Path) -> None:
    """Make the folder of the pool, or see that no other user can give hosts away."""
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise BrokenError(
            f"hosts cannot be leased: {folder} is not a folder of this user, but of "
            f"{_user_name(status.st_uid)}; remove it"
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        folder.chmod(0o700)


# ------------------------------------------------------------------ where the pool lies


def users_pool(environment: Mapping[str, str] = os.environ) -> Path:
    """Find the folder in which the sessions of a user on this machine share hosts, or make it.

    It has to be one place for all of them, however they were started, and no other user may have a
    say in it. Such a place is the folder that the system keeps for a user who is logged in. Where
    it does not, a folder has to do among those that everybody makes: under a name that nobody else
    has taken.

    Raises:
        BrokenError: Other users have taken all its names.
    """
    # A job of cron's has no such variable, and the same folder.
    for runtime in (environment.get("XDG_RUNTIME_DIR", ""), f"/run/user/{os.geteuid()}"):
        if Path(runtime).is_absolute() and _is_own(Path(runtime), private=True):
            return Path(runtime) / _NAME
    places = list(_in_temporary_folder())
    found = next(filter(_is_own, places), None) or next(filter(_is_made, places), None)
    if found is not None:
        return found
    raise BrokenError(
        f"hosts cannot be leased: {places[0]} and {_NAMES - 1} more like it are of other users: "
        f"{', '.join(_owners(places))}. Have them removed, or set XDG_RUNTIME_DIR to a folder that "
        "only you may enter"
    )


def _in_temporary_folder() -> Iterator[Path]:
    first = Path(tempfile.gettempdir()) / f"{_NAME}-{os.geteuid()}"
    yield first
    for number in range(2, _NAMES + 1):
        yield first.with_name(f"{first.name}-{number}")


def _is_made(folder: Path) -> bool:
    """Make a folder; false where another user has something there."""
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return _is_own(folder)  # another session of ours may have been faster
    except OSError as error:
        raise BrokenError(f"hosts cannot be leased: {folder}: {error.strerror}") from error
    return True


def _is_own(folder: Path, *, private: bool = False) -> bool:
    """Say whether it is a folder of this user's; a ``private`` one nobody else may enter."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    is_open = private and status.st_mode & 0o077
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not is_open


def _owners(places: list[Path]) -> list[str]:
    owners = {place.lstat().st_uid for place in places if place.is_symlink() or place.exists()}
    return sorted(map(_user_name, owners))


def _user_name(number: int) -> str:
    """Name a user for a message, with the number."""
    try:
        return f"{pwd.getpwuid(number).pw_name} ({number})"
    except KeyError:
        return f"number {number}"
