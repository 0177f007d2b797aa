"""Put the history of a case's metric together: its nights, the level of each day, and trends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from pytest_dlperf.history.nights import (
    Machines,
    machines_of,
    nights_of,
    runs_of,
    without_number,
)
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.series import (
    AcceptedChange,
    CaseHistory,
    Day,
    Drift,
    OtherMachine,
    Point,
    Series,
)
from pytest_dlperf.history.store import History, HistoryError
from pytest_dlperf.history.trends import DRIFT_LENGTHS, change_points, drift_of, noise_percent
from pytest_dlperf.model.measurement import differences
from pytest_dlperf.model.results import Results
from pytest_dlperf.model.statistics import median

Histories: TypeAlias = Mapping[str, Mapping[str, CaseHistory]]
Drifting: TypeAlias = tuple[Series | CaseHistory, Drift]
Read = TypeVar("Read")

_MAX_NIGHTS_FOR_DRIFT: Final = 3 * DRIFT_LENGTHS[0]
_MAX_SESSIONS_FOR_NOISE: Final = 500


class Past:
    """What the history shows of a session, each read when it is first asked for, and once."""

    def __init__(self, results: Results, file: Path | None = None) -> None:
        self._results = results
        self._file = file
        self.fault = ""
        """Why it showed nothing when it was read last; empty where it could be read."""

    @cached_property
    def histories(self) -> Histories:
        """The history of each judged metric, by case and name."""
        return self._read(lambda: histories_of(self._file, self._results), {})

    @cached_property
    def drifts(self) -> Sequence[Drifting]:
        """The judged metrics that drift; far cheaper than their histories."""
        if "histories" in vars(self):
            known = (one for by_metric in self.histories.values() for one in by_metric.values())
            return [(one, one.drift) for one in known if one.drift is not None]
        return self._read(self._drifts, ())

    def _drifts(self) -> Sequence[Drifting]:
        with History.read_if_there(self._file, busy_s=1.0) as history:
            return () if history is None else tuple(drifts_of(history, self._results))

    def _read(self, read: Callable[[], Read], nothing: Read) -> Read:
        try:
            found = read()
        except Exception as error:  # noqa: BLE001 - a night without its past is still told
            self.fault = str(error)
            return nothing
        self.fault = ""
        return found


def histories_of(file: Path | None, results: Results) -> Histories:
    """Read the history of each judged metric of these results, by case and name.

    It is that of their cluster and estimator, ends with the session of the results, and reaches a
    year back. Metrics that were never measured are left out; without a database, all.

    Raises:
        HistoryError: The database cannot be read.
    """
    # The end of the session has waited for other writers already.
    with History.read_if_there(file, busy_s=1.0) as history:
        histories: dict[str, dict[str, CaseHistory]] = {}
        if history is None:
            return histories
        until, machines = _began(results), machines_of(history)
        for series in _series_of(results):
            known = history_of(history, series, until=until, machines=machines)
            if known.points:
                histories.setdefault(series.case_id, {})[series.metric] = known
        return histories


def drifts_of(history: History, results: Results) -> Iterator[tuple[Series, Drift]]:
    """Yield the judged metrics of these results that drift, each with its drift."""
    until, machines = _began(results), machines_of(history)
    for series in _series_of(results):
        nights = nights_of(history, series, until=until, most=_MAX_NIGHTS_FOR_DRIFT)
        if len(nights) < DRIFT_LENGTHS[-1]:
            continue
        same, _ = _other_machines(nights, machines)
        accepted = _accepted_changes(nights)
        drift = _drift(_days(nights, same), accepted)
        if drift is not None:
            yield series, drift


def history_of(
    history: History, series: Series, *, until: float, machines: Machines
) -> CaseHistory:
    """Read the history of one metric until ``until``, in seconds of the Unix epoch."""
    nights = nights_of(history, series, until=until)
    same, others = _other_machines(nights, machines)
    accepted = _accepted_changes(nights)
    days = _days(nights, same)
    drift = _drift(days, accepted)
    drifting = drift.days if drift is not None else 0
    lately = days[-90:]
    sessions = [one for day in lately for one in day.sessions][-_MAX_SESSIONS_FOR_NOISE:]
    runs = runs_of(history, sessions)
    run_noise, night_noise = noise_percent(lately, runs.values(), drifting=drifting)
    return CaseHistory(
        case_id=series.case_id,
        metric=series.metric,
        unit=series.unit,
        better=series.better,
        points=tuple(nights),
        accepted=tuple(accepted),
        change_points=change_points(days, drifting=drifting),
        drift=drift,
        run_noise_percent=run_noise,
        session_noise_percent=night_noise,
        other_machines=others,
        without_number=without_number(history, series, until=until),
    )


def _other_machines(
    nights: Sequence[Point], machines: Machines
) -> tuple[list[Point], tuple[OtherMachine, ...]]:
    """Split nights into those on the machine of the last one, and the machines of the others.

    Numbers of two machines make no level. Facts that only one side has do not count; without
    facts, as with logs, it is the same machine.
    """
    last = next((night.fingerprint for night in reversed(nights) if night.fingerprint), None)
    found = {
        key: differences(machines.get(key, {}), machines.get(last, {}))
        for key in {night.fingerprint for night in nights}
    }
    others: dict[tuple[tuple[str, tuple[str, str]], ...], list[Point]] = {}
    for night in nights:
        others.setdefault(tuple(found[night.fingerprint].items()), []).append(night)
    same = others.pop((), [])
    return same, tuple(
        OtherMachine(
            first=there[0].started,
            last=there[-1].started,
            sessions=len(there),
            facts=dict(facts),
        )
        for facts, there in others.items()
    )


def _series_of(results: Results) -> Iterator[Series]:
    cluster, estimator = results.cluster, results.estimator.value
    for result in results.cases:
        for metric in results.metrics.get(result.case.system, ()):
            # A case that is not scaled has no speedup.
            if metric.is_judged and (metric.ratio_of is None or result.case.is_scaled):
                yield Series.of(result.case, metric, cluster=cluster, estimator=estimator)


def _began(results: Results) -> float:
    try:
        return seconds_of(results.started)
    except ValueError as error:
        raise HistoryError(f"session {results.session}: {error}") from error


def _days(nights: Sequence[Point], same: Iterable[Point]) -> list[Day]:
    """Group the whole nights on the ``same`` machine by day, in the session's own zone.

    Many sessions of an afternoon do not make a level, nor do the runs left of a broken session.
    """
    places = {night.measurement_id: index for index, night in enumerate(nights)}
    by_date: dict[str, list[Point]] = {}
    for night in same:
        if not night.broken and night.median > 0:
            by_date.setdefault(night.started[:10], []).append(night)
    return [
        Day(
            index=places[together[0].measurement_id],
            last=places[together[-1].measurement_id],
            started=together[0].started,
            began=together[0].began,
            median=median([night.median for night in together]),
            runs=sum(night.runs for night in together),
            sessions=tuple(night.measurement_id for night in together),
        )
        for together in by_date.values()
    ]


def _drift(days: Sequence[Day], accepted: Iterable[AcceptedChange]) -> Drift | None:
    """Find drift since the last acceptance: earlier drift has been accepted."""
    since = max((_when(change.at) for change in accepted), default=0)
    return drift_of([day for day in days if day.began >= since])


def _accepted_changes(nights: Iterable[Point]) -> list[AcceptedChange]:
    """List the accepted numbers that took the place of others between these nights."""
    changes = []
    before: float | None = None
    for night in nights:
        if night.accepted is None:
            continue
        if before is not None and night.accepted != before:
            changes.append(
                AcceptedChange(
                    at=night.accepted_at or night.started,
                    old=before,
                    new=night.accepted,
                    why=night.accepted_reason or "accepted",
                    by=night.accepted_by,
                    commit=night.accepted_commit,
                )
            )
        before = night.accepted
    return sorted(changes, key=lambda change: _when(change.at))


def _when(at: str) -> float:
    """When a number was accepted; 0 where a file written by hand says it in words."""
    try:
        return seconds_of(at)
    except ValueError:
        return 0.0
