"""Gather what the page shows of one case, with the ends of its logs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dlperf.measure.ending import last_lines
from pytest_dlperf.model.judgement import Judgement, Quantity
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.case_status import of_judgement, status_of, word_of
from pytest_dlperf.reports.environment import Surroundings, surroundings_of
from pytest_dlperf.reports.failure import sees
from pytest_dlperf.reports.figures import (
    accepted,
    difference_percent,
    efficiency_percent,
    held_against,
    interleaved_arms,
    log_folder,
    named_runs,
    rule_view,
    summed_up,
    writer,
)
from pytest_dlperf.reports.html.drawing import Badge, Chart, badge_of
from pytest_dlperf.reports.html.history_chart import HistoryChart, history_chart
from pytest_dlperf.reports.html.runs_chart import runs_chart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.history.series import CaseHistory
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Run
    from pytest_dlperf.model.records import CaseResult


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgementView:
    """A verdict on one quantity, and how it came about: names with their numbers."""

    quantity: str
    badge: Badge
    word: str
    reason: str
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The runs of one measurement by their names; their logs are named from ``folder`` on."""

    name: str
    summary: str
    folder: str
    runs: tuple[tuple[str, Run], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseView:
    """One case."""

    case: Case
    unit: str
    badge: Badge
    in_short: str
    median: float | None
    reference: float | None
    difference_percent: float | None
    speedup: float | None
    efficiency_percent: float | None
    reference_efficiency_percent: float | None
    spread: float | None
    min_detectable_percent: float | None
    judgements: tuple[JudgementView, ...]
    chart: Chart | None
    arms: tuple[Arm, ...]
    history: HistoryChart | None
    surroundings: Surroundings
    tails: tuple[LogTail, ...]
    remarks: tuple[str, ...]


def case_view(  # noqa: PLR0913 - a case and all that belongs to it, by name
    result: CaseResult,
    *,
    number: int,
    unit: str | None,
    history: CaseHistory | None,
    max_points: int,
    tails: tuple[LogTail, ...],
    strict: bool,
) -> CaseView:
    """Gather what the page shows of a case; of its history at most ``max_points`` sessions."""
    measured, judged = result.measurement, result.judgements.get(Quantity.THROUGHPUT)
    devices = result.case.topology.world_size
    return CaseView(
        case=result.case,
        unit=unit or "",
        badge=badge_of(status_of(result), strict=strict),
        in_short=_in_short(result),
        median=measured.median if measured else None,
        reference=held_against(result, Quantity.THROUGHPUT),
        difference_percent=difference_percent(judged),
        speedup=result.speedup,
        efficiency_percent=efficiency_percent(result.speedup, devices),
        reference_efficiency_percent=efficiency_percent(
            held_against(result, Quantity.SPEEDUP), devices
        ),
        spread=measured.spread if measured else None,
        min_detectable_percent=judged.min_detectable_percent if judged else None,
        judgements=tuple(_judgements(result)),
        chart=runs_chart(result),
        arms=tuple(_arms(result)),
        history=history_chart(history, number=number, max_points=max_points) if history else None,
        surroundings=surroundings_of(result),
        tails=tails,
        remarks=tuple(_remarks(result)),
    )


def _in_short(result: CaseResult) -> str:
    reasons = [judgement.reason for judgement in result.judgements.values() if judgement.reason]
    return numbers.in_short(reasons[0].removeprefix(f"{result.case.id}, ")) if reasons else ""


def _judgements(result: CaseResult) -> Iterator[JudgementView]:
    before = ""
    for quantity in Quantity:
        judgement = result.judgements.get(quantity)
        if judgement is None:
            continue
        reason = judgement.reason or ""
        yield JudgementView(
            quantity=quantity.value,
            badge=badge_of(of_judgement(judgement)),
            word=word_of(judgement),
            reason="for the same reason" if reason and reason == before else reason,
            facts=tuple(_facts(judgement, result)),
            notes=tuple(dict.fromkeys((*judgement.ends, *judgement.notes))),
        )
        before = reason


def _facts(judgement: Judgement, result: CaseResult) -> Iterator[tuple[str, str]]:
    is_speedup = judgement.quantity is Quantity.SPEEDUP
    written = writer(judgement.quantity)
    if judgement.measured is None and judgement.accepted is None:
        return
    unit = "" if is_speedup or result.measurement is None else f" {result.measurement.unit}"
    yield "measured", _with_unit(written(judgement.measured), unit)
    yield "reference", _with_unit(written(judgement.reference), unit)
    yield "difference", numbers.signed_percent(difference_percent(judgement))
    agreed = accepted(judgement)
    if agreed is not None:
        yield "accepted", _with_unit(written(agreed), unit)
    view = rule_view(judgement)
    if view is not None:
        yield "compared", view
    elif judgement.interval_percent is not None:
        yield "95 % interval", numbers.interval(judgement.interval_percent)
    if judgement.tolerance_percent is not None:
        yield "a loss that passes", f"up to {numbers.percent(judgement.tolerance_percent)}"
    if judgement.rule is not None:
        yield "gate", f"{judgement.rule.value}: {sees(judgement)}"


def _with_unit(number: str, unit: str) -> str:
    return number if number == numbers.ABSENT else f"{number}{unit}"


def _arms(result: CaseResult) -> Iterator[Arm]:
    own = [("measured", result.measurement)] if result.measurement else []
    for name, measured in (*own, *interleaved_arms(result.interleaved)):
        summary = f"{summed_up(measured)}, estimator {measured.estimator.value}"
        yield Arm(
            name=name,
            summary=summary,
            folder=log_folder(measured),
            runs=tuple(named_runs(measured)),
        )


def _remarks(result: CaseResult) -> Iterator[str]:
    if not result.is_whole:
        yield "A test of this case was lost with its worker: the case was not judged as a whole."
    if not result.judgements:
        yield "No test of this case has come to a verdict."
    else:
        for quantity in result.unfinished:
            yield f"The test of the {quantity.value} has not come to its end."


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTail:
    """The end of one log; without text, it could not be read or is empty."""

    name: str
    log: str
    text: str


def log_tails(result: CaseResult) -> tuple[LogTail, ...]:
    """Read the logs of a case's broken runs; of a case that is bad otherwise, its last one."""
    chosen = list(_broken(result))[:3]
    if not chosen and result.measurement is not None and status_of(result).is_alarm:
        runs = [run for run in result.measurement.runs if run.log]
        chosen = [(f"run {run.run}", run) for run in runs[-1:]]
    return tuple(
        LogTail(
            name=name,
            log=run.log or "",
            text="\n".join(last_lines(Path(run.log), 15)) if run.log else "",
        )
        for name, run in chosen
    )


def _broken(result: CaseResult) -> Iterator[tuple[str, Run]]:
    own = [("", result.measurement)] if result.measurement else []
    for arm, measured in (*own, *interleaved_arms(result.interleaved)):
        prefix = f"{arm}: " if arm else ""
        for name, run in named_runs(measured):
            if run.status is not RunStatus.OK:
                yield f"{prefix}run {name} ({run.status.value})", run
