"""Looks through a cluster's files without measuring: are they whole, and do the numbers add up?"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.baselines.recording import SIGNIFICANT_DIGITS, significant
from pytest_dlperf.config.cluster import CLUSTER_FILE, undeclared_systems
from pytest_dlperf.files.yamlfile import Problem, YamlError, nearest
from pytest_dlperf.model import statistics
from pytest_dlperf.model.baseline import MAX_TOLERANCE_PERCENT, ROLLING_SESSIONS
from pytest_dlperf.model.measurement import PUBLISHED_DECIMALS, Estimator
from pytest_dlperf.model.results import parse_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.config.systems import System
    from pytest_dlperf.model.baseline import Baseline

_NAMES_SHOWN: Final = 5
# What a number exactly between two digits may be off beside.
_FLOATING_POINT: Final = 1.0001


def check_cluster(
    cluster: Cluster, systems: Mapping[str, System], *, all_are_read: bool = True
) -> Iterator[Problem]:
    """Check all baselines of a cluster against the systems that are declared.

    Unless ``all_are_read``, a name that no system has may be that of one whose file has mistakes.
    """
    cluster_file = cluster.directory / CLUSTER_FILE
    place = f"{cluster_file}:1" if cluster_file.exists() else str(cluster.directory)
    listed = cluster.systems
    for message in undeclared_systems(cluster, systems) if all_are_read else ():
        yield Problem(place=place, message=message)
    files = {file.stem: file for file in sorted(cluster.directory.glob("*.yaml"))}
    files.pop(cluster_file.stem, None)
    for file in files.values():
        yield from _file(file, cluster, systems, all_are_read=all_are_read)
    for name in systems if listed is None else listed:
        if name in systems and name not in files:
            count = len(systems[name].cases)
            yield Problem(
                place=place,
                message=f"{name}: none of its {count} cases has a baseline",
                is_fault=listed is not None,
            )


def _file(
    file: Path, cluster: Cluster, systems: Mapping[str, System], *, all_are_read: bool
) -> Iterator[Problem]:
    name = file.stem
    try:
        baselines = load_baselines(cluster, name)
    except YamlError as error:
        yield from error.problems
        return
    if name not in systems and all_are_read:
        message = f"no system file declares {name!r}{nearest(name, systems)}"
        yield Problem(place=f"{file}:1", message=f"{message}; delete it if there is none any more")
    elif cluster.systems is not None and name not in cluster.systems:
        message = f"{CLUSTER_FILE} does not list the system {name!r}, so nothing reads this"
        yield Problem(place=f"{file}:1", message=message)
    if name in systems:
        yield from _coverage(file, cluster, systems[name], baselines)
    for (variant, topology), baseline in baselines.items():
        for message, is_fault in _entry(baseline):
            where = f"{name}-{variant}-{topology}"
            yield Problem(place=baseline.place, message=f"{where}: {message}", is_fault=is_fault)


def _coverage(
    file: Path,
    cluster: Cluster,
    system: System,
    baselines: Mapping[tuple[str, str], Baseline],
) -> Iterator[Problem]:
    cases = {(case.variant, str(case.topology)): case for case in system.cases}
    for key, baseline in baselines.items():
        if key not in cases:
            name = "-".join(key)
            near = nearest(name, ["-".join(other) for other in cases if other not in baselines])
            remedy = "`pytest-dlperf baselines delete` takes the entry out"
            message = f"stale: {file.stem} has no case {name}{near}; {remedy}"
            yield Problem(place=baseline.place, message=message)
    missing = [case.id for key, case in cases.items() if key not in baselines]
    if missing:
        names = ", ".join(missing[:_NAMES_SHOWN])
        more = f" and {len(missing) - _NAMES_SHOWN} more" if len(missing) > _NAMES_SHOWN else ""
        have = "1 case has" if len(missing) == 1 else f"{len(missing)} cases have"
        message = f"{have} no baseline: {names}{more} (--dlperf-create-baselines records them)"
        yield Problem(place=f"{file}:1", message=message)
    for baseline in list(baselines.values())[:1]:
        if baseline.unit != system.unit:
            message = f"the unit is {baseline.unit!r}, that of the system {system.unit!r}"
            yield Problem(place=f"{file}:1", message=f"{message}; they are never compared")
        if baseline.estimator is not cluster.estimator:
            message = (
                f"the estimator is {baseline.estimator.value}, that of the cluster "
                f"{cluster.estimator.value}; they are never compared"
            )
            yield Problem(place=f"{file}:1", message=message)


def _entry(baseline: Baseline) -> Iterator[tuple[str, bool]]:
    yield from ((message, True) for message in _arithmetic(baseline))
    yield from ((message, True) for message in _dates(baseline))
    if len(baseline.sessions) > ROLLING_SESSIONS:
        count = len(baseline.sessions)
        message = f"{count} sessions; the last {ROLLING_SESSIONS} count, delete the older ones"
        yield message, True
    tolerance = baseline.tolerance_percent
    if tolerance is not None and tolerance > MAX_TOLERANCE_PERCENT:
        # Losses that a reader would call large pass.
        yield f"the own tolerance is {tolerance:g} %: any loss up to it passes", False


def _arithmetic(baseline: Baseline) -> Iterator[str]:
    values = [*baseline.runs.values(), *baseline.strays.values()]
    published = baseline.estimator is Estimator.PUBLISHED
    of = "runs and strays" if baseline.strays else "runs"
    if baseline.runs:
        figures = [("throughput", baseline.throughput, "median", statistics.median(values))]
        if baseline.mean is not None:
            figures.append(("mean", baseline.mean, "mean", statistics.mean(values)))
        for name, number, statistic, exact in figures:
            if not _follows(number, exact, number + max(values), published=published):
                shown = f"{exact:.{PUBLISHED_DECIMALS}f}" if published else f"{significant(exact)}"
                yield (
                    f"the {name} {number!r} does not follow from its runs: the {statistic} of "
                    f"{len(values)} {of} is {shown}"
                )
    single = baseline.accepted.single_device if baseline.accepted else None
    if single is not None and baseline.speedup is not None:
        exact = baseline.throughput / single
        if not _follows(baseline.speedup, exact, 3 * exact, published=published):
            yield (
                f"the speedup {baseline.speedup!r} does not follow from its numbers: "
                f"{baseline.throughput:g} over {single:g} is {significant(exact)}"
            )


def _follows(number: float, exact: float, sizes: float, *, published: bool) -> bool:
    # ``sizes`` is the sum of all rounded numbers that it can be wrong by, this one included, in
    # its own unit: each is off by half of its last digit at most.
    rounding = 0.5 * 10.0 ** (1 - SIGNIFICANT_DIGITS) * sizes
    if published:
        rounding += 0.5 * 10.0**-PUBLISHED_DECIMALS
    return abs(number - exact) <= rounding * _FLOATING_POINT


def _dates(baseline: Baseline) -> Iterator[str]:
    times = [("the accepted number", baseline.accepted.at)] if baseline.accepted else []
    times += [("a session", session.at) for session in baseline.sessions]
    for (earlier, before), (later, after) in pairwise(times):
        if parse_time(before) > parse_time(after):
            yield f"{later} of {after} stands behind {earlier} of {before}; the oldest goes first"
