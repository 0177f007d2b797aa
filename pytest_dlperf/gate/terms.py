"""What a metric is judged by beside its baseline."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from pytest_dlperf.model.baseline import Baseline
from pytest_dlperf.model.metric import Metric

_MIN_LOSS_PERCENT: Final = 2.0
"""The smallest loss that counts, unless the metric or the baseline has its own tolerance."""
_MIN_CONFIRMED_LOSS_PERCENT: Final = 1.2
"""The same where a control arm confirms it."""


class Terms(Struct, frozen=True, kw_only=True):
    """What a metric is judged by beside its baseline: its system's numbers, the user's options."""

    tolerance_percent: float
    """The metric's or its system's; the baseline's own tolerance takes precedence."""
    tolerance_at_least: float = 0.0
    """A loss of this amount in the metric's unit passes, however many percent it is."""
    has_control: bool = False
    """Whether a control arm follows an alarm."""
    default_repeats: int = 1
    """Runs that the system takes where there is no baseline."""
    repeats: int | None = None
    """Runs that the user fixed (``--dlperf-repeats``)."""
    members: int = 1
    """How many metrics are judged together, as a family: a false alarm of any is one of all."""

    def tolerance_of(self, baseline: Baseline | None, *, level: float | None = None) -> float:
        """Return the tolerance in percent: the baseline's, else the system's.

        ``level`` stands in for the accepted number where there is no baseline.
        """
        own = baseline.tolerance_percent if baseline is not None else None
        percent = self.tolerance_percent if own is None else own
        return max(percent, self._least_percent(baseline.accepted if baseline else level))

    def min_loss_of(
        self, metric: Metric, baseline: Baseline | None, *, has_control: bool | None = None
    ) -> float:
        """Return the smallest loss that counts in percent: its own tolerance, if it has one."""
        is_confirmed = self.has_control if has_control is None else has_control
        least = _MIN_CONFIRMED_LOSS_PERCENT if is_confirmed else _MIN_LOSS_PERCENT
        for own in (metric.tolerance_percent, baseline.tolerance_percent if baseline else None):
            least = least if own is None else own
        return max(least, self._least_percent(baseline.accepted if baseline else None))

    def _least_percent(self, level: float | None) -> float:
        return 100 * self.tolerance_at_least / level if level else 0.0
