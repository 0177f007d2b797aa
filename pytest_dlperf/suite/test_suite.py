"""What a suite asks of each case: its throughput, its speedup, and what else its system has judged.

pytest collects these tests where a folder of system files was named, and by their own name::

    pytest --pyargs pytest_dlperf.suite
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.measurement import Measurement
from pytest_dlperf.model.metric import Metric

if TYPE_CHECKING:
    from pytest_dlperf.plugin.fixtures import Gate


def test_throughput(
    dlperf_case: Case, dlperf_measure: Callable[[Case], Measurement], dlperf_gate: Gate
) -> None:
    """The median throughput of the repeats holds the baseline."""
    dlperf_gate.throughput(dlperf_measure(dlperf_case))


def test_metric(
    dlperf_case: Case,
    dlperf_metric: Metric,
    dlperf_measure: Callable[[Case], Measurement],
    dlperf_gate: Gate,
) -> None:
    """The metric holds the baseline, and what the system checks of it is sound."""
    dlperf_gate.metric(dlperf_measure(dlperf_case), dlperf_metric)


def test_speedup(
    dlperf_scaled_case: Case,
    dlperf_measure: Callable[[Case | None], Measurement],
    dlperf_gate: Gate,
) -> None:
    """The speedup over the reference topology, measured in the same session, holds the baseline."""
    # This first: where it cannot be measured, its reference is not worth training.
    measurement = dlperf_measure(dlperf_scaled_case)
    dlperf_gate.speedup(measurement, dlperf_measure(dlperf_scaled_case.reference))
