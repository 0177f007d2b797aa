"""The locks that runs hold on hosts, against runs that other machines or users start there."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from pytest_dlperf.launch.local import ADDRESS

if TYPE_CHECKING:
    from pytest_dlperf.launch.hosts import Host

LOCALHOST: Final = "localhost"


def lock_scope(name: str, host: Host, *, played_here: bool) -> str:
    """What a host's locks are told apart by: one machine may play several hosts.

    It does so for addresses on loopback, and where all hosts are ``played_here``, whatever they are
    called.
    """
    try:
        ip = ipaddress.ip_address(host.address)
    except ValueError:
        return f"{name}/{host.name if played_here and host.name != LOCALHOST else ''}"
    played = ip.is_loopback and ip.version == 4 and host.address != ADDRESS  # noqa: PLR2004
    return f"{name}/{ip if played else ''}"
