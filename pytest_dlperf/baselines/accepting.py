"""What of a session's numbers becomes a baseline: asked when a case is judged, done at the end.

Nothing is written here. A judgement that is marked as recorded passes its test, and becomes a
change of a baseline once the whole session has been judged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_dlperf.baselines.recording import Change, ChangeKind, significant
from pytest_dlperf.gate.judge import judge_throughput
from pytest_dlperf.gate.noise import STRAY_RADIUS_NOISE, median, noise
from pytest_dlperf.gate.rules import tolerance_of
from pytest_dlperf.logs.digest import digest_of_logs
from pytest_dlperf.model.baseline import Acceptance
from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.model.judgement import Quantity, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_dlperf.config.options import Settings
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.records import CaseResult

_LOWER: Final = (Verdict.REGRESSED, Verdict.ENVIRONMENT_SHIFT)
"""Verdicts on a number that was measured soundly, and is lower than what it was held against."""


ADDED_RUNS: Final = 4
"""Runs of a session that is added to a baseline: six such sessions are the twenty runs and more
that the sequential rule needs."""
NOT_ACCEPTED: Final = "not accepted"
"""How the reason of a number begins that was to be accepted and was not."""
_MIN_RUNS_TO_TELL: Final = 3
"""Fewer runs do not say how far runs usually lie apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What holds for all numbers that a session accepts.

    ``at`` is when it began, ISO 8601 with its zone.
    """

    at: str
    commit: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A case that a session was to accept or add to, and does not."""

    case: Case
    why: str
    is_bad: bool = True
    """Whether the session fails for it: what was asked for did not happen."""


# ------------------------------------------------------------------- when a case is judged


def with_acceptance(  # noqa: PLR0913 - a judgement, and all that bears on its acceptance
    judgement: Judgement,
    measurement: Measurement,
    baseline: Baseline | None,
    settings: Settings,
    *,
    tolerance_percent: float,
    single_device: Judgement | None = None,
) -> Judgement:
    """The judgement, marked as recorded if the session accepts its number.

    A number that is missing is recorded with create and update, one outside its tolerance with
    update. Where it was asked for and cannot be, the reason says why. ``tolerance_percent`` is the
    system's, ``single_device`` the judgement on what a speedup is taken over.
    """
    tolerance = tolerance_of(baseline, tolerance_percent)
    is_missing = judgement.verdict is Verdict.NO_BASELINE and _lacks(judgement, baseline)
    is_other = judgement.verdict is Verdict.NO_BASELINE and _is_comparable(measurement, baseline)
    is_wanted = (settings.create_baselines or settings.update_baselines) and is_missing
    is_wanted |= settings.update_baselines and (is_other or _is_outside(judgement, tolerance))
    if not is_wanted:
        return judgement
    problem = _scatter_problem(measurement.throughputs, tolerance_percent=tolerance)
    if single_device is not None and single_device.verdict in (*_LOWER, Verdict.INCONCLUSIVE):
        problem = f"its single device is {single_device.verdict.value}"
    if problem is None and _lowers(judgement, baseline) and settings.reason is None:
        problem = "a lower number needs --dlperf-reason 'TEXT'"
    if problem is not None:
        return replace(judgement, reason=_joined(judgement.reason, f"{NOT_ACCEPTED}: {problem}"))
    if judgement.verdict is Verdict.NO_BASELINE:
        # What stood in the way of a comparison is worth knowing still.
        notes = (*judgement.notes, *filter(None, [judgement.reason]))
        return replace(judgement, verdict=Verdict.PASS, reason=None, notes=notes, recorded=True)
    return replace(judgement, recorded=True)


def _scatter_problem(runs: Sequence[float], *, tolerance_percent: float) -> str | None:
    """Why runs are too far apart to rest a number on: by what the case tolerates."""
    if len(runs) < _MIN_RUNS_TO_TELL:
        apart = 100 * (max(runs) / min(runs) - 1) if runs else 0.0
        is_far = apart > tolerance_percent
        return f"its {len(runs)} runs lie {apart:.1f} % apart" if is_far else None
    deviation = noise(runs)
    if 100 * deviation > tolerance_percent:
        return (
            f"its runs differ by {100 * deviation:.1f} %, which is more than the tolerance of "
            f"{tolerance_percent:g} %"
        )
    middle = median(runs)
    radius = middle * max(STRAY_RADIUS_NOISE * deviation, tolerance_percent / 100)
    far = sum(abs(run - middle) > radius for run in runs)
    if 3 * far > len(runs):
        return f"{far} of its {len(runs)} runs lie far from the others"
    return None


def _accepted_number(quantity: Quantity, baseline: Baseline | None) -> float | None:
    if baseline is None:
        return None
    return baseline.throughput if quantity is Quantity.THROUGHPUT else baseline.speedup


def _lacks(judgement: Judgement, baseline: Baseline | None) -> bool:
    return _accepted_number(judgement.quantity, baseline) is None


def _is_comparable(measurement: Measurement, baseline: Baseline | None) -> bool:
    """Whether the numbers are of one kind: then it is the machine that is another."""
    return baseline is not None and (measurement.unit, measurement.estimator) == (
        baseline.unit,
        baseline.estimator,
    )


def _lowers(judgement: Judgement, baseline: Baseline | None) -> bool:
    """Whether tonight is lower than the accepted number, or than the last sessions."""
    if judgement.verdict in _LOWER:
        return True
    accepted = _accepted_number(judgement.quantity, baseline)
    return accepted is not None and judgement.measured is not None and judgement.measured < accepted


def _is_outside(judgement: Judgement, tolerance_percent: float) -> bool:
    """Whether a number that was measured soundly lies outside what the case tolerates.

    Better than the last sessions, and no better than the number that was accepted before them, is
    inside: to write it down again and again would carry the number anywhere.
    """
    if judgement.verdict in _LOWER:
        return True
    if judgement.verdict is not Verdict.IMPROVED or None in (
        judgement.measured,
        judgement.accepted,
    ):
        return False
    allowed = max(tolerance_percent, judgement.tolerance_percent or 0.0) / 100
    return (judgement.measured or 0.0) > (judgement.accepted or 0.0) * (1 + allowed)


def _joined(first: str | None, second: str) -> str:
    return f"{first}; {second}" if first else second


# ---------------------------------------------------------------- when all has been judged


def changes_of(
    results: Sequence[CaseResult],
    baseline_of: Callable[[Case], Baseline | None],
    tolerance_percent_of: Callable[[Case], float],
    settings: Settings,
    provenance: Provenance,
) -> Iterator[Change | Refusal]:
    """What the session's results change in baselines, and what they were to change and do not."""
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
        tolerance = tolerance_of(baseline, tolerance_percent_of(case))
        kind = _kind(result, baseline, settings, tolerance)
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
    result: CaseResult, baseline: Baseline | None, settings: Settings, tolerance_percent: float
) -> ChangeKind | Refusal | None:
    measurement = result.measurement
    if measurement is None or measurement.median is None or measurement.broken_runs:
        return None
    for judgement in result.judgements.values():
        # A test that fails says so itself; one that passes would hide what was asked for.
        is_left = _is_outside(judgement, tolerance_percent) and not judgement.recorded
        if settings.update_baselines and is_left and judgement.passes(strict=False):
            return Refusal(result.case, judgement.reason or "its number was not accepted")
    if any(judgement.recorded for judgement in result.judgements.values()):
        if baseline is None:
            return ChangeKind.CREATE
        only_speedup = not _records(result, Quantity.THROUGHPUT)
        return (
            ChangeKind.SPEEDUP if only_speedup and baseline.speedup is None else ChangeKind.ACCEPT
        )
    if not settings.extend_baselines:
        return None
    return _extension(result, baseline, measurement, tolerance_percent)


def _extension(
    result: CaseResult,
    baseline: Baseline | None,
    measurement: Measurement,
    tolerance_percent: float,
) -> ChangeKind | Refusal | None:
    """Whether a case's runs join those that later sessions are held against."""
    judged = result.judgements.get(Quantity.THROUGHPUT)
    if judged is None or baseline is None or judged.accepted is None:
        return None
    if judged.verdict is Verdict.IMPROVED and _is_outside(judged, tolerance_percent):
        why = "it has improved: accept the number with --dlperf-update-baselines first"
        return Refusal(result.case, why, is_bad=False)
    if judged.verdict not in (Verdict.PASS, Verdict.IMPROVED):
        return None
    problem = _why_not_added(measurement, baseline, judged, tolerance_percent)
    return ChangeKind.EXTEND if problem is None else Refusal(result.case, problem, is_bad=False)


def _why_not_added(
    measurement: Measurement, baseline: Baseline, judged: Judgement, tolerance_percent: float
) -> str | None:
    """Why the runs of a case that passes do not join the others, if they do not."""
    runs = tuple(significant(run) for run in measurement.throughputs)
    if len(runs) < ADDED_RUNS:
        return f"it has {len(runs)} runs, and {ADDED_RUNS} are needed to be added"
    if len(set(runs)) > 1 and runs in baseline.rolling:
        # A session that counts as many would make the gate too sure of itself.
        return "these very runs have been added before"
    # Whoever forces another rule does not get by the one that the baseline allows.
    own = judge_throughput(measurement, baseline, tolerance_percent=tolerance_percent)
    if own.verdict is Verdict.REGRESSED:
        return "by the rule that its baseline allows it is slower"
    # What counts is the larger of what the case allows and what the rule allowed tonight.
    allowed = max(tolerance_percent, judged.tolerance_percent or 0.0)
    return _scatter_problem(measurement.throughputs, tolerance_percent=allowed)


def _records(result: CaseResult, quantity: Quantity) -> bool:
    judgement = result.judgements.get(quantity)
    return judgement is not None and judgement.recorded


def _stands(result: CaseResult, baseline: Baseline | None) -> bool:
    """Whether the baseline is still the one that the case was held against."""
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
