"""What a test reports, and what a session knows of a case by all of its tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.explanation import Explanation
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.measurement import InterleavedRuns, Measurement
from pytest_dlperf.model.metric import SPEEDUP_METRIC, Metric

if TYPE_CHECKING:
    from pytest_dlperf.model.baseline import Baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What a baseline says of one metric, as reports show it.

    ``machine`` is what it was taken on, ``acceptance`` where it comes from, as far as that was
    recorded.
    """

    number: float
    estimator: str
    machine: Mapping[str, str] = field(default_factory=dict)
    acceptance: Acceptance | None = None

    @classmethod
    def of(cls, baseline: Baseline) -> Accepted:
        """Take from a baseline what reports show."""
        return cls(
            number=baseline.accepted,
            estimator=baseline.estimator.value,
            machine=dict(baseline.machine),
            acceptance=baseline.acceptance,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TestRecord:
    """What one test of one case has to report."""

    __test__ = False  # no test, whatever pytest makes of the name

    case: Case
    metric: str
    """What the test is about, for want of a judgement that says it."""
    measurements: Mapping[str, Measurement] = field(default_factory=dict)
    interleaved: Mapping[str, InterleavedRuns] = field(default_factory=dict)
    """Runs beside the accepted software, by case."""
    accepted: Mapping[str, Accepted] = field(default_factory=dict)
    """What the case was held against, by metric; without what could not be compared."""
    stored: Mapping[str, Accepted] = field(default_factory=dict)
    """The baselines that there were, also where nothing could be held against them."""
    judgements: Mapping[str, Judgement] = field(default_factory=dict)
    """By metric."""
    explanations: Mapping[str, Explanation] = field(default_factory=dict)
    """Of judgements that did not simply pass, by metric."""
    host_faults: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What was found to be wrong with hosts, by host: one system may need more than another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricResult:
    """All that a session knows of one metric of one case."""

    metric: Metric
    median: float | None = None
    mean: float | None = None
    spread: float | None = None
    """Coefficient of variation between the runs."""
    accepted: Accepted | None = None
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
        if self.judgement is not None and self.judgement.reference is not None:
            return self.judgement.reference
        return self.accepted.number if self.accepted is not None else None


@dataclass(frozen=True, kw_only=True)  # without slots: what every report asks for is kept
class CaseResult:
    """All that a session knows of one case."""

    case: Case
    measurement: Measurement | None = None
    reference: Measurement | None = None
    """What the speedup is taken over: the case's reference topology."""
    interleaved: InterleavedRuns | None = None
    """Runs beside the accepted software, where there were any."""
    is_whole: bool = True
    """Whether no test of the case was lost with its worker."""
    unfinished: tuple[str, ...] = ()
    """Metrics that a test was selected of which never came to its end."""
    accepted: Mapping[str, Accepted] = field(default_factory=dict)
    """What the case was held against, by metric; without what could not be compared."""
    stored: Mapping[str, Accepted] = field(default_factory=dict)
    """The baselines that there were, also where nothing could be held against them."""
    judgements: Mapping[str, Judgement] = field(default_factory=dict)
    """By metric."""
    explanations: Mapping[str, Explanation] = field(default_factory=dict)
    """Of judgements that did not simply pass, by metric."""

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
        """Tell what is known of each metric, by name: measured, judged or accepted.

        In the order of the measurement's metrics, the speedup behind the throughput.
        """
        return self._metrics

    @cached_property
    def _metrics(self) -> Mapping[str, MetricResult]:
        known: dict[str, Metric] = {}
        for metric in self.measurement.metrics if self.measurement is not None else ():
            known[metric.name] = metric
            if metric.name == SPEEDUP_METRIC.ratio_of and self.case.is_scaled:
                known[SPEEDUP_METRIC.name] = SPEEDUP_METRIC
        known |= {judgement.metric.name: judgement.metric for judgement in self.judgements.values()}
        return {name: self._metric(metric) for name, metric in known.items()}

    def _metric(self, metric: Metric) -> MetricResult:
        name = metric.name
        given = MetricResult(
            metric=metric,
            accepted=self.accepted.get(name),
            judgement=self.judgements.get(name),
            explanation=self.explanations.get(name),
        )
        if metric.ratio_of is not None:
            efficiency = self.efficiency_percent(self.speedup)
            return replace(given, median=self.speedup, efficiency_percent=efficiency)
        try:
            samples = self.measurement.samples(name) if self.measurement is not None else None
        except KeyError:
            samples = None
        if samples is None:
            return given
        return replace(given, median=samples.median, mean=samples.mean, spread=samples.spread)


def merge(result: CaseResult, record: TestRecord) -> CaseResult:
    """Add to a case what one of its tests reported; of two verdicts the worse stands."""
    judgements = result.judgements
    for judgement in record.judgements.values():
        judgements = with_worse(judgements, judgement)
    merged = replace(
        result,
        interleaved=record.interleaved.get(result.case.id, result.interleaved),
        accepted={**result.accepted, **record.accepted},
        stored={**result.stored, **record.stored},
        judgements=judgements,
        explanations={**result.explanations, **record.explanations},
    )
    return with_measurements(merged, record.measurements)


def with_measurements(result: CaseResult, measurements: Mapping[str, Measurement]) -> CaseResult:
    """Give a case its own measurement, by case, and that of its reference."""
    over = result.case.reference
    return replace(
        result,
        measurement=measurements.get(result.case.id, result.measurement),
        reference=measurements.get(over.id, result.reference) if over else None,
    )


def with_worse(judgements: Mapping[str, Judgement], new: Judgement) -> Mapping[str, Judgement]:
    """Add a judgement, unless there is a worse one on its metric."""
    name = new.metric.name
    known = judgements.get(name)
    if known is not None and _badness(known) <= _badness(new):
        return judgements
    return {**judgements, name: new}


def _badness(judgement: Judgement) -> tuple[int, bool]:
    """Order judgements, the worst first: an excused failure hides nothing that was not."""
    verdict = Verdict.SKIPPED if judgement.excused else judgement.verdict
    return verdict.gravity, judgement.excused
