"""One run as a whole: the logs of its nodes, and the metrics that follow from their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from pytest_dlperf.config.cluster import Cluster, published_peak
from pytest_dlperf.config.systems import System
from pytest_dlperf.launch.record import FirstStep, LaunchOutcome
from pytest_dlperf.logs.reading import LogReading
from pytest_dlperf.logs.run import RunLogs, RunNumbers
from pytest_dlperf.model.builtin import BUILTIN, WholeRun
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Estimator, Run, RunStatus, with_members
from pytest_dlperf.model.metric import MEMBER, THROUGHPUT, Metric, Source


def metrics_of_runs(system: System, runs: Sequence[Run] = ()) -> tuple[Metric, ...]:
    """Give the metrics that a single run of a system may have; of families, those of these runs."""
    names = dict.fromkeys(name for run in runs for name in run.metrics)
    missing = dict.fromkeys(name for run in runs for name in run.missing)
    single = [metric for metric in system.metrics if metric.source is not Source.RATIO]
    return with_members(single, names | missing)


def has_number(system: System, run: Run) -> bool:
    """Whether a run has a number that a test judges, if its system has any."""
    judged = {metric.name for metric in system.metrics if metric.is_judged}
    return not judged or any(name.partition(MEMBER)[0] in judged for name in run.metrics)


def logs_of(
    system: System, case: Case, estimator: Estimator, *, run: int, logs: Sequence[Path]
) -> RunLogs | RunNumbers:
    """Prepare to read the logs of a run, node 0's first."""
    if system.is_probe:
        return RunNumbers(
            logs, run=run, case=case, log_format=system.log_format, declared=system.declared
        )
    readings = [
        LogReading(
            path,
            number=run,
            case=case,
            log_format=system.log_format,
            window=system.window,
            estimator=estimator,
            unit=system.unit,
            metrics=system.metrics,
            declared=system.declared,
            node=node,
            nodes=len(logs),
        )
        for node, path in enumerate(logs)
    ]
    return RunLogs(readings, node=system.log_node)


def with_derived(  # noqa: PLR0913 - what a run was of
    run: Run,
    system: System,
    case: Case,
    cluster: Cluster,
    outcome: LaunchOutcome | None = None,
    *,
    device: str | None,
) -> Run:
    """Add what follows from the throughput, and what a launch has measured beside its logs.

    ``device`` is the model of the devices, where that is known.
    """
    rate = run.metrics.get(THROUGHPUT)
    if run.status is not RunStatus.OK or rate is None:
        return run
    step = FirstStep() if outcome is None else outcome.first_step
    whole = WholeRun(
        case=case,
        unit=system.unit,
        throughput=rate,
        peak_tflops=cluster.peak_tflops.get(case.precision)
        or published_peak(device, case.precision),
        first_step=step.problem if step.seconds is None else step.seconds,
        device=device,
        file=system.file.name,
    )
    metrics, missing = dict(run.metrics), dict(run.missing)
    for metric in metrics_of_runs(system):
        value = BUILTIN[metric.name].value if metric.name in BUILTIN else None
        found = None if value is None else value(whole)
        if isinstance(found, float):
            metrics[metric.name] = found
        elif found is not None and metric.is_judged:
            missing[metric.name] = found
    return replace(run, metrics=metrics, missing=missing)
