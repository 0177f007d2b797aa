"""Each training run is as fast as its baseline says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.plugin.fixtures import Gate


def test_throughput(
    dlperf_case: Case, dlperf_measure: Callable[[Case], Measurement], dlperf_gate: Gate
) -> None:
    """The median throughput of the repeats holds the baseline."""
    dlperf_gate.throughput(dlperf_measure(dlperf_case))
