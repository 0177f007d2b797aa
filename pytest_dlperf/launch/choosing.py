"""Chooses what launches the runs of a session, and where, by what the user said."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pytest_dlperf.config.cluster import Cluster
from pytest_dlperf.config.options import Settings
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.launch.allocations import Allocator
from pytest_dlperf.launch.fleet import Fleet
from pytest_dlperf.launch.held_hosts import HeldHosts
from pytest_dlperf.launch.hosts import Host, parse_hosts, slurm_hosts
from pytest_dlperf.launch.launchers import DEFAULT_PYTHON, Launcher, is_this_machine
from pytest_dlperf.launch.leases import HostPool
from pytest_dlperf.model.errors import UsageError

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86400.0


def fleet_of(  # noqa: PLR0913 - all that a session has, most of it by name
    settings: Settings,
    cluster: Cluster,
    launchers: Iterable[Launcher],
    allocators: Iterable[Allocator],
    *,
    shared_folder: Path | None,
    say: Callable[[str], None],
) -> Fleet:
    """Put the nodes of a session and the way to them together.

    Raises:
        UsageError: Hosts are named, and a queue chooses them; or as in ``launcher_and_hosts``.
    """
    by_name = {allocator.name: allocator for allocator in allocators}
    allocator = by_name.get(settings.launcher or "")
    if allocator is None:
        launcher, hosts = launcher_and_hosts(settings, launchers, allocators=list(by_name))
    elif settings.hosts is None:
        launcher, hosts = allocator.launcher, ()
    else:
        raise UsageError(
            f"{settings.hosts.place} names hosts, and {allocator.name} chooses them itself; leave "
            "one of them out"
        )
    wait_limit_s = settings.wait_limit_s or (_DAY_S if hosts or allocator else _HOUR_S)
    held = None
    if allocator is not None:
        devices = cluster.devices_per_node
        held = HeldHosts(allocator, devices_per_node=devices, wait_limit_s=wait_limit_s, say=say)
    # The project's own tests have locks of their own, so that they do not wait for each other.
    lock = os.environ.get("DLPERF_LOCK", "")
    return Fleet(
        launcher,
        [
            host if host.devices is not None else replace(host, devices=cluster.devices_per_node)
            for host in hosts
        ],
        held=held,
        pool=HostPool(session=str(shared_folder or "")),
        exclusive=not cluster.share_hosts,
        lock=lock,
        wait_limit_s=wait_limit_s,
        shared_folder=shared_folder,
        say=say,
    )


def built_in_allocators(cluster: Cluster) -> list[Allocator]:
    """Make the queues that come with the package."""
    from pytest_dlperf.launch.kubernetes import KubernetesAllocator
    from pytest_dlperf.launch.slurm_jobs import SallocAllocator, SbatchAllocator

    python = cluster.python or DEFAULT_PYTHON
    of_kubernetes = KubernetesAllocator(cluster.kubernetes, cluster.directory, python)
    return [SallocAllocator(python), SbatchAllocator(python), of_kubernetes]


def launcher_and_hosts(
    settings: Settings,
    launchers: Iterable[Launcher],
    environment: Mapping[str, str] = os.environ,
    *,
    allocators: Sequence[str] = (),
) -> tuple[Launcher, tuple[Host, ...]]:
    """Choose among ``launchers``, and read the hosts; none stand for this machine alone.

    ``allocators`` are names that might be meant, too.

    Raises:
        UsageError: The list of hosts or the choice of a launcher is wrong, or it cannot work here.
    """
    by_name: dict[str, Launcher] = {}
    for launcher in launchers:
        if launcher.name in by_name:
            raise UsageError(f"a plugin's launcher: {launcher.name!r} is already registered")
        by_name[launcher.name] = launcher
    given = settings.hosts
    hosts = parse_hosts(given.text, place=given.place, folder=given.folder) if given else ()
    chosen = _chosen(settings, by_name, hosts, allocators)
    if not hosts and settings.in_allocation and not chosen.on_this_machine:
        hosts = slurm_hosts(environment)
    if chosen.needs_allocation and not settings.in_allocation:
        raise UsageError(
            f"the launcher {chosen.name} works inside an allocation; outside of any, "
            "--dlperf-launcher salloc has one held for each case"
        )
    if chosen.remote and not hosts:
        raise UsageError(
            f"the launcher {chosen.name} needs hosts; name them with --dlperf-hosts or DLPERF_HOSTS"
        )
    return chosen, hosts


def check_launcher(settings: Settings, known: Sequence[str]) -> None:
    """Check the name of the launcher, if one is given.

    Raises:
        UsageError: There is none of that name.
    """
    name = settings.launcher
    if name is not None and name not in known:
        raise UsageError(
            f"{settings.places['launcher']}: unknown launcher {name!r}; there are "
            f"{', '.join(known)}{nearest(name, known)}"
        )


def _chosen(
    settings: Settings,
    by_name: Mapping[str, Launcher],
    hosts: Sequence[Host],
    allocators: Sequence[str],
) -> Launcher:
    check_launcher(settings, [*by_name, *allocators])
    if settings.launcher is not None:
        return by_name[settings.launcher]
    # Those that come with the package stand first, one of each kind.
    for launcher in by_name.values():
        if settings.in_allocation:
            fits = launcher.needs_allocation
        elif not hosts or (len(hosts) == 1 and is_this_machine(hosts[0])):
            fits = launcher.on_this_machine
        else:
            fits = launcher.remote and not launcher.needs_allocation
        if fits:
            return launcher
    raise UsageError("none of the launchers works here; name one with --dlperf-launcher")
