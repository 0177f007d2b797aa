"""One start of a command here, outside any session, to see what it prints."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Final

from pytest_dlperf.launch.gang import CONNECT_LIMIT_S, Gang, InterruptedRunError
from pytest_dlperf.launch.hosts import Host
from pytest_dlperf.launch.launchers import ADDRESS, LocalLauncher
from pytest_dlperf.launch.plan import SCRATCH, NodeCommand
from pytest_dlperf.launch.signals import deferred_signals
from pytest_dlperf.launch.supervisor_client import Place

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
    with deferred_signals() as signals:
        gang = Gang(
            LocalLauncher(),
            [place],
            run_id=uuid.uuid4().hex,
            scratch=SCRATCH,
            head_only=False,
            files={},
            row=0,
            signals=signals,
            say=None,
            wait_limit_s=CONNECT_LIMIT_S,
        )
        try:
            gang.gather()
            (client,) = gang.clients
            gang.is_started = True
            command = NodeCommand(
                node_rank=0,
                host=host.name,
                address=host.address,
                arguments=tuple(arguments),
                environment=dict(environment),
                working_directory=None,
                log=log,
            )
            client.start(command, inherits=())
            gang.listen(CONNECT_LIMIT_S, until=lambda: client.start_is_known)
            client.check_started(CONNECT_LIMIT_S)
            deadline = time.monotonic() + limit_s
            while not client.is_done and not signals and time.monotonic() < deadline:
                gang.listen(_LOOK_S, until=lambda: client.is_done)
                if is_enough():
                    break
        except InterruptedRunError:
            return None  # the signal is raised when the block is left
        else:
            return client.exit_code
        finally:
            gang.end()
