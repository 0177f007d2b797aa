"""Allocations: hosts that a queue gives for a case, and what gives them back.

If pytest is killed, a process on this machine gives them back: its input ends then.
"""

from __future__ import annotations

import subprocess
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final, TypeVar, cast, final

from msgspec import Struct

from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import Engine, Launcher, NoAnswerError, output_of
from pytest_dlperf.launch.leases import wait_timeout_error
from pytest_dlperf.model.errors import BrokenError

T = TypeVar("T")

_FIRST_SAID_S: Final = 3.0
_SAID_AGAIN_S: Final = 30.0
_POLL_S: Final = 0.1
_LONGEST_POLL_S: Final = 5.0
_EXIT_LIMIT_S: Final = 0.2

# Until then the runs on the hosts end by themselves: a queue would kill them before they have
# removed their files. What was under way when pytest ended may take effect a moment later.
_CANCELS: Final = """\
cat
sleep 2
tries=0
until "$@" || [ $tries -ge 60 ]; do tries=$((tries + 1)); sleep 5; done
sleep 2
exec "$@"
"""


class HostRequest(Struct, frozen=True, kw_only=True):
    """What a case asks of a queue.

    ``purpose`` is for people. ``devices_per_node`` are accelerators if the case ``needs_devices``.
    The hosts are held for ``limit_s`` seconds, and waited for no longer than ``wait_limit_s``.
    They are those of these names, if ``hosts`` has any. ``options`` are what users set for the
    queue, by the names that it ``takes``; programs run in the ``image``, if one is named.
    """

    purpose: str
    nodes: int
    devices_per_node: int
    needs_devices: bool
    limit_s: float
    wait_limit_s: float
    hosts: tuple[str, ...] = ()
    options: Mapping[str, tuple[str, ...]] = {}
    image: str | None = None


class Allocation(Struct, frozen=True, kw_only=True):
    """Hosts that are held for ``limit_s`` seconds, and the launcher that reaches them.

    ``holder`` gives them back, ``handle`` is the queue's own.
    """

    hosts: tuple[Host, ...]
    launcher: Launcher
    limit_s: float
    holder: Holder | None = None
    handle: Any = None


class Allocator(Engine):
    """A queue that gives hosts for a case; plugins add more (``pytest_dlperf_allocators``)."""

    @property
    @abstractmethod
    def launcher(self) -> Launcher:
        """The launcher that reaches its hosts, before there are any."""

    @abstractmethod
    def describe(self, request: HostRequest) -> str:
        """Show what would be asked for, as text."""

    @abstractmethod
    def acquire(self, request: HostRequest, say: Callable[[str], None]) -> Allocation:
        """Wait for hosts; ``say`` tells the user why.

        The hosts are given back if this process ends, however it does.

        Raises:
            BrokenError: The queue refuses the request, or the hosts did not come in time.
        """

    def release(self, allocation: Allocation) -> None:
        """Give the hosts back, also those that were taken away; here, by their holder.

        Raises:
            BrokenError: The queue does not take them; the holder goes on to try.
        """
        if allocation.holder is not None:
            allocation.holder.give_back()

    def loss(self, allocation: Allocation) -> str | None:
        """Say why hosts were taken away, or what else the queue knows of a run that has failed."""
        del allocation
        return None


@final
class Holder:
    """A process of this machine that gives hosts back, if pytest ends without doing so."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it, apart from signals to pytest, with the command that gives hosts back."""
        self._command = command
        self._process = subprocess.Popen(  # noqa: S603 - the queue's
            ["/bin/sh", "-c", _CANCELS, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def submit(self, command: Sequence[str], stdin: str = "") -> str:
        """Run the command that asks for hosts; where it is refused, nothing is to be given back."""
        try:
            return output_of(command, stdin=stdin)
        except NoAnswerError:
            self._leave()
            raise
        except BrokenError:
            self._process.kill()
            self._leave()
            raise

    def give_back(self) -> None:
        """Give the hosts back now; what the queue does not take, the process goes on to try."""
        try:
            output_of(self._command)
            self._process.kill()
        finally:
            self._leave()

    def _leave(self) -> None:
        cast("IO[bytes]", self._process.stdin).close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_EXIT_LIMIT_S)
        # It may live on, and Python shall not warn of that.
        self._process.returncode = self._process.returncode or 0


def wait_for_hosts(
    look: Callable[[], T | str], limit_s: float, say: Callable[[str], None], holder: Holder
) -> T:
    """Look until hosts are there; a text says why they are not. Without them, give all back."""
    begun, told, say_at = time.monotonic(), "", _FIRST_SAID_S
    try:
        while isinstance(found := look(), str):
            waited_s = time.monotonic() - begun
            if waited_s > limit_s:
                raise wait_timeout_error(limit_s, found)  # noqa: TRY301 - as all else is
            if waited_s > say_at and found != told:
                say(f"waiting: {found} (for {limit_s:g} s at most)")
                told, say_at = found, waited_s + _SAID_AGAIN_S
            time.sleep(min(max(_POLL_S, waited_s / 20), _LONGEST_POLL_S))
    except BaseException:
        with suppress(BrokenError):
            holder.give_back()
        raise
    return found
