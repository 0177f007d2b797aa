"""What many sessions show of each case: level, change points, drift and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.history.days import days_of
from pytest_dlperf.history.drift import LENGTHS, drift_of
from pytest_dlperf.history.faults import HistoryError
from pytest_dlperf.history.machines import Machines
from pytest_dlperf.history.nights import Series, accepted_of, nights_of, runs_of
from pytest_dlperf.history.noise import night_noise_percent, run_noise_percent
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.series import AcceptedChange, CaseHistory, Point
from pytest_dlperf.history.store import History
from pytest_dlperf.history.trends import change_points

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_dlperf.history.days import Day
    from pytest_dlperf.history.night import Night
    from pytest_dlperf.history.series import Drift
    from pytest_dlperf.model.results import Results

NOISE_NIGHTS: Final = 90
"""How many of the last nights tell the noise."""

READ_BUSY_S: Final = 1.0
"""How long a page waits for who holds the database: the session's end has waited before."""

_MAX_FOR_DRIFT: Final = 3 * LENGTHS[0]
_MAX_RUNS_OF: Final = 500


def histories_of(file: Path, results: Results) -> Mapping[str, CaseHistory]:
    """The history of each case of these results, on their cluster and with their estimator.

    It ends with the session of the results, and reaches a year back. A case that no session has
    measured has none.

    Raises:
        HistoryError: The database cannot be read.
    """
    with History.read(file, busy_s=READ_BUSY_S) as history:
        until, machines = _began(results), Machines(history)
        found = (
            history_of(history, series, until=until, machines=machines)
            for series in _series_of(results)
        )
        return {known.case_id: known for known in found if known.points}


def drifts_of(history: History, results: Results) -> Iterator[tuple[str, Drift]]:
    """The ids of the cases of these results that drift, each with its drift.

    Change points are left to the reports: they would cost a session an import of half a second.

    Raises:
        HistoryError: The database cannot be read.
    """
    until, machines = _began(results), Machines(history)
    for series in _series_of(results):
        nights = nights_of(history, series, until=until, most=_MAX_FOR_DRIFT)
        if len(nights) < LENGTHS[-1]:
            continue
        same, _ = machines.same(nights)
        days = _days(nights, same)
        drift = _drift(days, _accepted_changes(history, series, nights, until))
        if drift is not None:
            yield series.case_id, drift


def history_of(
    history: History, series: Series, *, until: float, machines: Machines | None = None
) -> CaseHistory:
    """All that the database says of one case until ``until``, in seconds of the Unix epoch.

    Who asks for many cases of one database hands the same ``machines`` over each time.

    Raises:
        HistoryError: The database cannot be read.
    """
    nights = nights_of(history, series, until=until)
    same, others = (machines or Machines(history)).same(nights)
    accepted = _accepted_changes(history, series, nights, until)
    days = _days(nights, same)
    drift = _drift(days, accepted)
    drifting = drift.nights if drift is not None else 0
    steps = change_points(
        [day.median for day in days],
        [(day.place, day.started) for day in days],
        drifting=drifting,
    )
    lately = days[-NOISE_NIGHTS:]
    runs = runs_of(history, [one for day in lately for one in day.sessions][-_MAX_RUNS_OF:])
    run_noise = run_noise_percent(runs.values())
    place = {day.place: number for number, day in enumerate(lately)}
    return CaseHistory(
        case_id=series.case_id,
        unit=series.unit,
        points=tuple(map(_point, nights)),
        accepted=tuple(accepted),
        change_points=steps,
        drift=drift,
        run_noise_percent=run_noise,
        night_noise_percent=night_noise_percent(
            [day.median for day in lately],
            [day.counted for day in lately],
            run_noise,
            levels=None if steps is None else [place.get(step.index, 0) for step in steps],
            drifting=drifting,
        ),
        other_machines=others,
    )


def _series_of(results: Results) -> Iterator[Series]:
    for result in results.cases:
        unit = results.unit_of(result)
        if unit is not None:
            yield Series(
                case_id=result.case.id,
                unit=unit,
                cluster=results.cluster,
                estimator=results.estimator.value,
            )


def _began(results: Results) -> float:
    try:
        return seconds_of(results.started)
    except (ValueError, OverflowError) as error:
        raise HistoryError(f"the results began at {results.started!r}, which is no time") from error


def _days(nights: Sequence[Night], same: Sequence[bool]) -> list[Day]:
    """The days that make a level: a median of those runs that survived is none."""
    return days_of(
        (index, night)
        for index, night in enumerate(nights)
        if same[index] and not night.broken and night.median > 0
    )


def _point(night: Night) -> Point:
    return Point(
        started=night.started,
        median=night.median,
        slowest=night.slowest,
        fastest=night.fastest,
        runs=night.counted,
        speedup=night.speedup,
        baseline=night.baseline,
        verdict=night.verdict,
        is_lost=night.is_lost,
    )


def _drift(days: Sequence[Day], accepted: Iterable[AcceptedChange]) -> Drift | None:
    """Drift since the last accepted number: what was accepted is known."""
    since = max((_when(change.at) for change in accepted if change.old is not None), default=0)
    later = [day for day in days if day.began >= since]
    return drift_of([day.median for day in later], [(day.began, day.started) for day in later])


def _accepted_changes(
    history: History, series: Series, nights: Sequence[Night], until: float
) -> list[AcceptedChange]:
    """What sessions of the history accepted, and what nights show to have been accepted elsewhere.

    A number may be accepted by a session of another machine, or by hand.
    """
    changes = accepted_of(history, series, until=until)
    told = {change.new for change in changes}
    before: float | None = None
    for night in nights:
        if night.baseline is None:
            continue
        if before is not None and night.baseline != before and night.baseline not in told:
            changes.append(
                AcceptedChange(
                    at=night.baseline_at or night.started,
                    old=before,
                    new=night.baseline,
                    why=night.baseline_reason or "accepted elsewhere",
                )
            )
        before = night.baseline
    return sorted(changes, key=lambda change: _when(change.at))


def _when(at: str) -> float:
    """When a number was accepted; a file written by hand may say that in words."""
    try:
        return seconds_of(at)
    except (ValueError, OverflowError):
        return 0.0
