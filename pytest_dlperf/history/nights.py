"""Ask the database for series, for the nights of one, and for what was accepted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.history.rows import text
from pytest_dlperf.history.series import AcceptedChange, Night, Series
from pytest_dlperf.model.judgement import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_dlperf.history.store import History

MAX_NIGHTS: Final = 366
"""A year of nights, and tonight."""

_CHOSEN: Final = """
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    WHERE measurements.case_id = (SELECT id FROM cases WHERE name = :case_id)
    AND measurements.began <= :until
    AND sessions.cluster = :cluster AND sessions.estimator = :estimator
    AND measurements.unit = :unit AND measurements.median IS NOT NULL
"""
# Who launches has looked at the machine. What nobody has looked at is read from logs.
_FROM_LOGS: Final = "source != 'launched' AND fingerprint IS NULL"
# Fields of a night whose column has another name, or is one of two tables.
_COLUMNS: Final = {
    "measurement_id": "measurements.id",
    "started": "sessions.started",
    "began": "measurements.began",
    "runs": "counted",
    "verdict_word": "verdict",
    "is_from_logs": _FROM_LOGS,
}
_NIGHTS: Final = f"""
    SELECT {", ".join(_COLUMNS.get(field, field) for field in Night._fields)}
    {_CHOSEN}
    ORDER BY measurements.began DESC, measurements.id DESC
    LIMIT :most
"""
_RUNS_OF_LOGS: Final = f"""
    SELECT measurement_id, throughput FROM runs
    WHERE measurement_id IN (SELECT measurements.id {_CHOSEN} AND {_FROM_LOGS})
    AND arm = 'measured' AND throughput IS NOT NULL
"""  # noqa: S608 - a text of our own
_RUNS: Final = """
    SELECT measurement_id, throughput FROM runs
    WHERE measurement_id IN ({places}) AND arm = 'measured' AND throughput IS NOT NULL
"""
_ACCEPTED: Final = """
    SELECT sessions.started, old, new, why
    FROM baseline_changes JOIN sessions ON sessions.id = baseline_changes.session_id
    WHERE baseline_changes.case_id = (SELECT id FROM cases WHERE name = :case_id)
    AND sessions.began <= :until
    AND sessions.cluster = :cluster AND sessions.estimator = :estimator
    AND quantity = :quantity AND unit = :unit
    ORDER BY sessions.began, sessions.id
"""
_SERIES: Final = """
    SELECT DISTINCT cases.name AS case_id, unit, cluster, estimator
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    JOIN cases ON cases.id = measurements.case_id
    WHERE median IS NOT NULL
    ORDER BY cluster, estimator, cases.framework, cases.model, cases.precision,
    cases.batch_per_device, cases.options, cases.nodes, cases.devices_per_node, unit
"""


def all_series(history: History) -> list[Series]:
    """List all that has been measured, by cluster and system, small topologies first.

    Raises:
        HistoryError: The database cannot be read.
    """
    return [Series(**row) for row in history.rows(_SERIES)]


def sessions_after(history: History, until: float) -> int:
    """Count the sessions that begin later than ``until``, in seconds of the Unix epoch.

    Raises:
        HistoryError: The database cannot be read.
    """
    query = "SELECT count(*) FROM sessions WHERE began > :until"
    return int(history.tuples(query, {"until": until})[0][0])


def nights_of(
    history: History, series: Series, *, until: float, most: int = MAX_NIGHTS
) -> list[Night]:
    """Give the last nights until ``until`` (seconds of the Unix epoch), the oldest first.

    Sessions that measured nothing of the case are left out. Logs that were judged several times
    count once, as of the first time and with as many of their runs as ever.

    Raises:
        HistoryError: The database cannot be read.
    """
    values = {**_values(series, until), "most": most}
    nights = _nights(history, values)
    if any(night.is_from_logs for night in nights):
        # How often logs were judged again only all of them tell.
        nights = _nights(history, {**values, "most": -1})
        runs = _by_measurement(history.tuples(_RUNS_OF_LOGS, values))
        nights = _each_log_once(nights, runs)
    return nights[-most:]


def runs_of(history: History, measurements: Iterable[int]) -> dict[int, list[float]]:
    """Give the throughputs that count of some hundreds of measurements at most, by their ids.

    Raises:
        HistoryError: The database cannot be read.
    """
    values = {f"id{number}": measurement for number, measurement in enumerate(measurements)}
    places = ", ".join(f":{name}" for name in values)
    return _by_measurement(history.tuples(_RUNS.format(places=places), values))


def accepted_of(history: History, series: Series, *, until: float) -> list[AcceptedChange]:
    """Give the throughputs that sessions of the history accepted, the oldest first.

    Raises:
        HistoryError: The database cannot be read.
    """
    values = {**_values(series, until), "quantity": Quantity.THROUGHPUT.value}
    return [
        AcceptedChange(at=started, old=old, new=new, why=why)
        for started, old, new, why in history.tuples(_ACCEPTED, values)
    ]


def _values(series: Series, until: float) -> dict[str, object]:
    return {
        "case_id": series.case_id,
        "unit": text(series.unit),
        "cluster": text(series.cluster),
        "estimator": series.estimator,
        "until": until,
    }


def _nights(history: History, values: dict[str, object]) -> list[Night]:
    return [Night._make(row) for row in reversed(history.tuples(_NIGHTS, values))]


def _by_measurement(rows: Sequence[tuple[Any, ...]]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for measurement, throughput in rows:
        found.setdefault(measurement, []).append(throughput)
    return found


def _each_log_once(nights: Iterable[Night], runs: Mapping[int, Sequence[float]]) -> list[Night]:
    """Merge nights of the same logs, judged several times; the oldest come first.

    ``runs`` are the throughputs of nights from logs, by measurement. Logs are the same where the
    runs of one session are also runs of the other, to the last bit. The fuller session counts, at
    the time of the first one.

    A single run says little, as estimators may round: it is the same only as in the session from
    logs before it.
    """
    kept: list[Night] = []
    runs_at: dict[int, frozenset[float]] = {}  # of what is kept from logs, by its place
    places_of: dict[float, set[int]] = {}
    before: int | None = None
    for night in nights:
        own = frozenset(runs.get(night.measurement_id, ())) if night.is_from_logs else frozenset()
        if not own:
            kept.append(night)
            continue
        alike = sorted(set().union(*(places_of.get(run, ()) for run in own)))
        for place in alike:
            both = own & runs_at[place]
            is_part = both in (own, runs_at[place])
            if is_part and (len(both) > 1 or place == before):
                break
        else:
            place = len(kept)
            kept.append(night)
            runs_at[place] = own
        if len(own) > len(runs_at[place]):
            first = kept[place]
            kept[place] = night._replace(started=first.started, began=first.began)
            runs_at[place] = own
        for run in own:
            places_of.setdefault(run, set()).add(place)
        before = place
    return kept
