"""Figures of a case that several reports show, and its runs in the order in which they ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.judgement import Quantity, RuleName
from pytest_dlperf.reports import numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import InterleavedRuns, Measurement, Run
    from pytest_dlperf.model.records import CaseResult, TestRecord
    from pytest_dlperf.model.results import BaselineChange

CHANGE_HEADINGS: Final = ("case", "unit", "old", "new", "diff", "why")


def writer(quantity: str) -> Callable[[float | None], str]:
    """Return the function that writes numbers of a quantity."""
    return numbers.speedup if quantity == Quantity.SPEEDUP.value else numbers.throughput


def change_row(change: BaselineChange) -> tuple[str, str, str, str, str, str]:
    """Return the cells of an accepted number, below ``CHANGE_HEADINGS``."""
    written = writer(change.quantity)
    return (
        change.case_id,
        change.unit,
        written(change.old),
        written(change.new),
        numbers.signed_percent(change.difference_percent),
        change.why,
    )


def alike(reason: str, case: Case) -> str:
    """Return what a reason has in common with that of other cases: all but their names."""
    return reason.replace(case.id, "").replace(str(case.topology), "")


def by_training(results: Iterable[CaseResult]) -> dict[str, list[CaseResult]]:
    """Group the cases that differ by their topology alone, by the name of what they train."""
    found: dict[str, list[CaseResult]] = {}
    for result in results:
        found.setdefault(f"{result.case.system}-{result.case.variant}", []).append(result)
    return found


def decisive(record: TestRecord) -> Judgement | None:
    """Return the worst judgement of a test; of equals that of what the test is about."""
    return min(
        record.judgements.values(),
        key=lambda judgement: (judgement.verdict.gravity, judgement.quantity != record.quantity),
        default=None,
    )


def held_against(result: CaseResult, quantity: Quantity) -> float | None:
    """Return what a difference is taken from: the pooled last sessions, or the accepted number."""
    judgement, accepted = result.judgements.get(quantity), result.accepted
    if judgement is not None and judgement.reference is not None:
        return judgement.reference
    if accepted is None:
        return None
    return accepted.throughput if quantity is Quantity.THROUGHPUT else accepted.speedup


def accepted(judgement: Judgement | None) -> float | None:
    """Return the accepted number, where tonight was held against another one."""
    if judgement is None or judgement.reference == judgement.accepted:
        return None
    return judgement.accepted


def difference_percent(judgement: Judgement | None) -> float | None:
    """Return how far the number that is shown lies above the reference shown beside it.

    The rule may have gone by another number than the median: see ``rule_view``. ``None`` where
    nothing was compared.
    """
    if judgement is None or judgement.difference_percent is None:
        return None
    held = judgement.reference
    if not held or judgement.measured is None:
        return judgement.difference_percent
    return (judgement.measured / held - 1) * 100


def rule_view(judgement: Judgement) -> str | None:
    """Say what the rule went by, such as "the runs that count lie at 399.01", if not the median."""
    held = judgement.reference
    percent = judgement.difference_percent
    if judgement.rule is not RuleName.SEQUENTIAL or percent is None or held is None:
        return None
    written = writer(judgement.quantity)
    ends = judgement.interval_percent
    interval = f" (95 %: {numbers.interval(ends)})" if ends else ""
    place = written(held * (1 + percent / 100))
    return f"the runs that count lie at {place}: {numbers.signed_percent(percent)}{interval}"


def detectable_losses(results: Iterable[CaseResult]) -> str | None:
    """Say the minimum detectable changes, from the best to the worst: ``2.1 to 66.0 %``."""
    found = [
        judgement.min_detectable_percent
        for result in results
        for judgement in result.judgements.values()
        if judgement.min_detectable_percent is not None
    ]
    if not found:
        return None
    seen = [percent for percent in found if percent < 100]  # noqa: PLR2004 - nobody loses more
    blind = len(found) - len(seen)
    unseen = f"none by {blind} of {len(found)} verdicts" if blind else ""
    if not seen:
        return unseen
    low, high = numbers.percent(min(seen)), numbers.percent(max(seen))
    told = low if low == high else f"{low.removesuffix(' %')} to {high}"
    return f"{told}, {unseen}" if unseen else told


def efficiency_percent(speedup: float | None, devices: int) -> float | None:
    """Return the scaling efficiency: how much of the ideal a speedup is."""
    return None if speedup is None else 100 * speedup / devices


def case_cells(result: CaseResult) -> dict[str, str]:
    """Write the numbers of a case, by the headings of all tables that show them."""
    measured = result.measurement
    by_throughput = result.judgements.get(Quantity.THROUGHPUT)
    by_speedup = result.judgements.get(Quantity.SPEEDUP)
    efficiency = efficiency_percent(result.speedup, result.case.topology.world_size)
    return {
        "unit": measured.unit if measured else numbers.ABSENT,
        "median": numbers.throughput(measured.median if measured else None),
        "reference": numbers.throughput(held_against(result, Quantity.THROUGHPUT)),
        "diff": numbers.signed_percent(difference_percent(by_throughput)),
        "sees": _sees(by_throughput),
        "spread": numbers.spread(measured.spread if measured else None),
        "mean": numbers.throughput(measured.mean if measured else None),
        "runs": run_count(measured),
        "speedup": numbers.speedup(result.speedup),
        "of ideal": numbers.percent(efficiency),
        "speedup reference": numbers.speedup(held_against(result, Quantity.SPEEDUP)),
        "speedup diff": numbers.signed_percent(difference_percent(by_speedup)),
        "speedup sees": _sees(by_speedup),
    }


def _sees(judgement: Judgement | None) -> str:
    return numbers.detectable_loss(judgement.min_detectable_percent if judgement else None)


def run_count(measurement: Measurement | None) -> str:
    """Count the runs, as ``4/5`` where some are broken."""
    if measurement is None:
        return numbers.ABSENT
    usable, taken = len(measurement.throughputs), len(measurement.runs)
    return str(taken) if usable == taken else f"{usable}/{taken}"


def summed_up(measurement: Measurement) -> str:
    """Say median, mean and spread in a line."""
    return (
        f"median {numbers.throughput(measurement.median)}, "
        f"mean {numbers.throughput(measurement.mean)} {measurement.unit}, "
        f"spread {numbers.spread(measurement.spread)}"
    )


def named_runs(measurement: Measurement) -> Iterator[tuple[str, Run]]:
    """Yield each run by its number, after the attempts at it that failed."""
    for run in measurement.runs:
        for number, attempt in enumerate(run.failed_attempts, start=1):
            yield f"{run.run}, attempt {number}", attempt
        yield str(run.run), run


def log_folder(measurement: Measurement) -> str:
    """Return the common folder of several logs, a slash at its end; else nothing."""
    logs = [run.log for _, run in named_runs(measurement) if run.log]
    folders = {log.rpartition("/")[0] for log in logs}
    several = len(logs) > 1 and len(folders) == 1
    return f"{folders.pop()}/" if several and folders != {""} else ""


def interleaved_arms(both: InterleavedRuns | None) -> tuple[tuple[str, Measurement], ...]:
    """Name the interleaved measurements, where there are any."""
    if both is None:
        return ()
    return (
        ("tested software, interleaved", both.candidate),
        ("accepted software, interleaved", both.control),
    )
