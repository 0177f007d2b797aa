"""Gather what the page shows of one metric of a case: numbers, verdict and history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from pytest_dlperf.history.series import CaseHistory
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import CaseResult, Results
from pytest_dlperf.report.columns import difference_percent, metric_cells
from pytest_dlperf.report.facts import Fact, Weight, facts, terms
from pytest_dlperf.report.families import families_of
from pytest_dlperf.report.html.drawing import Badge, badge_of
from pytest_dlperf.report.html.history_chart import HistoryChart, history_chart
from pytest_dlperf.report.status import word_of

AS_BEFORE: Final = "for the same reason"
_NOT_JUDGED: Final = badge_of(Verdict.NOT_JUDGED)


class MetricView(Struct, frozen=True, kw_only=True):
    """One metric of a case, in texts; numbers are for sorting.

    ``gain_percent`` is by how much it is better than the reference; negative: worse.
    """

    metric: Metric
    badge: Badge
    word: str
    terms: str
    """Which direction is better, and what its samples have to fulfil."""
    cells: dict[str, str]
    """Its numbers, by the headings of all tables with them."""
    amount: str
    """The median with its unit."""
    gain_percent: float | None
    reason: str
    facts: tuple[Fact, ...]
    """What is known besides what its case says."""
    history: HistoryChart | None

    @property
    def is_open(self) -> bool:
        """Whether it is bad, and that is not told already."""
        return self.badge.is_bad and self.reason != AS_BEFORE

    @property
    def told(self) -> str:
        """What stands beside the number: the difference, or the verdict where there is none."""
        return self.word if self.gain_percent is None else self.cells["diff"]


def metric_views(
    result: CaseResult,
    *,
    name: str,
    histories: Mapping[str, CaseHistory],
    max_points: int,
    session: Results,
) -> Iterator[MetricView]:
    """Yield the metrics of a case of which anything is known, in their order.

    ``name`` begins the ids of their pictures. Of a family only its worst names are there.
    """
    before = ""
    worst = {member.known.metric.name for one in families_of(result) for member in one.worst}
    for number, (metric, known) in enumerate(result.metrics().items()):
        judged, past = known.judgement, histories.get(metric)
        if judged is None and known.median is None:
            continue
        if known.metric.family and metric not in worst:
            continue
        difference, better = difference_percent(judged), known.metric.better
        reason = (judged.reason or "") if judged is not None else ""
        yield MetricView(
            metric=known.metric,
            badge=badge_of(judged.status, strict=session.strict) if judged else _NOT_JUDGED,
            word=word_of(judged) if judged is not None else _NOT_JUDGED.word,
            terms=terms(known.metric),
            cells=metric_cells(result, metric),
            amount=numbers.quantity(known.median, known.metric.unit),
            gain_percent=better.sign * difference if better and difference is not None else None,
            reason=AS_BEFORE if reason and reason == before else reason,
            facts=tuple(
                fact for fact in facts(known, session.started) if fact.weight > Weight.BRIEF
            ),
            history=history_chart(
                past,
                name=f"{name}m{number}",
                max_points=max_points,
                explanation=known.explanation,
            )
            if past is not None
            else None,
        )
        before = reason or before
