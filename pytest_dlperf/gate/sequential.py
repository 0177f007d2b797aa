"""The rule for baselines with many runs: it takes as many runs as it needs, three to nine.

Its numbers were found by simulation on the noise of the benchmark's published runs;
``benchmarks/gate_power.py`` shows what they give.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, final

from pytest_dlperf.gate import wording
from pytest_dlperf.gate.drift import Drift
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
from pytest_dlperf.gate.tolerance import USUAL_REPEATS
from pytest_dlperf.model.judgement import Decision, Verdict
from pytest_dlperf.model.metric import Better, RuleName
from pytest_dlperf.model.statistics import MANY_RUNS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.baseline import Baseline

MIN_BASELINE_RUNS: Final = MANY_RUNS
MIN_BASELINE_SESSIONS: Final = 4
MIN_LOSS_PERCENT: Final = 2.0
"""The smallest loss that counts for want of a tolerance of its own: nights differ."""

CONFIRMED_LOSS_PERCENT: Final = 1.2
"""The same where a control arm confirms it: that takes away what only the night has lost."""

FIRST_LOOK: Final = 3
LAST_LOOK: Final = 9
FAILS_FROM: Final = 7
FAILS_EARLY_FROM: Final = 5

THRESHOLD_ERRORS: Final = 3.25
"""Standard errors that a loss must reach: one look in 1,700 does so by chance."""

_PASSING_ERRORS: Final = 2.0

_POWER_ERRORS: Final = 1.645
"""More than ``NINE_OF_TEN``, for passing early costs power: 92 to 94 % were seen in simulations."""

_NOISIER: Final = 2.0
"""How many times the baseline's noise is tonight's own, where the baseline's says nothing of it."""

_MIN_DOF: Final = 4
"""Degrees of freedom that a noise has at least: three runs of a night are not all that is known."""

_EARLY_LOSS: Final = 0.08
_EARLY_LOSS_OF_EACH: Final = 0.05
_EARLY_NOISE_OF_EACH: Final = 3.0
_MAX_BASELINE_OUTLIERS: Final = 0.25
_MAX_DETECTABLE: Final = 0.10

# By the other rule, for what this one leaves open passes nothing that could be added.
_MORE_RUNS: Final = "sessions with --dlperf-gate tolerance and --dlperf-extend-baselines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a number of tonight's runs tells.

    ``error`` is that of their difference from the reference; ``threshold`` is the largest loss
    that passes, as a part of the reference, and ``errors`` are how many errors it is at least.
    """

    error: StandardError
    errors: float
    threshold: float

    @property
    def min_detectable(self) -> float:
        """The loss that is found nine times out of ten if there are so many runs at most."""
        return self.threshold + _POWER_ERRORS * self.error.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """Tonight's runs as the rule sees them.

    ``measured`` is where they lie, ``deviation`` how much they differ: the baseline's noise,
    unless they are noisier by far; then ``noisier`` is their own.
    """

    values: tuple[float, ...]
    measured: float
    deviation: float
    noisier: float | None
    look: Look

    @property
    def count(self) -> int:
        """The number of runs."""
        return len(self.values)

    @property
    def outliers(self) -> list[float]:
        """The runs that do not count."""
        return outliers(self.values, self.deviation)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialRule:
    """Decides as soon as the runs say enough, by the noise of the last accepted sessions.

    ``reference`` is where the ``baseline_runs`` of ``baseline_sessions`` sessions lie;
    ``deviation`` is the relative one between runs. ``min_loss_percent`` is the smallest loss that
    counts, ``tolerance_percent`` what the accepted number allows: the median of ``accepted_runs``.
    With ``is_fixed`` exactly ``at_most`` runs are taken. ``fault`` is why the baseline decides
    nothing, with what would settle it.
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

        ``repeats`` is the number of runs that the user fixed, ``available`` how many there are to
        be had (``None``: as many as wanted).
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
        """Look at tonight's runs beside the baseline."""
        own = noise(values) if len(values) >= FIRST_LOOK else 0.0
        noisier = own if own > _NOISIER * self.deviation else None
        deviation = self.deviation if noisier is None else noisier
        return Night(
            values=tuple(values),
            measured=location(values, deviation),
            deviation=deviation,
            noisier=noisier,
            look=self._look(len(values), noisier),
        )

    def _look(self, count: int, noisier: float | None = None) -> Look:
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
        return Look(
            error=error,
            errors=errors,
            threshold=max(self.min_loss_percent / 100, errors * error.value),
        )

    def drift(self, look: Look, night: Night, count: int) -> Drift:
        """Tell what the accepted number allows when so many runs are looked at."""
        error = self.accepted_error(look, night, count)
        percent = max(self.tolerance_percent, self.min_loss_percent)
        return Drift(
            baseline=self.baseline,
            sessions=self.baseline_sessions,
            allowed=max(percent / 100, look.errors * error.value),
            error=error,
        )

    def accepted_error(self, look: Look, night: Night, count: int) -> StandardError:
        """Give that of the difference from the accepted number, the median of a few runs."""
        accepted = self.deviation * math.sqrt(median_variance(self.accepted_runs))
        value = math.hypot(accepted, night.deviation / math.sqrt(count))
        return StandardError(value=value, dof=look.error.dof)

    def false_alarm(self, last: int, night: Night) -> float:
        """Probability of an alarm if nothing has changed: rather too large than too small.

        ``last`` is the number of runs by which there is a decision. This is the Bonferroni bound
        over the looks. Drift counts once: all looks share most of its error, the accepted number's.
        """
        first = last if self.is_fixed else min(FAILS_FROM, last)
        early = () if self.is_fixed else range(FAILS_EARLY_FROM, first)
        total = self.drift(self._look(first, night.noisier), night, first).false_alarm
        for count in (*early, *range(first, last + 1)):
            look = self._look(count, night.noisier)
            least = _EARLY_LOSS if count in early else 0.0
            total += look.error.false_alarm(max(look.threshold, least))
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
                f"{wording.runs(count)} cannot tell an outlier from a loss: the sequential rule "
                f"needs {FIRST_LOOK}, --dlperf-gate tolerance does with fewer"
            )
        night = self.night(values)
        last = max(count, self.at_most)
        if fault is not None:
            decision = self._passed(night, last)
            return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=fault)
        loss = self.better.loss(night.measured, self.reference)
        is_lost = loss > night.look.threshold
        drift = self.drift(night.look, night, count)
        is_drift = drift.is_seen(night.measured)
        fails = self._fails_early(night, loss) or (count >= FAILS_FROM and (is_drift or is_lost))
        # Among more runs the outliers may be few enough to tell.
        fails = fails and (is_last or not are_unstable(values, night.deviation))
        # By what a usual night lets see: a noisy one passes nothing more easily.
        usual = self._look(last).min_detectable
        passes = not is_drift and loss + _PASSING_ERRORS * night.look.error.value < usual
        if not (fails or passes):
            if not is_last:
                return None
            # A series that was cut short, fewer logs for instance, sees what its own length sees.
            last = count
        decision = self._passed(night, last)
        if is_drift and not is_lost:
            decision = drift.describe(decision, night.measured)
        if is_drift or is_lost:
            return self._failed(decision, night)
        return decision if passes else self._undecided(decision, night)

    def _fails_early(self, night: Night, loss: float) -> bool:
        if night.count < FAILS_EARLY_FROM or loss <= max(_EARLY_LOSS, night.look.threshold):
            return False
        each = max(_EARLY_LOSS_OF_EACH, _EARLY_NOISE_OF_EACH * night.deviation)
        return self.better.loss(self.better.best(night.values), self.reference) > each

    def _passed(self, night: Night, last: int) -> Decision:
        """Decide as if no loss was found, with what a series of ``last`` runs would show."""
        difference = (night.measured - self.reference) / self.reference
        loss = self.better.loss(night.measured, self.reference)
        counted = night.count - len(night.outliers)
        # Where most runs do not count, the median of all is what counts.
        counted = counted if 2 * counted >= night.count else night.count
        return Decision(
            rule=RuleName.SEQUENTIAL,
            verdict=Verdict.IMPROVED if -loss > night.look.threshold else Verdict.PASS,
            difference_percent=100 * difference,
            reference=self.reference,
            tolerance_percent=100 * night.look.threshold,
            interval_percent=self._look(counted, night.noisier).error.interval_percent(difference),
            min_detectable_percent=100 * self._look(last, night.noisier).min_detectable,
            false_alarm=self.false_alarm(last, night),
            notes=self._notes(night),
        )

    def _undecided(self, decision: Decision, night: Night) -> Decision:
        """Pass unless noise hides every usual loss: then it is inconclusive."""
        if night.noisier is None or night.look.min_detectable <= _MAX_DETECTABLE:
            return decision
        detectable = night.look.min_detectable
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
            f"{far} of {wording.runs(night.count)} are gross outliers, too many to call the rest "
            "worse; look at the hosts, and measure the case again when they are quiet"
        )
        return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=reason)

    def _notes(self, night: Night) -> tuple[str, ...]:
        notes = []
        far = night.outliers
        if far:
            shown = ", ".join(map(wording.number, far))
            notes.append(
                f"{len(far)} of {wording.runs(night.count)} do not count: {shown}"
                if 2 * len(far) <= night.count
                else f"{len(far)} of {wording.runs(night.count)} lie far from the others, so the "
                f"median counts: {shown}"
            )
        if night.noisier is not None:
            notes.append(self._differ(night))
        return tuple(notes)

    def _differ(self, night: Night) -> str:
        return (
            f"runs differ by {100 * night.deviation:.1f} % tonight, "
            f"{100 * self.deviation:.1f} % in the baseline"
        )


def _fault(runs: Sequence[float], deviation: float) -> str | None:
    """Say why the runs of a baseline decide nothing; ``None`` if they do."""
    if len(runs) < MIN_BASELINE_RUNS:
        return (
            f"the baseline has {wording.runs(len(runs))}, the sequential rule needs "
            f"{MIN_BASELINE_RUNS}; {_MORE_RUNS} add those that pass"
        )
    far = len(gross_outliers(runs, deviation))
    if far > _MAX_BASELINE_OUTLIERS * len(runs):
        return (
            f"{far} of the baseline's {len(runs)} runs are gross outliers: it does not say what is "
            f"normal; {_MORE_RUNS} put quiet runs in their place"
        )
    error = deviation * math.sqrt(1 / len(runs) + 1 / LAST_LOOK)
    detectable = max(MIN_LOSS_PERCENT / 100, THRESHOLD_ERRORS * error) + _POWER_ERRORS * error
    if detectable > _MAX_DETECTABLE:
        return (
            f"the baseline's runs differ by {100 * deviation:.1f} %: no loss below "
            f"{100 * detectable:.0f} % would be seen; quieter hosts or a longer window settle it, "
            "and a tolerance_percent above 10 has the case judged by the tolerance"
        )
    return None
