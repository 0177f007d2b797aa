"""What became of cases and their metrics: which is worst, and all in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import SINGLE_DEVICE, Case
from pytest_dlperf.model.judgement import Judgement, PastSession, Verdict
from pytest_dlperf.model.results import CaseResult, MetricResult, parse_time
from pytest_dlperf.report import printing

NOTHING_MEASURED: Final = "nothing was measured"
NAMES_SHOWN: Final = 3
"""Names of a family that a report tells, the worst; its table has all."""


def severity(known: MetricResult) -> tuple[int, float]:
    """Order metrics, the worst first."""
    if known.judgement is None:
        return Verdict.NOT_JUDGED.rank, 0.0
    return known.judgement.status.rank, -(known.judgement.loss_percent or 0.0)


def decisive(result: CaseResult, metric: str) -> Judgement | None:
    """Return the worst judgement of a test; of equals that of the metric that it is about."""
    return min(
        result.judgements.values(),
        key=lambda judgement: (judgement.verdict.rank, judgement.metric.name != metric),
        default=None,
    )


def decisive_metric(result: CaseResult) -> MetricResult | None:
    """Return the metric that a case's status comes from: the worst, of equals the first.

    Where the first is better than others, or others are of a family, that which has lost the most.
    ``None`` where the status comes from no verdict.
    """
    metrics = result.metrics()
    first = next(iter(metrics), None)
    found = (one for one in metrics.values() if one.judgement is not None)
    return min(
        (one for one in found if one.judgement and one.judgement.status is result.status),
        key=lambda one: (one.metric.name != first and not one.metric.family, severity(one)),
        default=None,
    )


def worst_of_families(known: Iterable[MetricResult]) -> list[MetricResult]:
    """Keep the worst names of each family, and all other metrics, in their order."""
    found = list(known)
    shown: Counter[str] = Counter()
    left_out = set()
    for one in sorted((one for one in found if one.metric.family), key=severity):
        shown[one.metric.family or ""] += 1
        if shown[one.metric.family or ""] > NAMES_SHOWN:
            left_out.add(one.metric.name)
    return [one for one in found if one.metric.name not in left_out]


def worst_first(results: Iterable[CaseResult]) -> list[CaseResult]:
    """Sort the cases as they are shown: by status, then what is not good by the size of its loss.

    Among equals the topologies of a training stand in a row.
    """

    def place(result: CaseResult) -> tuple[int, float, tuple[Any, ...]]:
        known = None if result.status.is_good else decisive_metric(result)
        return result.status.rank, severity(known)[1] if known else 0.0, result.case.sort_key

    return sorted(results, key=place)


def by_training(results: Iterable[CaseResult]) -> dict[str, list[CaseResult]]:
    """Group the cases that differ by their topology alone, by the name of what they train."""
    found: dict[str, list[CaseResult]] = {}
    for result in results:
        found.setdefault(f"{result.case.system}-{result.case.variant}", []).append(result)
    for members in found.values():
        members.sort(key=lambda one: (one.case.topology.world_size, one.case.topology))
    return found


def scaling_of(case: Case) -> str:
    """Name the kind of scaling, and the reference topology where it is not a single device.

    A probe has neither.
    """
    if case.work is None:
        return ""
    over = case.reference_topology
    of = f" over {over}" if over not in (None, SINGLE_DEVICE) else ""
    return f"{of}, {case.scaling.value} scaling"


def reason_without_names(reason: str, result: CaseResult) -> str:
    """Return what a reason has in common with that of other cases: all but their names and logs."""
    runs = result.measurement.runs if result.measurement is not None else ()
    # A node's log lies below the name of the run's.
    logs = [run.log.removesuffix(".log") for run in runs if run.log]
    for own in (*logs, result.case.id, str(result.case.topology)):
        reason = reason.replace(own, "")
    return reason


# -------------------------------------------------------------------------------- in words


def word_of(judgement: Judgement) -> str:
    """Say one verdict, and what was done about it."""
    status, verdict = judgement.status, judgement.verdict.value
    return verdict if status.value == verdict else f"{verdict}, {status.value}"


def metric_words(result: CaseResult) -> dict[str, tuple[str, Verdict]]:
    """Say the verdict on each metric that a test judges, with its status, by the metric's name."""
    found = {name: (word_of(judged), judged.status) for name, judged in result.judgements.items()}
    missing = dict.fromkeys(result.unfinished, (Verdict.NOT_JUDGED.value, Verdict.NOT_JUDGED))
    return {**missing, **found}


def counts(results: Iterable[CaseResult]) -> dict[Verdict, int]:
    """Count the cases per status, the worst first, without zeros."""
    found = Counter(result.status for result in results)
    return {status: found[status] for status in Verdict if found[status]}


def case_counts(
    results: Sequence[CaseResult],
    faults: Sequence[str] = (),
    *,
    strict: bool = False,
    interrupted: bool = False,
) -> str:
    """Say the counts in a line: ``115 cases: 1 failed, 2 regressed, 112 pass``.

    ``faults`` names what else failed in the session, which may have been ``interrupted``.
    """
    told = [
        f"{count} {status.value}{' (failed: strict)' * status.fails_by_option(strict=strict)}"
        for status, count in counts(results).items()
    ]
    text = ": ".join(filter(None, (numbers.counted(len(results), "case"), ", ".join(told))))
    failed = f"; failed: {printing.printable(numbers.named(faults, 1))}" if faults else ""
    return f"{'interrupted: ' * interrupted}{text}{failed}"


def recovered_from(result: CaseResult) -> PastSession | None:
    """Return the first session since which a case was red that passes again."""
    sessions = [one.red_since for one in result.explanations.values() if one.red_since is not None]
    is_good = result.status is Verdict.PASS
    return min(sessions, key=lambda one: parse_time(one.at)) if sessions and is_good else None
