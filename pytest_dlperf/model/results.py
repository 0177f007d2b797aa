"""What is known of a case, and the results of a session."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Explanation, Judgement, Verdict
from pytest_dlperf.model.measurement import Estimator, InterleavedRuns, Measurement
from pytest_dlperf.model.metric import SPEEDUP_METRIC, Metric
from pytest_dlperf.model.statistics import difference_percent


class MetricResult(Struct, frozen=True, kw_only=True):
    """All that a session knows of one metric of one case."""

    metric: Metric
    median: float | None = None
    mean: float | None = None
    spread: float | None = None
    """Coefficient of variation between the runs."""
    accepted: Baseline | None = None
    """What it was held against; ``None`` where it could not be."""
    judgement: Judgement | None = None
    """``None`` where no test of it has finished, or none judges it."""
    explanation: Explanation | None = None
    """Since when, and what differs; ``None`` where the judgement simply passed."""
    efficiency_percent: float | None = None
    """Of a ratio over a reference topology, how much of the ideal it is."""

    @property
    def reference(self) -> float | None:
        """What a difference is taken from: the pooled last sessions, or the accepted number."""
        if self.judgement is not None and self.judgement.decision is not None:
            return self.judgement.decision.reference
        return self.accepted.accepted if self.accepted is not None else None


class CaseResult(Struct, frozen=True, kw_only=True, dict=True):
    """What one of its tests, or a whole session, knows of one case."""

    case: Case
    measurement: Measurement | None = None
    """What came out; ``None`` where nothing was measured."""
    reference: Measurement | None = None
    """What the speedup is taken over: the case's reference topology."""
    interleaved: InterleavedRuns | None = None
    """Runs beside the accepted software, where there were any."""
    accepted: Mapping[str, Baseline] = {}
    """Baselines that the case was compared with, by metric."""
    stored: Mapping[str, float] = {}
    """Accepted numbers of all its baselines, by metric, also those that cannot be compared with."""
    judgements: Mapping[str, Judgement] = {}
    """Verdicts, and how they came about, by metric."""
    explanations: Mapping[str, Explanation] = {}
    """Of judgements that did not simply pass, by metric."""
    is_whole: bool = True
    """Whether no test of the case was lost with its worker."""
    unfinished: tuple[str, ...] = ()
    """Metrics that a test was selected of which never came to its end."""

    @cached_property
    def status(self) -> Verdict:
        """What became of the case. Without a number it is never good, whatever a verdict says."""
        statuses = (judgement.status for judgement in self.judgements.values())
        worst = min(statuses, key=attrgetter("rank"), default=Verdict.NOT_JUDGED)
        if worst.is_good and not self.is_measured:
            worst = Verdict.NOT_MEASURED
        if worst.is_alarm:
            return worst
        if not self.is_whole:
            return Verdict.LOST
        return Verdict.NOT_JUDGED if self.unfinished and worst.is_good else worst

    @property
    def is_measured(self) -> bool:
        """Whether there is a number of the case."""
        return self.measurement is not None and any(run.metrics for run in self.measurement.runs)

    @property
    def speedup(self) -> float | None:
        """How many times the throughput of the reference topology; ``None`` if not measured."""
        own, over = self.measurement, self.reference
        # With a broken run on either end the speedup is not measured.
        if own is None or over is None or own.broken_runs or over.broken_runs:
            return None
        return own.ratio(SPEEDUP_METRIC, over)

    def efficiency_percent(self, speedup: float | None) -> float | None:
        """Return the scaling efficiency: how much of the ideal a speedup is."""
        ideal = self.case.ideal_speedup
        return None if speedup is None or ideal is None else 100 * speedup / ideal

    def metrics(self) -> Mapping[str, MetricResult]:
        """Return what is known of each metric, by name: measured, judged or accepted.

        In the order of the measurement's metrics, the speedup behind the throughput.
        """
        return self._metrics

    @cached_property
    def _metrics(self) -> Mapping[str, MetricResult]:
        metrics: dict[str, Metric] = {}
        for metric in self.measurement.metrics if self.measurement is not None else ():
            metrics[metric.name] = metric
            if metric.name == SPEEDUP_METRIC.ratio_of and self.case.is_scaled:
                metrics[SPEEDUP_METRIC.name] = SPEEDUP_METRIC
        metrics |= {each.metric.name: each.metric for each in self.judgements.values()}
        return {name: self._metric(metric) for name, metric in metrics.items()}

    def _metric(self, metric: Metric) -> MetricResult:
        name = metric.name
        result = MetricResult(
            metric=metric,
            accepted=self.accepted.get(name),
            judgement=self.judgements.get(name),
            explanation=self.explanations.get(name),
        )
        if metric.ratio_of is not None:
            efficiency = self.efficiency_percent(self.speedup)
            return replace(result, median=self.speedup, efficiency_percent=efficiency)
        if self.measurement is None or name not in self.measurement.names:
            return result
        samples = self.measurement.samples(name)
        return replace(result, median=samples.median, mean=samples.mean, spread=samples.spread)


def merge(result: CaseResult, other: CaseResult) -> CaseResult:
    """Add what another test of the case reports; of two verdicts the worse stands."""
    judgements = result.judgements
    for judgement in other.judgements.values():
        judgements = with_worse_judgement(judgements, judgement)
    return replace(
        result,
        measurement=other.measurement or result.measurement,
        reference=other.reference or result.reference,
        interleaved=other.interleaved or result.interleaved,
        accepted={**result.accepted, **other.accepted},
        stored={**result.stored, **other.stored},
        judgements=judgements,
        explanations={**result.explanations, **other.explanations},
    )


def with_measurements(result: CaseResult, measurements: Mapping[str, Measurement]) -> CaseResult:
    """Set the measurements of a case and of its reference, where they are among these."""
    over = result.case.reference
    return replace(
        result,
        measurement=measurements.get(result.case.id, result.measurement),
        reference=measurements.get(over.id, result.reference) if over else None,
    )


def with_worse_judgement(
    judgements: Mapping[str, Judgement], new: Judgement
) -> Mapping[str, Judgement]:
    """Add a judgement, unless its metric has a worse one."""
    name = new.metric.name
    if name in judgements and _severity(judgements[name]) <= _severity(new):
        return judgements
    return {**judgements, name: new}


def _severity(judgement: Judgement) -> tuple[int, bool]:
    """Sort key, the worst first: an expected failure counts as skipped."""
    is_expected = judgement.expected is not None
    return (Verdict.SKIPPED if is_expected else judgement.verdict).rank, is_expected


# ------------------------------------------------------------------------------- sessions


class IgnoredLog(Struct, frozen=True):
    """A log that was found but belongs to no run, and why."""

    log: str
    reason: str


class BaselineChange(Struct, frozen=True, kw_only=True):
    """One number of one case that the session accepted."""

    case_id: str
    metric: str
    unit: str
    old: float | None
    """The accepted number so far, in ``unit``; ``None`` where there was none."""
    new: float
    why: str
    by: str | None = None
    commit: str | None = None

    @property
    def difference_percent(self) -> float | None:
        """Difference of the new number from the old one, in percent of the old."""
        return None if self.old is None else difference_percent(self.new, self.old)


class Origin(NamedTuple):
    """Where a session comes from, as far as its environment says."""

    commit: str | None
    commit_url: str | None
    ci_run: str | None

    @classmethod
    def of(cls, environment: Mapping[str, Any]) -> Origin:
        """Read it from an environment, which may hold anything."""
        values = map(environment.get, cls._fields)
        return cls(*(value if isinstance(value, str) and value else None for value in values))


class Results(Struct, frozen=True, kw_only=True):
    """A session's results."""

    session: str
    """An id that no other session has, wherever its file is read."""
    cluster: str
    estimator: Estimator
    started: str
    """When it began: ISO 8601 with its zone."""
    ended: str | None = None
    """When it ended, likewise; ``None`` where that is unknown."""
    interrupted: bool = False
    """Whether it was cut short: by Ctrl-C, or by an error of pytest."""
    strict: bool = False
    """Whether skipped cases and an ``environment_shift`` failed their tests."""
    environment: Mapping[str, Any] = {}
    """The machine that pytest ran on."""
    metrics: Mapping[str, tuple[Metric, ...]] = {}
    """What each system measures, also of cases that were not measured; by its id."""
    log_names: Mapping[str, str] = {}
    """First parts of logs' names by system."""
    cases: tuple[CaseResult, ...] = ()
    unfit_hosts: Mapping[str, tuple[str, ...]] = {}
    """Faults by host."""
    ignored_logs: tuple[IgnoredLog, ...] = ()
    baseline_changes: tuple[BaselineChange, ...] = ()
    faults: tuple[str, ...] = ()
    """What else made it fail: a report that could not be written, a number that was refused."""

    @property
    def origin(self) -> Origin:
        """Where the session comes from."""
        return Origin.of(self.environment)

    @property
    def reference_measurements(self) -> tuple[Measurement, ...]:
        """What speedups were taken over, and no test was selected of."""
        selected = {result.case.id for result in self.cases}
        measured = {over.case_id: over for result in self.cases if (over := result.reference)}
        return tuple(over for case_id, over in measured.items() if case_id not in selected)

    @property
    def elapsed(self) -> timedelta | None:
        """Time from start to end; ``None`` where it is not known, or clocks make it negative."""
        try:
            taken = parse_time(self.ended or "") - parse_time(self.started)
        except ValueError:
            return None
        return taken if taken >= timedelta(0) else None


def parse_time(text: str) -> datetime:
    """Read a time with its zone (ISO 8601), else ``ValueError``."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise ValueError(f"{text!r} is not a time with its zone, as in '2026-11-21T03:00:00+00:00'")
    return time


def day_of(at: str, now: str) -> date:
    """Return the day of a time in the zone of now (``ValueError``, ``OverflowError``)."""
    return parse_time(at).astimezone(parse_time(now).tzinfo).date()
