"""Hooks by which other plugins add to the suite. They are specifications: no body is ever run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.formats.log_format import LogFormat
    from pytest_dlperf.launch.allocations import Allocator
    from pytest_dlperf.launch.launchers import Launcher
    from pytest_dlperf.notices.notice import Notifier
    from pytest_dlperf.report.reports import Report


@pytest.hookspec
def pytest_dlperf_system_files(config: pytest.Config) -> Sequence[Path]:  # type: ignore[empty-body]
    """Return further system files, read like those of the systems folder."""


@pytest.hookspec
def pytest_dlperf_log_formats(config: pytest.Config) -> Sequence[LogFormat]:  # type: ignore[empty-body]
    """Return further log formats, which system files then name under ``log.format``."""


@pytest.hookspec
def pytest_dlperf_launchers(  # type: ignore[empty-body]
    config: pytest.Config, python: str
) -> Sequence[Launcher]:
    """Return launchers, which ``--dlperf-launcher`` then names.

    ``python`` supervises runs on the hosts: ``python`` of ``cluster.yaml``, or ``python3``.
    """


@pytest.hookspec
def pytest_dlperf_allocators(  # type: ignore[empty-body]
    config: pytest.Config, cluster: Cluster
) -> Sequence[Allocator]:
    """Return queues that give hosts, which ``--dlperf-launcher`` then names."""


@pytest.hookspec
def pytest_dlperf_reports(config: pytest.Config) -> Sequence[Report]:  # type: ignore[empty-body]
    """Return further reports of the session; called once, on xdist's controller only."""


@pytest.hookspec
def pytest_dlperf_notifiers(config: pytest.Config) -> Sequence[Notifier]:  # type: ignore[empty-body]
    """Return further notifiers of the session; called once, on xdist's controller only."""
