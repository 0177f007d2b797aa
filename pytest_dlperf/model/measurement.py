"""A measured case: its runs, their median, mean, spread and speedup, and what they ran on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar, Final, Protocol, final

from pytest_dlperf.model import statistics


class Estimator(str, Enum):
    """Definition by which the throughput of a run is taken from its log.

    ``published`` is the original benchmark's own definition, rounding included; ``steady`` is
    what that definition meant. Numbers of different estimators are never compared.
    """

    PUBLISHED = "published"
    STEADY = "steady"


class RunStatus(str, Enum):
    """Outcome of one run."""

    OK = "ok"
    FAILED = "failed"
    """The trainer died before its window was complete."""
    HUNG = "hung"
    """The trainer was still not done at its time limit."""
    INVALID = "invalid"
    """The log breaks its contract."""


MACHINE_FACTS: Final = {
    "device": "model of the accelerators, or of the processors where a system needs none",
    "devices_per_node": "how many of them a node has",
    "interconnect": "what joins the devices of a node: nvlink, pcie",
    "network": "what joins the nodes: infiniband, ethernet",
}
"""Facts that must be equal for two numbers to be compared, beside those that the case names."""

PUBLISHED_DECIMALS: Final = 2
"""Decimals that the original benchmark rounds every throughput and speedup to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The steps of a run that count: warm-up left out, then the measured ones."""

    warmup_steps: int
    measured_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a case."""

    run: int
    """Its number, as in the name of its log."""
    throughput: float | None
    """In the system's unit per second over all devices; ``None`` unless the status is ok."""
    status: RunStatus
    reason: str | None = None
    """What was wrong or, on an ok run, what is worth knowing."""
    log: str | None = None
    """Path of the main log."""
    steps: int | None = None
    """The number of steps that the throughput rests on."""
    failed_attempts: tuple[Run, ...] = ()
    """Attempts before it that failed or hung, where the system allows that a run is repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The machines and the software that a case was measured on; without clocks and load."""

    machine: Mapping[str, str] = field(default_factory=dict)
    """The ``MACHINE_FACTS`` that are known."""
    software: Mapping[str, str] = field(default_factory=dict)
    """Versions by name: ``driver``, ``cuda``, ``nccl``, packages of the trainer's Python."""
    hosts: tuple[str, ...] = ()
    """Names, node 0 first."""


def differences(
    measured: Mapping[str, str], accepted: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Find facts that both sides know and that differ: measured, then accepted, by name."""
    return {
        name: (measured[name], accepted[name])
        for name in measured
        if name in accepted and measured[name] != accepted[name]
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All runs of one case under one estimator."""

    case_id: str
    unit: str
    """What throughput counts per second, such as ``images/s``."""
    estimator: Estimator
    runs: tuple[Run, ...]
    fingerprint: Fingerprint | None = None
    """``None`` where nobody could look: logs that exist may be of any machine."""
    available_runs: int | None = None
    """How many runs could be had; ``None`` for as many as wanted, where runs are launched."""

    @property
    def throughputs(self) -> tuple[float, ...]:
        """Throughputs of the runs that count, in the order of the runs."""
        return tuple(run.throughput for run in self.runs if run.throughput is not None)

    @property
    def median(self) -> float | None:
        """Median throughput: what baselines are compared with. ``None`` without a run."""
        return self._rounded(statistics.median(self.throughputs)) if self.throughputs else None

    @property
    def mean(self) -> float | None:
        """Mean throughput, for the reader; ``None`` without a run."""
        return self._rounded(statistics.mean(self.throughputs)) if self.throughputs else None

    @property
    def spread(self) -> float | None:
        """Coefficient of variation between the runs; ``None`` below two runs."""
        values = self.throughputs
        if len(values) < 2:  # noqa: PLR2004 - one value has no deviation
            return None
        return statistics.sample_standard_deviation(values) / statistics.mean(values)

    @property
    def broken_runs(self) -> tuple[Run, ...]:
        """Runs that failed, hung or are invalid."""
        return tuple(run for run in self.runs if run.status is not RunStatus.OK)

    def speedup_over(self, single_device: Measurement) -> float | None:
        """Divide the median by that of one device; ``None`` without either.

        Raises:
            ValueError: The two measurements are of different estimators or units.
        """
        if (self.estimator, self.unit) != (single_device.estimator, single_device.unit):
            raise ValueError(
                f"a speedup needs one estimator and unit: {self.case_id} has "
                f"{self.estimator.value} in {self.unit}, {single_device.case_id} has "
                f"{single_device.estimator.value} in {single_device.unit}"
            )
        if self.median is None or single_device.median is None:
            return None
        return self._rounded(self.median / single_device.median)

    def _rounded(self, value: float) -> float:
        if self.estimator is Estimator.PUBLISHED:
            return statistics.rounded(value, PUBLISHED_DECIMALS)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class InterleavedRuns:
    """Runs of what is tested and of the accepted software, in turn on the same hosts (A B B A …).

    ``candidate`` and ``control`` are measurements of one case, equally long unless a run broke.
    """

    candidate: Measurement
    control: Measurement


class Repeats(Protocol):
    """Says after each run whether there are enough."""

    @property
    def at_most(self) -> int | None:
        """The largest number of runs; ``None`` for all that there are."""

    @property
    def may_be_fewer(self) -> bool:
        """Tell whether fewer runs than the largest number may suffice."""

    def is_enough(self, throughputs: Sequence[float]) -> bool:
        """Tell whether these throughputs, in the order of their runs, suffice."""


@final
@dataclass(frozen=True, slots=True)
class FixedRepeats:
    """A fixed number of runs; ``None`` for all that there are."""

    at_most: int | None
    may_be_fewer: ClassVar[bool] = False

    def is_enough(self, throughputs: Sequence[float]) -> bool:
        """Tell whether the number is reached."""
        return self.at_most is not None and len(throughputs) >= self.at_most
