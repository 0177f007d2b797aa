"""``pytest-dlperf baselines``: shows accepted numbers, and who accepted them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pytest_dlperf.baselines.reading import defined_as, load_baselines
from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.project import read_project
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    add_cases,
    add_folders,
    chosen_cases,
    text_argument,
)
from pytest_dlperf.config.cluster import CLUSTER_FILE, find_cluster
from pytest_dlperf.config.options import LOCAL_CLUSTER
from pytest_dlperf.files.yamlfile import nearest
from pytest_dlperf.model import numbers
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.night.explanation_words import accepted_by
from pytest_dlperf.reports.tables import wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from pytest_dlperf.config.cluster import Cluster
    from pytest_dlperf.model.baseline import Baseline

Entry = tuple[str, str, str]
"""System, variant and topology."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    parser.description = "Show the accepted numbers of a cluster."
    actions = parser.add_subparsers(dest="baselines_command", metavar="ACTION", required=True)
    showing = actions.add_parser(
        "show",
        help="print the accepted numbers of cases, and who accepted them",
        description="Print the accepted numbers of a cluster: who accepted each, when, at which "
        "commit and why, as far as recorded.",
        epilog=PYTEST_ARGUMENTS,
        allow_abbrev=False,
    )
    add_cases(showing, "show")
    showing.add_argument(
        "--cluster",
        type=text_argument,
        metavar="NAME",
        help="the cluster (default: that of --dlperf-cluster in the ini file or the environment)",
    )
    showing.add_argument(
        "--metric",
        action="append",
        type=text_argument,
        metavar="NAME",
        help="show only this metric; may be given several times (default: all)",
    )
    add_folders(showing)


def run(options: argparse.Namespace) -> int:
    """Show the chosen entries."""
    settings = read_project(options).settings
    name = options.cluster or settings.cluster
    cluster = find_cluster(settings.baselines_directory, name, local=LOCAL_CLUSTER)
    entries = _entries(cluster)
    ids = chosen_cases(map("-".join, entries), options.cases, f"cluster {name} has no entry")
    chosen = {key: entry for key, entry in entries.items() if "-".join(key) in ids}
    if options.metric is not None:
        chosen = _only(chosen, options.metric)
    _show(chosen, Style(sys.stdout))
    return FINE


def _show(chosen: Mapping[Entry, Mapping[str, Baseline]], style: Style) -> None:
    for key, entry in chosen.items():
        style.show([style("-".join(key), "bold")])
        for name, one in entry.items():
            source = one.acceptance
            text = f"{name} {numbers.quantity(one.accepted, one.unit)}"
            if source is not None:
                text += f", accepted {accepted_by(source, source.at)}"
            style.show(f"  {line}" for line in wrapped(text, style.width - 2, indent=2))


def _only(
    chosen: Mapping[Entry, Mapping[str, Baseline]], metrics: Sequence[str]
) -> dict[Entry, dict[str, Baseline]]:
    """Keep only some metrics, with all members of a family, and the entries that have one."""
    members = list(dict.fromkeys(name for entry in chosen.values() for name in entry))
    known = list(dict.fromkeys(map(defined_as, members)))
    for name in metrics:
        if name not in {*known, *members}:
            raise UsageError(
                f"--metric {name}: these cases have no such metric; they have "
                f"{', '.join(known)}{nearest(name, known)}"
            )
    left = {
        key: {name: one for name, one in entry.items() if {name, defined_as(name)} & {*metrics}}
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
