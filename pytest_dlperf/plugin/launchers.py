"""What launches the cases of a session: the launchers and queues that plugins offer."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import pytest

from pytest_dlperf.plugin.named import settings_of

if TYPE_CHECKING:
    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.launch.allocations import Allocator
    from pytest_dlperf.launch.launchers import Launcher
    from pytest_dlperf.plugin.suite import Suite


def launchers_of(config: pytest.Config, python: str | None = None) -> list[Launcher]:
    """Ask all plugins for their launchers; ``python`` is what the cluster has supervise runs."""
    from pytest_dlperf.launch.launchers import DEFAULT_PYTHON

    offered = config.hook.pytest_dlperf_launchers(config=config, python=python or DEFAULT_PYTHON)
    return list(chain.from_iterable(offered))


def engines_of(config: pytest.Config, cluster: Cluster) -> list[Launcher | Allocator]:
    """Ask all plugins for their launchers, and for queues that give hosts."""
    queues = config.hook.pytest_dlperf_allocators(config=config, cluster=cluster)
    return [*launchers_of(config, cluster.python), *chain.from_iterable(queues)]


def check_launcher_of(config: pytest.Config, suite: Suite) -> None:
    """Check the launcher's name, though logs need none."""
    if suite.settings.launcher is not None:
        from pytest_dlperf.launch.choosing import check_launcher

        names = [engine.name for engine in engines_of(config, suite.cluster)]
        check_launcher(suite.settings, names)


def number_of_hosts(config: pytest.Config) -> int:
    """Count the hosts to launch on: 0 for this machine alone."""
    from pytest_dlperf.launch.choosing import engine_and_hosts

    return len(engine_and_hosts(settings_of(config), launchers_of(config))[1])
