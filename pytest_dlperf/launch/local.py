"""All nodes of a run on this machine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.launch.hosts import Host

ADDRESS: Final = "127.0.0.1"
"""Where the nodes of this machine reach each other."""


@final
class LocalLauncher:
    """Starts every node on this machine, whatever its host is called."""

    __slots__ = ()

    name = "local"
    python = sys.executable
    remote = False
    queues = False

    def resolve(self, hosts: Sequence[Host]) -> tuple[Host, ...]:
        """The hosts as they are: their names are addresses of this machine."""
        return tuple(hosts)

    def command(self, host: Host, program: Sequence[str], *, alongside: bool = False) -> list[str]:
        """The program itself."""
        del host, alongside
        return list(program)
