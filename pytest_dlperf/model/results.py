"""All that a session has come to, as one value: what every report is made from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_dlperf.model.changes import BaselineChange
    from pytest_dlperf.model.measurement import Estimator
    from pytest_dlperf.model.records import CaseResult


@dataclass(frozen=True, slots=True)
class IgnoredLog:
    """A log that was found but belongs to no run, and why."""

    log: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A session's results.

    ``session`` tells it from all others, wherever its file is read; ``started`` and ``ended`` are
    ISO 8601 with their zone; ``units`` are the units per second by system, also of cases that were
    not measured; ``strict`` says that a skipped case and an ``environment_shift`` failed their
    tests; ``unfit_hosts`` are faults by host. ``log_names`` are the first
    parts of logs' names by system; no results file has them.
    """

    session: str
    cluster: str
    estimator: Estimator
    started: str
    ended: str | None = None
    interrupted: bool = False
    strict: bool = False
    environment: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    log_names: Mapping[str, str] = field(default_factory=dict)
    cases: tuple[CaseResult, ...] = ()
    unfit_hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ignored_logs: tuple[IgnoredLog, ...] = ()
    baseline_changes: tuple[BaselineChange, ...] = ()

    def unit_of(self, result: CaseResult) -> str | None:
        """What a case's throughput is counted in, per second."""
        if result.measurement is not None:
            return result.measurement.unit
        return self.units.get(result.case.system)
