"""Put the history of a case's metric together: its sessions, the level of each day, and trends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from pytest_dlperf.gate.noise import pooled_noise
from pytest_dlperf.history.queries import Machines, judged_sessions, machines_of, points_of
from pytest_dlperf.history.rows import seconds_of
from pytest_dlperf.history.series import (
    AcceptedChange,
    CaseHistory,
    Day,
    Drift,
    Finite,
    OtherMachine,
    Point,
    Series,
)
from pytest_dlperf.history.store import History, HistoryError
from pytest_dlperf.history.trends import DRIFT_LENGTHS, change_points, drift_of
from pytest_dlperf.model.measurement import differences
from pytest_dlperf.model.results import Results
from pytest_dlperf.model.statistics import median

Histories: TypeAlias = Mapping[str, Mapping[str, CaseHistory]]
Drifting: TypeAlias = tuple[Series | CaseHistory, Drift]
T = TypeVar("T")

_DRIFT_S: Final = 3 * DRIFT_LENGTHS[0] * 86400
_DAYS_FOR_NOISE: Final = 90
_SESSIONS_FOR_NOISE: Final = 500


class HistoryReader:
    """What the history shows of a session, each read when it is first asked for, and once."""

    def __init__(self, results: Results, file: Path | None = None) -> None:
        """Take the session and the database, which may be none."""
        self._results = results
        self._file = file
        self.fault = ""
        """Why it showed nothing when it was read last; empty where it could be read."""

    @cached_property
    def histories(self) -> Histories:
        """The history of each judged metric, by case and name."""
        return self._read(histories_of, {})

    @cached_property
    def drifts(self) -> Sequence[Drifting]:
        """The judged metrics that drift; far cheaper than their histories."""
        if "histories" in vars(self):
            known = (one for by_metric in self.histories.values() for one in by_metric.values())
            return [(one, one.drift) for one in known if one.drift is not None]
        return self._read(drifts_of, ())

    def _read(self, read: Callable[[Path | None, Results], T], nothing: T) -> T:
        self.fault = ""
        try:
            return read(self._file, self._results)
        except Exception as error:  # noqa: BLE001 - a session without its past is still told
            self.fault = str(error)
            return nothing


def histories_of(file: Path | None, results: Results) -> Histories:
    """Read the history of each judged metric of these results, by case and name.

    It is that of their cluster and estimator, ends with the session of the results, and reaches a
    year back. Metrics that were never measured are left out; without a database, all.

    Raises:
        HistoryError: The database cannot be read.
    """
    histories: dict[str, dict[str, CaseHistory]] = {}
    for history, known in _known(file, results):
        histories.setdefault(known.series.case_id, {})[known.series.metric] = known.read(history)
    return histories


def drifts_of(file: Path | None, results: Results) -> Sequence[Drifting]:
    """Return the judged metrics of these results that drift, each with its drift."""
    found = [(known.series, known.drift) for _, known in _known(file, results)]
    return [(series, drift) for series, drift in found if drift is not None]


def _known(file: Path | None, results: Results) -> Iterator[tuple[History, _Known]]:
    """Yield the judged metrics of these results that the history has."""
    try:
        until = seconds_of(results.started)
    except ValueError as error:
        raise HistoryError(f"session {results.session}: {error}") from error
    # The end of the session has waited for other writers already.
    with History.read_if_there(file, busy_s=1.0) as history:
        if history is None:
            return
        machines, estimator = machines_of(history), results.estimator.value
        for result in results.cases:
            for metric in results.metrics.get(result.case.system, ()):
                # A case that is not scaled has no speedup.
                if metric.is_judged and (metric.ratio_of is None or result.case.is_scaled):
                    series = Series.of(
                        result.case, metric, cluster=results.cluster, estimator=estimator
                    )
                    points = points_of(history, series, until=until)
                    if points:
                        yield history, _Known(series, until, points, machines)


def history_of(
    history: History, series: Series, *, until: float, machines: Machines
) -> CaseHistory:
    """Read the history of one metric until ``until``, in seconds of the Unix epoch."""
    points = points_of(history, series, until=until)
    return _Known(series, until, points, machines).read(history)


class _Known:
    """The points of one metric, and what they show."""

    def __init__(
        self, series: Series, until: float, points: Sequence[Point], machines: Machines
    ) -> None:
        self.series, self._until, self._points = series, until, points
        same, self._other_machines = _other_machines(points, machines)
        self._accepted = _accepted_changes(points)
        self._days = _days(points, same)
        since = max((_when(change.at) for change in self._accepted), default=0)
        if self._days:
            since = max(since, self._days[-1].began - _DRIFT_S)
        # Earlier drift has been accepted.
        self.drift = drift_of([day for day in self._days if day.began >= since])

    def read(self, history: History) -> CaseHistory:
        """Put the history together."""
        series, drift = self.series, self.drift
        drifting = drift.days if drift is not None else 0
        lately = self._days[-_DAYS_FOR_NOISE:]
        sessions = [one for day in lately for one in day.sessions][-_SESSIONS_FOR_NOISE:]
        noise = pooled_noise(history.decoded(one.run_values, list[Finite]) for one in sessions)
        judged = judged_sessions(history, series, until=self._until)
        return CaseHistory(
            case_id=series.case_id,
            metric=series.metric,
            unit=series.unit,
            better=series.better,
            points=tuple(self._points),
            accepted=tuple(self._accepted),
            change_points=change_points(self._days, drifting=drifting),
            drift=drift,
            noise_percent=None if noise is None else 100 * noise.deviation,
            other_machines=self._other_machines,
            without_number=tuple(
                one.started for one in reversed(judged) if one.median is None and one.is_red
            ),
        )


def _other_machines(
    points: Sequence[Point], machines: Machines
) -> tuple[list[Point], tuple[OtherMachine, ...]]:
    """Split points into those on the machine of the last one, and the machines of the others.

    Numbers of two machines make no level. Facts that only one side has do not count; without
    facts, as with logs, it is the same machine.
    """
    last = next((one.fingerprint for one in reversed(points) if one.fingerprint), None)
    found = {
        key: differences(machines.get(key, {}), machines.get(last, {}))
        for key in {one.fingerprint for one in points}
    }
    others: dict[tuple[tuple[str, tuple[str, str]], ...], list[Point]] = {}
    for one in points:
        others.setdefault(tuple(found[one.fingerprint].items()), []).append(one)
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


def _days(points: Sequence[Point], same: Iterable[Point]) -> list[Day]:
    """Group the whole sessions on the ``same`` machine by day, in the session's own zone.

    Many sessions of an afternoon do not make a level, nor do the runs left of a broken session.
    """
    places = {one.measurement_id: index for index, one in enumerate(points)}
    by_date: dict[str, list[Point]] = {}
    for one in same:
        if not one.broken and one.median > 0:
            by_date.setdefault(one.started[:10], []).append(one)
    return [
        Day(
            index=places[sessions[0].measurement_id],
            last=places[sessions[-1].measurement_id],
            started=sessions[0].started,
            began=sessions[0].began,
            median=median([one.median for one in sessions]),
            runs=sum(one.runs for one in sessions),
            sessions=tuple(sessions),
        )
        for sessions in by_date.values()
    ]


def _accepted_changes(points: Iterable[Point]) -> list[AcceptedChange]:
    """List the accepted numbers that took the place of others between these sessions."""
    accepted = [one for one in points if one.accepted is not None]
    changes = [
        AcceptedChange(
            at=one.accepted_at or one.started,
            old=before.accepted or 0.0,
            new=one.accepted or 0.0,
            why=one.accepted_reason or "accepted",
            by=one.accepted_by,
            commit=one.accepted_commit,
        )
        for before, one in pairwise(accepted)
        if one.accepted != before.accepted
    ]
    return sorted(changes, key=lambda change: _when(change.at))


def _when(at: str) -> float:
    """When a number was accepted; 0 where a file written by hand says it in words."""
    try:
        return seconds_of(at)
    except ValueError:
        return 0.0
