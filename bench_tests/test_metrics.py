"""Whatever else a system has judged is as good as its baseline says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_dlperf.model.case import Case
    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.metric import Metric
    from pytest_dlperf.plugin.fixtures import Gate


def test_metric(
    dlperf_case: Case,
    dlperf_metric: Metric,
    dlperf_measure: Callable[[Case], Measurement],
    dlperf_gate: Gate,
) -> None:
    """The metric holds the baseline, and what the system checks of it is sound."""
    dlperf_gate.metric(dlperf_measure(dlperf_case), dlperf_metric)
