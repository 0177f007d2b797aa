"""Checks the baseline files of a cluster: are they complete, and do the numbers add up?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from pytest_dlperf.baselines.reading import (
    Baselines,
    Contents,
    Definition,
    defined_as,
    read_contents,
)
from pytest_dlperf.config.cluster import CLUSTER_FILE, Cluster, undeclared_systems
from pytest_dlperf.config.systems import System
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.yamlfile import Diagnostic, YamlError
from pytest_dlperf.model.baseline import ROLLING_SESSIONS, Baseline
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.numbers import named

_NAMES_SHOWN: Final = 5

_MAX_TOLERANCE_PERCENT: Final = 10.0
"""A larger one of an entry deserves a look."""


def check_cluster(
    cluster: Cluster, systems: Mapping[str, System], *, all_are_read: bool = True
) -> Iterator[Diagnostic]:
    """Check all baselines of a cluster against the systems that are declared.

    Unless ``all_are_read``, an unknown name may be that of a system whose file has mistakes.
    """
    cluster_file = cluster.directory / CLUSTER_FILE
    place = f"{cluster_file}:1" if cluster_file.exists() else str(cluster.directory)
    listed = cluster.systems
    for message in undeclared_systems(cluster, systems) if all_are_read else ():
        yield Diagnostic(place=place, message=message)
    files = {file.stem: file for file in sorted(cluster.directory.glob("*.yaml"))}
    files.pop(cluster_file.stem, None)
    for file in files.values():
        yield from _file(file, cluster, systems, all_are_read=all_are_read)
    for name in systems if listed is None else listed:
        if name in systems and name not in files:
            count = len(systems[name].cases)
            yield Diagnostic(
                place=place,
                message=f"{name}: none of its {count} cases has a baseline",
                is_error=listed is not None,
            )


def _file(
    file: Path, cluster: Cluster, systems: Mapping[str, System], *, all_are_read: bool
) -> Iterator[Diagnostic]:
    name = file.stem
    try:
        contents = read_contents(file, cluster.machine)
    except YamlError as error:
        yield from error.diagnostics
        return
    baselines = contents.baselines
    if name not in systems and all_are_read:
        message = f"no system file declares {name!r}{nearest(name, systems)}"
        yield Diagnostic(
            place=f"{file}:1", message=f"{message}; delete the file if the system is gone"
        )
    elif cluster.systems is not None and name not in cluster.systems:
        message = f"{CLUSTER_FILE} does not list the system {name!r}, so nothing reads this"
        yield Diagnostic(place=f"{file}:1", message=message)
    if name in systems:
        yield from _coverage(file, cluster, systems[name], contents, baselines)
    for key, entry in baselines.items():
        for metric, baseline in entry.items():
            for message, is_error in _metric(baseline):
                text = f"{'-'.join((name, *key))}: {metric}: {message}"
                yield Diagnostic(place=baseline.place, message=text, is_error=is_error)


def _coverage(
    file: Path, cluster: Cluster, system: System, contents: Contents, baselines: Baselines
) -> Iterator[Diagnostic]:
    cases = {(case.variant, str(case.topology)): case for case in system.cases}
    for key, entry in baselines.items():
        if key not in cases:
            name = "-".join(key)
            others = ["-".join(other) for other in cases if other not in baselines]
            near = get_close_matches(name, others, n=1)
            renamed = f"; the case {near[0]} has no entry: is one misspelt?" if near else ""
            message = f"stale: {file.stem} has no case {name}{renamed}; delete the entry"
            place = next(iter(entry.values())).place
            yield Diagnostic(place=place, message=message)
            continue
        for metric in system.metrics:
            baseline = entry.get(metric.name)
            over = cases[key].reference_topology
            if metric.ratio_of is None or baseline is None or str(over) == baseline.reference:
                continue
            message = f"stale: {cases[key].id} has no reference, and so no {metric.name}"
            if over is not None:
                message = (
                    f"stale: the {metric.name} of {cases[key].id} is over {baseline.reference}, "
                    f"that of the system over {over}"
                )
            yield Diagnostic(place=baseline.place, message=f"{message}; delete it")
    judged = [metric for metric in system.metrics if metric.is_judged and metric.better]
    missing = [case.id for key, case in cases.items() if key not in baselines]
    yield from _missing(file, missing, "baseline")
    for metric in judged:
        missing_ids = [
            cases[key].id
            for key, entry in baselines.items()
            if key in cases
            and metric.name not in map(defined_as, entry)
            and (metric.ratio_of is None or cases[key].is_scaled)
        ]
        yield from _missing(file, missing_ids, metric.name)
    for name, definition in contents.metrics.items():
        for message in _definition(name, definition, system, judged, file.stem):
            yield Diagnostic(place=contents.places[name], message=message)
    if contents.estimator is not cluster.estimator:
        message = (
            f"the estimator is {contents.estimator.value}, that of the cluster "
            f"{cluster.estimator.value}; they are never compared"
        )
        yield Diagnostic(place=f"{file}:1", message=message)


def _missing(file: Path, names: Sequence[str], what: str) -> Iterator[Diagnostic]:
    if names:
        have = "1 case has" if len(names) == 1 else f"{len(names)} cases have"
        message = (
            f"{have} no {what}: {named(names, _NAMES_SHOWN)} (--dlperf-create-baselines records "
            "them)"
        )
        yield Diagnostic(place=f"{file}:1", message=message)


def _definition(
    name: str, accepted: Definition, system: System, judged: Sequence[Metric], file: str
) -> Iterator[str]:
    """Compare a metric of the baselines with that of the system."""
    remedy = "delete it here and in the entries"
    metric = next((one for one in system.metrics if one.name == name), None)
    if metric is None:
        near = nearest(name, [one.name for one in system.metrics])
        yield f"stale: {file} declares no metric {name!r}{near}; {remedy}"
    elif metric not in judged:
        yield f"stale: {file} does not judge the metric {name!r} any more; {remedy}"
    elif accepted != (declared := Definition.of(metric)):
        yield (
            f"{name} is in {accepted}, that of the system in {declared}: they are never compared; "
            f"{remedy}, to be recorded anew"
        )


def _metric(baseline: Baseline) -> Iterator[tuple[str, bool]]:
    count, tolerance = len(baseline.sessions), baseline.tolerance_percent
    if count > ROLLING_SESSIONS:
        message = f"{count} sessions; the last {ROLLING_SESSIONS} count, delete the older ones"
        yield message, True
    if tolerance is not None and tolerance > _MAX_TOLERANCE_PERCENT:
        yield f"the own tolerance is {tolerance:g} %: any loss up to it passes", False
