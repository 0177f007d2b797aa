"""What is accepted of a case's metric: the number, the runs it rests on, the sessions since."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.model.measurement import MACHINE_FACTS, LaunchFacts, differences

if TYPE_CHECKING:
    from pytest_dlperf.model.measurement import Estimator, Measurement
    from pytest_dlperf.model.metric import Better, Metric

ROLLING_SESSIONS: Final = 6
"""How many of the last accepted sessions tonight is held against."""

MAX_TOLERANCE_PERCENT: Final = 10.0
"""A larger tolerance says that the noise is beyond what the sequential rule decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedSession:
    """The runs of a later session that passed and was added to the baseline.

    ``at`` is when it began, ISO 8601 with its zone; ``runs`` are the metric's numbers in the order
    of the runs.
    """

    at: str
    runs: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Where an accepted number comes from.

    ``at`` is when its session began, ISO 8601 with its zone; ``by`` is who accepted it: the CI's
    actor, or the identity that Git has; ``commit`` is that of the folder the suite lies in;
    ``software`` are versions by name, ``commits`` those of the trainer's checkouts by folder;
    ``logs`` is ``sha256:`` and a digest over the logs of its runs.
    """

    at: str
    by: str | None = None
    commit: str | None = None
    reason: str | None = None
    hosts: tuple[str, ...] = ()
    software: Mapping[str, str] = field(default_factory=dict)
    commits: Mapping[str, str] = field(default_factory=dict)
    launch: LaunchFacts | None = None
    logs: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What is accepted of one metric of one case.

    ``accepted``, the number that a person agreed to, is the median of ``runs`` (and ``strays``) in
    ``unit``. ``runs`` are the runs' numbers by run number as far as they are known, ``strays``
    those that went into the published median but are no runs of this case. ``over`` is the number
    that a ratio was taken over, ``reference`` the topology that had it (1n1g where nothing says
    another). ``sessions`` are those added since. ``machine`` is what it was
    measured on, with the keys of ``Fingerprint.machine``. ``place`` is the file and line.
    """

    metric: str
    unit: str
    better: Better
    estimator: Estimator
    accepted: float
    tolerance_percent: float | None = None
    mean: float | None = None
    runs: Mapping[int, float] = field(default_factory=dict)
    strays: Mapping[int, float] = field(default_factory=dict)
    over: float | None = None
    reference: str = str(SINGLE_DEVICE)
    note: str | None = None
    place: str = ""
    sessions: tuple[AcceptedSession, ...] = ()
    acceptance: Acceptance | None = None
    """Where the number comes from; ``None`` where that was not recorded."""
    machine: Mapping[str, str] = field(default_factory=dict)

    @property
    def rolling(self) -> tuple[tuple[float, ...], ...]:
        """The runs of the last accepted sessions, six at most, the oldest first."""
        accepted = tuple(value for _, value in sorted(self.runs.items()))
        sessions = ((accepted,) if accepted else ()) + tuple(s.runs for s in self.sessions)
        return sessions[-ROLLING_SESSIONS:]

    def why_incomparable(self, metric: Metric, measurement: Measurement) -> str | None:
        """Say why a measurement cannot be held against it.

        That is another unit, direction, estimator or machine.

        The machines are compared by what both sides know of them.
        """
        for what, measured, accepted in (
            ("unit", metric.unit, self.unit),
            ("direction", metric.better.value if metric.better else "none", self.better.value),
            ("estimator", measurement.estimator.value, self.estimator.value),
        ):
            if measured != accepted:
                return (
                    f"{self.place} has the {what} {accepted!r}, measured was {measured!r}; "
                    "'pytest-dlperf check' tells how to begin anew"
                )
        if measurement.fingerprint is None:
            return None
        others = differences(measurement.fingerprint.machine, self.machine)
        if not others:
            return None
        shown = "; ".join(
            f"{name} ({MACHINE_FACTS.get(name, 'a fact of the machine')}): measured on "
            f"{measured!r}, accepted on {accepted!r}"
            for name, (measured, accepted) in others.items()
        )
        return (
            f"{self.place} is of another machine: {shown}; name another --dlperf-cluster, or "
            "accept the number of this one with --dlperf-update-baselines"
        )

    def why_other_ratio(self, over: str) -> str | None:
        """Say why a ratio over a case of this id cannot be held against it: another topology."""
        topology = over.rpartition("-")[2]
        if topology == self.reference:
            return None
        return (
            f"{self.place} has the {self.metric} over {self.reference}, measured was that over "
            f"{topology}; accept it with --dlperf-update-baselines"
        )

    def notes(self, measurement: Measurement) -> tuple[str, ...]:
        """Tell what is no verdict, and is worth knowing: that nothing has named the device."""
        if measurement.fingerprint is None:
            return ()
        device = self.machine.get("device")
        if device is None or "device" in measurement.fingerprint.machine:
            return ()
        return (f"nothing there names the device, accepted on {device!r}",)
