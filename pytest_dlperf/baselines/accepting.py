"""Which changes of baselines a session comes to, once all of it has been judged.

Nothing is written here. A judgement that is marked as recorded, and runs that join those of
earlier sessions, become a ``Change``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_dlperf.baselines.recording import Change, ChangeKind, significant
from pytest_dlperf.gate.verdicts import End, Question, decide, is_outside, scatter_problem
from pytest_dlperf.logs.reader import digest_of_logs
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.model.judgement import Quantity, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_dlperf.config.options import Settings
    from pytest_dlperf.gate.rules import Terms
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.records import CaseResult

ADDED_RUNS: Final = 4
"""Runs of a session that is added to a baseline: six such sessions are the twenty runs and more
that the sequential rule needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What holds for all numbers that a session accepts."""

    at: str
    """When it began, ISO 8601 with its zone."""
    commit: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A case that a session was to accept or add to, and does not."""

    case: Case
    why: str
    is_bad: bool = True
    """Whether the session fails for it: what was asked for did not happen."""


def changes_of(
    results: Sequence[CaseResult],
    baseline_of: Callable[[Case], Baseline | None],
    terms_of: Callable[[Case], Terms],
    settings: Settings,
    provenance: Provenance,
) -> Iterator[Change | Refusal]:
    """List what the results change in baselines, and what they were to change and do not."""
    bad = {
        result.case.id
        for result in results
        if not result.is_whole
        or not all(judgement.passes(strict=False) for judgement in result.judgements.values())
    }
    for result in sorted(results, key=lambda result: (result.case.variant, result.case.topology)):
        case = result.case
        if result.measurement is None:
            continue
        baseline = baseline_of(case)
        kind = _kind(result, baseline, settings, terms_of(case))
        if isinstance(kind, Refusal):
            yield kind
        elif kind is not None:
            if {case.id, case.single_device.id} & bad:
                # A speedup over a reference that has failed is none to keep either.
                yield Refusal(case, "a part of the case, or its single device, did not pass")
            elif not _stands(result, baseline):
                yield Refusal(
                    case,
                    "another session has changed its baseline meanwhile; run again to be held "
                    "against that",
                )
            else:
                yield _change(kind, result, baseline, provenance)


def _kind(
    result: CaseResult, baseline: Baseline | None, settings: Settings, terms: Terms
) -> ChangeKind | Refusal | None:
    measurement = result.measurement
    if measurement is None or measurement.median is None or measurement.broken_runs:
        return None
    for judgement in result.judgements.values():
        # A test that fails says so itself; one that passes would hide what was asked for.
        if judgement.refused is not None and judgement.passes(strict=False):
            return Refusal(result.case, judgement.reason or judgement.refused)
    if any(judgement.recorded for judgement in result.judgements.values()):
        if baseline is None:
            return ChangeKind.CREATE
        only_speedup = not _records(result, Quantity.THROUGHPUT)
        return (
            ChangeKind.SPEEDUP if only_speedup and baseline.speedup is None else ChangeKind.ACCEPT
        )
    if not settings.extend_baselines:
        return None
    return _extension(result, baseline, measurement, terms)


def _extension(
    result: CaseResult,
    baseline: Baseline | None,
    measurement: Measurement,
    terms: Terms,
) -> ChangeKind | Refusal | None:
    judged = result.judgements.get(Quantity.THROUGHPUT)
    if judged is None or baseline is None or judged.accepted is None:
        return None
    if judged.verdict is Verdict.IMPROVED and is_outside(judged, terms.tolerance_of(baseline)):
        why = "it has improved: accept the number with --dlperf-update-baselines first"
        return Refusal(result.case, why, is_bad=False)
    if judged.verdict not in (Verdict.PASS, Verdict.IMPROVED):
        return None
    problem = _why_not_added(measurement, baseline, judged, terms)
    return ChangeKind.EXTEND if problem is None else Refusal(result.case, problem, is_bad=False)


def _why_not_added(
    measurement: Measurement, baseline: Baseline, judged: Judgement, terms: Terms
) -> str | None:
    runs = tuple(significant(run) for run in measurement.throughputs)
    if len(runs) < ADDED_RUNS:
        return f"it has {len(runs)} runs, and {ADDED_RUNS} are needed to be added"
    if len(set(runs)) > 1 and runs in baseline.rolling:
        # A session that counts as many would make the gate too sure of itself.
        return "these very runs have been added before"
    # Whoever forces another rule does not get by the one that the baseline allows.
    terms = replace(terms, forced=None, repeats=None)
    own = decide(Question(End(measurement, baseline), terms))
    if own.verdict is Verdict.REGRESSED:
        return "by the rule that its baseline allows it is slower"
    # What counts is the larger of what the case allows and what the rule allowed tonight.
    allowed = max(terms.tolerance_of(baseline), judged.tolerance_percent or 0.0)
    return scatter_problem(measurement.throughputs, tolerance_percent=allowed)


def _records(result: CaseResult, quantity: Quantity) -> bool:
    judgement = result.judgements.get(quantity)
    return judgement is not None and judgement.recorded


def _stands(result: CaseResult, baseline: Baseline | None) -> bool:
    judged = result.stored_baseline
    if judged is None or baseline is None:
        return judged is None and baseline is None
    return (judged.throughput, judged.speedup) == (baseline.throughput, baseline.speedup)


def _change(
    kind: ChangeKind,
    result: CaseResult,
    baseline: Baseline | None,
    provenance: Provenance,
) -> Change:
    measurement = result.measurement
    if measurement is None or measurement.median is None:
        raise AssertionError("a case that was not measured changes nothing")
    is_new = kind is ChangeKind.CREATE
    throughput = measurement.median if is_new or _records(result, Quantity.THROUGHPUT) else None
    # What no test has judged is not written down; one device is what speedups are taken over.
    is_single = result.case.topology == SINGLE_DEVICE
    speedup = (
        result.speedup if _records(result, Quantity.SPEEDUP) or (is_new and is_single) else None
    )
    over = result.single_device
    taken_on = measurement.fingerprint
    acceptance = None
    if kind in (ChangeKind.CREATE, ChangeKind.ACCEPT):
        logs = [run.log for run in measurement.runs if run.log is not None]
        acceptance = Acceptance(
            at=provenance.at,
            commit=provenance.commit,
            reason=provenance.reason,
            hosts=taken_on.hosts if taken_on else (),
            software=taken_on.software if taken_on else {},
            logs=digest_of_logs(logs),
            # Of a number that stays nobody could check what it was taken over.
            single_device=over.median if over and None not in (throughput, speedup) else None,
        )
    return Change(
        kind=kind,
        case=result.case,
        known=baseline,
        throughput=throughput,
        speedup=speedup,
        runs={run.run: run.throughput for run in measurement.runs if run.throughput is not None},
        at=provenance.at,
        acceptance=acceptance,
        machine=taken_on.machine if taken_on else {},
    )
