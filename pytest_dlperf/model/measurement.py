"""Values that a measured case consists of: its runs, their median, mean, spread and speedup."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pytest_dlperf.model import statistics
from pytest_dlperf.model.fingerprint import Fingerprint


class Estimator(str, Enum):
    """How the throughput of a run is taken from its log.

    ``published`` is the original benchmark's own definition, rounding included; ``steady`` is
    what that definition meant. Numbers of different estimators are never compared.
    """

    PUBLISHED = "published"
    STEADY = "steady"


class RunStatus(str, Enum):
    """What became of one run."""

    OK = "ok"
    FAILED = "failed"
    """The trainer died before its window was complete."""
    HUNG = "hung"
    """The trainer was still not done at its time limit."""
    INVALID = "invalid"
    """The log breaks its contract."""


PUBLISHED_DECIMALS: Final = 2
"""Decimals that the original benchmark rounds every throughput and speedup to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The steps of a run that count: warm-up left out, then the measured ones."""

    warmup_steps: int
    measured_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a case.

    ``throughput`` is in the system's unit per second over all devices, ``None`` unless the
    status is ok. ``reason`` says what was wrong or, on an ok run, what is worth knowing.
    ``steps`` is the number of steps that the throughput rests on. ``failed_attempts`` are those
    before it that failed or hung, where the system allows that a run is repeated.
    """

    run: int
    throughput: float | None
    status: RunStatus
    reason: str | None = None
    log: str | None = None
    steps: int | None = None
    failed_attempts: tuple[Run, ...] = ()

    def to_plain(self) -> dict[str, Any]:
        """The run as builtins, as it stands in the results file."""
        attempts = [attempt.to_plain() for attempt in self.failed_attempts]
        return {
            "run": self.run,
            "throughput": self.throughput,
            "status": self.status.value,
            "reason": self.reason,
            "log": self.log,
            "steps": self.steps,
            # Few runs have any, and readers of the results file need not know of them.
            **({"failed_attempts": attempts} if attempts else {}),
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Run:
        """The inverse of ``to_plain``; what a newer version has added is left out.

        Raises:
            ValueError: The status is none that is known.
        """
        return cls(
            run=plain["run"],
            throughput=plain["throughput"],
            status=RunStatus(plain["status"]),
            reason=plain["reason"],
            log=plain["log"],
            steps=plain["steps"],
            failed_attempts=tuple(map(cls.from_plain, plain.get("failed_attempts", ()))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All runs of one case under one estimator.

    ``fingerprint`` is what it was taken on, ``None`` where nobody could look: logs that exist may
    be of any machine. ``available`` is how many runs there were to be had, ``None`` for as many as
    wanted: where runs are launched.
    """

    case_id: str
    unit: str
    estimator: Estimator
    runs: tuple[Run, ...]
    fingerprint: Fingerprint | None = None
    available: int | None = None

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
        """How many times the median of one device this median is; ``None`` without either.

        Raises:
            ValueError: The two measurements are of different estimators or units.
        """
        if (self.estimator, self.unit) != (single_device.estimator, single_device.unit):
            msg = (
                f"a speedup needs one estimator and unit: {self.case_id} has "
                f"{self.estimator.value} in {self.unit}, {single_device.case_id} has "
                f"{single_device.estimator.value} in {single_device.unit}"
            )
            raise ValueError(msg)
        if self.median is None or single_device.median is None:
            return None
        return self._rounded(self.median / single_device.median)

    def _rounded(self, value: float) -> float:
        if self.estimator is Estimator.PUBLISHED:
            return statistics.rounded(value, PUBLISHED_DECIMALS)
        return value

    def to_plain(self) -> dict[str, Any]:
        """The measurement as builtins: passes between processes and into files."""
        return {
            "case_id": self.case_id,
            "unit": self.unit,
            "estimator": self.estimator.value,
            "runs": [run.to_plain() for run in self.runs],
            "fingerprint": self.fingerprint.to_plain() if self.fingerprint else None,
            "available": self.available,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Measurement:
        """The inverse of ``to_plain``; what a newer version has added is left out."""
        taken_on = plain.get("fingerprint")
        return cls(
            case_id=plain["case_id"],
            unit=plain["unit"],
            estimator=Estimator(plain["estimator"]),
            runs=tuple(Run.from_plain(run) for run in plain["runs"]),
            fingerprint=Fingerprint.from_plain(taken_on) if taken_on else None,
            available=plain.get("available"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class InterleavedRuns:
    """Runs of what is tested and of the accepted software, in turn on the same hosts (A B B A …).

    ``candidate`` and ``control`` are measurements of one case, equally long unless a run broke.
    """

    candidate: Measurement
    control: Measurement

    def to_plain(self) -> dict[str, Any]:
        """Both measurements as builtins: passes between processes and into files."""
        return {"candidate": self.candidate.to_plain(), "control": self.control.to_plain()}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> InterleavedRuns:
        """The inverse of ``to_plain``."""
        return cls(
            candidate=Measurement.from_plain(plain["candidate"]),
            control=Measurement.from_plain(plain["control"]),
        )
