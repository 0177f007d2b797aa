"""The runs of a measurement: the numbers of each, what kept it from them, and its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.measurement import InterleavedRuns, Measurement, Run, RunStatus, Samples
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.report import printing

RUNS_LISTED: Final = 20
"""Runs of a measurement that a terminal lists; of logs that exist there may be thousands."""


class RunText(Struct, frozen=True, kw_only=True):
    """A run, or an attempt at one that failed."""

    label: str
    """Its number: ``2``, or ``2, attempt 1``."""
    status: RunStatus
    cells: tuple[str, ...]
    """Its number of each metric, or what kept it from one."""
    reason: str
    """The same in full, of several lines where they end with those of a log."""
    missing: tuple[str, ...]
    """Why it lacks metrics, a line each."""
    steps: str
    log: str
    """Its log, below the folder."""

    @property
    def in_short(self) -> str:
        """Return the reason in one line."""
        return printing.in_short(self.reason)


class RunsText(Struct, frozen=True, kw_only=True):
    """The runs of one measurement, in their order."""

    name: str
    """What was measured."""
    estimator: str
    metrics: tuple[Metric, ...]
    sums: tuple[str, ...]
    """Median, mean and spread of each metric."""
    medians: tuple[str, ...]
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
    names = _metrics_of(measurement) if metrics is None else metrics
    found = [measurement.samples(each) for each in names]
    every, folder = list(_named_runs(measurement)), _log_folder(measurement)
    places = sorted(range(len(every)), key=lambda at: every[at][1].status is RunStatus.OK)
    listed = sorted(places[:most])
    return RunsText(
        name=name,
        estimator=measurement.estimator.value,
        metrics=tuple(samples.metric for samples in found),
        sums=tuple(map(_summed_up, found)),
        medians=tuple(numbers.number(each.median, each.metric.unit) for each in found),
        folder=folder,
        runs=tuple(
            RunText(
                label=label,
                status=run.status,
                cells=tuple(_cell(run, samples.metric) for samples in found),
                reason=run.reason or "",
                missing=tuple(f"{metric}: {why}" for metric, why in run.missing.items()),
                steps=numbers.ABSENT if run.steps is None else str(run.steps),
                log=(run.log or "").removeprefix(folder),
            )
            for label, run in map(every.__getitem__, listed)
        ),
        left_out=len(every) - len(listed),
    )


def _metrics_of(measurement: Measurement) -> Iterator[str]:
    known = {name for run in measurement.runs for name in (*run.metrics, *run.missing)}
    # Families have tables of their own.
    metrics = [each for each in measurement.metrics if not each.family] or measurement.metrics[:1]
    for at, metric in enumerate(metrics):
        if not at or metric.name in known:
            yield metric.name


def _summed_up(samples: Samples) -> str:
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


def _log_folder(measurement: Measurement) -> str:
    logs = [run.log for _, run in _named_runs(measurement) if run.log]
    folders = {log.rpartition("/")[0] for log in logs}
    several = len(logs) > 1 and len(folders) == 1
    return f"{folders.pop()}/" if several and folders != {""} else ""


def broken_runs(result: CaseResult) -> Iterator[tuple[str, Run]]:
    """Yield the runs of a case that are not ok, with what names them."""
    for arm, measured in arms_of(result):
        prefix = "" if measured is result.measurement else f"{arm}: "
        for name, run in _named_runs(measured):
            if run.status is not RunStatus.OK:
                yield f"{prefix}run {name} ({run.status.value})", run


def arms_of(result: CaseResult) -> tuple[tuple[str, Measurement], ...]:
    """Name the measurements of a case: its own, and the interleaved ones."""
    own = (("measured", result.measurement),) if result.measurement else ()
    return (*own, *interleaved_arms(result.interleaved))


def measurements_of(
    result: CaseResult, *, with_reference: bool
) -> Iterator[tuple[str, Measurement]]:
    """Name all measurements that a case's verdicts rest on."""
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
