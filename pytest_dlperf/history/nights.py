"""What the database is asked: the nights of a case, and what was accepted of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.history.dedupe import judged_once
from pytest_dlperf.history.night import Night
from pytest_dlperf.history.rows import text
from pytest_dlperf.history.series import AcceptedChange
from pytest_dlperf.model.judgement import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
# What a night calls otherwise than its column, or what two tables have.
_COLUMNS: Final = {
    "measurement_id": "measurements.id",
    "started": "sessions.started",
    "began": "measurements.began",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What is comparable: one case of one cluster, by one estimator, in one unit."""

    case_id: str
    unit: str
    cluster: str
    estimator: str


def all_series(history: History) -> list[Series]:
    """All that has been measured, by cluster and system, small topologies first.

    Raises:
        HistoryError: The database cannot be read.
    """
    return [Series(**row) for row in history.rows(_SERIES)]


def nights_of(
    history: History, series: Series, *, until: float, most: int = MAX_NIGHTS
) -> list[Night]:
    """The last nights until ``until`` (seconds of the Unix epoch), the oldest first.

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
        nights = judged_once(nights, runs)
    return nights[-most:]


def sessions_after(history: History, until: float) -> int:
    """How many sessions begin later than ``until``, in seconds of the Unix epoch.

    Raises:
        HistoryError: The database cannot be read.
    """
    query = "SELECT count(*) FROM sessions WHERE began > :until"
    return int(history.tuples(query, {"until": until})[0][0])


def _nights(history: History, values: dict[str, object]) -> list[Night]:
    rows = history.tuples(_NIGHTS, values)
    return [Night._make(row) for row in reversed(rows)]


def runs_of(history: History, nights: Iterable[int]) -> dict[int, list[float]]:
    """The throughputs that count of some hundreds of measurements at most, by their ids.

    Raises:
        HistoryError: The database cannot be read.
    """
    values = {f"id{number}": night for number, night in enumerate(nights)}
    places = ", ".join(f":{name}" for name in values)
    return _by_measurement(history.tuples(_RUNS.format(places=places), values))


def _by_measurement(rows: Sequence[tuple[Any, ...]]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for measurement, throughput in rows:
        found.setdefault(measurement, []).append(throughput)
    return found


def accepted_of(history: History, series: Series, *, until: float) -> list[AcceptedChange]:
    """The throughputs that sessions of the history accepted, the oldest first.

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
