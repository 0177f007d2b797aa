"""Baselines: the accepted numbers of each cluster, ``<cluster>/<system>.yaml``.

A cluster's ``cluster.yaml`` holds its hardware and software and the estimator of its numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pytest_dlperf.cases import Topology
from pytest_dlperf.launch.reading import read_assignments
from pytest_dlperf.locks import locked, write_whole
from pytest_dlperf.measurement import Estimator
from pytest_dlperf.yamlfile import Problem, YamlError, YamlValue, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_dlperf.cases import Case
    from pytest_dlperf.launch.variables import Assignment

CLUSTER_FILE: Final = "cluster.yaml"
SIGNIFICANT_DIGITS: Final = 6
"""Digits that a recorded number keeps: far finer than any training repeats itself."""

# What YAML 1.1 takes for something else than text.
_YAML_WORDS: Final = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")
_VARIANT = re.compile(r"[a-z][a-z0-9]*-b[1-9][0-9]*(?:-[a-z][a-z0-9_]*(?:\+[a-z][a-z0-9_]*)*)?")


class UnknownClusterError(Exception):
    """No such cluster; the message lists those that there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One set of machines whose numbers are comparable.

    ``systems`` are the systems that it runs, ``None`` for all. ``assignments`` are what it sets
    for launches, ``devices_per_node`` the devices of hosts that are given without a number, and
    ``python`` the interpreter that supervises a run on a node, ``None`` where it says nothing.
    ``hardware`` and ``software`` are for the reader.
    """

    name: str
    directory: Path
    estimator: Estimator
    systems: tuple[str, ...] | None = None
    description: str | None = None
    assignments: tuple[Assignment, ...] = ()
    devices_per_node: int | None = None
    python: str | None = None
    hardware: Mapping[str, str] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The accepted numbers of one case.

    ``throughput`` is the median in ``unit`` per second; ``speedup`` is over one device, ``None``
    where none was recorded. ``runs`` are the throughputs by run number as far as they are known,
    ``strays`` those that went into the published median but are no runs of this case. ``place``
    is the file and line.
    """

    throughput: float
    speedup: float | None
    unit: str
    estimator: Estimator
    tolerance_percent: float | None
    mean: float | None
    runs: Mapping[int, float]
    strays: Mapping[int, float]
    note: str | None
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBaseline:
    """Numbers to record for a case that has none."""

    case: Case
    throughput: float
    speedup: float | None
    runs: Mapping[int, float]

    @property
    def key(self) -> tuple[str, str]:
        """Variant and topology, as ``load_baselines`` has them."""
        return self.case.variant, str(self.case.topology)


def find_cluster(baselines_directory: Path, name: str, *, local: str) -> Cluster:
    """Find a cluster by name; the ``local`` one is there without a file.

    Raises:
        UnknownClusterError: There is no such folder with a ``cluster.yaml``.
        YamlError: Its ``cluster.yaml`` has mistakes.
    """
    known = sorted(
        {file.parent.name for file in baselines_directory.glob(f"*/{CLUSTER_FILE}")} | {local}
    )
    if name not in known:
        raise UnknownClusterError(
            f"there is no cluster {name!r} below {baselines_directory}; "
            f"there are: {', '.join(known)}. A new one begins with a file "
            f"{baselines_directory / name / CLUSTER_FILE} that says 'estimator: steady'"
        )
    file = baselines_directory / name / CLUSTER_FILE
    if not file.exists():
        return Cluster(name=name, directory=file.parent, estimator=Estimator.STEADY)
    return load(file, _read_cluster)


def load_baselines(cluster: Cluster, system: str) -> dict[tuple[str, str], Baseline]:
    """Read a system's baselines, by variant (``fp32-b128``) and topology.

    Raises:
        YamlError: The file has mistakes.
    """
    file = cluster.directory / f"{system}.yaml"
    if not file.exists():
        return {}
    return load(file, lambda root: _read_system_baselines(root, system))


def _read_cluster(root: YamlValue) -> Cluster:
    fields = root.fields(
        required=(),
        optional=(
            "estimator",
            "description",
            "systems",
            "vars",
            "devices_per_node",
            "python",
            "hardware",
            "software",
        ),
    )
    return Cluster(
        name=root.file.parent.name,
        directory=root.file.parent,
        estimator=fields.get("estimator", _read_estimator, Estimator.STEADY),
        systems=fields.get("systems", _read_names, None),
        description=fields.get("description", lambda v: v.text(), None),
        assignments=fields.get("vars", read_assignments, ()),
        devices_per_node=fields.get("devices_per_node", lambda v: v.whole_number(1), None),
        python=fields.get("python", lambda v: v.text("a Python interpreter"), None),
        hardware=fields.get("hardware", _read_facts, {}),
        software=fields.get("software", _read_facts, {}),
    )


def _read_estimator(value: YamlValue) -> Estimator | None:
    chosen = value.choice([estimator.value for estimator in Estimator])
    return Estimator(chosen) if chosen else None


def _read_names(value: YamlValue) -> tuple[str, ...]:
    read = (item.text("a system's name") for item in value.items("a list of systems"))
    return tuple(name for name in read if name is not None)


def _read_facts(value: YamlValue) -> dict[str, str]:
    """Free facts for the reader: any scalars, as they are written."""
    read = {key: item.scalar() for key, item in value.entries()}
    return {key: text for key, text in read.items() if text is not None}


def _read_system_baselines(root: YamlValue, system: str) -> dict[tuple[str, str], Baseline]:
    fields = root.fields(
        required=("system", "unit", "estimator", "entries"), optional=("provenance",)
    )
    named = fields.place("system")
    declared = fields.get("system", lambda v: v.text("a system's name"), system)
    if named is not None and declared != system:
        named.fault(f"found {declared!r}; the file's name says {system!r}")
    unit = fields.get("unit", lambda v: v.text("a unit"), "")
    estimator = fields.get("estimator", _read_estimator, Estimator.STEADY)
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
            _read_facts(item)
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


# ------------------------------------------------------------------------ recording


def record_baselines(
    cluster: Cluster,
    system: str,
    unit: str,
    new: Iterable[NewBaseline],
    *,
    provenance: Mapping[str, str],
) -> list[NewBaseline]:
    """Add baselines to a system's file; return those that were added.

    Cases that have a baseline by now (another session may have been quicker) are left alone, and
    so is every line of the file that stands already. The file is replaced in one step.

    Raises:
        YamlError: The file that is there has mistakes or cannot be extended line by line.
        OSError: The file or its folder cannot be written.
    """
    file = cluster.directory / f"{system}.yaml"
    with locked(cluster.directory / ".lock"):
        known: dict[tuple[str, str], Baseline] = {}
        if file.exists():
            # Not read_text(): it would turn the file's own line ends into others.
            text = file.read_bytes().decode("utf-8")
            known = load(file, lambda root: _read_system_baselines(root, system), text=text)
        else:
            text = _new_file(system, unit, cluster.estimator, provenance)
        added = [item for item in new if _is_new(item, known)]
        if not added:
            return []
        for item in added:
            text = _with_entry(file, text, item)
        _check_recorded(file, text, system, known, added)
        if not (cluster.directory / CLUSTER_FILE).exists():
            write_whole(cluster.directory / CLUSTER_FILE, _new_cluster_file(cluster))
        write_whole(file, text)
    return added


def significant(value: float) -> float:
    """The number as a baseline file keeps it."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def _new_cluster_file(cluster: Cluster) -> str:
    return (
        "description: this machine's own numbers, recorded by --dlperf-create-baselines\n"
        f"estimator: {cluster.estimator.value}\n"
    )


def _new_file(system: str, unit: str, estimator: Estimator, provenance: Mapping[str, str]) -> str:
    lines = [f"system: {system}", f"unit: {_quoted(unit)}", f"estimator: {estimator.value}"]
    if provenance:
        lines += ["provenance:", *(f"  {key}: {_quoted(text)}" for key, text in provenance.items())]
    return "\n".join([*lines, "entries:\n"])


def _is_new(item: NewBaseline, known: Mapping[tuple[str, str], Baseline]) -> bool:
    """Whether the item has a number that the file lacks."""
    baseline = known.get(item.key)
    return baseline is None or (baseline.speedup is None and item.speedup is not None)


def _with_entry(file: Path, text: str, item: NewBaseline) -> str:
    """The file's text with one more topology, in its group or in a group of its own.

    A topology that stands already gets the speedup that it lacks.
    """
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.removesuffix(end).split(end)
    groups = load(file, lambda root: _entry_places(file, root), text=text)
    indent, step = _indentation(groups, lines)
    group = next((place for key, place in groups if key == item.case.variant), None)
    if group is None:
        at = groups[-1][1].end_line if groups else len(lines)
        entry = [
            f"{' ' * (indent - step)}{item.case.variant}:",
            *_topology_lines(item, indent=indent, step=step),
        ]
    elif group.is_empty:
        at, entry = group.line, _topology_lines(item, indent=indent, step=step)
    elif (standing := dict(group.entries()).get(str(item.case.topology))) is None:
        at, entry = group.end_line, _topology_lines(item, indent=group.column, step=step)
    else:
        at = dict(standing.entries())["throughput"].end_line
        entry = [f"{' ' * standing.column}{_speedup(item)}"]
    return end.join([*lines[:at], *entry, *lines[at:]]) + end


def _indentation(groups: list[tuple[str, YamlValue]], lines: list[str]) -> tuple[int, int]:
    """How far the file indents topologies, and one level."""
    for _, place in groups:
        if not place.is_empty:
            return place.column, max(1, place.column // 2)
    for _, place in groups:
        line = lines[place.line - 1]
        outer = len(line) - len(line.lstrip(" "))
        return 2 * outer, outer
    return 4, 2


def _entry_places(file: Path, root: YamlValue) -> list[tuple[str, YamlValue]]:
    entries = next((value for key, value in root.entries() if key == "entries"), None)
    groups = entries.entries(or_nothing=True) if entries else []
    in_braces = [place for _, place in groups if place.is_flow]
    if entries is None or entries.is_flow or in_braces:
        where = in_braces[0] if in_braces else root
        raise YamlError(
            [
                Problem(
                    file,
                    where.line,
                    where.path,
                    "a baseline can be added only to entries written one below the other, "
                    "not in braces",
                )
            ]
        )
    return groups


def _topology_lines(item: NewBaseline, *, indent: int, step: int) -> list[str]:
    pad, inner = " " * indent, " " * (indent + step)
    runs = ", ".join(f"{run}: {significant(value)!r}" for run, value in sorted(item.runs.items()))
    lines = [
        f"{pad}{item.case.topology}:",
        f"{inner}throughput: {significant(item.throughput)!r}",
    ]
    if item.speedup is not None:
        lines.append(f"{inner}{_speedup(item)}")
    lines.append(f"{inner}runs: {{{runs}}}")
    lines.append(f"{inner}recorded: {datetime.now().astimezone():%Y-%m-%d}")
    return lines


def _speedup(item: NewBaseline) -> str:
    return f"speedup: {significant(item.speedup or 0.0)!r}"


def _check_recorded(
    file: Path,
    text: str,
    system: str,
    known: Mapping[tuple[str, str], Baseline],
    added: Iterable[NewBaseline],
) -> None:
    """Read the new text back: all that stood must stand, and what was added must be there."""
    try:
        now = load(file, lambda root: _read_system_baselines(root, system), text=text)
    except YamlError:
        now = {}
    expected = {key: (old.throughput, old.speedup) for key, old in known.items()}
    for item in added:
        throughput, _ = expected.get(item.key, (significant(item.throughput), None))
        speedup = None if item.speedup is None else significant(item.speedup)
        expected[item.key] = throughput, speedup
    if {key: (new.throughput, new.speedup) for key, new in now.items()} != expected:
        message = "the file is laid out in a way that cannot be extended; add the entries by hand"
        raise YamlError([Problem(file, 1, "$.entries", message)])


def _quoted(text: str) -> str:
    """Text as a YAML scalar: bare where that is safe."""
    if re.fullmatch(r"[A-Za-z][A-Za-z0-9_/.-]*", text) and text.lower() not in _YAML_WORDS:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
