"""The runs of a measurement: the numbers of each, what kept it from them, and its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.measurement import InterleavedRuns, Measurement, Run, RunStatus, Samples
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import CaseResult

RUNS_LISTED: Final = 20
"""Runs of a measurement that a terminal lists; of logs that exist there may be thousands."""


class RunText(Struct, frozen=True, kw_only=True):
    """A run, or an attempt at one that failed."""

    label: str
    """Its number: ``2``, or ``2, attempt 1``."""
    run: Run
    cells: tuple[str, ...]
    """Its number of each metric, or what kept it from one."""
    log: str
    """Its log, below the folder."""


class RunsText(Struct, frozen=True, kw_only=True):
    """The runs of one measurement, in their order."""

    name: str
    """What was measured."""
    estimator: str
    samples: tuple[Samples, ...]
    """Of each metric."""
    folder: str
    """Where all logs are, a slash at its end; nothing where they have no folder in common."""
    runs: tuple[RunText, ...]
    left_out: int


def runs_text(
    name: str,
    measurement: Measurement,
    metrics: Iterable[str] | None = None,
    *,
    most: int | None = None,
) -> RunsText:
    """Put runs into words, broken ones before others where they are more than ``most``.

    Without names, the ``metrics`` are those that a run has or lacks, the first in any case.
    """
    if metrics is None:
        known = {name for run in measurement.runs for name in (*run.metrics, *run.missing)}
        # Families have tables of their own.
        first, *others = [it.name for it in measurement.metrics if not it.family] or [
            measurement.metrics[0].name
        ]
        metrics = [first, *(it for it in others if it in known)]
    found = tuple(measurement.samples(each) for each in metrics)
    every = list(_named_runs(measurement))
    logs = [run.log for _, run in every if run.log]
    folders = {log.rpartition("/")[0] for log in logs}
    folder = (
        f"{folders.pop()}/" if len(logs) > 1 and len(folders) == 1 and "" not in folders else ""
    )
    places = sorted(range(len(every)), key=lambda at: every[at][1].status is RunStatus.OK)
    listed = [every[at] for at in sorted(places[:most])]
    return RunsText(
        name=name,
        estimator=measurement.estimator.value,
        samples=found,
        folder=folder,
        runs=tuple(
            RunText(
                label=label,
                run=run,
                cells=tuple(_cell(run, samples.metric) for samples in found),
                log=(run.log or "").removeprefix(folder),
            )
            for label, run in listed
        ),
        left_out=len(every) - len(listed),
    )


def summed_up(samples: Samples) -> str:
    """Write median, mean and spread."""
    unit = samples.metric.unit
    if not samples.values:
        return "no number"
    return (
        f"median {numbers.number(samples.median, unit)}, "
        f"mean {numbers.quantity(samples.mean, unit)}, "
        f"spread {numbers.variation(samples.spread)}"
    )


def _cell(run: Run, metric: Metric) -> str:
    value = run.metrics.get(metric.name)
    if value is not None:
        return numbers.number(value, metric.unit)
    return "missing" if run.status is RunStatus.OK else run.status.value


def _named_runs(measurement: Measurement) -> Iterator[tuple[str, Run]]:
    """Yield each run by its number, after the attempts at it that failed."""
    for run in measurement.runs:
        for number, attempt in enumerate(run.failed_attempts, start=1):
            yield f"{run.run}, attempt {number}", attempt
        yield str(run.run), run


def broken_runs(result: CaseResult) -> Iterator[tuple[str, Run]]:
    """Yield the runs of a case that are not ok, with what names them."""
    for name, measured in measurements_of(result):
        prefix = "" if measured is result.measurement else f"{name}: "
        for label, run in _named_runs(measured):
            if run.status is not RunStatus.OK:
                yield f"{prefix}run {label} ({run.status.value})", run


def measurements_of(
    result: CaseResult, *, with_reference: bool = False
) -> Iterator[tuple[str, Measurement]]:
    """Name the measurements of a case: its own, that of its reference, the interleaved ones."""
    if result.measurement is not None:
        yield result.case.id, result.measurement
    over = result.reference
    if with_reference and over is not None and over.case_id != result.case.id:
        yield over.case_id, over
    yield from interleaved_arms(result.interleaved)


def interleaved_arms(both: InterleavedRuns | None) -> tuple[tuple[str, Measurement], ...]:
    """Name the interleaved measurements, where there are any."""
    if both is None:
        return ()
    return (
        ("tested software, interleaved", both.candidate),
        ("accepted software, interleaved", both.control),
    )
