"""The rule for baselines with many runs: a sequential test that takes three to nine runs.

Its constants were found by simulation with the noise of the benchmark's published runs;
``benchmarks/gate_power.py`` shows the false alarms and the power that they give.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final, final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.gate.noise import (
    StandardError,
    are_unstable,
    gross_outliers,
    location,
    median_variance,
    noise,
    outliers,
    t_quantile,
)
from pytest_dlperf.gate.tolerance import USUAL_REPEATS, Drift
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Decision, Verdict
from pytest_dlperf.model.metric import Better, RuleName
from pytest_dlperf.model.statistics import MIN_RUNS_FOR_NOISE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.baseline import Baseline

MIN_BASELINE_RUNS: Final = MIN_RUNS_FOR_NOISE
MIN_BASELINE_SESSIONS: Final = 4
MIN_LOSS_PERCENT: Final = 2.0
"""The smallest loss that counts without a tolerance of its own: nights differ."""

CONFIRMED_LOSS_PERCENT: Final = 1.2
"""The same where a control arm follows, which takes the losses of the night alone away."""

FIRST_LOOK: Final = 3
LAST_LOOK: Final = 9
MIN_RUNS_TO_FAIL: Final = 7
MIN_RUNS_TO_FAIL_EARLY: Final = 5

THRESHOLD_ERRORS: Final = 3.25
"""Standard errors that a loss has to reach: one look in 1,700 does so by chance."""

_PASSING_ERRORS: Final = 2.0

_POWER_ERRORS: Final = 1.645
"""More than ``QUANTILE_90``: passing early costs power. Simulations have 92 to 94 %."""

_MAX_NOISE_RATIO: Final = 2.0
"""Above so many times the baseline's noise, tonight's own noise is taken."""

_MIN_DOF: Final = 4
"""Degrees of freedom of a noise at least: three runs of a night are not all that is known of it."""

_MIN_EARLY_LOSS: Final = 0.08
_MIN_EARLY_LOSS_OF_EACH_RUN: Final = 0.05
_MIN_EARLY_DEVIATIONS_OF_EACH_RUN: Final = 3.0
_MAX_BASELINE_OUTLIERS: Final = 0.25
_MAX_DETECTABLE_LOSS: Final = 0.10

# With the other rule: sessions that this one leaves undecided do not pass, so they are not added.
_HOW_TO_ADD_RUNS: Final = "sessions with --dlperf-gate tolerance and --dlperf-extend-baselines"


class Sensitivity(Struct, frozen=True, kw_only=True):
    """Which losses a number of runs shows.

    ``error`` is the standard error of tonight's difference from the reference. ``threshold`` is the
    largest loss that passes, as a part of the reference, and at least ``errors`` standard errors.
    """

    error: StandardError
    errors: float
    threshold: float

    @property
    def min_detectable(self) -> float:
        """The loss that is found nine times out of ten with so many runs at most."""
        return self.threshold + _POWER_ERRORS * self.error.value


class Night(Struct, frozen=True, kw_only=True):
    """Tonight's runs beside the baseline.

    ``measured`` is their location, ``deviation`` their noise: that of the baseline unless they are
    noisier by far; then ``noisier`` is their own.
    """

    values: tuple[float, ...]
    measured: float
    deviation: float
    noisier: float | None
    sensitivity: Sensitivity

    @property
    def count(self) -> int:
        """The number of runs."""
        return len(self.values)

    @property
    def outliers(self) -> list[float]:
        """The runs that do not count for the location."""
        return outliers(self.values, self.deviation)


@final
class SequentialRule(Struct, frozen=True, kw_only=True):
    """Decides as soon as the runs are enough, by the noise of the last accepted sessions.

    ``reference`` is the location of the ``baseline_runs`` of ``baseline_sessions`` sessions,
    ``deviation`` their relative standard deviation. ``min_loss_percent`` is the smallest loss that
    counts, ``tolerance_percent`` the largest one from the accepted number, the median of
    ``accepted_runs``. With ``is_fixed`` exactly ``at_most`` runs are taken. ``fault`` is why
    nothing can be decided by this baseline, and the remedy.
    """

    name: ClassVar[RuleName] = RuleName.SEQUENTIAL
    baseline: Baseline
    reference: float
    deviation: float
    baseline_runs: int
    baseline_sessions: int
    accepted_runs: int
    tolerance_percent: float
    min_loss_percent: float
    at_most: int
    is_fixed: bool
    fault: str | None

    @classmethod
    def of(
        cls,
        baseline: Baseline,
        *,
        tolerance_percent: float,
        min_loss_percent: float,
        repeats: int | None = None,
        available: int | None = None,
    ) -> SequentialRule:
        """Make the rule from the runs of the last accepted sessions.

        ``repeats`` is the number of runs that the user fixed, ``available`` how many can be had
        (``None``: no limit).
        """
        sessions = baseline.rolling
        runs = [run for session in sessions for run in session]
        deviation = noise(runs)
        wanted = LAST_LOOK if repeats is None else repeats
        return cls(
            baseline=baseline,
            reference=location(runs, deviation),
            deviation=deviation,
            baseline_runs=len(runs),
            baseline_sessions=len(sessions),
            accepted_runs=len(baseline.runs) or USUAL_REPEATS,
            tolerance_percent=tolerance_percent,
            min_loss_percent=min_loss_percent,
            at_most=wanted if available is None else max(min(wanted, available), 1),
            is_fixed=repeats is not None,
            fault=_fault(runs, deviation),
        )

    @property
    def better(self) -> Better:
        """In which direction the metric improves."""
        return self.baseline.better

    def night(self, values: Sequence[float]) -> Night:
        """Summarize tonight's runs."""
        own = noise(values) if len(values) >= FIRST_LOOK else 0.0
        noisier = own if own > _MAX_NOISE_RATIO * self.deviation else None
        deviation = self.deviation if noisier is None else noisier
        return Night(
            values=tuple(values),
            measured=location(values, deviation),
            deviation=deviation,
            noisier=noisier,
            sensitivity=self._sensitivity(len(values), noisier),
        )

    def _sensitivity(self, count: int, noisier: float | None = None) -> Sensitivity:
        known = self.baseline_runs if noisier is None else count
        dof = max(known - 1, _MIN_DOF)
        deviation = self.deviation if noisier is None else noisier
        error = StandardError(
            value=math.hypot(
                self.deviation / math.sqrt(self.baseline_runs), deviation / math.sqrt(count)
            ),
            dof=dof,
        )
        errors = THRESHOLD_ERRORS if noisier is None else t_quantile(THRESHOLD_ERRORS, dof)
        return Sensitivity(
            error=error,
            errors=errors,
            threshold=max(self.min_loss_percent / 100, errors * error.value),
        )

    def drift(self, sensitivity: Sensitivity, night: Night, count: int) -> Drift:
        """Make the bound that the accepted number sets to so many runs."""
        error = self.accepted_error(sensitivity, night, count)
        percent = max(self.tolerance_percent, self.min_loss_percent)
        return Drift(
            baseline=self.baseline,
            sessions=self.baseline_sessions,
            allowed=max(percent / 100, sensitivity.errors * error.value),
            error=error,
        )

    def accepted_error(self, sensitivity: Sensitivity, night: Night, count: int) -> StandardError:
        """Standard error of the difference from the accepted number, the median of a few runs."""
        accepted = self.deviation * math.sqrt(median_variance(self.accepted_runs))
        value = math.hypot(accepted, night.deviation / math.sqrt(count))
        return StandardError(value=value, dof=sensitivity.error.dof)

    def false_alarm(self, last: int, night: Night) -> float:
        """Probability of an alarm when nothing has changed, or a little more than that.

        ``last`` is the number of runs by which there is a decision. This is the Bonferroni bound
        over the looks. Drift counts once: all looks share most of its error, the accepted number's.
        """
        first = last if self.is_fixed else min(MIN_RUNS_TO_FAIL, last)
        early = () if self.is_fixed else range(MIN_RUNS_TO_FAIL_EARLY, first)
        total = self.drift(self._sensitivity(first, night.noisier), night, first).false_alarm
        for count in (*early, *range(first, last + 1)):
            sensitivity = self._sensitivity(count, night.noisier)
            least = _MIN_EARLY_LOSS if count in early else 0.0
            total += sensitivity.error.false_alarm(max(sensitivity.threshold, least))
        return min(total, 1.0)

    def decide(self, values: Sequence[float], *, is_last: bool) -> Decision | None:
        """Pass from the third run on, fail from the seventh, or the fifth if the loss is large."""
        count = len(values)
        is_last = is_last or count >= self.at_most
        if not is_last and (self.is_fixed or count < FIRST_LOOK):
            return None
        fault = self.fault
        if count < FIRST_LOOK:
            fault = (
                f"{numbers.counted(count, 'run')} cannot tell an outlier from a loss: the "
                f"sequential rule needs {FIRST_LOOK}, --dlperf-gate tolerance does with fewer"
            )
        night = self.night(values)
        last = max(count, self.at_most)
        if fault is not None:
            decision = self._passed(night, last)
            return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=fault)
        loss = self.better.loss(night.measured, self.reference)
        is_lost = loss > night.sensitivity.threshold
        drift = self.drift(night.sensitivity, night, count)
        is_drift = drift.is_exceeded_by(night.measured)
        fails = count >= MIN_RUNS_TO_FAIL and (is_drift or is_lost)
        fails = fails or self._fails_early(night, loss)
        # Among more runs the outliers may be few enough to decide.
        fails = fails and (is_last or not are_unstable(values, night.deviation))
        # By the sensitivity of a usual night: a noisy one passes no loss more easily.
        usual = self._sensitivity(last).min_detectable
        passes = not is_drift and loss + _PASSING_ERRORS * night.sensitivity.error.value < usual
        if not (fails or passes):
            if not is_last:
                return None
            # A series that was cut short, for want of logs, is as sensitive as its own length.
            last = count
        decision = self._passed(night, last)
        if is_drift and not is_lost:
            decision = drift.fail(decision, night.measured)
        if is_drift or is_lost:
            return self._failed(decision, night)
        return decision if passes else self._undecided(decision, night)

    def _fails_early(self, night: Night, loss: float) -> bool:
        if night.count < MIN_RUNS_TO_FAIL_EARLY:
            return False
        if loss <= max(_MIN_EARLY_LOSS, night.sensitivity.threshold):
            return False
        each = max(_MIN_EARLY_LOSS_OF_EACH_RUN, _MIN_EARLY_DEVIATIONS_OF_EACH_RUN * night.deviation)
        return self.better.loss(self.better.best(night.values), self.reference) > each

    def _passed(self, night: Night, last: int) -> Decision:
        """Decide as if there were no loss, with the sensitivity of a series of ``last`` runs."""
        difference = (night.measured - self.reference) / self.reference
        loss = self.better.loss(night.measured, self.reference)
        counted = night.count - len(night.outliers)
        # Where most runs do not count, the median of all is what counts.
        counted = counted if 2 * counted >= night.count else night.count
        return Decision(
            rule=RuleName.SEQUENTIAL,
            verdict=Verdict.IMPROVED if -loss > night.sensitivity.threshold else Verdict.PASS,
            difference_percent=100 * difference,
            reference=self.reference,
            tolerance_percent=100 * night.sensitivity.threshold,
            interval_percent=self._sensitivity(counted, night.noisier).error.interval_percent(
                difference
            ),
            min_detectable_percent=100 * self._sensitivity(last, night.noisier).min_detectable,
            false_alarm=self.false_alarm(last, night),
            notes=self._notes(night),
        )

    def _undecided(self, decision: Decision, night: Night) -> Decision:
        """Pass, or inconclusive where noise hides every usual loss."""
        detectable = night.sensitivity.min_detectable
        if night.noisier is None or detectable <= _MAX_DETECTABLE_LOSS:
            return decision
        unseen = f"no loss below {100 * detectable:.0f} %" if detectable < 1 else "no loss"
        reason = (
            f"{self._differ(night)}: {unseen} would be seen; look at the hosts, and measure the "
            "case again when they are quiet"
        )
        return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=reason)

    def _failed(self, decision: Decision, night: Night) -> Decision:
        if not are_unstable(night.values, night.deviation):
            return replace(decision, verdict=Verdict.REGRESSED)
        far = len(gross_outliers(night.values, night.deviation))
        reason = (
            f"{far} of {numbers.counted(night.count, 'run')} are gross outliers, too many to call "
            "the rest worse; look at the hosts, and measure the case again when they are quiet"
        )
        return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=reason)

    def _notes(self, night: Night) -> tuple[str, ...]:
        notes = []
        far = night.outliers
        if far:
            shown = ", ".join(map(numbers.number, far))
            counts = f"{len(far)} of {numbers.counted(night.count, 'run')}"
            notes.append(
                f"{counts} do not count: {shown}"
                if 2 * len(far) <= night.count
                else f"{counts} lie far from the others, so the median counts: {shown}"
            )
        if night.noisier is not None:
            notes.append(self._differ(night))
        return tuple(notes)

    def _differ(self, night: Night) -> str:
        return (
            f"runs differ by {numbers.variation(night.deviation)} tonight, "
            f"{numbers.variation(self.deviation)} in the baseline"
        )


def _fault(runs: Sequence[float], deviation: float) -> str | None:
    """Return why nothing can be decided by the runs of a baseline; ``None`` if it can."""
    if len(runs) < MIN_BASELINE_RUNS:
        return (
            f"the baseline has {numbers.counted(len(runs), 'run')}, the sequential rule needs "
            f"{MIN_BASELINE_RUNS}; {_HOW_TO_ADD_RUNS} add those that pass"
        )
    far = len(gross_outliers(runs, deviation))
    if far > _MAX_BASELINE_OUTLIERS * len(runs):
        return (
            f"{far} of the baseline's {len(runs)} runs are gross outliers, so its level "
            f"is uncertain; {_HOW_TO_ADD_RUNS} put quiet runs in their place"
        )
    error = deviation * math.sqrt(1 / len(runs) + 1 / LAST_LOOK)
    detectable = max(MIN_LOSS_PERCENT / 100, THRESHOLD_ERRORS * error) + _POWER_ERRORS * error
    if detectable > _MAX_DETECTABLE_LOSS:
        return (
            f"the baseline's runs differ by {numbers.variation(deviation)}: no loss below "
            f"{100 * detectable:.0f} % would be seen; quieter hosts or a longer window settle it, "
            "and a tolerance_percent above 10 has the case judged by the tolerance"
        )
    return None
