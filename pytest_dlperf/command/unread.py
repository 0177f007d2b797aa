"""Stands in for systems whose files cannot be read, so that baselines are not blamed for that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.config.cluster import CLUSTER_FILE
from pytest_dlperf.files.yamlfile import YamlError
from pytest_dlperf.model.case import Case

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.baselines.checking import DeclaredSystem
    from pytest_dlperf.config.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadSystem:
    """A system that declares what its baselines have: nothing less, nothing more."""

    cases: tuple[Case, ...]
    unit: str


def with_unread(
    cluster: Cluster, systems: Mapping[str, DeclaredSystem]
) -> tuple[Cluster, dict[str, DeclaredSystem]]:
    """The cluster and the systems as they may be once the broken system files can be read.

    Any name that no file declares by now may be that of a broken one.
    """
    files = {file.stem for file in cluster.directory.glob("*.yaml") if file.name != CLUSTER_FILE}
    unread = {name: _standing_in(cluster, name) for name in sorted(files - systems.keys())}
    known = {**systems, **unread}
    if cluster.systems is not None:
        cluster = replace(cluster, systems=tuple(name for name in cluster.systems if name in known))
    return cluster, known


def _standing_in(cluster: Cluster, name: str) -> UnreadSystem:
    try:
        baselines = load_baselines(cluster, name)
        cases = tuple(Case.parse(f"{name}-{variant}-{topology}") for variant, topology in baselines)
    except (YamlError, ValueError):
        # The mistakes are told by whoever reads the file next; what is no case id has no case.
        return UnreadSystem(cases=(), unit="")
    units = {baseline.unit for baseline in baselines.values()}
    return UnreadSystem(cases=cases, unit=min(units, default=""))
