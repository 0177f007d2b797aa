"""The rule for baselines with many runs: it takes as many runs as it needs, three to nine.

Its numbers were found by simulation on the noise of the benchmark's published runs;
``benchmarks/gate_power.py`` shows what they give.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, final

from pytest_dlperf.gate.noise import are_unstable, location, noise, strays, tail
from pytest_dlperf.gate.rule import Decision
from pytest_dlperf.gate.verdict import RuleName, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

LEAST_BASELINE_RUNS: Final = 20
LEAST_BASELINE_SESSIONS: Final = 4
LEAST_LOSS_PERCENT: Final = 2.0
"""The smallest loss that counts, unless a baseline names its own."""

FIRST_LOOK: Final = 3
LAST_LOOK: Final = 9
FAILS_FROM: Final = 7
FAILS_EARLY_FROM: Final = 5

THRESHOLD_ERRORS: Final = 3.25
"""Standard errors that a loss must reach: one look in 1,700 does so by chance."""

_PASSING_ERRORS: Final = 2.0
_VISIBLE_ERRORS: Final = 1.645
_EARLY_LOSS: Final = 0.08
_EARLY_LOSS_OF_EACH: Final = 0.05
_EARLY_NOISE_OF_EACH: Final = 3.0
_MOST_BASELINE_STRAYS: Final = 0.25
_MOST_VISIBLE: Final = 0.10
_INTERVAL: Final = 1.96

# By the other rule, for what this one leaves open passes nothing that could be added.
_MORE_RUNS: Final = "sessions with --dlperf-gate tolerance and --dlperf-extend-baselines"


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialRule:
    """Decides as soon as the runs say enough, by the noise of the last accepted sessions.

    ``reference`` is where the ``baseline_runs`` of ``baseline_sessions`` sessions lie, ``pinned``
    the accepted number, both in the unit of the runs; ``noise`` is the relative standard
    deviation between runs. ``least_loss_percent`` is the smallest loss that counts,
    ``tolerance_percent`` what the pinned number allows. ``pinned_at`` is when that was accepted.
    With ``is_fixed`` exactly ``at_most`` runs are taken. ``fault`` is why the baseline decides
    nothing, with what would settle it.
    """

    reference: float
    noise: float
    baseline_runs: int
    baseline_sessions: int
    pinned: float
    pinned_at: str | None
    tolerance_percent: float
    least_loss_percent: float
    at_most: int
    is_fixed: bool
    fault: str | None

    @classmethod
    def of(  # noqa: PLR0913 - all that a baseline says
        cls,
        sessions: Sequence[Sequence[float]],
        *,
        pinned: float,
        pinned_at: str | None = None,
        tolerance_percent: float,
        least_loss_percent: float | None = None,
        repeats: int | None = None,
    ) -> SequentialRule:
        """Make the rule from the runs of the last accepted sessions.

        ``least_loss_percent`` is a baseline's own, ``repeats`` the number of runs that the user
        fixed.

        Raises:
            ValueError: There are no runs.
        """
        runs = [run for session in sessions for run in session]
        deviation = noise(runs)
        return cls(
            reference=location(runs, deviation),
            noise=deviation,
            baseline_runs=len(runs),
            baseline_sessions=len(sessions),
            pinned=pinned,
            pinned_at=pinned_at,
            tolerance_percent=tolerance_percent,
            least_loss_percent=LEAST_LOSS_PERCENT
            if least_loss_percent is None
            else least_loss_percent,
            at_most=LAST_LOOK if repeats is None else repeats,
            is_fixed=repeats is not None,
            fault=_fault(runs, deviation),
        )

    @property
    def name(self) -> RuleName:
        """Which rule it is."""
        return RuleName.SEQUENTIAL

    def standard_error(self, count: int) -> float:
        """Relative standard error of the difference with so many runs tonight."""
        return self.noise * math.sqrt(1 / self.baseline_runs + 1 / count)

    def threshold(self, count: int) -> float:
        """The largest loss that passes with so many runs tonight, as a part of the reference."""
        return max(self.least_loss_percent / 100, THRESHOLD_ERRORS * self.standard_error(count))

    def smallest_visible(self, count: int) -> float:
        """The loss that is found nine times out of ten if so many runs are taken at most."""
        return self.threshold(count) + _VISIBLE_ERRORS * self.standard_error(count)

    def false_alarm(self, last: int) -> float:
        """Probability of an alarm if nothing has changed: at most the sum over all looks."""
        first = last if self.is_fixed else min(FAILS_FROM, last)
        looks = range(first, last + 1)
        return min(sum(tail(self.threshold(n) / self.standard_error(n)) for n in looks), 1.0)

    def decide(self, throughputs: Sequence[float], *, is_last: bool) -> Decision | None:
        """Pass from the third run on, fail from the seventh, or the fifth if the loss is large.

        Raises:
            ValueError: There are no runs.
        """
        count = len(throughputs)
        is_last = is_last or count >= self.at_most
        if not is_last and (self.is_fixed or count < FIRST_LOOK):
            return None
        fault = self.fault
        if count < FIRST_LOOK:
            fault = (
                f"{_runs(count)} cannot tell a stray from a loss: the sequential rule needs "
                f"{FIRST_LOOK}, --dlperf-gate tolerance does with fewer"
            )
        measured = location(throughputs, self.noise)
        last = max(count, self.at_most)
        if fault is not None:
            decision = self._passed(measured, throughputs, last)
            return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=fault)
        loss = (self.reference - measured) / self.reference
        error, threshold = self.standard_error(count), self.threshold(count)
        creep_allowed = max(self.tolerance_percent / 100, threshold)
        is_creep = (self.pinned - measured) / self.pinned > creep_allowed
        can_fail = count >= FAILS_FROM
        early = self._fails_early(throughputs, loss, threshold)
        fails = early or (can_fail and (is_creep or loss > threshold))
        # Among more runs the strays may be few enough to tell.
        fails = fails and (is_last or not are_unstable(throughputs, self.noise))
        passes = not is_creep and loss + _PASSING_ERRORS * error < self.smallest_visible(last)
        if not (fails or passes):
            if not is_last:
                return None
            # A series that was cut short, fewer logs for instance, sees what its own length sees.
            last = count
        decision = self._passed(measured, throughputs, last)
        if early or loss > threshold:
            return self._failed(decision, throughputs)
        if is_creep:
            return self._failed(self._crept(decision, measured, count, creep_allowed), throughputs)
        return decision

    def _fails_early(self, throughputs: Sequence[float], loss: float, threshold: float) -> bool:
        if len(throughputs) < FAILS_EARLY_FROM or loss <= max(_EARLY_LOSS, threshold):
            return False
        each = max(_EARLY_LOSS_OF_EACH, _EARLY_NOISE_OF_EACH * self.noise)
        return max(throughputs) < self.reference * (1 - each)

    def _passed(self, measured: float, throughputs: Sequence[float], last: int) -> Decision:
        """The decision where no loss is found, with what a series of ``last`` runs would show."""
        count = len(throughputs)
        threshold = self.threshold(count)
        difference = (measured - self.reference) / self.reference
        return Decision(
            verdict=Verdict.IMPROVED if difference > threshold else Verdict.PASS,
            difference_percent=100 * difference,
            reference=self.reference,
            threshold_percent=100 * threshold,
            interval_percent=self._interval(difference, count),
            smallest_visible_percent=100 * self.smallest_visible(last),
            false_alarm=self.false_alarm(last),
            notes=self._notes(throughputs),
        )

    def _failed(self, decision: Decision, throughputs: Sequence[float]) -> Decision:
        if not are_unstable(throughputs, self.noise):
            return replace(decision, verdict=Verdict.REGRESSED)
        far = len(strays(throughputs, self.noise))
        reason = (
            f"{far} of {_runs(len(throughputs))} are strays, too many to call the rest slower; "
            "look at the hosts, and measure the case again when they are quiet"
        )
        return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=reason)

    def _crept(self, decision: Decision, measured: float, count: int, allowed: float) -> Decision:
        """The decision with the numbers that creep rests on: those against the accepted number."""
        difference = (measured - self.pinned) / self.pinned
        accepted = f"the number accepted {self.pinned_at}" if self.pinned_at else "the pinned one"
        return replace(
            decision,
            difference_percent=100 * difference,
            reference=self.pinned,
            threshold_percent=100 * allowed,
            interval_percent=self._interval(difference, count),
            reason=(
                f"creep: the last {self.baseline_sessions} sessions pass, but {accepted}, "
                f"{self.pinned:g}, does not: tonight lies {-100 * difference:.1f} % below it, "
                f"allowed are {100 * allowed:.1f} %"
            ),
        )

    def _interval(self, difference: float, count: int) -> tuple[float, float]:
        radius = _INTERVAL * self.standard_error(count)
        return 100 * (difference - radius), 100 * (difference + radius)

    def _notes(self, throughputs: Sequence[float]) -> tuple[str, ...]:
        far = strays(throughputs, self.noise)
        if not far:
            return ()
        return (
            f"{len(far)} of {_runs(len(throughputs))} lie far from the others and do not count: "
            + ", ".join(f"{value:g}" for value in far),
        )


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _fault(runs: Sequence[float], deviation: float) -> str | None:
    """Why the runs of a baseline decide nothing; ``None`` if they do."""
    if len(runs) < LEAST_BASELINE_RUNS:
        return (
            f"the baseline has {_runs(len(runs))}, the sequential rule needs "
            f"{LEAST_BASELINE_RUNS}; {_MORE_RUNS} add those that pass"
        )
    far = len(strays(runs, deviation))
    if far > _MOST_BASELINE_STRAYS * len(runs):
        return (
            f"{far} of the baseline's {len(runs)} runs are strays: it does not say what is "
            f"normal; {_MORE_RUNS} put quiet runs in their place"
        )
    error = deviation * math.sqrt(1 / len(runs) + 1 / LAST_LOOK)
    visible = max(LEAST_LOSS_PERCENT / 100, THRESHOLD_ERRORS * error) + _VISIBLE_ERRORS * error
    if visible > _MOST_VISIBLE:
        return (
            f"the baseline's runs differ by {100 * deviation:.1f} %: no loss below "
            f"{100 * visible:.0f} % would be seen; quieter hosts or a longer window settle it, "
            "and a tolerance_percent above 10 has the case judged by the tolerance"
        )
    return None
