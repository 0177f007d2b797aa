"""Figures of a case that several reports show, and its runs in the order in which they ran."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.gate.verdict import Quantity
from pytest_dlperf.reports import numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_dlperf.measurement import Measurement, Run
    from pytest_dlperf.session import CaseResult


def by_training(results: Iterable[CaseResult]) -> dict[str, list[CaseResult]]:
    """The cases that differ by their topology alone, by the name of what they train."""
    found: dict[str, list[CaseResult]] = {}
    for result in results:
        found.setdefault(f"{result.case.system}-{result.case.variant}", []).append(result)
    return found


def held_against(result: CaseResult, quantity: Quantity) -> float | None:
    """What a difference is taken from: the last accepted sessions, or the accepted number."""
    judgement, accepted = result.judgements.get(quantity), result.accepted
    if judgement is not None and judgement.reference is not None:
        return judgement.reference
    if accepted is None:
        return None
    return accepted.throughput if quantity is Quantity.THROUGHPUT else accepted.speedup


def efficiency_percent(speedup: float | None, devices: int) -> float | None:
    """Scaling efficiency: how much of the ideal a speedup is."""
    return None if speedup is None else 100 * speedup / devices


def run_count(measurement: Measurement | None) -> str:
    """How many runs were taken, as ``4/5`` where some are broken."""
    if measurement is None:
        return numbers.ABSENT
    usable, taken = len(measurement.throughputs), len(measurement.runs)
    return str(taken) if usable == taken else f"{usable}/{taken}"


def summed_up(measurement: Measurement) -> str:
    """Median, mean and spread in a line."""
    return (
        f"median {numbers.throughput(measurement.median)}, "
        f"mean {numbers.throughput(measurement.mean)} {measurement.unit}, "
        f"spread {numbers.spread(measurement.spread)}"
    )


def named_runs(measurement: Measurement) -> Iterator[tuple[str, Run]]:
    """Each run by its number, after the attempts at it that failed."""
    for run in measurement.runs:
        for number, attempt in enumerate(run.failed_attempts, start=1):
            yield f"{run.run}, attempt {number}", attempt
        yield str(run.run), run


def log_folder(measurement: Measurement) -> str:
    """The folder that all of several logs lie in, with the stroke behind it, else nothing."""
    logs = [run.log for _, run in named_runs(measurement) if run.log]
    folders = {log.rpartition("/")[0] for log in logs}
    several = len(logs) > 1 and len(folders) == 1
    return f"{folders.pop()}/" if several and folders != {""} else ""
