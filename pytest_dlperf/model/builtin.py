"""The built-in metrics of a training, a row each: what it is, when it exists, and how it comes."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from msgspec import Struct

from pytest_dlperf.model.case import Case
from pytest_dlperf.model.metric import SPEEDUP_METRIC, THROUGHPUT, Better, Metric, Source, Statistic

PER_DEVICE: Final = "throughput_per_device"
MFU: Final = "mfu"
_ALL_PERCENT: Final = 100.0


class Needs(Enum):
    """What a built-in metric needs to exist where no system file names it."""

    NOTHING = auto()
    NAME = auto()
    """It is not free, so a system file has to name it."""
    LAUNCH = auto()
    FLOPS = auto()
    """How many floating-point operations a sample takes."""


class WholeRun(Struct, frozen=True, kw_only=True):
    """What is known of a run whose throughput was read from its logs."""

    case: Case
    unit: str
    """That of the throughput."""
    throughput: float
    peak_tflops: float | None
    """What a device can do in the case's precision."""
    first_step: float | str
    """Seconds from the launch to the end of the first step, or why that is unknown."""
    device: str | None
    file: str


class Builtin(NamedTuple):
    """A built-in metric."""

    name: str
    unit: str
    """With ``{}`` for the unit of the throughput."""
    better: Better
    meaning: str
    source: Source = Source.STEPS
    statistic: Statistic | None = None
    needs: Needs = Needs.NOTHING
    value: Callable[[WholeRun], float | str] | None = None
    """Returns the number or why there is none; without it, reading the logs or the reference
    gives it."""

    def metric(self, unit: str) -> Metric:
        """Return the metric of a system whose throughput has this unit."""
        return Metric(
            name=self.name,
            unit=self.unit.format(unit),
            better=self.better,
            source=self.source,
            statistic=self.statistic,
            ratio_of=THROUGHPUT if self.source is Source.RATIO else None,
            is_judged=self.name in (THROUGHPUT, SPEEDUP_METRIC.name),
        )


def _per_device(run: WholeRun) -> float:
    return run.throughput / run.case.topology.world_size


def _mfu(run: WholeRun) -> float | str:
    """Compute the operations that the model needs per second, over what all devices could do."""
    case = run.case
    if case.flops_per_sample is None:
        return f"{run.file} has no flops_per_sample or flops_per_token of the case"
    if run.peak_tflops is None:
        of_device = f" of {case.precision}, and none is known for {run.device or 'its devices'}"
        return f"the cluster's cluster.yaml has no peak_tflops{of_device}"
    samples_per_s = run.throughput * case.global_batch / case.work_of_step(run.unit)
    peak = run.peak_tflops * 1e12 * case.topology.world_size
    percent = 100 * case.flops_per_sample * samples_per_s / peak
    if percent <= _ALL_PERCENT:
        return percent
    return (
        f"it comes out as {percent:.4g} %, which no device reaches: look at the flops of "
        f"{run.file} and peak_tflops of cluster.yaml"
    )


STEP_TIMES: Final = {
    "step_time_p50": Statistic.MEDIAN,
    "step_time_p95": Statistic.P95,
    "step_time_p99": Statistic.P99,
}
BUILTIN: Final = {
    row.name: row
    for row in (
        Builtin(THROUGHPUT, "{}", Better.HIGHER, "Work per second over all devices."),
        Builtin(
            SPEEDUP_METRIC.name,
            SPEEDUP_METRIC.unit,
            Better.HIGHER,
            "How many times the throughput of the reference topology is reached.",
            Source.RATIO,
        ),
        Builtin(
            PER_DEVICE, "{}/device", Better.HIGHER, "Work per second and device.", value=_per_device
        ),
        *(
            Builtin(
                name,
                "s",
                Better.LOWER,
                "Time of single steps, of the slowest rank.",
                statistic=statistic,
                needs=Needs.NAME,
            )
            for name, statistic in STEP_TIMES.items()
        ),
        Builtin(
            "first_step_time",
            "s",
            Better.LOWER,
            "From the launch to the end of the first step.",
            Source.LAUNCH,
            needs=Needs.LAUNCH,
            value=lambda run: run.first_step,
        ),
        Builtin(
            MFU,
            "%",
            Better.HIGHER,
            "Model FLOPs utilisation: what the model needs, over the devices' peak.",
            needs=Needs.FLOPS,
            value=_mfu,
        ),
    )
}
"""By name, throughput and speedup first."""


def builtin_metrics(unit: str) -> dict[str, Metric]:
    """Return the built-in metrics of a system whose throughput has this unit, by name."""
    return {name: row.metric(unit) for name, row in BUILTIN.items()}
