"""Adds to a system's accepted numbers, line by line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pytest_dlperf.baselines.cluster import CLUSTER_FILE
from pytest_dlperf.baselines.reading import read_system_baselines
from pytest_dlperf.locks import locked, write_whole
from pytest_dlperf.yamlfile import Problem, YamlError, YamlValue, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_dlperf.baselines.cluster import Cluster
    from pytest_dlperf.baselines.entry import Baseline
    from pytest_dlperf.cases import Case
    from pytest_dlperf.measurement import Estimator

SIGNIFICANT_DIGITS: Final = 6
"""Digits that a recorded number keeps: far finer than any training repeats itself."""

# What YAML 1.1 takes for something else than text.
_YAML_WORDS: Final = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")


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
            known = load(file, lambda root: read_system_baselines(root, system), text=text)
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
        now = load(file, lambda root: read_system_baselines(root, system), text=text)
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
