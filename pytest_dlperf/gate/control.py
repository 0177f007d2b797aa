"""Asks the accepted software, run tonight on the same hosts, whether a loss is the candidate's."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate.noise import location, median, noise
from pytest_dlperf.gate.sequential import LEAST_LOSS_PERCENT, THRESHOLD_ERRORS
from pytest_dlperf.gate.verdict import Judgement, Verdict

if TYPE_CHECKING:
    from pytest_dlperf.baselines.entry import Baseline
    from pytest_dlperf.measurement import InTurn, Measurement

_CONFIRMING_LOSS: Final = 0.015
_CONFIRMING_ERRORS: Final = 1.645
"""What has already failed once needs less to be confirmed than a first alarm needs."""

_LEAST_BASELINE_RUNS: Final = 10
"""With fewer runs of the baseline, tonight's two arms tell the noise."""


def confirm_throughput(
    judgement: Judgement, in_turn: InTurn, baseline: Baseline | None
) -> Judgement:
    """Let a verdict stand only if candidate and control, run in turn, say the same.

    ``regressed`` stands if the candidate is slower than the control, else it becomes
    ``environment_shift``. ``pass`` and ``improved`` become ``regressed`` if the candidate is
    slower: then the night hides a loss. Other verdicts stand.
    """
    if _broken(in_turn) is not None:
        return _with_note(judgement, f"the control arm says nothing: {_broken(in_turn)}")
    return _confirm(judgement, _Arms.of(in_turn, baseline), None)


def confirm_speedup(
    judgement: Judgement,
    in_turn: InTurn,
    single_in_turn: InTurn,
    baseline: Baseline | None,
    single_baseline: Baseline | None,
) -> Judgement:
    """As ``confirm_throughput``, by the speedups of candidate and control."""
    for arms in (in_turn, single_in_turn):
        if _broken(arms) is not None:
            return _with_note(judgement, f"the control arm says nothing: {_broken(arms)}")
    return _confirm(
        judgement, _Arms.of(in_turn, baseline), _Arms.of(single_in_turn, single_baseline)
    )


def _broken(in_turn: InTurn) -> str | None:
    """What is wrong with the runs in turn; ``None`` if both arms are whole."""
    for arm, measurement in _arms(in_turn):
        for run in measurement.broken_runs:
            return f"run {run.run} of {arm} is {run.status.value} ({run.reason})"
    for arm, measurement in _arms(in_turn):
        if not measurement.throughputs:
            return f"{arm} has no run"
    return None


def _arms(in_turn: InTurn) -> tuple[tuple[str, Measurement], ...]:
    return ("the candidate", in_turn.candidate), ("the accepted software", in_turn.control)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arms:
    """Where candidate and control lie, in the unit per second, and the error of their ratio."""

    case_id: str
    candidate: float
    control: float
    runs: int
    noise: float
    accepted: float | None

    @classmethod
    def of(cls, in_turn: InTurn, baseline: Baseline | None) -> _Arms:
        candidate, control = in_turn.candidate.throughputs, in_turn.control.throughputs
        known = [run for runs in baseline.rolling for run in runs] if baseline else []
        if len(known) >= _LEAST_BASELINE_RUNS:
            deviation = noise(known)
        else:
            # Each arm by its own median: the difference between them is no noise.
            both = ((arm, median(arm)) for arm in (candidate, control))
            deviation = noise([run / middle for arm, middle in both for run in arm])
        return cls(
            case_id=in_turn.candidate.case_id,
            candidate=location(candidate, deviation),
            control=location(control, deviation),
            runs=min(len(candidate), len(control)),
            noise=deviation,
            accepted=baseline.throughput if baseline else None,
        )

    @property
    def ratio(self) -> float:
        return self.candidate / self.control

    @property
    def error(self) -> float:
        return self.noise * math.sqrt(2 / self.runs)

    def told(self) -> str:
        beside = (
            f", {100 * (self.control / self.accepted - 1):+.1f} % from its baseline"
            if self.accepted is not None
            else ""
        )
        return (
            f"{self.case_id} {self.candidate:.6g}, with the accepted software "
            f"{self.control:.6g}{beside}"
        )


def _confirm(judgement: Judgement, arms: _Arms, single: _Arms | None) -> Judgement:
    ratio, error = arms.ratio, arms.error
    told = arms.told()
    if single is not None:
        ratio, error = ratio / single.ratio, math.hypot(error, single.error)
        told = f"{told}; {single.told()}"
    loss = 1 - ratio
    confirming = max(_CONFIRMING_LOSS, _CONFIRMING_ERRORS * error)
    # Where no first alarm has narrowed the field, the ratio alone must reach what a first alarm
    # needs: 1.645 errors would be an alarm every twentieth night.
    alone = max(LEAST_LOSS_PERCENT / 100, THRESHOLD_ERRORS * error)
    if judgement.verdict is Verdict.REGRESSED:
        seen = _seen(loss, confirming, arms.runs, told)
        if loss > confirming:
            reason = f"confirmed by the control arm: {seen}"
            return replace(judgement, reason=_joined(judgement.reason, reason))
        reason = f"not confirmed by the control arm: {seen}"
        return replace(
            judgement,
            verdict=Verdict.ENVIRONMENT_SHIFT,
            reason=_joined(judgement.reason, reason),
        )
    seen = _seen(loss, alone, arms.runs, told)
    if judgement.verdict in {Verdict.PASS, Verdict.IMPROVED} and loss > alone:
        reason = f"the baseline is reached, but the control arm shows a loss: {seen}"
        return replace(judgement, verdict=Verdict.REGRESSED, reason=reason)
    return _with_note(judgement, f"control arm: {seen}")


def _seen(loss: float, threshold: float, runs: int, told: str) -> str:
    what = f"{100 * abs(loss):.1f} % {'slower' if loss > 0 else 'faster'}"
    return (
        f"in turn on the same hosts, {runs} runs each, the candidate is {what} than the accepted "
        f"software, a loss counts from {100 * threshold:.1f} % on ({told})"
    )


def _joined(first: str | None, second: str) -> str:
    return f"{first}; {second}" if first else second


def _with_note(judgement: Judgement, note: str) -> Judgement:
    return replace(judgement, notes=(*judgement.notes, note))
