"""Tonight against the accepted number: the rule for baselines with few runs, and drift."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final, final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.noise import (
    StandardError,
    are_alike,
    errors_of_family,
    median_variance,
    pooled_noise,
    t_quantile,
)
from pytest_dlperf.gate.reference import Groups
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Decision, Verdict
from pytest_dlperf.model.metric import Better, RuleName
from pytest_dlperf.model.statistics import (
    MIN_RUNS_FOR_NOISE,
    difference_percent,
    mean,
    median,
    rounded,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.baseline import Baseline

USUAL_REPEATS: Final = 5
"""Runs of a session unless the system or the user says otherwise."""

_ALL_PERCENT: Final = 100.0
"""Where less is worse there is no larger loss: one of so much cannot be exceeded, nor found."""
_MIN_WORSE_RUNS: Final = 2
"""Of a metric without noise, one run with a second value may be an accident."""


@final
class ToleranceRule(Struct, frozen=True, kw_only=True):
    """Passes a median that is worse than the accepted number by ``tolerance_percent`` at most.

    The noise is that of the last accepted sessions. Where their runs do not differ
    (``is_noise_free``), one run is enough, unless it shows another value. Where they lie in two
    groups, a median that the tolerance allows of the worse one passes; of a number that logs print
    (``is_printed``) one of a few runs is a group. Of ``members`` that are judged together, the
    worst may lie as far off as such a worst one seldom does by chance.
    """

    name: ClassVar[RuleName] = RuleName.TOLERANCE
    baseline: Baseline
    tolerance_percent: float
    at_most: int
    is_printed: bool = False
    is_noise_free: bool = False
    members: int = 1

    @property
    def better(self) -> Better:
        """In which direction the metric improves."""
        return self.baseline.better

    @property
    def may_be_fewer(self) -> bool:
        """Whether it may decide before ``at_most`` runs."""
        return self.is_noise_free

    def decide(self, values: Sequence[float], *, is_last: bool) -> Decision | None:
        """Decide once all runs are taken; without noise, as soon as one is as accepted."""
        decision = self._decision(values)
        if is_last or len(values) >= self.at_most:
            return decision
        is_as_accepted = decision.verdict is Verdict.PASS and are_alike(values)
        return decision if self.is_noise_free and is_as_accepted else None

    def _decision(self, values: Sequence[float]) -> Decision:
        baseline = self.baseline
        measured = rounded(median(values), baseline.estimator.decimals_of(baseline.metric))
        # Where the accepted runs have no noise, only tonight's can show any.
        sessions = () if self.is_noise_free else baseline.rolling
        error = median_error(values, sessions, len(baseline.runs))
        tolerance_percent = self.tolerance_percent
        is_quiet = self.is_noise_free and are_alike(values)
        if error is not None and not is_quiet:
            tolerance_percent = self._widened_percent(error)
        decision = compare(
            measured,
            baseline.accepted,
            baseline.better,
            tolerance_percent=tolerance_percent,
            error=error,
        )
        if decision.verdict is Verdict.REGRESSED:
            decision = self._within_groups(decision, measured)
        return self._without_noise(decision, values) if self.is_noise_free else decision

    @property
    def min_detectable_percent(self) -> float | None:
        """The loss that a usual night finds nine times out of ten; ``None`` if too few runs say."""
        if self.is_noise_free:
            return self.tolerance_percent
        *earlier, last = self.baseline.rolling or ((),)
        error = median_error(last, earlier, len(self.baseline.runs))
        if error is None:
            return None
        return error.min_detectable_percent(self._widened_percent(error) / 100, self.better)

    def _widened_percent(self, error: StandardError) -> float:
        """Widen the tolerance by what the worst member of a family loses by chance."""
        if self.members == 1:
            return self.tolerance_percent
        errors = t_quantile(errors_of_family(self.members), error.dof)
        return max(self.tolerance_percent, 100 * errors * error.value)

    @property
    def _accepted_runs(self) -> list[float]:
        return [run for session in self.baseline.rolling for run in session]

    def _limit(self, number: float) -> float:
        """Return the worst number that passes where this one is accepted."""
        return self.better.changed(number, -self.tolerance_percent / 100)

    def _within_groups(self, decision: Decision, measured: float) -> Decision:
        """Pass a median that is no worse than the worse of two groups of accepted runs."""
        runs = self._accepted_runs
        groups = Groups.of_runs(runs)
        if groups is not None:
            limit = self._limit(self.better.worst((mean(groups.low), mean(groups.high))))
        elif (
            self.is_printed
            and len(runs) < MIN_RUNS_FOR_NOISE
            and (groups := Groups.of_values(runs))
        ):
            # What one run has shown is known, and what is beyond it not.
            limit = self.better.worst(tuple(runs))
        if groups is None or self.better.is_worse(measured, limit):
            return decision
        note = f"{groups.note('runs')}; tonight's median lies in the worse one"
        return replace(decision, verdict=Verdict.PASS, standing_notes=(note,))

    def _without_noise(self, decision: Decision, values: Sequence[float]) -> Decision:
        """Note that the accepted runs do not differ; the noise is 0 unless tonight's runs do."""
        if not are_alike(values):
            apart = difference_percent(max(values), min(values))
            note = f"tonight's runs lie {apart:.2f} % apart, the accepted ones do not differ"
            return self._by_worse_runs(replace(decision, notes=(note,)), values)
        is_one = len(values) == 1
        rest = ": one run is enough, judged by its tolerance" if is_one else ", nor do tonight's"
        return replace(
            decision,
            interval_percent=None,
            min_detectable_percent=self.tolerance_percent,
            false_alarm=0.0,
            notes=(f"the accepted runs do not differ{rest}", *decision.notes),
        )

    def _by_worse_runs(self, decision: Decision, values: Sequence[float]) -> Decision:
        """Fail where two runs or more show a worse value, however many do not."""
        known = self.better.worst((self.baseline.accepted, *self._accepted_runs))
        worse = [value for value in values if self.better.is_worse(value, self._limit(known))]
        if decision.verdict is not Verdict.PASS or len(worse) < _MIN_WORSE_RUNS:
            return decision
        reason = (
            f"{len(worse)} of {numbers.counted(len(values), 'run')} are worse by up to "
            f"{numbers.percent(100 * self.better.loss(self.better.worst(tuple(worse)), known))}, "
            "which no accepted run is"
        )
        return replace(decision, verdict=Verdict.REGRESSED, reason=reason)


def median_error(
    values: Sequence[float], sessions: Sequence[Sequence[float]], accepted_runs: int
) -> StandardError | None:
    """Standard error of the difference of tonight's median from the accepted one.

    The accepted one is the median of ``accepted_runs`` runs; 0 if their number is unknown. ``None``
    with too few runs.
    """
    # A baseline with few runs does not show their noise well enough; tonight's help.
    if sum(map(len, sessions)) < MIN_RUNS_FOR_NOISE:
        sessions = (*sessions, values)
    noise = pooled_noise(sessions)
    if noise is None:
        return None
    # A number without its runs is taken for the median of as many as tonight's: five at most.
    accepted = accepted_runs or min(len(values), USUAL_REPEATS)
    variance = median_variance(accepted) + median_variance(len(values))
    return StandardError(value=noise.deviation * math.sqrt(variance), dof=noise.dof)


def compare(
    measured: float,
    accepted: float,
    better: Better,
    *,
    tolerance_percent: float,
    error: StandardError | None,
) -> Decision:
    """Compare tonight's number with the accepted one; ``error`` is that of their difference."""
    difference = measured / accepted - 1
    tolerance = tolerance_percent / 100
    # Products, not the loss: a median of exactly the allowed number has to pass.
    if better.is_worse(measured, better.changed(accepted, -tolerance)):
        verdict = Verdict.REGRESSED
    elif better.is_worse(better.changed(accepted, tolerance), measured):
        verdict = Verdict.IMPROVED
    else:
        verdict = Verdict.PASS
    return Decision(
        rule=RuleName.TOLERANCE,
        verdict=verdict,
        reference=accepted,
        difference_percent=100 * difference,
        tolerance_percent=tolerance_percent,
        interval_percent=error.interval_percent(difference) if error else None,
        min_detectable_percent=error.min_detectable_percent(tolerance, better) if error else None,
        false_alarm=error.false_alarm(tolerance) if error else None,
    )


class Drift(Struct, frozen=True, kw_only=True):
    """How much worse than the accepted number tonight may be: a little is lost every night.

    The last ``sessions`` accepted sessions pass, each beside those before it. ``allowed`` is the
    largest loss that passes, as a part of the accepted number; ``error`` is that of tonight's
    difference from it.
    """

    baseline: Baseline
    sessions: int
    allowed: float
    error: StandardError

    @property
    def false_alarm(self) -> float:
        """Probability that a single look calls it drift when nothing has changed."""
        return self.error.false_alarm(self.allowed)

    def is_exceeded_by(self, measured: float) -> bool:
        """Whether tonight is worse than the accepted number by more than is allowed."""
        return self.baseline.better.loss(measured, self.baseline.accepted) > self.allowed

    def fail(self, decision: Decision, measured: float) -> Decision:
        """Turn a decision into ``regressed``, with the numbers against the accepted one."""
        baseline = self.baseline
        difference = measured / baseline.accepted - 1
        since = f" {baseline.acceptance.at}" if baseline.acceptance else ""
        where = "below" if difference < 0 else "above"
        return replace(
            decision,
            verdict=Verdict.REGRESSED,
            difference_percent=100 * difference,
            reference=baseline.accepted,
            tolerance_percent=100 * self.allowed,
            min_detectable_percent=self.error.min_detectable_percent(self.allowed, baseline.better),
            interval_percent=self.error.interval_percent(difference),
            reason=(
                f"drift: the last {self.sessions} sessions pass, but tonight lies "
                f"{numbers.percent(100 * abs(difference))} {where} the {baseline.metric} accepted"
                f"{since}, {numbers.quantity(baseline.accepted, baseline.unit)}; allowed are "
                f"{numbers.percent(100 * self.allowed)}"
            ),
        )


def detectable_percent(
    runs: Sequence[float], tolerance_percent: float, better: Better
) -> float | None:
    """Smallest loss that a session with these runs finds against a baseline of as many.

    ``None`` if it finds none.
    """
    error = median_error(runs, (), len(runs))
    if error is None:
        return None
    percent = error.min_detectable_percent(tolerance_percent / 100, better)
    return percent if better is Better.LOWER or percent < _ALL_PERCENT else None
