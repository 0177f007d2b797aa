"""``pytest-dlperf qualify``: measures on recorded runs what the gate can see."""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Final
from zlib import crc32

from msgspec import Struct

from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.project import read_project
from pytest_dlperf.command.shell import (
    PYTEST_ARGUMENTS,
    Style,
    add_cases,
    add_folders,
    chosen_cases,
    integer_argument,
    text_argument,
)
from pytest_dlperf.config.values import ControlArm
from pytest_dlperf.files.yamlfile import nearest
from pytest_dlperf.gate.qualification import MIN_RUNS, Qualification, qualify
from pytest_dlperf.gate.rules import Terms, rule_maker, why_unusable
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.metric import Metric, RuleName
from pytest_dlperf.model.numbers import ABSENT, counted
from pytest_dlperf.plugin.suite import Suite, load_suite
from pytest_dlperf.reports.tables import stacked, wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.case import Case


_DEFAULT_TRIALS: Final = 500
_MIN_TRIALS: Final = 100
_MIN_TASKS_FOR_PROCESSES: Final = 4
_POLL_S: Final = 0.5
_HEADINGS: Final = (
    "runs",
    "sessions",
    "noise",
    "alarms",
    "at 1/2",
    "at 1",
    "at 2",
    "sees",
    "tolerance",
    "least",
)
_LEGEND: Final = (
    "noise      standard deviation between runs",
    "alarms     verdicts 'regressed' when nothing has changed",
    "at 1/2..2  verdicts 'regressed' when this many tolerances are lost",
    "sees       the smallest loss that is seen 9 times out of 10",
    "least      the smallest tolerance that the noise allows",
)
_INDENT: Final = "    "


class Task(Struct, frozen=True, kw_only=True):
    """One metric of a case to qualify; each loss is judged ``trials`` times."""

    case: Case
    metric: Metric
    baseline: Baseline
    terms: Terms
    trials: int
    seed: int


class Row(Struct, frozen=True, kw_only=True):
    """A row of the table: one qualified metric of a case."""

    case_id: str
    metric: str
    tolerance_percent: float
    qualification: Qualification


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Show what the gate can do with a cluster's own noise. The recorded runs of each case's "
        "metrics are split into a baseline and a candidate, by nights if there are enough; "
        "losses of 0, 1/2, 1 and 2 tolerances are added to the candidate, and the gate judges it, "
        "without a control arm. A tolerance that is too small for the noise is refused."
    )
    parser.epilog = PYTEST_ARGUMENTS
    add_cases(parser, "qualify")
    parser.add_argument(
        "--metric",
        type=text_argument,
        metavar="NAME",
        help="qualify this metric only (default: all that are judged by their own runs; a ratio "
        "such as speedup has none)",
    )
    parser.add_argument(
        "--cluster",
        type=text_argument,
        metavar="NAME",
        help="the cluster with the runs (default: that of --dlperf-cluster in the ini file or the "
        "environment)",
    )
    add_folders(parser)
    parser.add_argument(
        "--trials",
        type=integer_argument(_MIN_TRIALS),
        default=_DEFAULT_TRIALS,
        metavar="N",
        help=f"how often each loss is judged (default: {_DEFAULT_TRIALS})",
    )
    parser.add_argument(
        "--seed",
        type=integer_argument(0),
        default=0,
        metavar="N",
        help="seed of the random splits (default: 0)",
    )
    parser.add_argument(
        "--gate",
        choices=[rule.value for rule in RuleName],
        help="qualify this rule (default: the one by which sessions judge the case)",
    )


def run(options: argparse.Namespace) -> int:
    """Qualify the cases of a cluster, print what the gate sees, and return the exit code."""
    suite = _suite(options)
    nothing = f"no case of cluster {suite.cluster.name} has the id"
    ids = chosen_cases((case.id for case in suite.cases), options.cases, nothing)
    cases = [case for case in suite.cases if case.id in ids]
    judged = [(case, metric) for case in cases for metric in _judged(suite, case)]
    if options.metric is not None:
        judged = _of_metric(judged, options.metric)
    baselines = [
        (case, metric, baseline)
        for case, metric in judged
        if (baseline := suite.baselines(case).get(metric.name))
    ]
    tasks = [
        Task(
            case=case,
            metric=metric,
            baseline=baseline,
            terms=suite.terms(case, metric),
            trials=options.trials,
            # A seed per case: its result does not depend on the others.
            seed=crc32(f"{options.seed} {case.id} {metric.name}".encode()),
        )
        for case, metric, baseline in baselines
        if sum(map(len, baseline.rolling)) >= MIN_RUNS and _is_comparable(metric, baseline)
    ]
    style = Style(sys.stdout)
    rows = _qualified(tasks)
    if rows:
        legend = legend_lines(rows, trials=options.trials, seed=options.seed)
        style.show([*table_lines(rows, style), "", *legend, ""])
    comparable = sum(_is_comparable(metric, baseline) for _, metric, baseline in baselines)
    left_out = {
        "of another unit or direction than accepted, or not above 0; 'pytest-dlperf check' names "
        "them": len(baselines) - comparable,
        f"with fewer than {MIN_RUNS} recorded runs; --dlperf-extend-baselines adds those of "
        "sessions that pass": comparable - len(tasks),
        "without baseline; --dlperf-create-baselines records what is measured": len(judged)
        - len(baselines),
    }
    style.show(_summary(suite.cluster.name, rows, left_out, style))
    return FINE if rows and not any(row.qualification.fault for row in rows) else FAULTS


def _judged(suite: Suite, case: Case) -> Iterator[Metric]:
    """Yield the metrics of a case that are judged by their own runs."""
    for metric in suite.systems[case.system].metrics:
        if metric.is_judged and metric.better is not None and metric.ratio_of is None:
            yield metric


def _of_metric(judged: Sequence[tuple[Case, Metric]], name: str) -> list[tuple[Case, Metric]]:
    known = dict.fromkeys(metric.name for _, metric in judged)
    if name not in known:
        raise UsageError(
            f"--metric {name}: no such metric is judged by its own runs; known: "
            f"{', '.join(known)}{nearest(name, known)}"
        )
    return [(case, metric) for case, metric in judged if metric.name == name]


def _is_comparable(metric: Metric, baseline: Baseline) -> bool:
    same = (metric.unit, metric.better) == (baseline.unit, baseline.better)
    return same and why_unusable(baseline) is None


def _suite(options: argparse.Namespace) -> Suite:
    """Load the suite as a session of this cluster has it."""
    project = read_project(options)
    settings = project.settings._replace(
        cluster=options.cluster or project.settings.cluster,
        control=ControlArm.NEVER,  # nothing is run, so no cluster needs one
    )
    suite = load_suite(settings, more_files=project.more_files, more_formats=project.more_formats)
    if not suite.cases:
        folders = ", ".join(map(str, settings.systems_directories))
        raise UsageError(
            f"there are no cases: no system file (*.yaml) in {folders}. Start it in the folder in "
            "which you start pytest, or name the folder with --systems"
        )
    return suite


# ---------------------------------------------------------------------- qualification


def _qualified(tasks: Sequence[Task]) -> list[Row]:
    processors = len(os.sched_getaffinity(0))
    if len(tasks) < _MIN_TASKS_FOR_PROCESSES or processors == 1:
        return list(map(_qualify, tasks))
    with ProcessPoolExecutor(
        min(processors, len(tasks)),
        mp_context=multiprocessing.get_context("fork"),  # they have all imports already
        initializer=_end_with_parent,
        initargs=(os.getpid(),),
    ) as pool:
        return list(pool.map(_qualify, tasks))


def _end_with_parent(parent: int) -> None:
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        os._exit(FAULTS)

    threading.Thread(target=watch, daemon=True).start()


def _qualify(task: Task) -> Row:
    make_rule = rule_maker(task.metric, task.baseline, task.terms)
    tolerance = task.terms.tolerance_of(task.baseline)
    return Row(
        case_id=task.case.id,
        metric=task.metric.name,
        tolerance_percent=tolerance,
        qualification=qualify(
            task.baseline.rolling, make_rule, tolerance, trials=task.trials, seed=task.seed
        ),
    )


# ---------------------------------------------------------------------------- output


def table_lines(rows: Sequence[Row], style: Style) -> Iterator[str]:
    """Lay out the rows in their order, with the reason below each refused one."""
    cells = [("case", "metric", "rule", *_HEADINGS), *map(_cells, rows)]
    head, *below = stacked(cells, "lllr", names=3, width=style.width)
    yield from (style(line, "bold") for line in head)
    for row, lines in zip(rows, below, strict=True):
        fault = row.qualification.fault
        refusal = () if fault is None else wrapped(f"refused: {fault}", style.width - len(_INDENT))
        markup = ("green",) if fault is None else ("red",)
        for line in (*lines, *(f"{_INDENT}{line}" for line in refusal)):
            yield style(line, *markup)


def legend_lines(rows: Sequence[Row], *, trials: int, seed: int) -> Iterator[str]:
    """Explain the headings and the method."""
    yield from _LEGEND
    untried = sum(not row.qualification.has_nights for row in rows)
    if untried:
        # They would add alarms: only several nights show how nights differ.
        rows_of = "row" if untried == 1 else "rows"
        yield f"Differences between nights not tried in {untried} {rows_of}: too few sessions."
    yield f"From noise on, all in percent; {trials} trials of each loss, seed {seed}."


def _cells(row: Row) -> tuple[str, ...]:
    found = row.qualification
    half, once, twice = found.power
    return (
        row.case_id,
        row.metric,
        found.rule.value,
        str(found.runs),
        str(found.sessions),
        f"{found.noise_percent:.2f}",
        f"{100 * found.false_alarms:.1f}",
        f"{100 * half:.1f}",
        f"{100 * once:.1f}",
        f"{100 * twice:.1f}",
        _percent(found.min_detectable_percent),
        f"{row.tolerance_percent:g}",
        # Rounded up: with the next smaller number the tolerance would be refused.
        _percent(math.ceil(10 * found.smallest_tolerance_percent) / 10),
    )


def _percent(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.1f}"


def _summary(
    cluster: str, rows: Sequence[Row], left_out: Mapping[str, int], style: Style
) -> Iterator[str]:
    if rows:
        refused = sum(row.qualification.fault is not None for row in rows)
        markup = ("bold", "red" if refused else "green")
        found = style(f"{refused or 'none'} refused", *markup)
        cases = counted(len({row.case_id for row in rows}), "case")
        yield f"cluster {cluster}: {counted(len(rows), 'metric')} of {cases} qualified, {found}"
    else:
        yield f"cluster {cluster}: {style('nothing can be qualified', 'bold', 'red')}"
    for why, count in left_out.items():
        if count:
            yield from wrapped(f"{counted(count, 'metric')} left out {why}", style.width)
