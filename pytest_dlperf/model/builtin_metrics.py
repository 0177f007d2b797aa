"""Metrics that need no expression: what follows from the steps, the clock and the case."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.metric import (
    SPEEDUP_METRIC,
    Better,
    Metric,
    Source,
    Statistic,
    throughput,
)

if TYPE_CHECKING:
    from pytest_dlperf.model.case import Case

PER_DEVICE: Final = "throughput_per_device"
STEP_TIMES: Final = {
    "step_time_p50": Statistic.MEDIAN,
    "step_time_p95": Statistic.P95,
    "step_time_p99": Statistic.P99,
}
FIRST_STEP_TIME: Final = "first_step_time"
MFU: Final = "mfu"


def builtin_metrics(unit: str) -> dict[str, Metric]:
    """Give the built-in metrics of a system whose throughput has this unit, by name."""
    recorded = partial(Metric, is_judged=False)
    rate = partial(recorded, better=Better.HIGHER, source=Source.STEPS)
    time = partial(recorded, better=Better.LOWER, unit="s")
    every = (
        throughput(unit),
        SPEEDUP_METRIC,
        rate(name=PER_DEVICE, unit=f"{unit}/device"),
        *(
            time(name=name, source=Source.STEPS, statistic=statistic)
            for name, statistic in STEP_TIMES.items()
        ),
        time(name=FIRST_STEP_TIME, source=Source.LAUNCH),
        rate(name=MFU, unit="%"),
    )
    return {metric.name: metric for metric in every}


def mfu_percent(case: Case, rate: float, unit: str, peak_tflops: float) -> float:
    """Compute the model FLOPs utilisation of a case from its throughput ``rate`` in ``unit``.

    The floating-point operations that the model needs per second, over what all devices could do.
    The case has to say what a sample takes.
    """
    if case.flops_per_sample is None:
        raise ValueError(f"{case.id} does not say what a sample takes")
    samples_per_s = rate * case.global_batch / case.work_of_step(unit)
    peak = peak_tflops * 1e12 * case.topology.world_size
    return 100 * case.flops_per_sample * samples_per_s / peak
