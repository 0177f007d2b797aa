"""``pytest-dlperf check``: finds mistakes in a project's YAML files, by file and line."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct, to_builtins

from pytest_dlperf.baselines.checking import check_cluster
from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.project import read_project
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    add_folders,
    file_argument,
    text_argument,
    write_report,
)
from pytest_dlperf.config.cluster import (
    CLUSTER_FILE,
    Cluster,
    UnknownClusterError,
    find_cluster,
)
from pytest_dlperf.config.launch_variables import check_assignments
from pytest_dlperf.config.options import LOCAL_CLUSTER
from pytest_dlperf.config.systems import read_systems
from pytest_dlperf.files.yamlfile import Problem, YamlError
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.measurement import Estimator
from pytest_dlperf.model.numbers import counted, named
from pytest_dlperf.night.texts import in_full, printable
from pytest_dlperf.plugin.cases import own_metrics

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.command.project import Project
    from pytest_dlperf.config.systems import System

SCHEMA: Final = 1
_CLUSTERS_NAMED: Final = 5
_METRICS_NAMED: Final = 4
_MAX_TEST_FILES: Final = 5000
# Text of tests that ask for cases, and for metrics.
_CASE_TEST: Final = re.compile(rb"\bdlperf_(?:scaled_)?case\b|\bpytest_dlperf\.suite\b")
_METRIC_TEST: Final = re.compile(rb"\bdlperf_metric\b|\btest_metric\b")


class CheckResult(Struct, frozen=True, kw_only=True):
    """What was checked, and the findings."""

    system_files: int
    cases: int
    clusters: tuple[str, ...]
    findings: tuple[Problem, ...]

    @property
    def faults(self) -> int:
        """Number of findings that are faults; the others are remarks."""
        return sum(finding.is_fault for finding in self.findings)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Find mistakes in system files, in cluster.yaml and in baselines: YAML that "
        "cannot be read, systems that no test asks for, entries without a case, cases without an "
        "entry, numbers that do not follow from their runs. Each is printed with its file and line."
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
    parser.add_argument(
        "--json", type=file_argument, metavar="FILE", help="write the findings to FILE too"
    )


def run(options: argparse.Namespace) -> int:
    """Check the project in this folder, print the findings, and return the exit code."""
    checked = check_project(read_project(options), options.cluster)
    style = Style(sys.stdout)
    style.show(_line(finding, style) for finding in checked.findings)
    style.show([_summary(checked, style)])
    if options.json is not None:
        document = {"schema": SCHEMA, "faults": checked.faults, **to_builtins(checked)}
        text = json.dumps(document, indent=2, allow_nan=False) + "\n"
        write_report("--json", Path(options.json), text)
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
    findings += [each for system in systems.values() for each in (*system.remarks, *system.doubts)]
    findings += _metrics_without_tests(project, systems)
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
) -> list[Problem]:
    directory = project.settings.baselines_directory
    try:
        cluster = find_cluster(directory, name, local=LOCAL_CLUSTER)
    except YamlError as error:
        return [*error.problems, *_unreadable_baselines(directory / name)]
    except UnknownClusterError as error:
        if not any((directory / name).glob("*.y*ml")):
            raise UsageError(str(error)) from error
        message = f"there are baselines, but no {CLUSTER_FILE}: sessions do not know this cluster"
        return [
            Problem(place=str(directory / name), message=message, is_fault=True),
            *_unreadable_baselines(directory / name),
        ]
    findings = list(check_cluster(cluster, systems, all_are_read=all_are_read))
    return findings + _assignments(cluster, systems) if all_are_read else findings


def _unreadable_baselines(folder: Path) -> list[Problem]:
    """Find mistakes in the baselines of a cluster whose own file is missing or unreadable."""
    cluster = Cluster(name=folder.name, directory=folder, estimator=Estimator.STEADY)
    findings: list[Problem] = []
    for file in sorted(folder.glob("*.yaml")):
        if file.name == CLUSTER_FILE:
            continue
        try:
            load_baselines(cluster, file.stem)
        except YamlError as error:
            findings += error.problems
    return findings


def _assignments(cluster: Cluster, systems: Mapping[str, System]) -> list[Problem]:
    """Find variables that the cluster sets for launches and no system has."""
    control = cluster.control.assignments if cluster.control is not None else ()
    specs = {name: system.launch for name, system in systems.items()}
    return list(check_assignments(specs, (cluster.assignments, control)))


# -------------------------------------------------------------------------- tests


def _metrics_without_tests(project: Project, systems: Mapping[str, System]) -> Iterator[Problem]:
    """Find systems and metrics that no test asks for, as far as the text of the tests tells."""
    if not systems:
        return
    tests, place = project.tests, ", ".join(map(str, project.settings.systems_directories))
    texts = [text for text in _sources(tests.folders) if _CASE_TEST.search(text)]
    if not texts:
        if not tests.come_with_package:
            folders = ", ".join(map(os.path.relpath, tests.folders))
            message = (
                f"no test in {folders} asks for the cases of {counted(len(systems), 'system')}; "
                f"'pytest {tests.named_by}' runs the tests that come with the package"
            )
            yield Problem(place=place, message=message, is_fault=False)
        return
    judged = {name: metrics for name in systems if (metrics := own_metrics(systems[name]))}
    if judged and not any(_METRIC_TEST.search(text) for text in texts):
        lost = dict.fromkeys(metric.name for metrics in judged.values() for metric in metrics)
        message = (
            f"no test asks for dlperf_metric, so {named(list(lost), _METRICS_NAMED)} of "
            f"{named(list(judged), _METRICS_NAMED)} is not judged; add 'from "
            "pytest_dlperf.suite.test_suite import test_metric' to a test file"
        )
        yield Problem(place=place, message=message, is_fault=False)


def _sources(folders: Iterable[Path]) -> Iterator[bytes]:
    """Read the Python files that a session may collect tests from."""
    left = _MAX_TEST_FILES
    for start in folders:
        if start.is_file():
            yield _read(start)
        for folder, inner, names in os.walk(start):
            # As pytest does.
            skipped = (".", "_"), ("node_modules", "venv")
            inner[:] = [n for n in inner if not n.startswith(skipped[0]) and n not in skipped[1]]
            for name in names:
                if name.endswith(".py") and left:
                    left -= 1
                    yield _read(Path(folder, name))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


# ------------------------------------------------------------------------- output


def _line(finding: Problem, style: Style) -> str:
    place = printable(finding.place.removeprefix(f"{Path.cwd()}{os.sep}"))
    message = in_full(finding.message, 4)
    if finding.is_fault:
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
