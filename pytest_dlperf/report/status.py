"""The status of a case at the end of a session, in one word, and all cases in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Judgement, PastSession, Verdict
from pytest_dlperf.model.results import CaseResult, MetricResult, parse_time
from pytest_dlperf.report import printing
from pytest_dlperf.report.columns import lost

NOTHING_MEASURED: Final = "nothing was measured"


def decisive_metric(result: CaseResult) -> MetricResult | None:
    """Return the metric that a case's status comes from: the worst, of equals the first.

    Where the first is better than others, or others are of a family, that which has lost the most.
    ``None`` where the status comes from no verdict.
    """
    metrics, status = result.metrics(), result.status
    first = next(iter(metrics), None)
    ranked = [
        (name != first and not known.metric.family, -(lost(known.judgement) or 0.0), name)
        for name, known in metrics.items()
        if known.judgement is not None and known.judgement.status is status
    ]
    return metrics[min(ranked)[-1]] if ranked else None


def worst_first(results: Iterable[CaseResult]) -> list[CaseResult]:
    """Sort the cases as they are shown: by status, then what is not good by the size of its loss.

    Among equals the topologies of a training stand in a row.
    """

    def place(
        result: CaseResult,
    ) -> tuple[int, float, tuple[Any, ...]]:
        status, loss = result.status, 0.0
        if not status.is_good and (known := decisive_metric(result)) is not None:
            loss = lost(known.judgement) or 0.0
        return status.rank, -loss, result.case.sort_key

    return sorted(results, key=place)


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
    found = dict.fromkeys(Verdict, 0)
    for result in results:
        found[result.status] += 1
    return {status: count for status, count in found.items() if count}


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
