"""Gather what the page shows of one case, with the ends of its logs."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import starmap
from pathlib import Path
from typing import Final

from msgspec import Struct

from pytest_dlperf.history.series import CaseHistory
from pytest_dlperf.measure.ending import last_lines, last_words
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Run, RunStatus
from pytest_dlperf.model.results import CaseResult, Results
from pytest_dlperf.report.facts import Fact, Weight, case_facts
from pytest_dlperf.report.html.drawing import Badge, badge_of
from pytest_dlperf.report.html.family_view import FamilyView, family_views
from pytest_dlperf.report.html.metric_view import MetricView, metric_views
from pytest_dlperf.report.rows import gaps
from pytest_dlperf.report.runs import RunsText, arms_of, broken_runs, runs_text
from pytest_dlperf.report.text import Text

LINES: Final = 15
"""Lines that are shown of how a log ends."""


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
        found: dict[str, MetricView | FamilyView] = {one.metric.name: one for one in self.judged}
        return found | {one.metric.name: one for one in self.families if one.is_judged}


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

    Of each at most ``max_points`` sessions are drawn.
    """
    views = list(
        metric_views(
            result,
            name=f"c{number}",
            histories=histories,
            max_points=max_points,
            session=session,
        )
    )
    judged = [v for v in views if v.metric.is_judged or v.metric.name in result.judgements]
    strict = session.strict
    families = family_views(result, {view.metric.name: view for view in views}, strict=strict)
    fingerprint = result.measurement.fingerprint if result.measurement else None
    return CaseView(
        case=result.case,
        badge=badge_of(result.status, strict=strict),
        judged=tuple(view for view in judged if not view.metric.family),
        recorded=tuple(v for v in views if v not in judged and not v.metric.family),
        families=tuple(families),
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


def _severity(view: MetricView) -> tuple[int, float]:
    """Order metrics, the worst verdict first; of bad ones the one that lost the most."""
    return view.badge.rank, (view.gain_percent or 0.0) if view.badge.is_bad else 0.0


class LogTail(Struct, frozen=True, kw_only=True):
    """The end of one log; without text, it could not be read or is empty."""

    name: str
    log: str
    text: str


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
