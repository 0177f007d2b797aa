"""The status of a case at the end of a session, in one word, and all cases in one line."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.results import parse_time
from pytest_dlperf.night import texts
from pytest_dlperf.night.figures import lost

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_dlperf.model.judgement import Judgement, PastNight
    from pytest_dlperf.model.results import CaseResult, MetricResult


NOTHING_MEASURED: Final = "nothing was measured"


class CaseStatus(StrEnum):
    """The status of a case, in the word that every report has for it, the worst first."""

    FAILED = "failed"
    HUNG = "hung"
    INVALID = "invalid"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no_baseline"
    LOST = "lost"
    """A test of the case was lost with its worker."""
    NOT_STARTED = "not started"
    """A probe that it needs broke on its hosts."""
    ENVIRONMENT_SHIFT = "environment_shift"
    NOT_JUDGED = "not judged"
    NOT_MEASURED = "not measured"
    SKIPPED = "skipped"
    EXPECTED = "expected"
    """It failed, and its test had announced that."""
    ACCEPTED = "accepted"
    """Its new number takes the place of the old one."""
    RECORDED = "recorded"
    """Its number is its first baseline."""
    IMPROVED = "improved"
    PASS = "pass"  # noqa: S105 - a verdict, no password

    @property
    def rank(self) -> int:
        """Its place among all, 0 being the worst."""
        return _RANKS[self]

    @property
    def is_alarm(self) -> bool:
        """Whether a test of the case failed and needs action."""
        return self.rank <= CaseStatus.NOT_STARTED.rank

    @property
    def is_good(self) -> bool:
        """Tell whether the case was measured and all that was judged of it is in order."""
        return self.rank >= CaseStatus.ACCEPTED.rank

    def fails(self, *, strict: bool) -> bool:
        """Tell whether a test of the case failed; in a ``strict`` session more do."""
        return self.is_alarm or self.fails_by_option(strict=strict)

    def fails_by_option(self, *, strict: bool) -> bool:
        """Tell whether a test of the case failed only because the session is ``strict``."""
        return strict and self in (CaseStatus.ENVIRONMENT_SHIFT, CaseStatus.SKIPPED)


_RANKS: Final = {status: rank for rank, status in enumerate(CaseStatus)}


def of_judgement(judgement: Judgement) -> CaseStatus:
    """Return the status by one judgement; what is accepted is nothing to worry about any more."""
    if judgement.recorded:
        is_first = judgement.verdict is Verdict.PASS
        return CaseStatus.RECORDED if is_first else CaseStatus.ACCEPTED
    if judgement.excused:
        return CaseStatus.EXPECTED
    is_shift = judgement.verdict is Verdict.ENVIRONMENT_SHIFT
    # Nothing was compared where nothing was measured.
    is_started = not is_shift or judgement.measured is not None
    return CaseStatus(judgement.verdict.value) if is_started else CaseStatus.NOT_STARTED


def status_of(result: CaseResult) -> CaseStatus:
    """Return the status of a case. What was not measured is never good, whatever a verdict says."""
    statuses = map(of_judgement, result.judgements.values())
    worst = min(statuses, key=_RANKS.__getitem__, default=CaseStatus.NOT_JUDGED)
    if worst.is_good and not is_measured(result):
        worst = CaseStatus.NOT_MEASURED
    if worst.is_alarm:
        return worst
    if not result.is_whole:
        return CaseStatus.LOST
    return CaseStatus.NOT_JUDGED if result.unfinished and worst.is_good else worst


def is_measured(result: CaseResult) -> bool:
    """Tell whether there is a number of the case."""
    return result.measurement is not None and any(run.metrics for run in result.measurement.runs)


def decisive_metric(result: CaseResult) -> MetricResult | None:
    """Return the metric that a case's status comes from: the worst, of equals the first.

    Where the first is better than others, or others are of a family, that which has lost the most.
    ``None`` where the status comes from no verdict.
    """
    metrics, status = result.metrics(), status_of(result)
    first = next(iter(metrics), None)
    ranked = [
        (name != first and not known.metric.family, -(lost(known.judgement) or 0.0), name)
        for name, known in metrics.items()
        if known.judgement is not None and of_judgement(known.judgement) is status
    ]
    return metrics[min(ranked)[-1]] if ranked else None


def worst_first(results: Iterable[CaseResult]) -> list[CaseResult]:
    """Sort the cases as they are shown: by status, then what is not good by the size of its loss.

    Among equals the topologies of a training stand in a row.
    """

    def place(
        result: CaseResult,
    ) -> tuple[int, float, tuple[Any, ...]]:
        status, loss = status_of(result), 0.0
        if not status.is_good and (known := decisive_metric(result)) is not None:
            loss = lost(known.judgement) or 0.0
        return status.rank, -loss, result.case.sort_key

    return sorted(results, key=place)


def word_of(judgement: Judgement) -> str:
    """Say one verdict, and what was done about it."""
    status, verdict = of_judgement(judgement), judgement.verdict.value
    return verdict if status.value == verdict else f"{verdict}, {status.value}"


def metric_words(result: CaseResult) -> dict[str, tuple[str, CaseStatus]]:
    """Say the verdict on each metric that a test judges, with its status, by the metric's name."""
    found = {
        name: (word_of(judged), of_judgement(judged)) for name, judged in result.judgements.items()
    }
    missing = dict.fromkeys(result.unfinished, (CaseStatus.NOT_JUDGED.value, CaseStatus.NOT_JUDGED))
    return {**missing, **found}


def counts(results: Iterable[CaseResult]) -> dict[CaseStatus, int]:
    """Count the cases per status, the worst first, without zeros."""
    found = dict.fromkeys(CaseStatus, 0)
    for result in results:
        found[status_of(result)] += 1
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
    failed = f"; failed: {texts.printable(numbers.named(faults, 1))}" if faults else ""
    return f"{'interrupted: ' * interrupted}{text}{failed}"


def recovered_from(result: CaseResult) -> PastNight | None:
    """Return the first night since which a case was red that passes again."""
    nights = [one.red_since for one in result.explanations.values() if one.red_since is not None]
    is_good = status_of(result) is CaseStatus.PASS
    return min(nights, key=lambda one: parse_time(one.at)) if nights and is_good else None
