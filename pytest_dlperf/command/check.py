"""``pytest-dlperf check``: finds mistakes in a project's YAML files, by file and line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pytest_dlperf.baselines.checking import check_cluster
from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.project import Project, read_project
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    add_folders,
    text_argument,
)
from pytest_dlperf.config.cluster import (
    CLUSTER_FILE,
    Cluster,
    UnknownClusterError,
    find_cluster,
)
from pytest_dlperf.config.settings import check_settings
from pytest_dlperf.config.systems import System, read_systems
from pytest_dlperf.files.yamlfile import Diagnostic, YamlError
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.numbers import counted, named
from pytest_dlperf.report.printing import in_full, printable

_CLUSTERS_NAMED: Final = 5


class CheckResult(Struct, frozen=True, kw_only=True):
    """What was checked, and the findings."""

    system_files: int
    cases: int
    clusters: tuple[str, ...]
    findings: tuple[Diagnostic, ...]

    @property
    def faults(self) -> int:
        """Number of findings that are faults; the others are remarks."""
        return sum(finding.is_error for finding in self.findings)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Find mistakes in system files, in cluster.yaml and in baselines: YAML that "
        "cannot be read, entries without a case, cases without an entry, numbers that do not "
        "follow from their runs. Each is printed with its file and line."
    )
    parser.epilog = PYTEST_ARGUMENTS
    parser.add_argument(
        "--cluster",
        action="append",
        type=text_argument,
        metavar="NAME",
        help="check this cluster only; may be given several times (default: all)",
    )
    add_folders(parser)


def run(options: argparse.Namespace) -> int:
    """Check the project in this folder, print the findings, and return the exit code."""
    checked = check_project(read_project(options), options.cluster)
    style = Style(sys.stdout)
    style.show(_line(finding, style) for finding in checked.findings)
    style.show([_summary(checked, style)])
    return FAULTS if checked.faults else FINE


def check_project(project: Project, only_clusters: Sequence[str] | None) -> CheckResult:
    """Check the system files and all clusters, or only those that are named."""
    files = project.system_files
    systems, findings = read_systems(files, project.formats)
    names = _cluster_names(project, only_clusters)
    if not files and not names:
        folders = ", ".join(map(str, project.settings.systems_directories))
        raise UsageError(
            f"there is nothing to check: no system file (*.yaml) in {folders}, and no cluster "
            f"below {project.settings.baselines_directory}. Start it in the folder in which "
            "sessions of pytest are started, or name the folders with --systems and --baselines"
        )
    all_are_read = not findings
    findings += [each for system in systems.values() for each in system.doubts]
    for name in names:
        findings += _cluster(project, name, systems, all_are_read=all_are_read)
    return CheckResult(
        system_files=len(files),
        cases=sum(len(system.cases) for system in systems.values()),
        clusters=tuple(names),
        findings=tuple(findings),
    )


def _cluster_names(project: Project, only: Sequence[str] | None) -> list[str]:
    directory = project.settings.baselines_directory
    if only is not None:
        return list(dict.fromkeys(only))
    # Also those without a cluster.yaml: that is a finding of its own.
    names = {file.parent.name for file in directory.glob("*/*.y*ml")}
    return sorted(name for name in names if not name.startswith("."))


def _cluster(
    project: Project, name: str, systems: Mapping[str, System], *, all_are_read: bool
) -> list[Diagnostic]:
    directory = project.settings.baselines_directory
    try:
        cluster = find_cluster(directory, name)
    except YamlError as error:
        return [*error.diagnostics, *_unreadable_baselines(directory / name)]
    except UnknownClusterError as error:
        if not any((directory / name).glob("*.y*ml")):
            raise UsageError(str(error)) from error
        message = f"there are baselines, but no {CLUSTER_FILE}: sessions do not know this cluster"
        return [
            Diagnostic(place=str(directory / name), message=message, is_error=True),
            *_unreadable_baselines(directory / name),
        ]
    findings = list(check_cluster(cluster, systems, all_are_read=all_are_read))
    return findings + _settings(cluster, systems) if all_are_read else findings


def _unreadable_baselines(folder: Path) -> list[Diagnostic]:
    """Find mistakes in the baselines of a cluster whose own file is missing or unreadable."""
    cluster = Cluster(name=folder.name, directory=folder, estimator=Estimator.STEADY)
    findings: list[Diagnostic] = []
    for file in sorted(folder.glob("*.yaml")):
        if file.name == CLUSTER_FILE:
            continue
        try:
            load_baselines(cluster, file.stem)
        except YamlError as error:
            findings += error.diagnostics
    return findings


def _settings(cluster: Cluster, systems: Mapping[str, System]) -> list[Diagnostic]:
    """Find variables that the cluster sets for launches and no system has."""
    specs = {name: system.launch for name, system in systems.items()}
    return list(check_settings(specs, (*cluster.settings, *cluster.control_settings)))


# ------------------------------------------------------------------------- output


def _line(finding: Diagnostic, style: Style) -> str:
    place = printable(finding.place.removeprefix(f"{Path.cwd()}{os.sep}"))
    message = in_full(finding.message)
    if finding.is_error:
        return f"{style(f'{place}:', 'bold', 'red')} {message}"
    return f"{style(f'{place}:', 'bold')} {style('note:', 'yellow')} {message}"


def _summary(checked: CheckResult, style: Style) -> str:
    clusters = (
        f"{counted(len(checked.clusters), 'cluster')} ({named(checked.clusters, _CLUSTERS_NAMED)})"
        if checked.clusters
        else "no cluster"
    )
    systems = f"{counted(checked.system_files, 'system file')} ({counted(checked.cases, 'case')})"
    notes = len(checked.findings) - checked.faults
    found = [
        style(counted(checked.faults, "fault"), "bold", "red")
        if checked.faults
        else style("no faults", "bold", "green")
    ]
    if notes:
        found.append(style(counted(notes, "note"), "yellow"))
    return f"{systems}, {clusters}: {', '.join(found)}"
