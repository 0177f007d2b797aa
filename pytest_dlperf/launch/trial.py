"""One start of a command here, outside any session, to see what it prints."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from pytest_dlperf.launch.connected_gang import CONNECT_LIMIT_S, ConnectedGang
from pytest_dlperf.launch.gang import InterruptedRunError, RunOrder
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import ADDRESS, LocalLauncher
from pytest_dlperf.launch.plan import NodeCommand, Place
from pytest_dlperf.launch.signals import deferred_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_LOOK_S: Final = 1.0


def try_command(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    log: Path,
    *,
    is_enough: Callable[[], bool],
    limit_s: float,
) -> int | None:
    """Run a command until its log shows enough, and end all that it has started.

    Returns its exit code, ``None`` if it was ended.

    Raises:
        BrokenError: It cannot be started.
    """
    host = Host(name="localhost", address=ADDRESS)
    place = Place(host=host, device_ids=(), locked_devices=(), lock_scope="", log=log)
    command = NodeCommand(
        node_rank=0,
        host=host.name,
        address=host.address,
        arguments=tuple(arguments),
        environment=dict(environment),
        working_directory=None,
        log=log,
    )
    order = RunOrder(
        places=(place,),
        plan=lambda _: [command],
        time_limit_s=limit_s,
        wait_limit_s=CONNECT_LIMIT_S,
    )
    with deferred_signals() as signals:
        gang = ConnectedGang(LocalLauncher(), order, signals)
        try:
            gang.start(order.plan)
            [node] = gang.nodes
            deadline = time.monotonic() + limit_s
            while not node.is_done and not signals and time.monotonic() < deadline:
                gang.listen(_LOOK_S, until=lambda: node.is_done)
                if is_enough():
                    break
        except InterruptedRunError:
            return None  # the signal is raised when the block is left
        else:
            return node.exit_code
        finally:
            gang.end()
