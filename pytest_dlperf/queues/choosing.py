"""Chooses the queue of a session, where the user has named one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.launch.launchers import DEFAULT_PYTHON
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.queues.fleet import QueueFleet
from pytest_dlperf.queues.kubernetes import KubernetesQueue
from pytest_dlperf.queues.sbatch import SbatchQueue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.config.options import Settings
    from pytest_dlperf.queues.queue import Queue


def built_in_queues(cluster: Cluster) -> list[Queue]:
    """Make the queues that come with the package."""
    python = cluster.python or DEFAULT_PYTHON
    return [
        SbatchQueue(python),
        KubernetesQueue(cluster.kubernetes, cluster.directory, python),
    ]


def queue_fleet_of(
    settings: Settings, cluster: Cluster, queues: Iterable[Queue]
) -> QueueFleet | None:
    """Put what is said of a queue together; ``None`` where a launcher is to reach hosts.

    Raises:
        UsageError: Hosts are named, and the queue chooses them.
    """
    by_name = {queue.name: queue for queue in queues}
    queue = by_name.get(settings.launcher or "")
    if queue is None:
        return None
    if settings.hosts is not None:
        raise UsageError(
            f"{settings.hosts.place} names hosts, and with the launcher {queue.name} the engine "
            "chooses them; leave one of them out"
        )
    return QueueFleet(queue, cluster.devices_per_node, settings.wait_limit_s)
