"""Figures of a case that several reports show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import SINGLE_DEVICE, Case
from pytest_dlperf.model.judgement import Judgement
from pytest_dlperf.model.measurement import Measurement
from pytest_dlperf.model.metric import Better, Metric
from pytest_dlperf.model.results import BaselineChange, CaseResult
from pytest_dlperf.report import printing

CHANGE_HEADINGS: Final = ("case", "metric", "unit", "old", "new", "diff", "by", "why")
FIGURES: Final = (
    "metric", "median", "unit", "reference", "diff", "sees", "of ideal", "spread", "mean", "runs",
)  # fmt: skip
"""Headings of a metric's numbers, in the order in which wide tables show them."""


def change_row(change: BaselineChange) -> tuple[str, str, str, str, str, str, str, str]:
    """Return the cells of an accepted number, below ``CHANGE_HEADINGS``."""
    return (
        change.case_id,
        change.metric,
        change.unit,
        numbers.number(change.old, change.unit),
        numbers.number(change.new, change.unit),
        numbers.signed_percent(change.difference_percent),
        printing.person(change.by),
        printing.reason(change.why),
    )


def alike(reason: str, result: CaseResult) -> str:
    """Return what a reason has in common with that of other cases: all but their names and logs."""
    runs = result.measurement.runs if result.measurement is not None else ()
    # A node's log lies below the name of the run's.
    logs = [run.log.removesuffix(".log") for run in runs if run.log]
    for own in (*logs, result.case.id, str(result.case.topology)):
        reason = reason.replace(own, "")
    return reason


def by_training(results: Iterable[CaseResult]) -> dict[str, list[CaseResult]]:
    """Group the cases that differ by their topology alone, by the name of what they train."""
    found: dict[str, list[CaseResult]] = {}
    for result in results:
        found.setdefault(f"{result.case.system}-{result.case.variant}", []).append(result)
    return found


def decisive(result: CaseResult, metric: str) -> Judgement | None:
    """Return the worst judgement of a test; of equals that of the metric that it is about."""
    return min(
        result.judgements.values(),
        key=lambda judgement: (judgement.verdict.rank, judgement.metric.name != metric),
        default=None,
    )


def accepted(judgement: Judgement | None) -> float | None:
    """Return the accepted number, where the number was held against another one."""
    if judgement is None or judgement.decision is None:
        return judgement.accepted if judgement else None
    if judgement.decision.reference == judgement.accepted:
        return None
    return judgement.accepted


def difference_percent(judgement: Judgement | None) -> float | None:
    """Return how far the runs that count lie above the reference; ``None`` if nothing was compared.

    The median may lie elsewhere: see ``rule_view``.
    """
    decision = judgement.decision if judgement else None
    return decision.difference_percent if decision else None


def lost(judgement: Judgement | None) -> float | None:
    """Return the difference that is shown as a loss in percent; negative: a gain."""
    shown = difference_percent(judgement)
    if judgement is None or shown is None or judgement.metric.better is None:
        return None
    return -judgement.metric.better.sign * shown


def rule_view(judgement: Judgement) -> str | None:
    """Say where the runs that count lie, if that is not at the median."""
    decision, measured = judgement.decision, judgement.measured
    if decision is None or measured is None:
        return None
    percent = decision.difference_percent
    of_median = numbers.signed_percent(100 * (measured / decision.reference - 1))
    if of_median == numbers.signed_percent(percent):
        return None
    place = numbers.number(decision.reference * (1 + percent / 100), judgement.metric.unit)
    return f"the runs that count lie at {place}"


def scaling_of(case: Case) -> str:
    """Name the kind of scaling, and the reference topology where it is not a single device.

    A probe has neither.
    """
    if case.work is None:
        return ""
    over = case.reference_topology
    of = f" over {over}" if over not in (None, SINGLE_DEVICE) else ""
    return f"{of}, {case.scaling.value} scaling"


def metric_cells(result: CaseResult, name: str) -> dict[str, str]:
    """Write the numbers of one of a case's metrics, by the headings of all tables with them.

    ``named`` is the metric with its unit, ``directed`` says as well if lower is better.
    """
    known = result.metrics().get(name)
    if known is None:
        told = name or numbers.ABSENT
        return {**dict.fromkeys(FIGURES, numbers.ABSENT), "metric": told, "named": told}
    unit, judgement = known.metric.unit, known.judgement
    decision = judgement.decision if judgement else None
    is_ratio, is_lower = known.metric.ratio_of is not None, known.metric.better is Better.LOWER
    return {
        "metric": name,
        "named": with_unit(known.metric),
        "unit": unit or numbers.ABSENT,
        "median": numbers.number(known.median, unit),
        "reference": numbers.number(known.reference, unit),
        "diff": numbers.signed_percent(difference_percent(judgement)),
        "sees": numbers.detectable_loss(decision.min_detectable_percent if decision else None),
        "spread": numbers.variation(known.spread),
        "mean": numbers.number(known.mean, unit),
        "runs": numbers.ABSENT if is_ratio else _run_count(result.measurement, name),
        "of ideal": numbers.percent(known.efficiency_percent),
        "accepted": numbers.number(accepted(judgement), unit),
        "directed": f"{with_unit(known.metric)}{', lower is better' * is_lower}",
    }


def with_unit(metric: Metric, word: str = "") -> str:
    """Name a metric and its unit, if it has one: ``peak_memory (MB)``, or with a word between."""
    if not metric.unit:
        return metric.name
    return f"{metric.name} {word} {metric.unit}" if word else f"{metric.name} ({metric.unit})"


def _run_count(measurement: Measurement | None, metric: str) -> str:
    """Count the runs that have a metric, as ``4/5`` where some have not."""
    if measurement is None:
        return numbers.ABSENT
    usable, taken = sum(metric in run.metrics for run in measurement.runs), len(measurement.runs)
    return str(taken) if usable == taken else f"{usable}/{taken}"
