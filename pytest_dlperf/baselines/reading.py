"""Reads a system's accepted numbers, ``<cluster>/<system>.yaml``."""

from __future__ import annotations

import re

from pytest_dlperf.baselines.cluster import Cluster, read_estimator, read_facts
from pytest_dlperf.baselines.entry import Baseline
from pytest_dlperf.cases import Topology
from pytest_dlperf.measurement import Estimator
from pytest_dlperf.yamlfile import YamlValue, load

_VARIANT = re.compile(r"[a-z][a-z0-9]*-b[1-9][0-9]*(?:-[a-z][a-z0-9_]*(?:\+[a-z][a-z0-9_]*)*)?")


def load_baselines(cluster: Cluster, system: str) -> dict[tuple[str, str], Baseline]:
    """Read a system's baselines, by variant (``fp32-b128``) and topology.

    Raises:
        YamlError: The file has mistakes.
    """
    file = cluster.directory / f"{system}.yaml"
    if not file.exists():
        return {}
    return load(file, lambda root: read_system_baselines(root, system))


def read_system_baselines(root: YamlValue, system: str) -> dict[tuple[str, str], Baseline]:
    """Read a system's file from its root, by variant and topology."""
    fields = root.fields(
        required=("system", "unit", "estimator", "entries"), optional=("provenance",)
    )
    named = fields.place("system")
    declared = fields.get("system", lambda v: v.text("a system's name"), system)
    if named is not None and declared != system:
        named.fault(f"found {declared!r}; the file's name says {system!r}")
    unit = fields.get("unit", lambda v: v.text("a unit"), "")
    estimator = fields.get("estimator", read_estimator, Estimator.STEADY)
    fields.get("provenance", _check_provenance, None)
    baselines: dict[tuple[str, str], Baseline] = {}
    entries = fields.place("entries")
    # What is left when entries have been deleted by hand is no mistake.
    groups = entries.entries("a mapping of cases", or_nothing=True) if entries else []
    for variant, group in groups:
        if not _VARIANT.fullmatch(variant):
            group.fault(
                f"{variant!r} names no case; the form is <precision>-b<batch>[-<option>[+<option>]]"
            )
            continue
        topologies = group.entries("a mapping of topologies such as 4n8g", or_nothing=True)
        for topology, place in topologies:
            try:
                Topology.parse(topology)
            except ValueError as error:
                place.fault(str(error))
                continue
            baseline = _read_baseline(place, unit, estimator)
            if baseline is not None:
                baselines[variant, topology] = baseline
    return baselines


def _check_provenance(value: YamlValue) -> None:
    """Where the numbers come from is free text, but for a mapping of software versions."""
    for key, item in value.entries():
        if key == "software":
            read_facts(item)
        else:
            item.scalar()


def _read_baseline(value: YamlValue, unit: str, estimator: Estimator) -> Baseline | None:
    fields = value.fields(
        required=("throughput",),
        optional=("speedup", "mean", "runs", "strays", "tolerance_percent", "recorded", "note"),
    )
    throughput = fields.get("throughput", lambda v: v.positive_number(), 0.0)
    fields.get("recorded", lambda v: v.scalar(), None)
    if not throughput:
        return None
    return Baseline(
        throughput=throughput,
        speedup=fields.get("speedup", lambda v: v.positive_number(), None),
        unit=unit,
        estimator=estimator,
        tolerance_percent=fields.get("tolerance_percent", lambda v: v.percentage(), None),
        mean=fields.get("mean", lambda v: v.positive_number(), None),
        runs=fields.get("runs", _read_runs, {}),
        strays=fields.get("strays", _read_runs, {}),
        note=fields.get("note", lambda v: v.text(), None),
        place=f"{value.file}:{value.line}",
    )


def _read_runs(value: YamlValue) -> dict[int, float]:
    runs: dict[int, float] = {}
    for key, item in value.entries("a mapping of run numbers to throughputs"):
        if not (key.isascii() and key.isdigit() and int(key) > 0):
            item.fault(f"{key!r} is no run number")
            continue
        throughput = item.positive_number()
        if throughput is not None:
            runs[int(key)] = throughput
    return runs
