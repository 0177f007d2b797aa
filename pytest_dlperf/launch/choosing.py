"""Chooses the hosts and the launcher of a session, by what the user said and where it runs."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dlperf.files.yamlfile import nearest
from pytest_dlperf.launch.fleet import Fleet
from pytest_dlperf.launch.hosts import parse_hosts, slurm_hosts
from pytest_dlperf.launch.launchers import DEFAULT_PYTHON
from pytest_dlperf.launch.leases import HostPool
from pytest_dlperf.launch.local import LocalLauncher
from pytest_dlperf.launch.slurm import SlurmLauncher
from pytest_dlperf.launch.ssh import SshLauncher
from pytest_dlperf.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.config.options import Settings
    from pytest_dlperf.launch.hosts import Host
    from pytest_dlperf.launch.launchers import Launcher


def hosts_of(settings: Settings, environment: Mapping[str, str] = os.environ) -> tuple[Host, ...]:
    """The hosts of a session; none where it has this machine alone.

    Raises:
        UsageError: The list is malformed; the message names the entry.
    """
    if settings.hosts is not None:
        return parse_hosts(
            settings.hosts.text, place=settings.hosts.place, folder=settings.hosts.folder
        )
    if settings.launcher == LocalLauncher.name or not settings.in_allocation:
        return ()
    return slurm_hosts(environment)


def fleet_of(  # noqa: PLR0913 - all that hosts are used by, by name
    settings: Settings,
    cluster: Cluster,
    *,
    more_launchers: Iterable[Launcher],
    shared_folder: Path | None,
    say: Callable[[str], None],
    environment: Mapping[str, str] = os.environ,
) -> Fleet:
    """The hosts of a session and the way to them.

    Raises:
        UsageError: The list of hosts is malformed, there is no such launcher, or it cannot work
            without hosts.
    """
    hosts = hosts_of(settings, environment)
    python = cluster.python or DEFAULT_PYTHON
    launchers: dict[str, Launcher] = {
        LocalLauncher.name: LocalLauncher(),
        SshLauncher.name: SshLauncher(settings.ssh_command, python=python),
        SlurmLauncher.name: SlurmLauncher(python=python),
    }
    for launcher in more_launchers:
        if launcher.name in launchers:
            raise UsageError(f"a plugin adds the launcher {launcher.name!r}, which there is")
        launchers[launcher.name] = launcher
    name = settings.launcher
    if name is None:
        name = (
            SlurmLauncher.name if settings.in_allocation else SshLauncher.name if hosts else "local"
        )
    chosen = launchers.get(name)
    if chosen is None:
        raise UsageError(
            f"{settings.launcher_place}: there is no launcher {name!r}{nearest(name, launchers)}; "
            f"there are: {', '.join(launchers)}"
        )
    if name == SlurmLauncher.name and not settings.in_allocation:
        raise UsageError(
            "the launcher slurm works inside an allocation; start the session with salloc or "
            "sbatch, or name another with --dlperf-launcher"
        )
    if chosen.remote and not hosts:
        raise UsageError(
            f"the launcher {name} needs hosts; name them with --dlperf-hosts or DLPERF_HOSTS"
        )
    return Fleet(
        chosen,
        tuple(_with_devices(host, cluster.devices_per_node) for host in hosts),
        pool=HostPool(_pool_folder(), report=say),
        exclusive=not settings.share_hosts,
        lock=settings.lock,
        shared_folder=shared_folder,
        say=say,
    )


def _with_devices(host: Host, devices: int | None) -> Host:
    return host if host.devices is not None else replace(host, devices=devices)


def _pool_folder() -> Path:
    """One pool for all sessions of this user on this machine."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return Path(tempfile.gettempdir()) / f"pytest-dlperf-hosts-{user}"
