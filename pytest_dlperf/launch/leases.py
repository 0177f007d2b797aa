"""Leases of hosts: whole gangs at once, first come first served, across all sessions of a user.

The pool is a folder. In it lie

- ``hosts.json``: the claims, those that hold hosts and those that wait, in the order of arrival.
  It is only ever replaced whole.
- ``pool.lock``: held for the moment in which somebody changes ``hosts.json``. Polling for a file
  lock is unfair, so nobody waits for hosts with it: the order is that of the claims.
- ``claim-<pid>-<random>.lock``: one for each claim, locked by its process from the first moment to
  the last. The kernel ends the lock with the process, so a claim whose lock is free is void,
  whatever ``hosts.json`` says.

A claim that is locked but does not stand in ``hosts.json`` holds hosts that nobody knows (the file
was lost or is no longer legible). Nothing is granted until it has ended: waiting costs a while, two
trainings on one host cost the measurement.

Processes that are killed between two steps leave nothing that needs mending: a claim's lock is
taken before the claim is written, and removed after the claim is struck out.
"""

from __future__ import annotations

import math
import os
import secrets
import stat
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.files.locks import HeldLock, LockError, is_held, locked
from pytest_dlperf.files.writing import user_name
from pytest_dlperf.launch.claims import CLAIM_NAME, Claim, Claims
from pytest_dlperf.model.errors import BrokenError
from pytest_dlperf.node.processes import started_at, state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_dlperf.launch.hosts import Host

_STATE: Final = "hosts.json"
_NAME: Final = "pytest-dlperf-hosts"
_NAMES: Final = 20
"""So many names another user would have to take to have nothing leased any more."""
_POLL_S: Final = 0.02
"""Each waiting process looks so often whether the state has changed; that is all it costs."""
_CHECK_S: Final = 0.5
"""All waiting processes together look so often for processes that have died."""
_LOCK_LIMIT_S: Final = 60.0
"""Whoever changes the state needs a moment; a process that was stopped may hold it for ever."""


class Lease(Struct, frozen=True, kw_only=True):
    """A host that is this run's for a while, and which of its devices."""

    host: Host
    device_ids: tuple[int, ...]


class HostPool:
    """The hosts that all processes of a user on this machine share."""

    def __init__(
        self,
        place: Path | Callable[[], Path],
        *,
        report: Callable[[str], None],
        lock: str = "",
        session: str = "",
    ) -> None:
        """Share the pool in a folder, which is made when needed and belongs to the pool alone.

        ``place`` may be a function that finds it, for one that may go while this process lives.
        ``report`` gets warnings, such as of a state file that was set aside. Leases under another
        ``lock`` are no reason to wait. ``session`` is what the workers of one have in common.
        """
        self._lock = lock
        self._session = session
        self._find = place if callable(place) else lambda: place
        self._report = report

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
        request = Claim(
            name=f"claim-{os.getpid()}-{secrets.token_hex(8)}.lock",
            pid=os.getpid(),
            started=started_at(os.getpid()) or None,
            since=time.time(),
            purpose=purpose,
            nodes=nodes,
            devices=devices,
            exclusive=exclusive,
            candidates={key: host.devices for key, host in usable.items()},
            started_in=os.getcwd(),  # noqa: PTH109 - text is what is kept
            session=self._session,
        )
        claimed = _OwnClaim(request, self._find())
        try:
            granted = self._granted(claimed, limit_s, on_wait)
            yield tuple(
                Lease(host=host, device_ids=granted[key])
                for key, host in usable.items()
                if key in granted
            )
        finally:
            self._release(claimed)

    def _granted(
        self, claimed: _OwnClaim, limit_s: float, on_wait: Callable[[str], None] | None
    ) -> Mapping[str, tuple[int, ...]]:
        deadline = time.monotonic() + limit_s
        pool = self._update(claimed)
        name = claimed.request.name
        if name not in pool.granted and on_wait is not None and not pool.is_among_workers(name):
            on_wait(pool.waited_for(name))
        seen = None
        while (granted := pool.granted.get(claimed.request.name)) is None:
            if time.monotonic() > deadline:
                raise waited_in_vain(limit_s, pool.waited_for(claimed.request.name))
            time.sleep(_POLL_S)
            # The file is replaced whole, so it can be read without the lock. Who sees news in it
            # looks again under the lock.
            news, seen = seen, _glance(claimed.folder)
            if news != seen or _check_is_due(claimed.folder):
                pool = self._update(claimed)
        return granted

    def _release(self, claimed: _OwnClaim) -> None:
        if claimed.lock is None:
            return
        # The lock goes first: from here on the claim is void, whatever happens to the rest.
        claimed.lock.release()
        claimed.over = True
        # A full disk does not matter either: the next one who can write strikes the claim out.
        with suppress(BrokenError):
            self._update(claimed)

    def _update(self, claimed: _OwnClaim) -> Claims:
        """Bring the pool up to date, and this claim with it: into it, or out of it."""
        try:
            return self._updated(claimed)
        except BrokenError:
            # The system removes the folder that it keeps for a user who has logged out.
            place = claimed.folder if claimed.folder.exists() else self._find()
            if claimed.over or place == claimed.folder:
                raise
            claimed.folder, claimed.lock = place, None
            return self._updated(claimed)

    def _updated(self, claimed: _OwnClaim) -> Claims:
        folder, problem = claimed.folder, None
        try:
            _make_private(folder)
            with locked(folder / "pool.lock", limit_s=_LOCK_LIMIT_S):
                os.utime(folder / "pool.lock")  # for _check_is_due
                pool, problem = _read(folder)
                if claimed.lock is None:
                    claimed.lock = HeldLock(folder / claimed.request.name)
                before = pool.to_json()
                pool.alive = _alive(folder, pool)
                if claimed.over:
                    pool.alive[claimed.request.name] = False
                pool.strike_out_the_dead()
                if not claimed.over:
                    pool.add(claimed.request)
                pool.grant()
                if pool.to_json() != before:
                    _write(folder, pool)
                for name, alive in pool.alive.items():
                    if not alive:
                        (folder / name).unlink(missing_ok=True)
        except LockError as error:
            raise BrokenError(f"hosts cannot be leased: {error}") from error
        except OSError as error:
            raise BrokenError(
                f"hosts cannot be leased: {error.filename or folder}: {error.strerror or error}"
            ) from error
        if problem is not None:
            self._report(problem)
        return pool


def waited_in_vain(limit_s: float, what_for: str) -> BrokenError:
    """Make the error of a run whose hosts were not free in time."""
    return BrokenError(
        f"no hosts after {limit_s:g} s: {what_for}; --dlperf-wait-limit sets how long a run may "
        "wait"
    )


class _OwnClaim(Struct):
    """A claim of this process: what it asks for, and how far it has come."""

    request: Claim
    folder: Path
    lock: HeldLock | None = None
    over: bool = False


def _read(folder: Path) -> tuple[Claims, str | None]:
    """Read the state; what is not legible is set aside, with a warning."""
    file = folder / _STATE
    try:
        return Claims.parse(file.read_bytes()), None
    except FileNotFoundError:
        return Claims(), None
    except (OSError, ValueError) as error:
        # Only the last one is kept: nobody has missed what was in those before.
        for old in folder.glob(f"{_STATE}.broken-*"):
            old.unlink()
        aside = file.with_name(f"{_STATE}.broken-{time.time_ns()}")
        file.replace(aside)
        return Claims(), (
            f"{file} is not what this version writes ({error}); it was kept as {aside.name}. "
            f"Hosts are leased again when those who hold some now have ended"
        )


def _glance(folder: Path) -> bytes | None:
    try:
        return (folder / _STATE).read_bytes()
    except OSError:
        return None


def _write(folder: Path, pool: Claims) -> None:
    # Only the holder of the pool's lock writes, so the new file needs no name of its own and is
    # overwritten by the next one if this process is killed here.
    new = folder / f"{_STATE}.new"
    new.write_text(pool.to_json(), encoding="utf-8")
    new.replace(folder / _STATE)


def _alive(folder: Path, pool: Claims) -> dict[str, bool]:
    """Find out whose process lives, of claims that have a lock file or stand in the pool."""
    alive = {
        file.name: is_held(file) for file in folder.iterdir() if CLAIM_NAME.fullmatch(file.name)
    }
    for claim in pool.claims:
        # We remove no lock file whose claim stands in the pool; a cleaner of temporary folders
        # may have done it. The process is the second best to ask.
        if claim.name not in alive:
            alive[claim.name] = _lives(claim)
    return alive


def _check_is_due(folder: Path) -> bool:
    """Say whether nobody has looked for a while, so that many who wait cost as one."""
    try:
        age = time.time() - (folder / "pool.lock").stat().st_mtime
    except OSError:
        return True
    return not 0 <= age < _CHECK_S


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
            f"{user_name(status.st_uid)}; remove it"
        )
    if stat.S_IMODE(status.st_mode) & 0o077:
        folder.chmod(0o700)


def _lives(claim: Claim) -> bool:
    """Say whether the process of a claim lives: its number may be another's by now."""
    started = claim.started
    return started is not None and state(claim.pid) != b"Z" and started_at(claim.pid) == started


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
    return sorted(map(user_name, owners))
