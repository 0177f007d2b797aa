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
from pytest_dlperf.launch.hosts import Host, parse_hosts, slurm_hosts
from pytest_dlperf.launch.launchers import DEFAULT_PYTHON, Launcher, is_this_machine
from pytest_dlperf.launch.leases import HostPool
from pytest_dlperf.model.errors import UsageError

_HOUR_S: Final = 3600.0
_DAY_S: Final = 86400.0


def fleet_of(
    settings: Settings,
    cluster: Cluster,
    engines: Iterable[Launcher | Allocator],
    *,
    shared_folder: Path | None,
    say: Callable[[str], None],
) -> Fleet:
    """Put the nodes of a session and the way to them together."""
    engine, hosts = engine_and_hosts(settings, engines)
    queue, devices = (engine if isinstance(engine, Allocator) else None), cluster.devices_per_node
    return Fleet(
        engine.launcher if isinstance(engine, Allocator) else engine,
        [host if host.devices is not None else replace(host, devices=devices) for host in hosts],
        allocator=queue,
        devices_per_node=devices,
        pool=HostPool(session=str(shared_folder or "")),
        exclusive=not cluster.share_hosts,
        # The project's own tests have locks of their own, so that they do not wait for each other.
        lock=os.environ.get("DLPERF_LOCK", ""),
        wait_limit_s=settings.wait_limit_s or (_DAY_S if hosts or queue else _HOUR_S),
        shared_folder=shared_folder,
        say=say,
    )


def built_in_allocators(cluster: Cluster) -> list[Allocator]:
    """Make the queues that come with the package."""
    from pytest_dlperf.launch.kubernetes import KubernetesAllocator
    from pytest_dlperf.launch.slurm_jobs import SbatchAllocator

    python = cluster.python or DEFAULT_PYTHON
    of_kubernetes = KubernetesAllocator(cluster.kubernetes, cluster.directory, python)
    return [SbatchAllocator(python), of_kubernetes]


def engine_and_hosts(
    settings: Settings,
    engines: Iterable[Launcher | Allocator],
    environment: Mapping[str, str] = os.environ,
) -> tuple[Launcher | Allocator, tuple[Host, ...]]:
    """Choose a launcher or a queue, and read the hosts; none stand for this machine alone."""
    by_name: dict[str, Launcher | Allocator] = {}
    for engine in engines:
        if by_name.setdefault(engine.name, engine) is not engine:
            raise UsageError(f"a plugin's launcher: {engine.name!r} is already registered")
    check_launcher(settings, list(by_name))
    given = settings.hosts
    hosts = parse_hosts(given.text, place=given.place, folder=given.folder) if given else ()
    is_here = not hosts or (len(hosts) == 1 and is_this_machine(hosts[0]))
    usual = "slurm" if settings.in_allocation else "local" if is_here else "ssh"
    chosen = by_name[settings.launcher or usual]
    if isinstance(chosen, Allocator):
        if given:
            raise UsageError(
                f"{given.place} names hosts, and {chosen.name} chooses them itself; leave one of "
                "them out"
            )
        return chosen, ()
    if not hosts and settings.in_allocation and not chosen.on_this_machine:
        hosts = slurm_hosts(environment)
    if chosen.needs_allocation and not settings.in_allocation:
        raise UsageError(
            f"the launcher {chosen.name} works inside an allocation; outside of any, "
            "--dlperf-launcher sbatch has one held for each case"
        )
    if chosen.remote and not hosts:
        raise UsageError(
            f"the launcher {chosen.name} needs hosts; name them with --dlperf-hosts or DLPERF_HOSTS"
        )
    return chosen, hosts


def check_launcher(settings: Settings, known: Sequence[str]) -> None:
    """Check the name of the launcher, if one is given."""
    name = settings.launcher
    if name is not None and name not in known:
        raise UsageError(
            f"{settings.places['launcher']}: unknown launcher {name!r}; there are "
            f"{', '.join(known)}{nearest(name, known)}"
        )
