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
    THRESHOLD_ERRORS,
    StandardError,
    are_unstable,
    errors_of_family,
    gross_outliers,
    location,
    median_variance,
    noise,
    outliers,
    t_quantile,
)
from pytest_dlperf.gate.reference import MIN_SESSIONS, Reference, counted_sessions
from pytest_dlperf.gate.tolerance import USUAL_REPEATS, Drift
from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Decision, Verdict
from pytest_dlperf.model.metric import Better, RuleName
from pytest_dlperf.model.statistics import MIN_RUNS_FOR_NOISE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.baseline import Baseline

MIN_BASELINE_RUNS: Final = MIN_RUNS_FOR_NOISE
MIN_BASELINE_SESSIONS: Final = MIN_SESSIONS
MIN_LOSS_PERCENT: Final = 2.0
"""The smallest loss that counts without a tolerance of its own: nights differ."""

CONFIRMED_LOSS_PERCENT: Final = 1.2
"""The same where a control arm follows, which takes the losses of the night alone away."""

FIRST_LOOK: Final = 3
LAST_LOOK: Final = 9
MIN_RUNS_TO_FAIL: Final = 7
MIN_RUNS_TO_FAIL_EARLY: Final = 5

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


class _Look(Struct, frozen=True, kw_only=True):
    """What tonight's runs so far show beside the reference."""

    night: Night
    is_lost: bool
    is_drift: bool
    fails: bool
    passes: bool

    @property
    def is_alarm(self) -> bool:
        """Whether it is a loss, if no run follows."""
        return self.is_lost or self.is_drift


@final
class SequentialRule(Struct, frozen=True, kw_only=True):
    """Decides as soon as the runs are enough, by the noise of the last accepted sessions.

    ``reference`` is what they show. ``min_loss_percent`` is the smallest loss that counts,
    ``tolerance_percent`` the largest one from the accepted number, the median of
    ``accepted_runs``. With ``is_fixed`` exactly ``at_most`` runs are taken. ``fault`` is why
    nothing can be decided by this baseline, and the remedy. ``members`` metrics are judged
    together.
    """

    name: ClassVar[RuleName] = RuleName.SEQUENTIAL
    baseline: Baseline
    reference: Reference
    accepted_runs: int
    tolerance_percent: float
    min_loss_percent: float
    at_most: int
    is_fixed: bool
    fault: str | None
    members: int = 1

    @classmethod
    def of(  # noqa: PLR0913 - all that it is made of, by name
        cls,
        baseline: Baseline,
        *,
        tolerance_percent: float,
        min_loss_percent: float,
        repeats: int | None = None,
        available: int | None = None,
        members: int = 1,
    ) -> SequentialRule:
        """Make the rule from the runs of the last accepted sessions.

        ``repeats`` is the number of runs that the user fixed, ``available`` how many can be had
        (``None``: no limit).
        """
        wanted = LAST_LOOK if repeats is None else repeats
        reference = Reference.of(counted_sessions(baseline.rolling), baseline.better)
        return cls(
            baseline=baseline,
            reference=reference,
            accepted_runs=len(baseline.runs) or USUAL_REPEATS,
            tolerance_percent=tolerance_percent,
            min_loss_percent=min_loss_percent,
            at_most=wanted if available is None else max(min(wanted, available), 1),
            is_fixed=repeats is not None,
            fault=_fault(reference),
            members=members,
        )

    @property
    def better(self) -> Better:
        """In which direction the metric improves."""
        return self.baseline.better

    @property
    def may_be_fewer(self) -> bool:
        """Whether it may decide before ``at_most`` runs."""
        return not self.is_fixed

    @property
    def deviation(self) -> float:
        """The relative standard deviation between runs of the baseline."""
        return self.reference.deviation

    @property
    def min_detectable_percent(self) -> float | None:
        """The loss that a usual night finds nine times out of ten; ``None`` if it finds none."""
        return None if self.fault is not None else self._min_detectable_percent(self.at_most)

    def _min_detectable_percent(self, count: int, noisier: float | None = None) -> float:
        detectable = self._sensitivity(count, noisier).min_detectable
        return 100 * (detectable + self.reference.distance_of_groups)

    @property
    def for_ratio(self) -> SequentialRule:
        """The rule of one end of a ratio, in which differences between nights cancel out."""
        return replace(self, reference=Reference.pooled(self.baseline.rolling))

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
        known = self.reference.runs if noisier is None else count
        dof = max(known - 1, _MIN_DOF)
        deviation = self.deviation if noisier is None else noisier
        error = StandardError(
            value=math.hypot(
                self.deviation / math.sqrt(self.reference.runs), deviation / math.sqrt(count)
            ),
            dof=dof,
        )
        errors = errors_of_family(self.members)
        if noisier is not None or self.members > 1:
            errors = t_quantile(errors, dof)
        return Sensitivity(
            error=error,
            errors=errors,
            threshold=max(self.min_loss_percent / 100, errors * error.value),
        )

    def drift(self, night: Night, count: int) -> Drift:
        """Make the bound that the accepted number sets to so many runs of a night."""
        sensitivity = self._sensitivity(count, night.noisier)
        error = self.accepted_error(night, count)
        percent = max(self.tolerance_percent, self.min_loss_percent)
        return Drift(
            baseline=self.baseline,
            sessions=self.reference.sessions,
            allowed=max(percent / 100, sensitivity.errors * error.value),
            error=error,
        )

    def accepted_error(self, night: Night, count: int) -> StandardError:
        """Standard error of the difference from the accepted number, the median of a few runs."""
        accepted = self.deviation * math.sqrt(median_variance(self.accepted_runs))
        value = math.hypot(accepted, night.deviation / math.sqrt(count))
        return StandardError(value=value, dof=self._sensitivity(count, night.noisier).error.dof)

    def false_alarm(self, last: int, night: Night) -> float:
        """Probability of an alarm when nothing has changed, or a little more than that.

        ``last`` is the number of runs by which there is a decision. This is the Bonferroni bound
        over the looks. Drift counts once: all looks share most of its error, the accepted number's.
        """
        if self.reference.modes is not None and night.noisier is None:
            looks = range(min(FIRST_LOOK, last), last + 1)
            return self.reference.false_alarm_of_modes(self.better, looks, self._is_alarm)
        first = last if self.is_fixed else min(MIN_RUNS_TO_FAIL, last)
        early = () if self.is_fixed else range(MIN_RUNS_TO_FAIL_EARLY, first)
        total = self.drift(night, first).false_alarm
        for count in (*early, *range(first, last + 1)):
            sensitivity = self._sensitivity(count, night.noisier)
            least = _MIN_EARLY_LOSS if count in early else 0.0
            total += sensitivity.error.false_alarm(max(sensitivity.threshold, least))
        return min(total + self._false_alarm_of_nights(last, night), 1.0)

    def _false_alarm_of_nights(self, last: int, night: Night) -> float:
        """Probability of an alarm because nights differ, as far as the baseline shows that."""
        reference = self.reference
        sensitivity = self._sensitivity(last, night.noisier)
        if not reference.nights:
            worst = self.better.changed(self.baseline.accepted, -self.drift(night, last).allowed)
            beyond = reference.chance_beyond(worst, self.better, sensitivity.error)
            return reference.false_alarm + beyond
        nights = reference.nights * math.sqrt(1 + 1 / reference.sessions)
        error = StandardError(
            value=math.hypot(sensitivity.error.value, nights), dof=reference.sessions - 1
        )
        return error.false_alarm(sensitivity.threshold)

    def _is_alarm(
        self, reference: Reference, values: Sequence[float], *, is_last: bool
    ) -> bool | None:
        """Whether these runs are an alarm beside a baseline; ``None`` if more are taken."""
        if self.is_fixed and not is_last:
            return None
        look = replace(self, reference=reference)._look(values, is_last=is_last)  # noqa: SLF001
        if look.fails or (is_last and look.is_alarm):
            return True
        return False if look.passes else None

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
        last = max(count, self.at_most)
        look = self._look(values, is_last=is_last)
        night = look.night
        if fault is not None:
            decision = self._passed(night, last)
            return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=fault)
        if not (look.fails or look.passes):
            if not is_last:
                return None
            # A series that was cut short, for want of logs, is as sensitive as its own length.
            last = count
        if look.is_alarm:
            group = self.reference.group_of(night.measured, count)
            if group is not self.reference:
                beside = replace(self, reference=group).decide(values, is_last=is_last)
                # A false alarm comes of nights in either group.
                return beside and replace(beside, false_alarm=self.false_alarm(last, night))
        decision = self._passed(night, last)
        if look.is_drift and not look.is_lost:
            drift = self.drift(night, count)
            decision = drift.fail(decision, night.measured)
        if look.is_alarm:
            return self._failed(decision, night)
        return decision if look.passes else self._undecided(decision, night)

    def _look(self, values: Sequence[float], *, is_last: bool) -> _Look:
        """Look at the runs so far: whether they are enough to fail, or to pass."""
        count, night = len(values), self.night(values)
        loss = self.better.loss(night.measured, self.reference.level)
        is_lost = loss > night.sensitivity.threshold
        is_drift = self.drift(night, count).is_exceeded_by(night.measured)
        fails = count >= MIN_RUNS_TO_FAIL and (is_drift or is_lost)
        fails = fails or self._fails_early(night, loss)
        # By the sensitivity of a usual night: a noisy one passes no loss more easily.
        usual = self._sensitivity(max(count, self.at_most)).min_detectable
        return _Look(
            night=night,
            is_lost=is_lost,
            is_drift=is_drift,
            # Among more runs the outliers may be few enough to decide.
            fails=fails and (is_last or not are_unstable(values, night.deviation)),
            passes=not is_drift and loss + _PASSING_ERRORS * night.sensitivity.error.value < usual,
        )

    def _fails_early(self, night: Night, loss: float) -> bool:
        if night.count < MIN_RUNS_TO_FAIL_EARLY:
            return False
        if loss <= max(_MIN_EARLY_LOSS, night.sensitivity.threshold):
            return False
        each = max(_MIN_EARLY_LOSS_OF_EACH_RUN, _MIN_EARLY_DEVIATIONS_OF_EACH_RUN * night.deviation)
        return self.better.loss(self.better.best(night.values), self.reference.level) > each

    def _passed(self, night: Night, last: int) -> Decision:
        """Decide as if there were no loss, with the sensitivity of a series of ``last`` runs."""
        difference = night.measured / self.reference.level - 1
        loss = self.better.loss(night.measured, self.reference.level)
        counted = night.count - len(night.outliers)
        # Where most runs do not count, the median of all is what counts.
        counted = counted if 2 * counted >= night.count else night.count
        return Decision(
            rule=RuleName.SEQUENTIAL,
            verdict=Verdict.IMPROVED if -loss > night.sensitivity.threshold else Verdict.PASS,
            difference_percent=100 * difference,
            reference=self.reference.level,
            tolerance_percent=100 * night.sensitivity.threshold,
            interval_percent=self._sensitivity(counted, night.noisier).error.interval_percent(
                difference
            ),
            min_detectable_percent=self._min_detectable_percent(last, night.noisier),
            false_alarm=self.false_alarm(last, night),
            notes=self._notes(night),
            standing_notes=self.reference.notes,
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


def _fault(reference: Reference) -> str | None:
    """Return why nothing can be decided by the runs of a baseline; ``None`` if it can."""
    runs = reference.counted
    if runs < MIN_BASELINE_RUNS:
        return (
            f"the baseline has {numbers.counted(runs, 'run')}, the sequential rule needs "
            f"{MIN_BASELINE_RUNS}; {_HOW_TO_ADD_RUNS} add those that pass"
        )
    if reference.is_uncertain:
        return (
            f"{reference.gross} of the baseline's {reference.runs} runs are gross outliers, so its "
            f"level is uncertain; {_HOW_TO_ADD_RUNS} put quiet runs in their place"
        )
    error = reference.deviation * math.sqrt(1 / reference.runs + 1 / LAST_LOOK)
    detectable = max(MIN_LOSS_PERCENT / 100, THRESHOLD_ERRORS * error) + _POWER_ERRORS * error
    if detectable > _MAX_DETECTABLE_LOSS:
        return (
            f"the baseline's runs differ by {numbers.variation(reference.deviation)}: no "
            f"loss below {100 * detectable:.0f} % would be seen; on quieter hosts, or with a "
            f"longer window, {_HOW_TO_ADD_RUNS} put quiet runs in their place, and a "
            "tolerance_percent above 10 has the case judged by the tolerance"
        )
    return None
