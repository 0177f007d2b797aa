"""``pytest-dlperf baselines``: delete accepted numbers, so that they can be recorded anew."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pytest_dlperf.baselines.reading import load_baselines
from pytest_dlperf.baselines.recording import delete
from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.project import read_project
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    add_folders,
    chosen_cases,
    text_argument,
)
from pytest_dlperf.config.cluster import CLUSTER_FILE, find_cluster
from pytest_dlperf.config.options import LOCAL_CLUSTER
from pytest_dlperf.files.yamlfile import nearest
from pytest_dlperf.model.errors import BrokenError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.model.baseline import Baseline

Entry = tuple[str, str, str]
"""System, variant and topology."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the subcommand takes."""
    parser.description = "Look after the accepted numbers of a cluster."
    actions = parser.add_subparsers(dest="baselines_command", metavar="ACTION", required=True)
    deleting = actions.add_parser(
        "delete",
        help="delete the entries of cases",
        description="Delete the entries of cases, or single metrics of them: "
        "what is gone, or is to be recorded anew with --dlperf-create-baselines. Comments stay.",
        epilog=PYTEST_ARGUMENTS,
        allow_abbrev=False,
    )
    deleting.add_argument(
        "cases",
        nargs="+",
        type=text_argument,
        metavar="CASE",
        help="cases whose entries go: ids, in which * stands for anything",
    )
    deleting.add_argument(
        "--cluster",
        type=text_argument,
        metavar="NAME",
        help="the cluster (default: that of --dlperf-cluster in the ini file or the environment)",
    )
    deleting.add_argument(
        "--metric",
        action="append",
        type=text_argument,
        metavar="NAME",
        help="delete only this metric; may be given several times (default: whole entries)",
    )
    add_folders(deleting)


def run(options: argparse.Namespace) -> int:
    """Delete what the cases and metrics name, all of it or nothing."""
    settings = read_project(options).settings
    name = options.cluster or settings.cluster
    cluster = find_cluster(settings.baselines_directory, name, local=LOCAL_CLUSTER)
    entries = _entries(cluster)
    ids = chosen_cases(map("-".join, entries), options.cases, f"cluster {name} has no entry")
    chosen = {key: entry for key, entry in entries.items() if "-".join(key) in ids}
    if options.metric is not None:
        chosen = _only(chosen, options.metric)
    for system in dict.fromkeys(system for system, *_ in chosen):
        keys = [(variant, topology) for one, variant, topology in chosen if one == system]
        try:
            delete(cluster, system, keys, options.metric)
        except OSError as error:
            file = cluster.directory / f"{system}.yaml"
            raise BrokenError(f"{file} cannot be written: {error.strerror or error}") from error
        for variant, topology in keys:
            numbers = ", ".join(
                f"{name} {one.accepted:g} {one.unit}"
                for name, one in chosen[system, variant, topology].items()
            )
            Style(sys.stdout).show([f"deleted: {system}-{variant}-{topology} ({numbers})"])
    return FINE


def _only(
    chosen: Mapping[Entry, Mapping[str, Baseline]], metrics: Sequence[str]
) -> dict[Entry, dict[str, Baseline]]:
    """Leave only some metrics, and the entries that have one of them."""
    known = list(dict.fromkeys(name for entry in chosen.values() for name in entry))
    for name in metrics:
        if name not in known:
            raise UsageError(
                f"--metric {name}: these cases have no such metric; they have "
                f"{', '.join(known)}{nearest(name, known)}"
            )
    left = {
        key: {name: one for name, one in entry.items() if name in metrics}
        for key, entry in chosen.items()
    }
    return {key: entry for key, entry in left.items() if entry}


def _entries(cluster: Cluster) -> dict[Entry, dict[str, Baseline]]:
    files = sorted(cluster.directory.glob("*.yaml"))
    return {
        (file.stem, *key): entry
        for file in files
        if file.name != CLUSTER_FILE
        for key, entry in load_baselines(cluster, file.stem).items()
    }
