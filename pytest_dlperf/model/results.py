"""Results of a session, as the one value that its reports are made from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple

from pytest_dlperf.model.measurement import Estimator, Measurement
from pytest_dlperf.model.metric import Metric
from pytest_dlperf.model.records import CaseResult

_TIME: Final = re.compile(
    r"(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2})(?::(\d{2})(?:\.(\d+))?)?(Z|[+-]\d{2}:\d{2})", re.ASCII
)


@dataclass(frozen=True, slots=True)
class IgnoredLog:
    """A log that was found but belongs to no run, and why."""

    log: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineChange:
    """One number of one case that the session accepted."""

    case_id: str
    metric: str
    unit: str
    old: float | None
    """The accepted number so far, in ``unit``; ``None`` where there was none."""
    new: float
    why: str
    by: str | None = None
    """Who accepted it."""
    commit: str | None = None
    """The suite's commit."""

    @property
    def difference_percent(self) -> float | None:
        """Difference of the new number from the old one, in percent of the old."""
        return None if self.old is None else (self.new / self.old - 1) * 100


class Origin(NamedTuple):
    """Where a session comes from, as far as its environment says."""

    commit: str | None
    """The suite's."""
    commit_url: str | None
    """The address of the commit's page."""
    ci_run: str | None
    """The address of the CI's run."""

    @classmethod
    def of(cls, environment: object) -> Origin:
        """Read it from what a results file or the database has; that may be anything."""
        known = environment if isinstance(environment, Mapping) else {}
        found = (known.get(name) for name in cls._fields)
        return cls(*(value if isinstance(value, str) and value else None for value in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """A session's results."""

    session: str
    """An id that no other session has, wherever its file is read."""
    cluster: str
    estimator: Estimator
    started: str
    """ISO 8601 with its zone, like ``ended``."""
    ended: str | None = None
    interrupted: bool = False
    strict: bool = False
    """Whether skipped cases and an ``environment_shift`` failed their tests."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """The machine that pytest ran on."""
    metrics: Mapping[str, tuple[Metric, ...]] = field(default_factory=dict)
    """What each system measures, also of cases that were not measured; by its id."""
    log_names: Mapping[str, str] = field(default_factory=dict)
    """First parts of logs' names by system; no results file has them."""
    cases: tuple[CaseResult, ...] = ()
    unfit_hosts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Faults by host."""
    ignored_logs: tuple[IgnoredLog, ...] = ()
    baseline_changes: tuple[BaselineChange, ...] = ()

    @property
    def origin(self) -> Origin:
        """Where the session comes from."""
        return Origin.of(self.environment)

    @property
    def reference_measurements(self) -> tuple[Measurement, ...]:
        """What speedups were taken over, and no test was selected of."""
        selected = {result.case.id for result in self.cases}
        found = {over.case_id: over for result in self.cases if (over := result.reference)}
        return tuple(over for case_id, over in found.items() if case_id not in selected)

    @property
    def elapsed(self) -> timedelta | None:
        """Time from start to end; ``None`` where it is not known, or clocks make it negative."""
        if self.ended is None:
            return None
        try:
            taken = parse_time(self.ended) - parse_time(self.started)
        except ValueError:
            return None
        return taken if taken >= timedelta(0) else None


def parse_time(text: str) -> datetime:
    """Read a time with its zone (ISO 8601), alike with every Python.

    Raises:
        ValueError: It has another form, or no such day or hour exists.
    """
    found = _TIME.fullmatch(text)
    try:
        if found is not None:
            day, minute, second, fraction, zone = found.groups()
            # Python 3.10 knows neither the Z nor other fractions than those of 3 and 6 digits.
            exact = f"{day}T{minute}:{second or '00'}.{(fraction or '')[:6]:0<6}"
            return datetime.fromisoformat(exact + ("+00:00" if zone == "Z" else zone))
    except ValueError:
        pass
    raise ValueError(f"{text!r} is not a time with its zone, as in '2026-11-21T03:00:00+00:00'")


def day_of(at: str, tonight: str) -> date:
    """Give the day of a time as those see it who read of it tonight.

    Of a zone an hour off, which daylight saving makes of the same one, it keeps its own day; but
    UTC is what machines have that know no zone.

    Raises:
        ValueError: One of both is no time.
        OverflowError: That zone has no such day.
    """
    time, zone = parse_time(at), parse_time(tonight).tzinfo
    there = time.astimezone(zone)
    ahead, tonights = time.utcoffset(), there.utcoffset()
    is_same = ahead and tonights and abs(ahead - tonights) <= timedelta(hours=1)
    return (time if is_same else there).date()
