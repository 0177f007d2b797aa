"""Training on more devices is as much faster as the baseline says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.plugin.fixtures import Gate


def test_speedup(
    dlperf_scaled_case: Case,
    dlperf_measure: Callable[[Case | None], Measurement],
    dlperf_gate: Gate,
) -> None:
    """The speedup over the reference topology, measured in the same session, holds the baseline."""
    # This first: where it cannot be measured, its reference is not worth training.
    measurement = dlperf_measure(dlperf_scaled_case)
    dlperf_gate.speedup(measurement, dlperf_measure(dlperf_scaled_case.reference))
