"""The locks that runs hold on hosts, against runs that other machines or users start there."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from pytest_dlperf.launch.local import ADDRESS

if TYPE_CHECKING:
    from pytest_dlperf.launch.hosts import Host


def lock_scope(name: str, host: Host) -> str:
    """What a host's locks are told apart by: one machine may play several hosts on loopback."""
    try:
        ip = ipaddress.ip_address(host.address)
    except ValueError:
        return f"{name}/"
    played = ip.is_loopback and ip.version == 4 and host.address != ADDRESS  # noqa: PLR2004
    return f"{name}/{ip if played else ''}"
