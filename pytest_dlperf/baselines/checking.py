"""Checks the baseline files of a cluster: are they complete, and of the systems of today?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from pytest_dlperf.baselines.reading import Contents, Definition, defined_as, read_contents
from pytest_dlperf.config.cluster import CLUSTER_FILE, Cluster, undeclared_systems
from pytest_dlperf.config.systems import System
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.files.yamlfile import Diagnostic, YamlError
from pytest_dlperf.model.numbers import named

_NAMES_SHOWN: Final = 5


def check_cluster(
    cluster: Cluster, systems: Mapping[str, System], *, all_are_read: bool = True
) -> Iterator[Diagnostic]:
    """Check all baselines of a cluster against the systems that are declared.

    Unless ``all_are_read``, an unknown name may be that of a system whose file has mistakes.
    """
    cluster_file = cluster.directory / CLUSTER_FILE
    place = f"{cluster_file}:1" if cluster_file.exists() else str(cluster.directory)
    for message in undeclared_systems(cluster, systems) if all_are_read else ():
        yield Diagnostic(place=place, message=message)
    files = {file.stem: file for file in sorted(cluster.directory.glob("*.yaml"))}
    files.pop(cluster_file.stem, None)
    for name, file in files.items():
        if name not in systems and all_are_read:
            message = f"no system file declares {name!r}{nearest(name, systems)}"
            message = f"{message}; delete the file if the system is gone"
            yield Diagnostic(place=f"{file}:1", message=message)
        elif cluster.systems is not None and name not in cluster.systems:
            message = f"{CLUSTER_FILE} does not list the system {name!r}, so nothing reads this"
            yield Diagnostic(place=f"{file}:1", message=message)
        yield from _file(file, cluster, systems.get(name))
    listed = cluster.systems
    for name in systems if listed is None else listed:
        if name in systems and name not in files:
            message = f"{name}: none of its {len(systems[name].cases)} cases has a baseline"
            yield Diagnostic(place=place, message=message, is_error=listed is not None)


def _file(file: Path, cluster: Cluster, system: System | None) -> Iterator[Diagnostic]:
    try:
        contents = read_contents(file, cluster.machine)
    except YamlError as error:
        yield from error.diagnostics
        return
    if system is not None:
        for place, message in _compared(file, contents, system):
            yield Diagnostic(place=place, message=message)
        if contents.estimator is not cluster.estimator:
            message = (
                f"the estimator is {contents.estimator.value}, that of the cluster "
                f"{cluster.estimator.value}; they are never compared"
            )
            yield Diagnostic(place=f"{file}:1", message=message)


def _compared(file: Path, contents: Contents, system: System) -> Iterator[tuple[str, str]]:
    """Compare a file with the system as it is declared now: places and messages."""
    cases = {(case.variant, str(case.topology)): case for case in system.cases}
    baselines, judged = contents.baselines, [it for it in system.metrics if it.is_judged]
    for key, entry in baselines.items():
        if key not in cases:
            case_name, others = "-".join(key), ["-".join(it) for it in cases if it not in baselines]
            near = get_close_matches(case_name, others, n=1)
            renamed = f"; the case {near[0]} has no entry: is one misspelt?" if near else ""
            message = f"stale: {file.stem} has no case {case_name}{renamed}; delete the entry"
            yield next(iter(entry.values())).place, message
            continue
        over = cases[key].reference_topology
        for metric in system.metrics:
            baseline = entry.get(metric.name)
            if baseline is not None and metric.ratio_of and str(over) != baseline.reference:
                message = f"stale: the {metric.name} of {cases[key].id} is over "
                message += f"{baseline.reference}, that of the system over {over or 'nothing'}"
                yield baseline.place, f"{message}; delete it"
    yield from _missing(file, [it.id for key, it in cases.items() if key not in baselines])
    for metric in (metric for metric in judged if metric.better):
        without: list[str] = [
            cases[key].id
            for key, entry in baselines.items()
            if key in cases
            and metric.name not in map(defined_as, entry)
            and (metric.ratio_of is None or cases[key].is_scaled)
        ]
        yield from _missing(file, without, metric.name)
    for name, accepted in contents.metrics.items():
        remedy = "delete it here and in the entries"
        metrics = {one.name: one for one in system.metrics}
        declared = Definition.of(metrics[name]) if name in metrics else None
        if name not in metrics:
            near_name = nearest(name, metrics)
            yield (
                contents.places[name],
                f"stale: no metric {name!r} is declared{near_name}; {remedy}",
            )
        elif metrics[name] not in judged or declared is None:
            message = f"stale: {file.stem} does not judge the metric {name!r} any more; {remedy}"
            yield contents.places[name], message
        elif accepted != declared:
            message = f"{name} is in {accepted}, that of the system in {declared}: they are never "
            yield contents.places[name], f"{message}compared; {remedy}, to be recorded anew"


def _missing(file: Path, names: Sequence[str], what: str = "baseline") -> Iterator[tuple[str, str]]:
    if names:
        have = "1 case has" if len(names) == 1 else f"{len(names)} cases have"
        listed = named(names, _NAMES_SHOWN)
        message = f"{have} no {what}: {listed} (--dlperf-create-baselines records them)"
        yield f"{file}:1", message
