"""A measured case: its runs, the samples of their metrics, and what they ran on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, ClassVar, Final, Protocol, final

from msgspec import Meta, Struct

from pytest_dlperf.model import statistics
from pytest_dlperf.model.commits import Checkout
from pytest_dlperf.model.keys import Scalar
from pytest_dlperf.model.metric import MEMBER, SPEEDUP, THROUGHPUT, Metric


class Estimator(StrEnum):
    """Definition by which the throughput of a run is taken from its log.

    ``published`` is the original benchmark's own definition, rounding included; ``steady`` is
    what that definition meant. Numbers of different estimators are never compared.
    """

    PUBLISHED = "published"
    STEADY = "steady"

    def decimals_of(self, metric: str) -> int | None:
        """Return the decimals that the original benchmark rounds a metric to; ``None``: none."""
        is_printed = metric in (THROUGHPUT, SPEEDUP)
        return PUBLISHED_DECIMALS if self is Estimator.PUBLISHED and is_printed else None


class RunStatus(StrEnum):
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
    "interconnect": "what joins the devices of a node, such as nvlink; only cluster.yaml says it",
    "network": "what joins the nodes: infiniband, ethernet",
}
"""Facts that must be equal for two numbers to be compared, beside those that the case names."""

PUBLISHED_DECIMALS: Final = 2
"""Decimals that the original benchmark rounds every throughput and speedup to."""

Count = Annotated[int, Meta(ge=0)]


class Window(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The steps of a run that count: warm-up left out, then the measured ones."""

    warmup_steps: Annotated[int, Meta(ge=0, le=10**9)]
    """Steps that are left out first."""
    measured_steps: Annotated[int, Meta(ge=1, le=10**9)]
    """Steps that are measured after them."""


NO_WINDOW: Final = Window(warmup_steps=0, measured_steps=0)
"""That of a program without steps."""


class Run(Struct, frozen=True, kw_only=True):
    """One run of a case."""

    run: Count
    """Its number, as in the name of its log."""
    status: RunStatus
    metrics: Mapping[str, float] = {}
    """What was read of it, by the metric's name; empty unless the status is ok."""
    missing: Mapping[str, str] = {}
    """Why a declared metric is not there, by its name: what was looked for, and where."""
    reason: str | None = None
    """What was wrong or, on an ok run, what is worth knowing."""
    log: str | None = None
    """Path of the log that its numbers come from; of several, the first."""
    log_size_at_end: Count | None = None
    """Bytes of ``log`` when we ended its programs; ``None`` where they ended by themselves."""
    steps: Count | None = None
    paused: bool = False
    """Whether most of its window is one gap between two time stamps."""
    failed_attempts: tuple[Run, ...] = ()
    """Attempts before it that failed or hung, where the system allows that a run is repeated."""


class LaunchFacts(Struct, frozen=True, kw_only=True):
    """How node 0 of a case was launched, secrets masked.

    What differs from run to run is that of an example, or a placeholder ``{name}``, so that the
    facts of two sessions differ only where the launch was changed.
    """

    launcher: Scalar
    """Name of the launcher or queue."""
    arguments: tuple[Scalar, ...]
    """The command line of node 0; {names} stand for what each run has of its own."""
    environment: Mapping[str, Scalar] = {}
    """Variables that the launch set."""
    working_directory: Scalar | None = None
    """Where the command started; default: the launcher's own."""
    options: Mapping[str, Scalar] = {}
    """Options of the launcher, the queue or the container, by name."""


class Fingerprint(Struct, frozen=True, kw_only=True):
    """What a case was measured on: machines, software, launch; without clocks and load."""

    machine: Mapping[str, str] = {}
    """The ``MACHINE_FACTS`` that are known."""
    software: Mapping[str, str] = {}
    """Versions by name: those of driver and runtime, ``nccl``, packages of the trainer's Python."""
    hosts: tuple[str, ...] = ()
    """Names, node 0 first."""
    commits: Mapping[str, str] = {}
    """Commits of the checkouts that the trainer runs from on node 0, by the folder as the user
    calls it or the package installed from there; names of changed files stand behind a ``+``."""
    launch: LaunchFacts | None = None
    """``None`` where that is not known."""


def differences(
    measured: Mapping[str, str], accepted: Mapping[str, str]
) -> dict[str, tuple[str, str]]:
    """Return facts that both sides know and that differ, by name: measured, then accepted."""
    return {
        name: (measured[name], accepted[name])
        for name in measured
        if name in accepted and measured[name] != accepted[name]
    }


def with_members(metrics: Sequence[Metric], names: Iterable[str]) -> tuple[Metric, ...]:
    """Put the members of families in their places, as far as one of these names is of them."""
    parts = [name.partition(MEMBER) for name in names]
    members = {
        metric.name: [metric.member(name) for of, sep, name in parts if sep and of == metric.name]
        for metric in metrics
        if metric.is_family
    }
    return tuple(each for metric in metrics for each in members.get(metric.name) or [metric])


class Samples(Struct, frozen=True, kw_only=True):
    """The numbers of one metric, one of each run that counts, in the order of the runs."""

    metric: Metric
    values: tuple[float, ...]
    decimals: int | None = None
    """What median and mean are rounded to; ``None``: not at all."""

    @property
    def median(self) -> float | None:
        """What baselines are compared with; ``None`` without a run."""
        return self._rounded(statistics.median(self.values)) if self.values else None

    @property
    def mean(self) -> float | None:
        """The mean, for the reader; ``None`` without a run."""
        return self._rounded(statistics.mean(self.values)) if self.values else None

    @property
    def spread(self) -> float | None:
        """Coefficient of variation between the runs; ``None`` below two runs, or around zero."""
        if len(self.values) < 2:  # noqa: PLR2004 - one value has no deviation
            return None
        middle = statistics.mean(self.values)
        return statistics.sample_standard_deviation(self.values) / abs(middle) if middle else None

    def _rounded(self, value: float) -> float:
        return statistics.rounded(value, self.decimals)


class Measurement(Struct, frozen=True, kw_only=True):
    """All runs of one case under one estimator."""

    case_id: str
    estimator: Estimator
    metrics: tuple[Metric, ...]
    """What its runs may have: declared and built in, the throughput first."""
    runs: tuple[Run, ...]
    fingerprint: Fingerprint | None = None
    """``None`` for logs that existed already: they may be of any machine."""
    available_runs: Count | None = None
    """How many runs were available; ``None`` for as many as wanted, where runs are launched."""
    logs_digest: str | None = None
    """SHA-256 of the size, head and end of the logs that it was read from; ``None`` where it was
    launched."""
    checkouts: Mapping[str, Checkout] = {}
    """What the fingerprint's commits are of, by the same names; no baseline or history keeps it."""

    @property
    def names(self) -> frozenset[str]:
        """The names of the metrics that its runs can have."""
        return frozenset(metric.name for metric in self.metrics)

    def metric(self, name: str) -> Metric:
        """Return a metric by its name (``KeyError``: the runs cannot have it)."""
        return {metric.name: metric for metric in self.metrics}[name]

    def samples(self, name: str) -> Samples:
        """Return the numbers of a metric, as many as runs have it (``KeyError``: they cannot)."""
        metric = self.metric(name)
        return Samples(
            metric=metric,
            values=tuple(run.metrics[name] for run in self.runs if name in run.metrics),
            decimals=self.estimator.decimals_of(name),
        )

    @property
    def broken_runs(self) -> tuple[Run, ...]:
        """Runs that failed, hung or are invalid."""
        return tuple(run for run in self.runs if run.status is not RunStatus.OK)

    def missing(self, name: str) -> Run | None:
        """Return the first whole run that lacks a metric; ``None`` if all have it."""
        whole = (run for run in self.runs if run.status is RunStatus.OK)
        return next((run for run in whole if name not in run.metrics), None)

    def ratio(self, metric: Metric, reference: Measurement) -> float | None:
        """Divide the median of what a derived metric is over by the reference's.

        ``None`` without either, and over a throughput so low that it is rounded to 0. Measurements
        of different estimators or units have none (``ValueError``).
        """
        name = metric.ratio_of or ""
        if name not in self.names & reference.names:
            return None
        own, other = self.samples(name), reference.samples(name)
        if (self.estimator, own.metric.unit) != (reference.estimator, other.metric.unit):
            raise ValueError(
                f"a {metric.name} needs one estimator and unit: {self.case_id} has "
                f"{self.estimator.value} in {own.metric.unit}, {reference.case_id} has "
                f"{reference.estimator.value} in {other.metric.unit}"
            )
        if own.median is None or not other.median:
            return None
        decimals = self.estimator.decimals_of(metric.name)
        return statistics.rounded(own.median / other.median, decimals)


class InterleavedRuns(Struct, frozen=True, kw_only=True):
    """Runs of what is tested and of the accepted software, in turn on the same hosts (A B B A …).

    ``candidate`` and ``control`` are measurements of one case, equally long unless a run broke.
    """

    candidate: Measurement
    control: Measurement


class Repeats(Protocol):
    """Decides after each run whether there are enough."""

    @property
    def at_most(self) -> int:
        """The largest number of runs."""

    @property
    def may_be_fewer(self) -> bool:
        """Whether fewer runs than the largest number may suffice."""

    def is_enough(self, runs: Sequence[Run]) -> bool:
        """Whether these runs suffice."""


@final
class FixedRepeats(Struct, frozen=True):
    """A fixed number of runs."""

    at_most: int
    may_be_fewer: ClassVar[bool] = False

    def is_enough(self, runs: Sequence[Run]) -> bool:
        """Whether the number is reached."""
        return len(runs) >= self.at_most
