"""``pytest-dlperf baselines``: shows accepted numbers, and who accepted them."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

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
from pytest_dlperf.config.cluster import CLUSTER_FILE, Cluster
from pytest_dlperf.files.mistakes import nearest
from pytest_dlperf.gate.accepting import needed_tolerance
from pytest_dlperf.gate.noise import is_noise_free
from pytest_dlperf.gate.rule import Rule
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.plugin.suite import Suite, load_suite
from pytest_dlperf.report.printing import stacked, wrapped
from pytest_dlperf.report.words import accepted_by

Entry = tuple[str, str, str]
"""System, variant and topology."""

_HEADINGS: Final = ("case", "metric", "accepted", "noise", "sees", "tolerance", "needs")
_LEGEND: Final = (
    "noise      standard deviation between the runs of a session",
    "sees       the smallest loss that the gate finds 9 times out of 10",
    "needs      the tolerance with which such runs fail by chance in 1 session of 200",
)
_INDENT: Final = "    "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    parser.description = "Show the accepted numbers of a cluster."
    actions = parser.add_subparsers(dest="baselines_command", metavar="ACTION", required=True)
    showing = actions.add_parser(
        "show",
        help="print the accepted numbers of cases, and who accepted them",
        description="Print the accepted numbers of a cluster: who accepted each, when, at which "
        "commit and why, as far as recorded; and how much its runs differ, and which loss that "
        "shows.",
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
    project = read_project(options)
    settings = project.settings
    settings = settings._replace(cluster=options.cluster or settings.cluster)
    suite = load_suite(settings, more_files=project.more_files, more_formats=project.more_formats)
    entries = _entries(suite.cluster)
    nothing = f"cluster {suite.cluster.name} has no entry"
    ids = chosen_cases(map("-".join, entries), options.cases, nothing)
    chosen = {key: entry for key, entry in entries.items() if "-".join(key) in ids}
    if options.metric is not None:
        chosen = _only(chosen, options.metric)
    style = Style(sys.stdout)
    style.show(_table(chosen, suite, style))
    return FINE


def _table(
    chosen: Mapping[Entry, Mapping[str, Baseline]], suite: Suite, style: Style
) -> Iterator[str]:
    """Lay out the numbers, and below each who accepted it."""
    cases = {case.id: case for case in suite.cases}
    shown = [("-".join(key), one) for key, entry in chosen.items() for one in entry.values()]
    if not shown:
        return
    cells = [_cells(case_id, one, suite, cases.get(case_id)) for case_id, one in shown]
    head, *below = stacked([_HEADINGS, *cells], "lllrrr", names=3, width=style.width)
    yield from (style(line, "bold") for line in head)
    for (_, one), lines in zip(shown, below, strict=True):
        yield from lines
        if one.acceptance is not None:
            text = f"accepted {accepted_by(one.acceptance, one.acceptance.at)}"
            yield from (f"{_INDENT}{line}" for line in wrapped(text, style.width - len(_INDENT)))
    yield ""
    yield from _LEGEND


def _cells(case_id: str, one: Baseline, suite: Suite, case: Case | None) -> tuple[str, ...]:
    """Write a number, and what the gate can see by it where sessions judge it by its own runs."""
    accepted = (case_id, one.metric, numbers.quantity(one.accepted, one.unit))
    metric = _judged(suite, case, one)
    if case is None or metric is None:
        return (*accepted, *[numbers.ABSENT] * (len(_HEADINGS) - len(accepted)))
    terms = suite.terms(case, metric)
    rule = Rule(metric, one, terms)
    noise = rule.noise.deviation if rule.noise else None
    if is_noise_free(one.rolling):
        noise = 0.0
    needed = needed_tolerance(tuple(one.runs.values()), one.better)
    return (
        *accepted,
        numbers.variation(noise),
        numbers.detectable_loss(rule.min_detectable_percent),
        numbers.percent(terms.tolerance_of(one)),
        # Rounded up: the next smaller number would not be enough.
        numbers.percent(None if needed is None else math.ceil(1000 * needed) / 10),
    )


def _judged(suite: Suite, case: Case | None, one: Baseline) -> Metric | None:
    """Return the metric as sessions judge it by its own runs; ``None`` if they do not."""
    if case is None:
        return None
    try:
        metric = suite.metric(case, one.metric)
    except ValueError:  # no system declares it any more
        return None
    is_same = (metric.unit, metric.better) == (one.unit, one.better)
    is_judged = metric.is_judged and metric.ratio_of is None
    return metric if is_judged and is_same else None


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
