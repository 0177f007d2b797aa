"""Results of sessions that tests of files and reports make from a few numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pytest_dlperf.history.case_history import HistoryReader
from pytest_dlperf.model.baseline import Acceptance, Baseline
from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Decision, Judgement, Verdict
from pytest_dlperf.model.measurement import Estimator, Fingerprint, Measurement, Run, RunStatus
from pytest_dlperf.model.metric import (
    SPEEDUP_METRIC,
    Better,
    Metric,
    Source,
    throughput,
)
from pytest_dlperf.model.results import CaseResult, Results
from pytest_dlperf.report.session import SessionReport

if TYPE_CHECKING:
    from pytest_dlperf.history.case_history import Drifting, Histories

STARTED = "2026-11-20T22:00:00+01:00"
MEMORY = Metric(name="peak_memory", unit="MB", better=Better.LOWER, source=Source.LOG)
"""A metric of which less is better."""
THROUGHPUT = throughput("images/s")
NO_MORE: Mapping[Metric, Sequence[float]] = {}


def measured_case(  # noqa: PLR0913 - what differs between tests, by name
    case_id: str,
    *throughputs: float,
    unit: str = "images/s",
    more: Mapping[Metric, Sequence[float]] = NO_MORE,
    estimator: Estimator = Estimator.STEADY,
    speedup: float | None = None,
    broken: Sequence[RunStatus] = (),
    verdict: Verdict = Verdict.PASS,
    fingerprint: Fingerprint | None = None,
    baseline: float | None = None,
) -> CaseResult:
    """A case with runs of these throughputs, then broken ones; passed, unless told otherwise.

    ``more`` are the runs' numbers of other metrics. With a ``speedup`` its reference topology was
    measured as well.
    """
    judged_by = throughput(unit)
    measurement = Measurement(
        case_id=case_id,
        estimator=estimator,
        metrics=(judged_by, *more),
        runs=(
            *whole_runs({judged_by: throughputs, **more}),
            *(
                Run(run=number, status=status, reason="out of luck")
                for number, status in enumerate(broken, len(throughputs) + 1)
            ),
        ),
        fingerprint=fingerprint,
    )
    median = measurement.samples(judged_by.name).median
    numbers = {judged_by.name: median if baseline is None else baseline, "speedup": speedup}
    held = numbers[judged_by.name]
    difference = 0.0
    if held and median is not None and not math.isnan(median):
        difference = 100 * (median / held - 1)
    case = Case.from_id(case_id)
    return CaseResult(
        case=case,
        measurement=measurement,
        reference=None
        if speedup is None or case.reference is None
        else replace(
            measurement,
            case_id=case.reference.id,
            metrics=(judged_by,),
            runs=whole_runs({judged_by: [value / speedup for value in throughputs]}),
        ),
        accepted={
            name: baseline_of(number, {"speedup": SPEEDUP_METRIC}.get(name, judged_by), estimator)
            for name, number in numbers.items()
            if number is not None
        },
        judgements={
            judged_by.name: judged(
                verdict,
                metric=judged_by,
                measured=median,
                accepted=numbers[judged_by.name],
                difference_percent=difference,
                interval_percent=(-0.5, 0.7),
            )
        },
    )


def baseline_of(
    number: float,
    metric: Metric = THROUGHPUT,
    estimator: Estimator = Estimator.STEADY,
    acceptance: Acceptance | None = None,
) -> Baseline:
    """The baseline of a metric, in which more is better."""
    return Baseline(
        metric=metric.name,
        unit=metric.unit,
        better=metric.better or Better.HIGHER,
        estimator=estimator,
        accepted=number,
        acceptance=acceptance,
    )


def whole_runs(numbers: Mapping[Metric, Sequence[float]]) -> tuple[Run, ...]:
    """Runs that are ok, with their numbers of each metric."""
    names = [metric.name for metric in numbers]
    return tuple(
        Run(
            run=number,
            status=RunStatus.OK,
            metrics=dict(zip(names, values, strict=True)),
            log=f"logs/{number}.log",
            steps=100,
        )
        for number, values in enumerate(zip(*numbers.values(), strict=True), 1)
    )


def judged(
    verdict: Verdict,
    *,
    metric: Metric = THROUGHPUT,
    measured: float | None = None,
    accepted: float | None = None,
    **decision: Any,
) -> Judgement:
    """A judgement by the tolerance, compared with the accepted number unless told otherwise."""
    judgement = Judgement(metric=metric, verdict=verdict, measured=measured, accepted=accepted)
    return decided(judgement, **decision)


def with_judgement(result: CaseResult, judgement: Judgement) -> CaseResult:
    """The case with this judgement on its metric."""
    return replace(result, judgements={**result.judgements, judgement.metric.name: judgement})


def decided(judgement: Judgement, **decision: Any) -> Judgement:
    """The judgement with another decision: these numbers are others."""
    before = judgement.decision or Decision(
        verdict=judgement.verdict,
        reference=judgement.accepted or 1000.0,
        difference_percent=0.0,
        tolerance_percent=5.0,
    )
    return replace(judgement, decision=replace(before, **decision))


EVEN = (0.99, 0.995, 1.0, 1.005, 1.01)
"""Five runs that differ by 0.8 %."""


def even_case(level: float, case_id: str, *, runs: int = 5, **more: object) -> CaseResult:
    """A case with runs around a level."""
    return measured_case(case_id, *(level * one for one in EVEN[:runs]), **more)  # type: ignore[arg-type]


def unmeasured_case(case_id: str, verdict: Verdict, reason: str) -> CaseResult:
    """A case without any run."""
    judgement = Judgement(metric=THROUGHPUT, verdict=verdict, reason=reason)
    return CaseResult(case=Case.from_id(case_id), judgements={THROUGHPUT.name: judgement})


def session(
    *cases: CaseResult,
    name: str = "a" * 32,
    cluster: str = "office",
    estimator: Estimator = Estimator.STEADY,
    environment: Mapping[str, Any] | None = None,
) -> Results:
    """A session with these cases."""
    return Results(
        session=name,
        cluster=cluster,
        estimator=estimator,
        started=STARTED,
        ended="2026-11-20T23:00:00+01:00",
        environment=environment
        or {"host": "pc", "python": "3.11.7", "packages": {"torch": "2.13"}},
        metrics=metrics_of(cases),
        cases=cases,
    )


def report(
    results: Results, histories: Histories | None = None, *, drifts: Sequence[Drifting] = ()
) -> SessionReport:
    """Make the words of a session whose history shows this."""
    past = HistoryReader(results)
    if histories is not None:
        past.histories = histories
    if drifts:
        past.drifts = drifts
    return SessionReport(results, past, may_read_logs=True)


def metrics_of(cases: Sequence[CaseResult]) -> dict[str, tuple[Metric, ...]]:
    """What the systems of these cases measure: what any of their cases has, and the speedup."""
    known: dict[str, dict[str, Metric]] = {"paddle-resnet50": {}}
    for result in cases:
        names = known.setdefault(result.case.system, {})
        for measurement in (result.measurement, result.reference):
            for metric in measurement.metrics if measurement is not None else ():
                names.setdefault(metric.name, metric)
    return {
        system: tuple(
            ({THROUGHPUT.name: THROUGHPUT, SPEEDUP_METRIC.name: SPEEDUP_METRIC} | names).values()
        )
        for system, names in known.items()
    }
