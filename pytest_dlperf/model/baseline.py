"""What is accepted of a case's metric: the number, the runs it rests on, the sessions since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.model.measurement import (
    MACHINE_FACTS,
    Estimator,
    LaunchFacts,
    Measurement,
    differences,
)
from pytest_dlperf.model.metric import Better, Metric

ROLLING_SESSIONS: Final = 12
"""How many of the last accepted sessions a session is compared with."""

SPREAD_SESSIONS: Final = 30
"""How many of the last losses show how sessions differ."""


class AcceptedSession(Struct, frozen=True, kw_only=True):
    """The runs of a later session that passed and was added to the baseline.

    ``at`` is when it began, ISO 8601 with its zone; ``runs`` are the metric's numbers in the order
    of the runs.
    """

    at: str
    runs: tuple[float, ...]


class PooledNoise(Struct, frozen=True, kw_only=True):
    """The relative standard deviation between runs of one session, and how well it is known.

    ``dof`` are its degrees of freedom.
    """

    deviation: float
    dof: int


class Loss(Struct, frozen=True):
    """By how much a session was worse than those before it, and its standard error by its runs.

    Both in hundredths of a logarithm; negative: better.
    """

    percent: float
    error: float


class Spread(Struct, frozen=True, kw_only=True):
    """How sessions differ from each other, as far as earlier ones have shown it."""

    losses: tuple[Loss, ...] = ()
    """Of the last sessions, thirty at most, the oldest first."""
    changed: Loss | None = None
    """Of the first of the sessions that were worse, or better, since the last that passed."""
    noise: PooledNoise | None = None
    """The noise between runs before the number was accepted."""


class Acceptance(Struct, frozen=True, kw_only=True):
    """Where an accepted number comes from."""

    at: str
    """When its session began, ISO 8601 with its zone."""
    by: str | None = None
    """Who accepted it: the CI's actor, or Git's identity."""
    commit: str | None = None
    """The commit of the folder the suite lies in."""
    reason: str | None = None
    """Why it was accepted."""
    hosts: tuple[str, ...] = ()
    """Names of the hosts, node 0 first."""
    software: Mapping[str, str] = {}
    """Versions by name."""
    commits: Mapping[str, str] = {}
    """Commits of the trainer's checkouts, by folder."""
    launch: LaunchFacts | None = None
    """How it was launched, where that is known."""


class Baseline(Struct, frozen=True, kw_only=True):
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
    runs: Mapping[int, float] = {}
    strays: Mapping[int, float] = {}
    over: float | None = None
    reference: str = str(SINGLE_DEVICE)
    note: str | None = None
    place: str = ""
    sessions: tuple[AcceptedSession, ...] = ()
    spread: Spread = Spread()
    acceptance: Acceptance | None = None
    """Where the number comes from; ``None`` where that was not recorded."""
    machine: Mapping[str, str] = {}

    @property
    def rolling(self) -> tuple[tuple[float, ...], ...]:
        """The runs of the last accepted sessions, twelve at most, the oldest first."""
        accepted = tuple(value for _, value in sorted(self.runs.items()))
        sessions = ((accepted,) if accepted else ()) + tuple(s.runs for s in self.sessions)
        return sessions[-ROLLING_SESSIONS:]

    @property
    def last_at(self) -> str | None:
        """When its last session began, ISO 8601 with its zone; ``None`` where unknown."""
        if self.sessions:
            return self.sessions[-1].at or None
        return self.acceptance.at if self.acceptance else None

    def why_incomparable(self, metric: Metric, measurement: Measurement) -> str | None:
        """Return why a measurement cannot be compared with it, or ``None``.

        That is another unit, direction, estimator or machine; machines are compared by the facts
        that both sides know.
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
        """Return why a ratio over the case ``over`` cannot be compared with it, or ``None``."""
        topology = over.rpartition("-")[2]
        if topology == self.reference:
            return None
        return (
            f"{self.place} has the {self.metric} over {self.reference}, measured was that over "
            f"{topology}; accept it with --dlperf-update-baselines"
        )

    def notes(self, measurement: Measurement) -> tuple[str, ...]:
        """Return notes for the reader: that the device is unknown, where the baseline names one."""
        if measurement.fingerprint is None:
            return ()
        device = self.machine.get("device")
        if device is None or "device" in measurement.fingerprint.machine:
            return ()
        return (f"nothing there names the device, accepted on {device!r}",)
