"""What the gate judges: measurements, the baselines of their cases, and the terms."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.rule import Rule
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.measurement import Measurement
from pytest_dlperf.model.metric import Metric


class MeasuredCase(Struct, frozen=True):
    """A measurement, and the baselines of its case by metric."""

    measurement: Measurement
    baselines: Mapping[str, Baseline]

    def why_incomparable(self, metric: Metric) -> str | None:
        """Return why a metric and its baseline cannot be compared; ``None`` if they can."""
        known = self.baselines.get(metric.name)
        return None if known is None else known.why_incomparable(metric, self.measurement)


class GateInput(Struct, frozen=True):
    """What is to be judged: a metric of a case, its terms, and the reference of a ratio."""

    metric: Metric
    case: MeasuredCase
    terms: Terms
    reference: MeasuredCase | None = None
    now: datetime | None = None
    """When it is judged; ``None`` where that is not when it was measured."""
    contradiction: str | None = None
    """What else the log says of the steps' time, where that is not what is taken of it."""

    @property
    def base(self) -> Metric:
        """The metric of single runs: the one that a ratio is taken of, else the metric itself."""
        over = self.metric.ratio_of
        return self.metric if over is None else self.case.measurement.metric(over)

    @property
    def runs(self) -> tuple[float, ...]:
        """The numbers of the case's runs; of a ratio, those of the metric it is taken of."""
        return self.case.measurement.samples(self.base.name).values

    @property
    def measured(self) -> float | None:
        """The median, or the ratio of two; ``None`` without a run."""
        own = self.case.measurement
        if self.reference is None:
            return own.samples(self.metric.name).median
        return own.ratio(self.metric, self.reference.measurement)

    @property
    def baseline(self) -> Baseline | None:
        """The metric's baseline."""
        return self.case.baselines.get(self.metric.name)

    @property
    def tolerance_percent(self) -> float:
        """The metric's tolerance in percent."""
        return self.terms.tolerance_of(self.baseline, level=self.measured)

    @property
    def rule(self) -> Rule | None:
        """The rule that judges it; ``None`` without a baseline, and for a ratio."""
        if self.baseline is None or self.reference is not None:
            return None
        available = self.case.measurement.available_runs
        return Rule(self.metric, self.baseline, self.terms, available=available)

    @property
    def ends(self) -> tuple[MeasuredCase, ...]:
        """The case, then the reference of a ratio."""
        return (self.case,) if self.reference is None else (self.case, self.reference)

    @property
    def without_control(self) -> GateInput:
        """The same for a gate without control arm, where a loss may be the session's."""
        return replace(self, terms=replace(self.terms, has_control=False))

    @property
    def why_incomparable(self) -> str | None:
        """Why the baseline cannot be compared with what was measured; ``None`` if it can."""
        baseline, base = self.baseline, self.base
        compared = [(self.case, self.metric), *((end, base) for end in self.ends)]
        problem = next(filter(None, (end.why_incomparable(about) for end, about in compared)), None)
        if problem is None and baseline is not None and self.reference is not None:
            problem = baseline.why_other_ratio(self.reference.measurement.case_id)
        if problem is None and baseline is not None and base.name not in self.case.baselines:
            problem = (
                f"{baseline.place} has no {base.name}, by which its {self.metric.name} is judged"
            )
        return problem
