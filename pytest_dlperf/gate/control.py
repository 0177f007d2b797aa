"""Asks the accepted software, run tonight on the same hosts, whether a loss is the candidate's."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate import wording
from pytest_dlperf.gate.noise import location, noise, pooled_noise, t_quantile
from pytest_dlperf.gate.sequential import MIN_LOSS_PERCENT, THRESHOLD_ERRORS
from pytest_dlperf.model.judgement import Judgement, Quantity, RuleName, Verdict

if TYPE_CHECKING:
    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.measurement import InterleavedRuns, Measurement

_CONFIRMING_LOSS: Final = 0.015
_CONFIRMING_PART: Final = 0.75
_CONFIRMING_ERRORS: Final = 1.645
"""What has already failed once needs less to be confirmed than a first alarm needs."""

_MIN_BASELINE_RUNS: Final = 20
"""With fewer runs of the baseline, tonight's two arms tell the noise."""


def confirm_throughput(
    judgement: Judgement, interleaved: InterleavedRuns, baseline: Baseline | None
) -> Judgement:
    """Let a verdict stand only if candidate and control, run in turn, say the same.

    ``regressed`` stands if the candidate is slower than the control, else it becomes
    ``environment_shift``. ``pass`` and ``improved`` become ``regressed`` if the candidate is
    slower: then the night hides a loss. Other verdicts stand.
    """
    silent = _why_silent(interleaved, baseline)
    if silent is not None:
        return _with_note(judgement, f"the control arm says nothing: {silent}")
    return _confirm(judgement, (_Arms.of(interleaved, baseline),), baseline)


def confirm_speedup(
    judgement: Judgement,
    interleaved: InterleavedRuns,
    single_interleaved: InterleavedRuns,
    baseline: Baseline | None,
    single_baseline: Baseline | None,
) -> Judgement:
    """As ``confirm_throughput``, by the speedups of candidate and control."""
    for arms, of_arms in ((interleaved, baseline), (single_interleaved, single_baseline)):
        silent = _why_silent(arms, of_arms)
        if silent is not None:
            return _with_note(judgement, f"the control arm says nothing: {silent}")
    ends = _Arms.of(interleaved, baseline), _Arms.of(single_interleaved, single_baseline)
    return _confirm(judgement, ends, baseline)


def _why_silent(interleaved: InterleavedRuns, baseline: Baseline | None) -> str | None:
    """Why nothing follows from the runs in turn; ``None`` if both arms are whole."""
    for arm, measurement in _arms(interleaved):
        for run in measurement.broken_runs:
            return f"run {run.run} of {arm} is {run.status.value} ({run.reason})"
    for arm, measurement in _arms(interleaved):
        if not measurement.throughputs:
            return f"{arm} has no run"
    if _noise(interleaved, baseline) is None:
        return "too few runs of each to tell how much they differ"
    return None


def _arms(interleaved: InterleavedRuns) -> tuple[tuple[str, Measurement], ...]:
    return ("the candidate", interleaved.candidate), ("the accepted software", interleaved.control)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arms:
    """Where candidate and control lie, in the unit per second, and how far their ratio is sure.

    ``error`` is the relative standard error of the ratio, ``freedom`` the degrees that it is known
    with: ``None`` where the many runs of a baseline tell it.
    """

    case_id: str
    unit: str
    candidate: float
    control: float
    ratio: float
    pairs: int
    error: float
    dof: int | None
    accepted: float | None

    @classmethod
    def of(cls, interleaved: InterleavedRuns, baseline: Baseline | None) -> _Arms:
        candidate, control = interleaved.candidate.throughputs, interleaved.control.throughputs
        known = _noise(interleaved, baseline)
        if known is None:
            raise AssertionError("arms that do not tell their noise are not compared")
        deviation, dof = known
        # The two runs of a pair stand side by side, so what drifts through the night cancels.
        ratios = [one / other for one, other in zip(candidate, control, strict=False)]
        return cls(
            case_id=interleaved.candidate.case_id,
            unit=interleaved.candidate.unit,
            candidate=location(candidate, deviation),
            control=location(control, deviation),
            ratio=location(ratios, deviation * math.sqrt(2)),
            pairs=len(ratios),
            error=deviation * math.sqrt(2 / len(ratios)),
            dof=dof,
            accepted=baseline.throughput if baseline else None,
        )

    def told(self) -> str:
        beside = ""
        if self.accepted is not None:
            difference = 100 * (self.control / self.accepted - 1)
            beside = f" ({wording.signed_percent(difference)} from the accepted number)"
        return (
            f"{self.case_id} {wording.number(self.candidate)} against "
            f"{wording.number(self.control, self.unit)}{beside}"
        )


def _noise(
    interleaved: InterleavedRuns, baseline: Baseline | None
) -> tuple[float, int | None] | None:
    """The relative deviation between runs, and its degrees of freedom if tonight's tell it.

    ``None`` where too few runs tell.
    """
    known = [run for runs in baseline.rolling for run in runs] if baseline else []
    if len(known) >= _MIN_BASELINE_RUNS:
        return noise(known), None
    # Each arm around its own mean: the difference between them is no noise.
    pooled = pooled_noise((interleaved.candidate.throughputs, interleaved.control.throughputs))
    return None if pooled is None else (pooled.deviation, pooled.dof)


def _confirm(judgement: Judgement, ends: tuple[_Arms, ...], baseline: Baseline | None) -> Judgement:
    """Decide by the arms of a throughput, or by those of both ends of a speedup."""
    many, *single = ends
    ratio = many.ratio
    for end in single:
        ratio /= end.ratio
    loss = 1 - ratio
    own = baseline.tolerance_percent if baseline is not None else None
    least = (MIN_LOSS_PERCENT if own is None else own) / 100
    # A case that may lose 1 % has lost what it may not before 1.5 % are lost.
    confirming = max(
        min(_CONFIRMING_LOSS, _CONFIRMING_PART * least), _error(ends, _CONFIRMING_ERRORS)
    )
    if judgement.verdict is Verdict.REGRESSED:
        seen = _seen(loss, confirming, ends)
        if loss > confirming:
            reason = f"confirmed by the control arm: {seen}"
            return replace(judgement, reason=_joined(judgement.reason, reason))
        reason = f"not confirmed by the control arm: {_why_gone(judgement, ends)}; {seen}"
        return replace(
            judgement,
            verdict=Verdict.ENVIRONMENT_SHIFT,
            reason=_joined(judgement.reason, reason),
        )
    if judgement.rule is RuleName.TOLERANCE and judgement.tolerance_percent is not None:
        least = judgement.tolerance_percent / 100
    # Where no first alarm has narrowed the field, the ratio alone must reach what a first alarm
    # needs: 1.645 errors would be an alarm every twentieth night.
    alone = max(least, _error(ends, THRESHOLD_ERRORS))
    seen = _seen(loss, alone, ends)
    if judgement.verdict in {Verdict.PASS, Verdict.IMPROVED} and loss > alone:
        reason = f"the baseline is reached, but the control arm shows a loss: {seen}"
        return replace(judgement, verdict=Verdict.REGRESSED, reason=reason)
    return _with_note(judgement, f"control arm: {seen}")


def _error(ends: tuple[_Arms, ...], errors: float) -> float:
    """So many standard errors of the ratio of all ends; more where few runs tell the noise."""
    return math.hypot(
        *(end.error * (errors if end.dof is None else t_quantile(errors, end.dof)) for end in ends)
    )


def _why_gone(judgement: Judgement, ends: tuple[_Arms, ...]) -> str:
    """Whether the accepted software is slow tonight, or the loss did not come again."""
    many, *single = ends
    control = many.control
    for end in single:
        control /= end.control
    reference = judgement.reference
    lost = judgement.difference_percent
    what = "as slow" if judgement.quantity is Quantity.THROUGHPUT else "scaled no better"
    if reference is None or lost is None:
        return f"tonight the accepted software is {what}"
    difference = 100 * (control / reference - 1)
    if difference > lost / 2:
        return "the loss was gone when both were run again"
    shown = wording.signed_percent(difference)
    return f"tonight the accepted software is {what}: {shown} from its baseline"


def _seen(loss: float, threshold: float, ends: tuple[_Arms, ...]) -> str:
    what = f"{100 * abs(loss):.1f} % {'slower' if loss > 0 else 'faster'}"
    pairs = min(end.pairs for end in ends)
    numbers = "; ".join(end.told() for end in ends)
    return (
        f"the candidate is {what} in turn, a loss counts from {100 * threshold:.1f} % on, "
        f"{wording.runs(pairs)} each: {numbers}"
    )


def _joined(first: str | None, second: str) -> str:
    return f"{first}; {second}" if first else second


def _with_note(judgement: Judgement, note: str) -> Judgement:
    return replace(judgement, notes=(*judgement.notes, note))
