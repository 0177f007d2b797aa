"""``pytest-dlperf qualify``: what the gate sees of a cluster's metrics, by their recorded runs."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from zlib import crc32

from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.power_table import Row, legend_lines, table_lines
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
from pytest_dlperf.gate.qualification import MIN_RUNS, qualify
from pytest_dlperf.gate.rules import rule_maker, why_unusable
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.metric import RuleName
from pytest_dlperf.plugin.suite import Suite, load_suite
from pytest_dlperf.reports.numbers import counted
from pytest_dlperf.reports.tables import wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_dlperf.gate.rules import Terms
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.metric import Metric

_DEFAULT_TRIALS: Final = 500
_MIN_TRIALS: Final = 100
_CASES_WORTH_PROCESSES: Final = 4
_WATCH_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One metric of a case to qualify; each loss is judged ``trials`` times."""

    case: Case
    metric: Metric
    baseline: Baseline
    terms: Terms
    trials: int
    seed: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the subcommand takes."""
    parser.description = (
        "Show what the gate can do on a cluster's own noise. The recorded runs of each case's "
        "metrics are split into a baseline and a candidate, by nights where there are enough; "
        "losses of nothing, 1/2, 1 and 2 tolerances are put into the candidate, and the gate "
        "judges, without a control arm. A tolerance below what the noise allows is refused."
    )
    parser.epilog = PYTEST_ARGUMENTS
    add_cases(parser, "qualify")
    parser.add_argument(
        "--metric",
        type=text_argument,
        metavar="NAME",
        help="qualify this metric alone (default: all that are judged by runs of their own; "
        "a ratio, as speedup is, has none)",
    )
    parser.add_argument(
        "--cluster",
        type=text_argument,
        metavar="NAME",
        help="the cluster whose runs are taken (default: that of --dlperf-cluster in the ini file "
        "or the environment)",
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
        help="another number splits the runs in another way (default: 0)",
    )
    parser.add_argument(
        "--gate",
        choices=[rule.value for rule in RuleName],
        help="qualify this rule (default: the one that a session would judge the case by)",
    )


def run(options: argparse.Namespace) -> int:
    """Qualify the cases of a cluster, print what the gate sees, and give the exit code."""
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
            # Of its own for each case: a case qualified alone comes out as it does among others.
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
        "of another unit or direction than accepted, or not above 0; 'pytest-dlperf check' tells "
        "of them": len(baselines) - comparable,
        f"with fewer than {MIN_RUNS} recorded runs; --dlperf-extend-baselines adds those of "
        "sessions that pass": comparable - len(tasks),
        "without baseline; --dlperf-create-baselines records what is measured": len(judged)
        - len(baselines),
    }
    style.show(_summary(suite.cluster.name, rows, left_out, style))
    return FINE if rows and not any(row.qualification.fault for row in rows) else FAULTS


def _judged(suite: Suite, case: Case) -> Iterator[Metric]:
    """Give the metrics of a case that a test judges by runs of their own."""
    for metric in suite.systems[case.system].metrics:
        if metric.is_judged and metric.better is not None and metric.ratio_of is None:
            yield metric


def _of_metric(judged: Sequence[tuple[Case, Metric]], name: str) -> list[tuple[Case, Metric]]:
    known = dict.fromkeys(metric.name for _, metric in judged)
    if name not in known:
        raise UsageError(
            f"--metric {name}: no such metric is judged by runs of its own; there are: "
            f"{', '.join(known)}{nearest(name, known)}"
        )
    return [(case, metric) for case, metric in judged if metric.name == name]


def _is_comparable(metric: Metric, baseline: Baseline) -> bool:
    same = (metric.unit, metric.better) == (baseline.unit, baseline.better)
    return same and why_unusable(baseline) is None


def _suite(options: argparse.Namespace) -> Suite:
    """Load the suite as a session of this cluster has it."""
    project = read_project(options)
    settings = replace(
        project.settings,
        cluster=options.cluster or project.settings.cluster,
        control=ControlArm.NEVER,  # nothing is run, so no cluster needs one
    )
    suite = load_suite(settings, more_files=project.more_files, more_formats=project.more_formats)
    if not suite.cases:
        folders = ", ".join(map(str, settings.systems_directories))
        raise UsageError(
            f"there are no cases: no system file (*.yaml) in {folders}. Start it in the folder in "
            "which sessions of pytest are started, or name the folder with --systems"
        )
    return suite


# ------------------------------------------------------------------------ qualifying


def _qualified(tasks: Sequence[Task]) -> list[Row]:
    processors = len(os.sched_getaffinity(0))
    if len(tasks) < _CASES_WORTH_PROCESSES or processors == 1:
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
            time.sleep(_WATCH_S)
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


# --------------------------------------------------------------------------- telling


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
