"""Queries: metrics, series, their sessions and accepted numbers, machines and origins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import asdict

from pytest_dlperf.history.series import JudgedSession, Point, Series
from pytest_dlperf.history.store import History
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Fingerprint
from pytest_dlperf.model.results import Origin

Machines = Mapping[int | None, Mapping[str, str]]
"""Facts of machines by the id of a fingerprint."""

_YEAR_S: Final = 366 * 86400
_PARTS: Final = Fingerprint.__struct_fields__

# Fields whose column has another name, or is one of two tables. The runs of an imported session may
# lack a number that its median has.
_COLUMNS: Final = {
    "measurement_id": "measurements.id",
    "started": "sessions.started",
    "began": "measurements.began",
    "lowest": "coalesce(lowest, median)",
    "highest": "coalesce(highest, median)",
    "runs": "counted",
    "verdict_word": "verdict",
}


def _last_year(fields: tuple[str, ...], more: str) -> str:
    """Write the query for a metric's sessions of a year, the last one first."""
    columns = ", ".join(f"{_COLUMNS.get(name, name)} AS {name}" for name in fields)
    return f"""
        WITH found AS (
            SELECT {columns}, min(measurements.began)
            FROM measurements JOIN sessions ON sessions.id = measurements.session_id
            WHERE measurements.case_id = (SELECT id FROM cases WHERE name = :case_id)
            AND metric = :metric AND measurements.began <= :until
            AND sessions.uid IS NOT :besides
            AND sessions.cluster = :cluster AND sessions.estimator = :estimator {more}
        )
        SELECT {", ".join(fields)} FROM found
        WHERE began > (SELECT max(began) FROM found) - {_YEAR_S}
        ORDER BY began DESC, measurement_id DESC
    """  # noqa: S608 - names of our own


# Of the rows of a group SQLite gives the one that has the minimum: the first of equal logs.
_POINTS: Final = _last_year(
    Point._fields,
    """
    AND unit = :unit AND better IS :better AND reference_topology IS :reference_topology
    AND median IS NOT NULL GROUP BY coalesce(logs_digest, measurements.id)
    """,
)
_JUDGED: Final = _last_year(JudgedSession._fields, "GROUP BY measurements.id")
_ORIGIN: Final = f"""
    SELECT sessions.environment,
    {", ".join(f"(SELECT content FROM facts WHERE id = {part})" for part in _PARTS)}
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    LEFT JOIN fingerprints ON fingerprints.id = measurements.fingerprint
    WHERE measurements.id = :id
"""  # noqa: S608 - names of our own
_SERIES: Final = """
    SELECT DISTINCT cases.name, metric, unit, better, reference_topology, cluster, estimator
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    JOIN cases ON cases.id = measurements.case_id
    WHERE median IS NOT NULL AND (metric = :metric OR (:metric IS NULL AND measurements.id IN (
        SELECT min(id) FROM measurements GROUP BY session_id, case_id
    )))
    ORDER BY cluster, estimator, unit, better, reference_topology
"""


def known_metrics(history: History) -> list[str]:
    """List the names of all metrics that have a number."""
    query = "SELECT DISTINCT metric FROM measurements WHERE median IS NOT NULL ORDER BY 1"
    return [name for (name,) in history.tuples(query, tuple[str])]


def all_series(history: History, metric: str | None) -> list[Series]:
    """List the series of a metric by cluster and system, small topologies first.

    Without a name, those of each case's main metric: the first one of its measurements.
    """
    series = history.tuples(_SERIES, Series, {"metric": metric})
    order = {name: Case.from_id(name).sort_key for name in {one.case_id for one in series}}
    return sorted(series, key=lambda one: (one.cluster, one.estimator, *order[one.case_id]))


def points_of(
    history: History, series: Series, *, until: float, besides: str | None = None
) -> list[Point]:
    """List a series' sessions of the year until ``until`` (seconds of the Unix epoch), in order.

    Sessions without the metric are left out, and so is the session ``besides``. Logs that were
    judged several times count once, for the first session.
    """
    return history.tuples(_POINTS, Point, _values(series, until, besides))[::-1]


def judged_sessions(
    history: History, series: Series, *, until: float, besides: str | None = None
) -> list[JudgedSession]:
    """List that year's sessions that judged a metric, measured or not, the last one first.

    Its unit may have been another. The session ``besides`` is left out.
    """
    return history.tuples(_JUDGED, JudgedSession, _values(series, until, besides))


def origin_of(history: History, measurement: int) -> tuple[Origin, Fingerprint | None]:
    """Return the origin of a measurement, by its id, and its fingerprint."""
    ((environment, *parts),) = history.tuples(_ORIGIN, tuple[str | None, ...], {"id": measurement})
    facts = ", ".join(
        f'"{name}": {part}' for name, part in zip(_PARTS, parts, strict=True) if part is not None
    )
    origin = Origin.of(history.decoded(environment or "{}", dict[str, Any]))
    return origin, history.decoded(f"{{{facts}}}", Fingerprint) if facts else None


def machines_of(history: History) -> Machines:
    """Read the facts of machines by the id of a fingerprint, of those that have any."""
    query = "SELECT fingerprints.id, content FROM fingerprints JOIN facts ON facts.id = machine"
    rows = history.tuples(query, tuple[int, str])
    # Thousands of fingerprints are of a few machines.
    texts = {content for _, content in rows}
    machines = {content: history.decoded(content, dict[str, str]) for content in texts}
    return {key: machines[content] for key, content in rows}


def _values(series: Series, until: float, besides: str | None) -> dict[str, Any]:
    return {**asdict(series), "until": until, "besides": besides}
