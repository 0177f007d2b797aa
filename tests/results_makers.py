"""Results of sessions that tests of files and reports make from a few numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.judgement import Decision, Judgement, Quantity, RuleName, Verdict
from pytest_dlperf.model.measurement import Estimator, Measurement, Run, RunStatus
from pytest_dlperf.model.records import AcceptedNumbers, CaseResult
from pytest_dlperf.model.results import Results

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_dlperf.model.measurement import Fingerprint

STARTED = "2026-11-20T22:00:00+01:00"


def measured_case(  # noqa: PLR0913 - what differs between tests, by name
    case_id: str,
    *throughputs: float,
    unit: str = "images/s",
    estimator: Estimator = Estimator.STEADY,
    speedup: float | None = None,
    broken: Sequence[RunStatus] = (),
    verdict: Verdict = Verdict.PASS,
    fingerprint: Fingerprint | None = None,
    baseline: float | None = None,
) -> CaseResult:
    """A case with runs of these throughputs, then broken ones; passed, unless told otherwise."""
    runs = [
        Run(run=number, throughput=value, status=RunStatus.OK, log=f"logs/{number}.log", steps=100)
        for number, value in enumerate(throughputs, 1)
    ]
    runs += [
        Run(run=number, throughput=None, status=status, reason="out of luck")
        for number, status in enumerate(broken, len(runs) + 1)
    ]
    measurement = Measurement(
        case_id=case_id,
        unit=unit,
        estimator=estimator,
        runs=tuple(runs),
        fingerprint=fingerprint,
    )
    accepted = measurement.median if baseline is None else baseline
    return CaseResult(
        case=Case.parse(case_id),
        measurement=measurement,
        speedup=speedup,
        accepted=None
        if accepted is None
        else AcceptedNumbers(throughput=accepted, speedup=speedup, estimator=estimator.value),
        judgements={
            Quantity.THROUGHPUT: judged(
                verdict,
                measured=measurement.median,
                accepted=accepted,
                difference_percent=0.1,
                interval_percent=(-0.5, 0.7),
            )
        },
    )


def judged(
    verdict: Verdict,
    *,
    quantity: Quantity = Quantity.THROUGHPUT,
    measured: float | None = None,
    accepted: float | None = None,
    **decision: Any,
) -> Judgement:
    """A judgement by the tolerance, compared with the accepted number unless told otherwise."""
    judgement = Judgement(quantity=quantity, verdict=verdict, measured=measured, accepted=accepted)
    return decided(judgement, **decision)


def with_judgement(result: CaseResult, judgement: Judgement) -> CaseResult:
    """The case with this judgement on its quantity."""
    return replace(result, judgements={**result.judgements, judgement.quantity: judgement})


def decided(judgement: Judgement, **decision: Any) -> Judgement:
    """The judgement with another decision: these numbers are others."""
    before = judgement.decision or Decision(
        rule=RuleName.TOLERANCE,
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
    judgement = Judgement(quantity=Quantity.THROUGHPUT, verdict=verdict, reason=reason)
    return CaseResult(case=Case.parse(case_id), judgements={Quantity.THROUGHPUT: judgement})


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
        units={"paddle-resnet50": "images/s"},
        cases=cases,
    )
