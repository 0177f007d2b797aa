"""Which of tonight's numbers a session accepts, asked when a case is judged."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pytest_dlperf.gate.noise import (
    OUTLIER_RADIUS_NOISE,
    StandardError,
    median_variance,
    noise,
    pooled_noise,
)
from pytest_dlperf.model.judgement import Quantity, Verdict
from pytest_dlperf.model.statistics import median

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_dlperf.model.baseline import Baseline
    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.measurement import Measurement

_LOWER: Final = (Verdict.REGRESSED, Verdict.ENVIRONMENT_SHIFT)
"""Verdicts on a number that was measured soundly, and is lower than what it was held against."""

ALL_PERCENT: Final = 100.0
"""Nobody loses more: a loss of so much is none that could be found."""

_MIN_RUNS_TO_TELL: Final = 3
"""Fewer runs do not say how far runs usually lie apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a session is asked to do with its verdicts, whichever the case."""

    control_after: frozenset[Verdict] = frozenset()
    """The verdicts after which the accepted software is run beside what was judged."""
    creates: bool = False
    """Whether a number is recorded where there is none."""
    updates: bool = False
    """Whether a number is recorded that is missing, or lies outside its tolerance."""
    reason: str | None = None
    """Why a lower number is accepted."""


def accept(  # noqa: PLR0913 - a judgement, and all that bears on its acceptance
    judgement: Judgement,
    measurement: Measurement,
    baseline: Baseline | None,
    asked: Asked,
    *,
    tolerance_percent: float,
    single_device: Verdict | None = None,
) -> Judgement:
    """Mark the judgement as recorded if the session accepts its number, else say why not.

    ``tolerance_percent`` is the case's, ``single_device`` the verdict on what a speedup is over.
    """
    if not _is_wanted(judgement, measurement, baseline, asked, tolerance_percent):
        return judgement
    problem = scatter_problem(measurement.throughputs, tolerance_percent=tolerance_percent)
    if single_device in (*_LOWER, Verdict.INCONCLUSIVE):
        problem = f"its single device is {single_device.value}"
    if problem is None and asked.reason is None and _lowers(judgement, baseline):
        problem = "a lower number needs --dlperf-reason 'TEXT'"
    if problem is not None:
        told = f"not accepted: {problem}"
        reason = f"{judgement.reason}; {told}" if judgement.reason else told
        return replace(judgement, reason=reason, refused=problem)
    if judgement.verdict is Verdict.NO_BASELINE:
        # What stood in the way of a comparison is worth knowing still.
        notes = (*judgement.notes, *filter(None, [judgement.reason]))
        return replace(judgement, verdict=Verdict.PASS, reason=None, notes=notes, recorded=True)
    return replace(judgement, recorded=True)


def withdraw(judgement: Judgement) -> Judgement:
    """Take the acceptance back from a judgement whose number could not be recorded."""
    if not judgement.recorded:
        return judgement
    # Without a baseline the number was good only for becoming one.
    is_first = judgement.verdict is Verdict.PASS and judgement.accepted is None
    return replace(
        judgement,
        verdict=Verdict.NO_BASELINE if is_first else judgement.verdict,
        reason=judgement.reason or "its number was to be recorded, and was not",
        recorded=False,
    )


def detectable_percent(runs: Sequence[float], tolerance_percent: float) -> float:
    """Give the smallest loss that a session like this one shows against its own baseline."""
    pooled = pooled_noise((runs,))
    if pooled is None:
        return ALL_PERCENT
    value = pooled.deviation * math.sqrt(2 * median_variance(len(runs)))
    error = StandardError(value=value, dof=pooled.dof)
    return error.min_detectable_percent(tolerance_percent / 100)


def _is_wanted(
    judgement: Judgement,
    measurement: Measurement,
    baseline: Baseline | None,
    asked: Asked,
    tolerance_percent: float,
) -> bool:
    if judgement.verdict is not Verdict.NO_BASELINE:
        return asked.updates and is_outside(judgement, tolerance_percent)
    if _accepted_number(judgement.quantity, baseline) is None:
        return asked.creates or asked.updates
    # Numbers of one kind are held against each other unless the machine is another.
    return asked.updates and baseline is not None and baseline.is_same_kind(measurement)


def is_outside(judgement: Judgement, tolerance_percent: float) -> bool:
    """Tell whether a number that was measured soundly lies outside what the case tolerates.

    Better than the last sessions, and no better than the number that was accepted before them, is
    inside: to write it down again and again would carry the number anywhere.
    """
    if judgement.verdict in _LOWER:
        return True
    if (
        judgement.verdict is not Verdict.IMPROVED
        or judgement.measured is None
        or judgement.accepted is None
    ):
        return False
    allowed = max(tolerance_percent, judgement.tolerance_percent or 0.0) / 100
    return judgement.measured > judgement.accepted * (1 + allowed)


def scatter_problem(runs: Sequence[float], *, tolerance_percent: float) -> str | None:
    """Say why runs are too far apart to rest a number on, by what the case tolerates."""
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
    radius = middle * max(OUTLIER_RADIUS_NOISE * deviation, tolerance_percent / 100)
    far = sum(abs(run - middle) > radius for run in runs)
    if 3 * far > len(runs):
        return f"{far} of its {len(runs)} runs lie far from the others"
    return None


def _lowers(judgement: Judgement, baseline: Baseline | None) -> bool:
    """Tell whether tonight is lower than the accepted number, or than the last sessions."""
    if judgement.verdict in _LOWER:
        return True
    accepted = _accepted_number(judgement.quantity, baseline)
    return accepted is not None and judgement.measured is not None and judgement.measured < accepted


def _accepted_number(quantity: Quantity, baseline: Baseline | None) -> float | None:
    if baseline is None:
        return None
    return baseline.throughput if quantity is Quantity.THROUGHPUT else baseline.speedup
