"""All measurements of the history as flat rows, for other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pytest_dlperf.history.series import Finite, Time  # noqa: TC001 - msgspec reads the types
from pytest_dlperf.model.results import Origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.history.store import History


class ExportedMeasurement(NamedTuple):
    """One metric of one case in one session.

    Numbers are in the metric's ``unit``, or in percent where the name says so. They are ``None``
    where nothing was measured or compared.
    """

    started: Time
    """When the session began, ISO 8601 with its zone."""
    ended: Time | None
    """When it ended, likewise; ``None`` where it was killed, or still runs."""
    session: str
    """Its id."""
    cluster: str
    estimator: str
    case: str
    framework: str
    model: str
    precision: str | None
    nodes: int
    devices_per_node: int
    metric: str
    unit: str
    better: str | None
    """``higher`` or ``lower``; ``None`` for a metric that is held against no baseline."""
    value: Finite | None
    """The median of the runs; of a case with broken runs, that of the rest."""
    lowest: Finite | None
    highest: Finite | None
    runs: int
    """How many runs have a number."""
    broken_runs: int
    """How many runs failed, hung or were invalid."""
    noise_percent: Finite | None
    """Coefficient of variation between the runs."""
    accepted: Finite | None
    reference: Finite | None
    loss_percent: Finite | None
    """By how much the value is worse than the reference; negative: better."""
    verdict: str | None
    """A verdict, or ``lost``; ``None`` where nothing was judged."""
    hosts: str | None
    """Names of the hosts, with blanks between them; ``None`` for logs that were only read."""
    commit: str | None
    """The commit of the suite."""


_COLUMNS: Final = {
    "started": "sessions.started",
    "session": "uid",
    "case": "cases.name",
    "value": "median",
    "runs": "counted",
    "broken_runs": "broken",
    "noise_percent": "100 * spread",
    # Not with a minus: that makes -0.0 of no difference.
    "loss_percent": "CASE better WHEN 'higher' THEN 0 - difference_percent "
    "WHEN 'lower' THEN difference_percent END",
    "hosts": "(SELECT content FROM facts WHERE id = fingerprints.hosts)",
    "commit": "sessions.environment",
}
_MEASUREMENTS: Final = f"""
    SELECT {", ".join(_COLUMNS.get(name, name) for name in ExportedMeasurement._fields)}
    FROM measurements
    JOIN sessions ON sessions.id = measurements.session_id
    JOIN cases ON cases.id = measurements.case_id
    LEFT JOIN fingerprints ON fingerprints.id = measurements.fingerprint
    ORDER BY sessions.began, sessions.id, measurements.id
"""  # noqa: S608 - names of our own


def exported_measurements(history: History) -> Iterator[ExportedMeasurement]:
    """Yield all measurements, the oldest session first.

    Raises:
        HistoryError: The database cannot be read.
    """
    # Thousands of measurements are of a few sessions and hosts.
    hosts: dict[str | None, str | None] = {None: None}
    commits: dict[str | None, str | None] = {None: None}
    for row in history.tuples(_MEASUREMENTS, ExportedMeasurement):
        if row.hosts is not None and row.hosts not in hosts:
            hosts[row.hosts] = " ".join(history.decoded(row.hosts, list[str]))
        if row.commit is not None and row.commit not in commits:
            origin = Origin.of(history.decoded(row.commit, dict[str, Any]))
            commits[row.commit] = origin.commit
        yield row._replace(hosts=hosts[row.hosts], commit=commits[row.commit])
