"""What the page shows of one case: its metrics and families with their history, runs, log ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import starmap
from pathlib import Path
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.history.series import CaseHistory
from pytest_dlperf.measure.run import last_lines, last_words
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import Run, RunStatus
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.results import CaseResult, MetricResult, Results
from pytest_dlperf.report.facts import Fact, Weight, case_facts, facts, gaps
from pytest_dlperf.report.html.charts import HistoryChart, history_chart
from pytest_dlperf.report.html.drawing import Badge, badge_of
from pytest_dlperf.report.runs import RunsText, broken_runs, measurements_of, runs_text
from pytest_dlperf.report.status import severity, word_of
from pytest_dlperf.report.tables import Family, families_of, row_of
from pytest_dlperf.report.text import Text

_LINES: Final = 15
"""Lines that are shown of how a log ends."""
_AS_BEFORE: Final = "for the same reason"
LogTail: TypeAlias = tuple[str, str, str]
"""Run, log and end of the log; without text, it could not be read or is empty."""


class MetricView(Struct, frozen=True, kw_only=True):
    """One metric of a case."""

    known: MetricResult
    badge: Badge
    cells: Mapping[str, str]
    """Its numbers, by the headings of all tables with them."""
    reason: str
    facts: tuple[Fact, ...]
    """What is known besides what its case says."""
    history: HistoryChart | None

    @property
    def metric(self) -> Metric:
        """What was measured."""
        return self.known.metric

    @property
    def word(self) -> str:
        """Its verdict, and what was done about it."""
        return word_of(self.known.judgement) if self.known.judgement else self.badge.word

    @property
    def gain_percent(self) -> float | None:
        """By how much it is better than the reference, for sorting; negative: worse."""
        loss = self.known.judgement.loss_percent if self.known.judgement else None
        return None if loss is None else -loss

    @property
    def is_open(self) -> bool:
        """Whether it is bad, and that is not told already."""
        return self.badge.is_bad and self.reason != _AS_BEFORE

    @property
    def told(self) -> str:
        """What stands beside the number: the difference, or the verdict where there is none."""
        return self.word if self.gain_percent is None else self.cells["diff"]


class FamilyView(Struct, frozen=True, kw_only=True):
    """A family of a case: in a table of metrics it stands as its worst name."""

    family: Family
    worst: tuple[MetricView, ...]
    """Its worst names, with their runs and their history."""
    badges: tuple[Badge, ...]
    """Of each of its names."""

    @property
    def first(self) -> MetricView:
        """What stands for it in the table of all cases."""
        count = numbers.counted(len(self.badges), "name")
        return replace(self.worst[0], cells={**self.worst[0].cells, "median": count})


class CaseView(Struct, frozen=True, kw_only=True):
    """One case."""

    result: CaseResult
    badge: Badge
    judged: tuple[MetricView, ...]
    recorded: tuple[MetricView, ...]
    """Metrics that no test judges."""
    families: tuple[FamilyView, ...]
    shown: MetricView | None
    """The metric that decided its verdict; ``None`` without any."""
    gaps: tuple[Text, ...]
    """What has not been judged of it."""
    facts: tuple[Fact, ...]
    """Why its metrics are not good, and since when."""
    arms: tuple[RunsText, ...]
    tails: tuple[LogTail, ...]

    @property
    def by_name(self) -> dict[str, MetricView]:
        """The judged metrics and families, by name."""
        families = {
            one.family.metric.name: one.first
            for one in self.families
            if any(member.known.judgement for member in one.family.members)
        }
        return {**{view.metric.name: view for view in self.judged}, **families}


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
    families, strict = families_of(result), session.strict
    worst = {known.metric.name for family in families for known in family.worst}
    reasons: set[str] = set()
    views: dict[str, MetricView] = {}
    for place, (name, known) in enumerate(result.metrics().items()):
        judged = known.judgement
        is_known = judged is not None or known.median is not None
        if not is_known or (known.metric.family and name not in worst):
            continue
        status = judged.status if judged is not None else Verdict.NOT_JUDGED
        reason = (judged.reason or "") if judged is not None else ""
        past = histories.get(name)
        views[name] = MetricView(
            known=known,
            badge=badge_of(status, strict=strict),
            cells=row_of(result, name, "", status).cells,
            reason=_AS_BEFORE if reason in reasons else reason,
            facts=tuple(it for it in facts(known, session.started) if it.weight > Weight.BRIEF),
            history=history_chart(past, name=f"c{number}m{place}", max_points=max_points)
            if past is not None
            else None,
        )
        reasons |= {reason} - {""}
    judged_ones = [it for it in views.values() if it.metric.is_judged or it.known.judgement]
    names = {view.metric.name for view in judged_ones}
    plain = [view for view in views.values() if not view.metric.family]
    return CaseView(
        result=result,
        badge=badge_of(result.status, strict=strict),
        judged=tuple(view for view in plain if view.metric.name in names),
        recorded=tuple(view for view in plain if view.metric.name not in names),
        families=tuple(
            FamilyView(
                family=family,
                worst=tuple(views[known.metric.name] for known in family.worst),
                badges=tuple(badge_of(it.status, strict=strict) for it in family.members),
            )
            for family in families
        ),
        shown=min(judged_ones, key=lambda view: severity(view.known), default=None),
        gaps=tuple(gaps(result)),
        facts=tuple(
            fact
            for fact in case_facts(result, session.started)
            if fact.weight is Weight.BRIEF and fact.label != "reason"
        ),
        arms=tuple(starmap(runs_text, measurements_of(result))),
        tails=tails,
    )


def log_tails(result: CaseResult) -> Iterator[LogTail]:
    """Read the logs of a case's broken runs; of a case that is bad otherwise, its last one."""
    chosen = list(broken_runs(result))[:3]
    if not chosen and result.measurement is not None and result.status.is_alarm:
        runs = [run for run in result.measurement.runs if run.log]
        chosen = [(f"run {run.run}", run) for run in runs[-1:]]
    for name, run in chosen:
        yield name, run.log or "", "\n".join(_ending(run, Path(run.log))) if run.log else ""


def _ending(run: Run, log: Path) -> list[str]:
    """Read how a log ends; what a trainer says of being ended matters only if it had not done."""
    if run.status is RunStatus.OK:
        return last_lines(log, _LINES, end=run.log_size_at_end)
    return last_words(log, run.log_size_at_end, _LINES)
