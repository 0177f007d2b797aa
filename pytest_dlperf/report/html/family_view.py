"""A family of metrics: one table of its names, and the worst of them in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.report.columns import difference_percent
from pytest_dlperf.report.families import Member, families_of
from pytest_dlperf.report.html.drawing import Badge, badge_of
from pytest_dlperf.report.html.metric_view import MetricView


class FamilyRow(Struct, frozen=True, kw_only=True):
    """A name of the table."""

    name: str
    series: str
    measured: str
    reference: str
    difference: str
    badge: Badge
    word: str


class FamilyView(Struct, frozen=True, kw_only=True):
    """A family of a case, in texts; ``gain_percent`` of its worst name is for sorting."""

    metric: Metric
    axis: str
    counts: str
    badge: Badge
    word: str
    is_judged: bool
    gain_percent: float | None
    told: str
    cells: dict[str, str]
    rows: tuple[FamilyRow, ...]
    has_series: bool
    worst: tuple[MetricView, ...]
    """Its worst names, with their runs and their history."""


def family_views(
    result: CaseResult, views: Mapping[str, MetricView], *, strict: bool
) -> Iterator[FamilyView]:
    """Put the families of a case into texts; ``views`` has the worst names of each."""
    for family in families_of(result):
        worst = [views[m.known.metric.name] for m in family.worst if m.known.metric.name in views]
        if not worst:
            continue
        first, badge = worst[0], badge_of(family.status, strict=strict)
        yield FamilyView(
            metric=family.metric,
            axis=family.axis,
            counts=family.counts,
            badge=badge,
            word=first.word,
            is_judged=any(member.known.judgement is not None for member in family.members),
            gain_percent=first.gain_percent,
            told=first.told,
            cells={
                "median": numbers.counted(len(family.members), "name"),
                "reference": first.cells["reference"],
                "sees": first.cells["sees"],
            },
            rows=tuple(_row(member, strict=strict) for member in family.members),
            has_series=any(member.series for member in family.members),
            worst=tuple(worst),
        )


def _row(member: Member, *, strict: bool) -> FamilyRow:
    known = member.known
    return FamilyRow(
        name=member.name,
        series=member.series,
        measured=numbers.number(known.median, known.metric.unit),
        reference=numbers.number(known.reference, known.metric.unit),
        difference=numbers.signed_percent(difference_percent(known.judgement)),
        badge=badge_of(member.status, strict=strict),
        word=member.word,
    )
