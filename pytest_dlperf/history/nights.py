"""What the database is asked: the nights of a case, and what was accepted of it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_dlperf.gate.verdict import Quantity, Verdict
from pytest_dlperf.history.rows import text
from pytest_dlperf.history.series import AcceptedChange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_dlperf.history.store import History

MOST_NIGHTS: Final = 366
"""A year of nights, and tonight."""

_CHOSEN: Final = """
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    WHERE measurements.case_id = (SELECT id FROM cases WHERE name = :case_id)
    AND measurements.began <= :until
    AND sessions.cluster = :cluster AND sessions.estimator = :estimator
    AND measurements.unit = :unit AND measurements.median IS NOT NULL
    ORDER BY measurements.began DESC, measurements.id DESC
    LIMIT :most
"""
_NIGHTS: Final = f"""
    SELECT measurements.id, sessions.started, measurements.began, median, slowest, fastest, counted,
    speedup, baseline, baseline_at, baseline_reason, verdict,
    source != 'launched' AND fingerprint IS NULL, mean, spread {_CHOSEN}
"""
_RUNS: Final = f"""
    SELECT measurement_id, throughput FROM runs
    WHERE measurement_id IN (SELECT measurements.id {_CHOSEN})
    AND arm = 'measured' AND throughput IS NOT NULL
    ORDER BY measurement_id, number
"""  # noqa: S608 - a text of our own
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


class Night(NamedTuple):
    """What one session measured of a case: a tuple, as there are many of them.

    ``began`` is ``started`` in seconds of the Unix epoch. ``median``, ``slowest`` and ``fastest``
    run are in the unit per second, ``counted`` is how many runs count. ``baseline`` is the accepted
    throughput that it was held against, ``baseline_at`` and ``baseline_reason`` what is known of
    that.
    """

    measurement_id: int
    started: str
    began: float
    median: float
    slowest: float
    fastest: float
    counted: int
    speedup: float | None
    baseline: float | None
    baseline_at: str | None
    baseline_reason: str | None
    verdict: Verdict | None


def all_series(history: History) -> list[Series]:
    """All that has been measured, by cluster and system, small topologies first.

    Raises:
        HistoryError: The database cannot be read.
    """
    return [Series(**row) for row in history.rows(_SERIES)]


def nights_of(
    history: History, series: Series, *, until: float, most: int = MOST_NIGHTS
) -> list[Night]:
    """The last nights until ``until`` (seconds of the Unix epoch), the oldest first.

    Sessions that measured nothing of the case are left out, and so are logs that were judged
    before.

    Raises:
        HistoryError: The database cannot be read.
    """
    looked_at = most
    while True:
        values = {**_values(series, until), "most": looked_at}
        rows = history.tuples(_NIGHTS, values)
        nights = _once(reversed(rows))
        if len(nights) >= most or len(rows) < looked_at:
            return nights[-most:]
        looked_at *= 4  # the same logs have been judged again and again


def _once(rows: Iterable[tuple[Any, ...]]) -> list[Night]:
    """The nights of such rows, without logs that were judged before."""
    nights = []
    seen = set()
    for *told, verdict, may_be_logs, mean, spread in rows:
        night = Night._make((*told, _VERDICTS.get(verdict)))
        # Who launches has looked at the machine. What nobody has looked at is read from logs.
        if may_be_logs:
            numbers = (night.median, night.slowest, night.fastest, night.counted, mean, spread)
            if numbers in seen:
                continue
            seen.add(numbers)
        nights.append(night)
    return nights


def runs_of(
    history: History, series: Series, *, until: float, most: int
) -> dict[int, tuple[float, ...]]:
    """The throughputs that count in the last ``most`` sessions, by the measurement's id.

    Raises:
        HistoryError: The database cannot be read.
    """
    found = history.tuples(_RUNS, {**_values(series, until), "most": most})
    return {
        measurement: tuple(throughput for _, throughput in rows)
        for measurement, rows in groupby(found, key=itemgetter(0))
    }


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


_VERDICTS: Final = {verdict.value: verdict for verdict in Verdict}


def _values(series: Series, until: float) -> dict[str, object]:
    return {
        "case_id": series.case_id,
        "unit": text(series.unit),
        "cluster": text(series.cluster),
        "estimator": series.estimator,
        "until": until,
    }
