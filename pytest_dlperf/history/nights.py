"""Queries: metrics, series, their nights and accepted numbers, machines and origins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from msgspec.structs import fields

from pytest_dlperf.history.series import (
    RED,
    Finite,
    JudgedSession,
    Point,
    Series,
    Time,
)
from pytest_dlperf.history.store import History
from pytest_dlperf.model.measurement import Fingerprint
from pytest_dlperf.model.results import Origin, parse_time

Machines = Mapping[int | None, Mapping[str, str]]
"""Facts of machines by the id of a fingerprint."""

_YEAR: Final = 366
_LAST_SESSIONS: Final = 30
"""A metric that none of so many sessions judged has not recovered tonight."""


class _OriginRow(NamedTuple):
    """The environment of a session, and the parts of a fingerprint, as JSON."""

    environment: str
    machine: str | None
    software: str | None
    hosts: str | None
    commits: str | None
    launch: str | None


# Fields of a night whose column has another name, or is one of two tables. The runs of an imported
# session may lack a number that its median has.
_COLUMNS: Final = {
    "measurement_id": "measurements.id",
    "started": "sessions.started",
    "began": "measurements.began",
    "lowest": "coalesce(lowest, median)",
    "highest": "coalesce(highest, median)",
    "runs": "counted",
    "verdict_word": "verdict",
}


def _columns(names: Iterable[str]) -> str:
    return ", ".join(_COLUMNS.get(name, name) for name in names)


# SQLite takes text for larger than any number. Without the casts a row whose time is text would be
# left out, not reported.
_OF_METRIC: Final = """
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    WHERE measurements.case_id = (SELECT id FROM cases WHERE name = :case_id)
    AND metric = :metric AND CAST(measurements.began AS REAL) <= :until
    AND sessions.uid IS NOT :besides
    AND sessions.cluster = :cluster AND sessions.estimator = :estimator
"""
_LAST_FIRST: Final = "ORDER BY measurements.began DESC, measurements.id DESC LIMIT :most"
_NIGHTS: Final = f"""
    SELECT {_columns(Point._fields)} {_OF_METRIC}
    AND unit = :unit AND better IS :better AND reference_topology IS :reference_topology
    AND median IS NOT NULL {_LAST_FIRST}
"""
_JUDGED: Final = f"SELECT {_columns(JudgedSession._fields)} {_OF_METRIC} {_LAST_FIRST}"
_WITHOUT_NUMBER: Final = f"""
    SELECT sessions.started {_OF_METRIC} AND median IS NULL
    AND verdict IN ({", ".join(map(repr, RED))}) {_LAST_FIRST}
"""
_STARTS: Final = """
    SELECT started FROM sessions
    WHERE cluster = :cluster AND estimator = :estimator AND CAST(began AS REAL) <= :until
    ORDER BY began DESC LIMIT 100
"""
_WHOLE: Final = """
    SELECT ended FROM sessions WHERE cluster = :cluster AND NOT interrupted AND EXISTS (
        SELECT 1 FROM measurements WHERE session_id = sessions.id AND median IS NOT NULL
    )
"""
_ORIGIN: Final = f"""
    SELECT sessions.environment,
    {", ".join(f"(SELECT content FROM facts WHERE id = {it})" for it in _OriginRow._fields[1:])}
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    LEFT JOIN fingerprints ON fingerprints.id = measurements.fingerprint
    WHERE measurements.id = :id
"""  # noqa: S608 - names of our own
# SQLite gives the other columns of the row that has the maximum.
_LAST_VERDICTS: Final = """
    SELECT cases.name, metric, verdict, max(measurements.began)
    FROM measurements JOIN cases ON cases.id = measurements.case_id
    WHERE verdict IS NOT NULL AND session_id IN (
        SELECT id FROM sessions
        WHERE cluster = :cluster AND estimator = :estimator AND CAST(began AS REAL) <= :until
        AND uid IS NOT :besides ORDER BY began DESC LIMIT :most
    )
    GROUP BY measurements.case_id, metric
"""
_MACHINES: Final = """
    SELECT fingerprints.id, content FROM fingerprints JOIN facts ON facts.id = machine
"""
_SERIES: Final = """
    SELECT DISTINCT cases.name, metric, unit, better, reference_topology, cluster, estimator
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    JOIN cases ON cases.id = measurements.case_id
    WHERE median IS NOT NULL AND (metric = :metric OR (:metric IS NULL AND measurements.id IN (
        SELECT min(id) FROM measurements GROUP BY session_id, case_id
    )))
    ORDER BY cluster, estimator, cases.framework, cases.model, cases.precision,
    cases.batch_per_replica, cases.global_batch, cases.sequence_length, cases.parallel,
    cases.options, cases.axes, cases.nodes, cases.devices_per_node, unit, better, reference_topology
"""


def known_metrics(history: History) -> list[str]:
    """List the names of all metrics that have a number."""
    return [
        name
        for (name,) in history.tuples(
            "SELECT DISTINCT metric FROM measurements WHERE median IS NOT NULL ORDER BY 1",
            tuple[str],
        )
    ]


def all_series(history: History, metric: str | None) -> list[Series]:
    """List the series of a metric by cluster and system, small topologies first.

    Without a name, those of each case's main metric: the first one of its measurements.
    """
    return history.tuples(_SERIES, Series, {"metric": metric})


def has_whole_session(history: History, cluster: str, since: datetime) -> bool:
    """Tell whether a session of a cluster that measured something ended after ``since``.

    One that was interrupted is not whole, and one of the future had a wrong clock.
    """
    ends = history.tuples(_WHOLE, tuple[Time], {"cluster": cluster})
    latest = datetime.now().astimezone() + timedelta(hours=1)
    return any(since < parse_time(end) < latest for (end,) in ends)


def nights_of(
    history: History,
    series: Series,
    *,
    until: float,
    most: int = _YEAR,
    besides: str | None = None,
) -> list[Point]:
    """List the last year of nights until ``until`` (seconds of the Unix epoch), the oldest first.

    Sessions without the metric are left out, and so is the session ``besides``. Logs that were
    judged several times count once, for the first session.
    """
    values = {**_values(series, until), "most": most, "besides": besides}
    nights = history.tuples(_NIGHTS, Point, values)
    if any(night.logs_digest is not None for night in nights):
        # Of these, only all nights show how often logs were judged again.
        nights = history.tuples(_NIGHTS, Point, {**values, "most": -1})
    return _each_log_once(reversed(nights))[-most:]


def judged_sessions(
    history: History, series: Series, *, until: float, besides: str
) -> list[JudgedSession]:
    """List the last sessions that judged a metric, measured or not, the last one first.

    Its unit may have been another. The session ``besides`` is left out.
    """
    values = {**_values(series, until), "most": _YEAR, "besides": besides}
    return history.tuples(_JUDGED, JudgedSession, values)


def without_number(history: History, series: Series, *, until: float) -> tuple[str, ...]:
    """List when the last red sessions without the number began, the oldest first."""
    values = {**_values(series, until), "most": _YEAR, "besides": None}
    found = history.tuples(_WITHOUT_NUMBER, tuple[Time], values)
    return tuple(started for (started,) in reversed(found))


def red_before(
    history: History, *, cluster: str, estimator: str, until: float, besides: str
) -> set[tuple[str, str]]:
    """Return the cases and metrics that were red in the last session that judged them.

    ``until`` is in seconds of the Unix epoch; the session ``besides`` is left out.
    """
    values = {"cluster": cluster, "estimator": estimator, "until": until, "besides": besides}
    rows = history.tuples(
        _LAST_VERDICTS, tuple[str, str, str, Finite], {**values, "most": _LAST_SESSIONS}
    )
    return {(case_id, metric) for case_id, metric, verdict, _ in rows if verdict in RED}


def starts_of(history: History, series: Series, *, until: float) -> list[str]:
    """List the starts of the last hundred sessions of a series' cluster, of any case."""
    found = history.tuples(_STARTS, tuple[Time], _values(series, until))
    return [started for (started,) in found]


def origin_of(history: History, measurement: int) -> tuple[Origin, Fingerprint | None]:
    """Return the origin of a measurement, by its id, and its fingerprint."""
    (row,) = history.tuples(_ORIGIN, _OriginRow, {"id": measurement})
    known = {
        part.name: history.decoded(content, part.type)
        for part in fields(Fingerprint)
        if (content := getattr(row, part.name)) is not None
    }
    origin = Origin.of(history.decoded(row.environment, dict[str, Any]))
    return origin, Fingerprint(**known) if known else None


def machines_of(history: History, fingerprints: Iterable[int | None] | None = None) -> Machines:
    """Read the facts of machines by the id of a fingerprint: of all, or of ``fingerprints``.

    Fingerprints without facts of a machine are left out.
    """
    query = _MACHINES
    if fingerprints is not None:
        # Ids, written into the query: there may be more than a statement takes values.
        chosen = ", ".join(str(int(key)) for key in fingerprints if key is not None)
        query += f"WHERE fingerprints.id IN ({chosen})"
    rows = history.tuples(query, tuple[int, str])
    # Thousands of fingerprints are of a few machines.
    texts = {content for _, content in rows}
    machines = {content: history.decoded(content, dict[str, str]) for content in texts}
    return {key: machines[content] for key, content in rows}


def runs_of(history: History, measurements: Iterable[int]) -> dict[int, list[float]]:
    """Read the numbers of runs by measurement, of some hundreds of measurements at most."""
    ids = {f"id{number}": measurement for number, measurement in enumerate(measurements)}
    places = ", ".join(f":{name}" for name in ids)
    query = f"SELECT id, run_values FROM measurements WHERE id IN ({places})"  # noqa: S608 - names of our own
    rows = history.tuples(query, tuple[int, str], ids)
    return {measurement: history.decoded(values, list[Finite]) for measurement, values in rows}


def _values(series: Series, until: float) -> dict[str, object]:
    return {
        "case_id": series.case_id,
        "metric": series.metric,
        "unit": series.unit,
        "better": series.better and series.better.value,
        "reference_topology": series.reference_topology,
        "cluster": series.cluster,
        "estimator": series.estimator,
        "until": until,
    }


def _each_log_once(nights: Iterable[Point]) -> list[Point]:
    """Leave out nights from logs that were judged before."""
    first: dict[str | int, Point] = {}
    for night in nights:
        first.setdefault(night.logs_digest or night.measurement_id, night)
    return list(first.values())
