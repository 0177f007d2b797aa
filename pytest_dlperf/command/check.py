"""``pytest-dlperf check``: finds mistakes in a project's YAML files, by file and line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pytest_dlperf.baselines.checking import check_cluster
from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.project import read_project
from pytest_dlperf.command.shell import PYTEST_ARGUMENTS, Style, add, add_folders
from pytest_dlperf.config.cluster import CLUSTER_FILE, Cluster, UnknownClusterError, find_cluster
from pytest_dlperf.config.settings import check_settings
from pytest_dlperf.config.systems import System, read_systems
from pytest_dlperf.files.yamlfile import Diagnostic, YamlError
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.numbers import counted, named
from pytest_dlperf.report.printing import in_full, printable

_CLUSTERS_NAMED: Final = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Find mistakes in system files, in cluster.yaml and in baselines: YAML that "
        "cannot be read, entries without a case, cases without an entry, numbers that do not "
        "follow from their runs. Each is printed with its file and line."
    )
    parser.epilog = PYTEST_ARGUMENTS
    several = "check this cluster only; may be given several times (default: all)"
    add(parser, "--cluster", action="append", help=several)
    add_folders(parser)


def run(options: argparse.Namespace) -> int:
    """Check the project in this folder, print the mistakes, and return the exit code."""
    project = read_project(options)
    settings, files = project.settings, project.system_files
    directory = settings.baselines_directory
    # Also those without a cluster.yaml: that is a mistake of its own.
    folders = sorted({file.parent.name for file in directory.glob("*/*.y*ml")})
    every = [name for name in folders if not name.startswith(".")]
    clusters = dict.fromkeys(options.cluster or every)
    if not files and not clusters:
        raise UsageError(
            "there is nothing to check: no system file (*.yaml) in "
            f"{', '.join(map(str, settings.systems_directories))}, and no cluster below "
            f"{directory}. Start it in the folder in which sessions of pytest are started, or name "
            "the folders with --systems and --baselines"
        )
    systems, diagnostics = read_systems(files, project.formats)
    all_are_read = not diagnostics
    diagnostics += [each for system in systems.values() for each in system.doubts]
    for name in clusters:
        diagnostics += _cluster(directory, name, systems, all_are_read=all_are_read)
    style = Style(sys.stdout)
    style.show(_line(diagnostic, style) for diagnostic in diagnostics)
    faults = sum(each.is_error for each in diagnostics)
    fault_words = ("bold", "red") if faults else ("bold", "green")
    found = [style(counted(faults, "fault") if faults else "no faults", *fault_words)]
    if notes := len(diagnostics) - faults:
        found.append(style(counted(notes, "note"), "yellow"))
    in_clusters = (
        f"{counted(len(clusters), 'cluster')} ({named(tuple(clusters), _CLUSTERS_NAMED)})"
        if clusters
        else "no cluster"
    )
    cases = counted(sum(len(system.cases) for system in systems.values()), "case")
    in_files = f"{counted(len(files), 'system file')} ({cases})"
    style.show([f"{in_files}, {in_clusters}: {', '.join(found)}"])
    return FAULTS if faults else FINE


def _cluster(
    directory: Path, name: str, systems: Mapping[str, System], *, all_are_read: bool
) -> Iterator[Diagnostic]:
    cluster = Cluster(name=name, directory=directory / name)
    try:
        cluster = find_cluster(directory, name)
    except YamlError as error:
        yield from error.diagnostics
    except UnknownClusterError:
        if not any(cluster.directory.glob("*.y*ml")):
            raise
        message = f"there are baselines, but no {CLUSTER_FILE}: sessions do not know this cluster"
        yield Diagnostic(place=str(cluster.directory), message=message)
    yield from check_cluster(cluster, systems, all_are_read=all_are_read)
    if all_are_read:
        launches = {name: system.launch for name, system in systems.items()}
        yield from check_settings(launches, (*cluster.settings, *cluster.control_settings))


def _line(diagnostic: Diagnostic, style: Style) -> str:
    place = printable(diagnostic.place.removeprefix(f"{Path.cwd()}{os.sep}"))
    message = in_full(diagnostic.message)
    if diagnostic.is_error:
        return f"{style(f'{place}:', 'bold', 'red')} {message}"
    return f"{style(f'{place}:', 'bold')} {style('note:', 'yellow')} {message}"
