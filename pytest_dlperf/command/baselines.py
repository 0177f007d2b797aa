"""``pytest-dlperf baselines``: shows accepted numbers, and who accepted them."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from pytest_dlperf.baselines.reading import defined_as, load_baselines
from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.project import read_project
from pytest_dlperf.command.shell import PYTEST_ARGUMENTS, Style, add, add_folders, chosen
from pytest_dlperf.config.cluster import CLUSTER_FILE, Cluster
from pytest_dlperf.gate.accepting import needed_tolerance
from pytest_dlperf.gate.noise import is_noise_free
from pytest_dlperf.gate.rule import Rule
from pytest_dlperf.model import numbers
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.plugin.suite import Suite, load_suite
from pytest_dlperf.report.printing import stacked, wrapped
from pytest_dlperf.report.words import accepted_by

_HEADINGS: Final = ("case", "metric", "accepted", "noise", "sees", "tolerance", "needs")
_LEGEND: Final = (
    "noise      standard deviation between the runs of a session",
    "sees       the smallest loss that the gate finds 9 times out of 10",
    "needs      the tolerance with which such runs fail by chance in 1 session of 200",
)
_INDENT: Final = "    "


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Print the accepted numbers of a cluster: who accepted each, when, at which commit and "
        "why, as far as recorded; and how much its runs differ, and which loss that shows."
    )
    parser.epilog = PYTEST_ARGUMENTS
    parser.add_argument("action", choices=["show"], help="print them")
    add(parser, "cases", "--metric")
    add(parser, "--cluster", help="the cluster (default: that of sessions in this folder)")
    add_folders(parser)


def run(options: argparse.Namespace) -> int:
    """Show the chosen entries."""
    project = read_project(options)
    settings = project.settings
    settings = settings._replace(cluster=options.cluster or settings.cluster)
    suite = load_suite(settings, more_files=project.more_files, more_formats=project.more_formats)
    rows = list(_accepted(suite.cluster))
    nothing = f"cluster {suite.cluster.name} has no entry"
    ids = chosen((case_id for case_id, _ in rows), options.cases, nothing)
    rows = [row for row in rows if row[0] in ids]
    names = [name for _, it in rows for name in (it.metric, defined_as(it.metric))]
    metrics = chosen(names, [options.metric], "--metric: these cases have no metric")
    style = Style(sys.stdout)
    rows = [row for row in rows if {row[1].metric, defined_as(row[1].metric)} & metrics]
    style.show(_table(rows, suite, style))
    return FINE


def _accepted(cluster: Cluster) -> Iterator[tuple[str, Baseline]]:
    """Yield the accepted numbers with the ids of their cases."""
    for file in sorted(cluster.directory.glob("*.yaml")):
        entries = load_baselines(cluster, file.stem) if file.name != CLUSTER_FILE else {}
        for (variant, topology), entry in entries.items():
            yield from ((f"{file.stem}-{variant}-{topology}", it) for it in entry.values())


def _table(rows: Sequence[tuple[str, Baseline]], suite: Suite, style: Style) -> Iterator[str]:
    """Lay out the numbers, and below each who accepted it."""
    if not rows:
        return
    cells = [_cells(case_id, baseline, suite) for case_id, baseline in rows]
    head, *below = stacked([_HEADINGS, *cells], "lllrrr", names=3, width=style.width)
    yield from (style(line, "bold") for line in head)
    for (_, baseline), lines in zip(rows, below, strict=True):
        yield from lines
        if (acceptance := baseline.acceptance) is not None:
            text = f"accepted {accepted_by(acceptance, acceptance.at)}"
            yield from (f"{_INDENT}{line}" for line in wrapped(text, style.width - len(_INDENT)))
    yield ""
    yield from _LEGEND


def _cells(case_id: str, baseline: Baseline, suite: Suite) -> tuple[str, ...]:
    """Write a number, and what the gate can see by it where sessions judge it by its own runs."""
    number = numbers.quantity(baseline.accepted, baseline.unit)
    accepted = (case_id, baseline.metric, number)
    unknown = (*accepted, *[numbers.ABSENT] * (len(_HEADINGS) - len(accepted)))
    try:
        case = next(case for case in suite.cases if case.id == case_id)
        metric = suite.metric(case, baseline.metric)
    except (StopIteration, ValueError):  # no system declares it any more
        return unknown
    is_same = (metric.unit, metric.better) == (baseline.unit, baseline.better)
    if not (is_same and metric.is_judged) or metric.ratio_of:
        return unknown
    terms = suite.terms(case, metric)
    rule = Rule(metric, baseline, terms)
    noise = rule.noise.deviation if rule.noise else None
    needed = needed_tolerance(tuple(baseline.runs.values()), baseline.better)
    return (
        *accepted,
        numbers.variation(0.0 if is_noise_free(baseline.rolling) else noise),
        numbers.detectable_loss(rule.min_detectable_percent),
        numbers.percent(terms.tolerance_of(baseline)),
        # Rounded up: the next smaller number would not be enough.
        numbers.percent(None if needed is None else math.ceil(1000 * needed) / 10),
    )
