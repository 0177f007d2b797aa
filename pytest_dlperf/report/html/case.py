"""What the page shows of one case: its metrics and families with their history, runs, log ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import starmap
from pathlib import Path
from typing import Final

from msgspec import Struct

from pytest_dlperf.history.series import CaseHistory
from pytest_dlperf.measure.run import last_lines, last_words
from pytest_dlperf.model import numbers
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Run, RunStatus
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import CaseResult, MetricResult, Results
from pytest_dlperf.report.columns import difference_percent, metric_cells
from pytest_dlperf.report.facts import Fact, Weight, case_facts, facts, terms
from pytest_dlperf.report.families import Family, Member, families_of
from pytest_dlperf.report.html.drawing import Badge, badge_of
from pytest_dlperf.report.html.history_chart import HistoryChart, history_chart
from pytest_dlperf.report.rows import gaps
from pytest_dlperf.report.runs import RunsText, arms_of, broken_runs, runs_text
from pytest_dlperf.report.status import word_of
from pytest_dlperf.report.text import Text

LINES: Final = 15
"""Lines that are shown of how a log ends."""
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
    cells: Mapping[str, str]
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


class FamilyRow(Struct, frozen=True, kw_only=True):
    """A name of a family."""

    name: str
    series: str
    measured: str
    reference: str
    difference: str
    badge: Badge
    word: str


class FamilyView(Struct, frozen=True, kw_only=True):
    """A family of a case: ``gain_percent`` and ``told`` are those of its worst name."""

    metric: Metric
    axis: str
    counts: str
    badge: Badge
    word: str
    is_judged: bool
    gain_percent: float | None
    told: str
    cells: Mapping[str, str]
    rows: tuple[FamilyRow, ...]
    has_series: bool
    worst: tuple[MetricView, ...]
    """Its worst names, with their runs and their history."""


class LogTail(Struct, frozen=True, kw_only=True):
    """The end of one log; without text, it could not be read or is empty."""

    name: str
    log: str
    text: str


class CaseView(Struct, frozen=True, kw_only=True):
    """One case. ``shown`` is the metric that decided its verdict, ``None`` without any."""

    case: Case
    badge: Badge
    judged: tuple[MetricView, ...]
    recorded: tuple[MetricView, ...]
    """Metrics that no test judges."""
    families: tuple[FamilyView, ...]
    shown: MetricView | None
    gaps: tuple[Text, ...]
    """What has not been judged of it."""
    facts: tuple[Fact, ...]
    """Why its metrics are not good, and since when."""
    arms: tuple[RunsText, ...]
    hosts: tuple[str, ...]
    tails: tuple[LogTail, ...]

    @property
    def by_name(self) -> dict[str, MetricView | FamilyView]:
        """The judged metrics and families, by name."""
        families = (one for one in self.families if one.is_judged)
        every: tuple[MetricView | FamilyView, ...] = (*self.judged, *families)
        return {one.metric.name: one for one in every}


def case_view(  # noqa: PLR0913 - a case and all that belongs to it, by name
    result: CaseResult,
    *,
    number: int,
    histories: Mapping[str, CaseHistory],
    max_points: int,
    tails: tuple[LogTail, ...],
    session: Results,
) -> CaseView:
    """Gather what the page shows of a case; ``histories`` are by metric.

    Of each at most ``max_points`` sessions are drawn. ``number`` begins the ids of pictures.
    """
    charts = {
        name: history_chart(past, name=f"c{number}m{place}", max_points=max_points)
        for place, name in enumerate(result.metrics())
        if (past := histories.get(name)) is not None
    }
    views = list(_metric_views(result, charts, session))
    judged = [v for v in views if v.metric.is_judged or v.metric.name in result.judgements]
    by_name = {view.metric.name: view for view in views}
    fingerprint = result.measurement.fingerprint if result.measurement else None
    return CaseView(
        case=result.case,
        badge=badge_of(result.status, strict=session.strict),
        judged=tuple(view for view in judged if not view.metric.family),
        recorded=tuple(v for v in views if v not in judged and not v.metric.family),
        families=tuple(
            _family_view(family, worst, strict=session.strict)
            for family in families_of(result)
            if (worst := [by_name[m.known.metric.name] for m in family.worst])
        ),
        shown=min(judged, key=_severity, default=None),
        gaps=tuple(gaps(result)),
        facts=tuple(
            fact
            for fact in case_facts(result, session.started)
            if fact.weight is Weight.BRIEF and fact.label != "reason"
        ),
        arms=tuple(starmap(runs_text, arms_of(result))),
        hosts=fingerprint.hosts if fingerprint else (),
        tails=tails,
    )


def _metric_views(
    result: CaseResult, charts: Mapping[str, HistoryChart | None], session: Results
) -> Iterator[MetricView]:
    """Yield the metrics of which anything is known, in their order; of a family the worst names."""
    before = ""
    worst = {member.known.metric.name for one in families_of(result) for member in one.worst}
    for name, known in result.metrics().items():
        is_known = known.judgement is not None or known.median is not None
        if is_known and (name in worst or not known.metric.family):
            yield _metric_view(result, known, charts.get(name), session, before=before)
            before = (known.judgement and known.judgement.reason) or before


def _metric_view(
    result: CaseResult,
    known: MetricResult,
    history: HistoryChart | None,
    session: Results,
    *,
    before: str,
) -> MetricView:
    judged, metric = known.judgement, known.metric
    difference, better = difference_percent(judged), metric.better
    reason = (judged.reason or "") if judged is not None else ""
    return MetricView(
        metric=metric,
        badge=badge_of(judged.status, strict=session.strict) if judged else _NOT_JUDGED,
        word=word_of(judged) if judged is not None else _NOT_JUDGED.word,
        terms=terms(metric),
        cells=metric_cells(result, metric.name),
        amount=numbers.quantity(known.median, metric.unit),
        gain_percent=better.sign * difference if better and difference is not None else None,
        reason=AS_BEFORE if reason and reason == before else reason,
        facts=tuple(fact for fact in facts(known, session.started) if fact.weight > Weight.BRIEF),
        history=history,
    )


def _family_view(family: Family, worst: list[MetricView], *, strict: bool) -> FamilyView:
    first, members = worst[0], family.members
    return FamilyView(
        metric=family.metric,
        axis=family.axis,
        counts=family.counts,
        badge=badge_of(family.status, strict=strict),
        word=first.word,
        is_judged=any(member.known.judgement is not None for member in members),
        gain_percent=first.gain_percent,
        told=first.told,
        cells={**first.cells, "median": numbers.counted(len(members), "name")},
        rows=tuple(_row(member, strict=strict) for member in members),
        has_series=any(member.series for member in members),
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


def _severity(view: MetricView) -> tuple[int, float]:
    """Order metrics, the worst verdict first; of bad ones the one that lost the most."""
    return view.badge.rank, (view.gain_percent or 0.0) if view.badge.is_bad else 0.0


def log_tails(result: CaseResult) -> tuple[LogTail, ...]:
    """Read the logs of a case's broken runs; of a case that is bad otherwise, its last one."""
    chosen = list(broken_runs(result))[:3]
    if not chosen and result.measurement is not None and result.status.is_alarm:
        runs = [run for run in result.measurement.runs if run.log]
        chosen = [(f"run {run.run}", run) for run in runs[-1:]]
    return tuple(
        LogTail(
            name=name,
            log=run.log or "",
            text="\n".join(_ending(run, Path(run.log))) if run.log else "",
        )
        for name, run in chosen
    )


def _ending(run: Run, log: Path) -> list[str]:
    """Read how a log ends; what a trainer says of being ended matters only if it had not done."""
    if run.status is RunStatus.OK:
        return last_lines(log, LINES, end=run.log_size_at_end)
    return last_words(log, run.log_size_at_end, LINES)
