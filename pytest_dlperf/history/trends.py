"""What many sessions show of each case: level, change points, creep and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate import wording
from pytest_dlperf.gate.verdict import Verdict
from pytest_dlperf.history.change_points import change_points
from pytest_dlperf.history.creep import LENGTHS, creep_of
from pytest_dlperf.history.nights import Series, accepted_of, nights_of, runs_of
from pytest_dlperf.history.noise import night_noise_percent, run_noise_percent
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.series import AcceptedChange, CaseHistory, Point
from pytest_dlperf.history.store import History, HistoryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pytest_dlperf.history.nights import Night
    from pytest_dlperf.history.series import Creep
    from pytest_dlperf.results.document import Results

NOISE_NIGHTS: Final = 90
"""How many of the last nights tell the noise."""

_BROKEN: Final = frozenset({Verdict.FAILED, Verdict.HUNG, Verdict.INVALID})


def histories_of(file: Path, results: Results) -> Mapping[str, CaseHistory]:
    """The history of each case of these results, on their cluster and with their estimator.

    It ends with the session of the results, and reaches a year back. A case that no session has
    measured has none.

    Raises:
        HistoryError: The database cannot be read.
    """
    with History.read(file) as history:
        until = _began(results)
        found = (history_of(history, series, until=until) for series in _series_of(results))
        return {known.case_id: known for known in found if known.points}


def creep_lines(history: History, results: Results) -> Iterator[str]:
    """One line for each case of these results that creeps, as a session's end tells it.

    Change points are left to the reports: they would cost a session an import of half a second.

    Raises:
        HistoryError: The database cannot be read.
    """
    until = _began(results)
    for series in _series_of(results):
        nights = nights_of(history, series, until=until, most=LENGTHS[0])
        if len(nights) < LENGTHS[-1]:
            continue
        creep = _creep(nights, _accepted_changes(history, series, nights, until))
        if creep is not None:
            week, whole = map(wording.signed_percent, (creep.percent_per_week, creep.percent))
            yield (
                f"history: {series.case_id} creeps {week} a week "
                f"since {creep.since[:10]}, {whole} in all"
            )


def history_of(history: History, series: Series, *, until: float) -> CaseHistory:
    """All that the database says of one case until ``until``, in seconds of the Unix epoch.

    Raises:
        HistoryError: The database cannot be read.
    """
    nights = nights_of(history, series, until=until)
    accepted = _accepted_changes(history, series, nights, until)
    # A median of those runs that survived is no level.
    whole = [(index, night) for index, night in enumerate(nights) if _is_whole(night)]
    runs = runs_of(history, series, until=until, most=NOISE_NIGHTS)
    lately = [night for _, night in whole if night.measurement_id in runs]
    run_noise = run_noise_percent([runs[night.measurement_id] for night in lately])
    return CaseHistory(
        case_id=series.case_id,
        unit=series.unit,
        points=tuple(map(_point, nights)),
        accepted=tuple(accepted),
        change_points=change_points(
            [night.median for _, night in whole], [(index, night.started) for index, night in whole]
        ),
        creep=_creep(nights, accepted),
        run_noise_percent=run_noise,
        night_noise_percent=night_noise_percent(
            [night.median for night in lately],
            [night.counted for night in lately],
            run_noise,
        ),
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


def _is_whole(night: Night) -> bool:
    return night.verdict not in _BROKEN and night.median > 0


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
    )


def _creep(nights: Sequence[Night], accepted: Iterable[AcceptedChange]) -> Creep | None:
    """Creep since the last accepted number: what was accepted is known."""
    since = max((_when(change.at) for change in accepted if change.old is not None), default=0)
    later = [night for night in nights if night.began >= since and _is_whole(night)]
    return creep_of(
        [night.median for night in later], [(night.began, night.started) for night in later]
    )


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
