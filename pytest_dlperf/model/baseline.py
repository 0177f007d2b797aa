"""What is accepted of a case's metric: the number, the runs it rests on, the sessions since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import Meta, Struct

from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.model.keys import Percent, Scalar, SomeOf, Text, TopologyText
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


Number = Annotated[float, Meta(gt=0, le=1e300, title="a finite number above 0")]
RunNumber = Annotated[int, Meta(ge=1, title="a run number")]
Runs = Mapping[RunNumber, Number]
Time = Annotated[
    str,
    Meta(
        pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
        r"(\.[0-9]{3}|\.[0-9]{6})?(Z|[+-][0-9]{2}:[0-9]{2})$",
        title="a time with its zone, such as 2026-11-21T03:00:00+00:00",
    ),
]


class AcceptedSession(Struct, frozen=True, kw_only=True):
    """A later session that passed and was added to the baseline."""

    at: Time
    """When the session began."""
    runs: SomeOf[Number]
    """The runs' numbers in their order, in the metric's unit."""


class PooledNoise(Struct, frozen=True, kw_only=True):
    """Noise between the runs of a session."""

    deviation: Number
    """The relative standard deviation."""
    dof: RunNumber
    """Its degrees of freedom."""


class Loss(Struct, frozen=True, array_like=True):
    """By how much a session was worse than those before it, and its standard error by its runs.

    Both in hundredths of a logarithm; negative: better.
    """

    percent: float
    error: float


class Spread(Struct, frozen=True, kw_only=True):
    """How sessions differ from each other, as far as earlier ones have shown it."""

    losses: tuple[Loss, ...] = ()
    """By how much each session was worse than those before it, in percent, and the standard error
    of that by its runs: the last thirty, the oldest first."""
    changed: Loss | None = None
    """The same of the first session that was worse, or better, since the last that passed."""
    noise: PooledNoise | None = None
    """The noise between runs before the number was accepted."""


class Acceptance(Struct, frozen=True, kw_only=True):
    """Where an accepted number comes from."""

    at: Time
    """When the session began."""
    by: Scalar | None = None
    """Who accepted it: the CI's actor, or Git's identity."""
    commit: Scalar | None = None
    """Commit of the folder that the suite lay in."""
    reason: Scalar | None = None
    """Why it was accepted (--dlperf-reason)."""
    hosts: tuple[Scalar, ...] = ()
    """Where it was measured, node 0 first."""
    software: Mapping[str, Scalar] = {}
    """Versions by name."""
    commits: Mapping[str, Scalar] = {}
    """Commits of the checkouts that the trainer ran from, by folder."""
    launch: LaunchFacts | None = None
    """How it was launched, secrets masked."""


class SharedKeys(Struct, frozen=True, kw_only=True):
    """What an entry of a file says for its metrics, or a metric for itself."""

    acceptance: Acceptance | None = None
    """Where the number comes from."""
    machine: Mapping[str, Scalar] = {}
    """What the number was measured on: facts as under 'machine' in cluster.yaml."""


class BaselineKeys(SharedKeys, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file says of a metric's baseline."""

    accepted: Number
    """The number that a person agreed to: the median of the runs (and strays), in its unit."""
    mean: Number | None = None
    """Mean of the runs (and strays), for the reader."""
    over: Number | None = None
    """What a ratio was taken over: the reference topology's number."""
    reference: TopologyText = str(SINGLE_DEVICE)
    """The topology that a ratio was taken over."""
    runs: Runs = {}
    """The runs that the number rests on, by run number."""
    strays: Runs = {}
    """Numbers in the published median that are not runs of this case."""
    # Deleting them by hand leaves an empty list.
    sessions: tuple[AcceptedSession, ...] | None = ()
    """Later sessions that passed and were added by --dlperf-extend-baselines: twelve at most, the
    oldest first, one on each line."""
    spread: Spread | None = None
    """How sessions differ: written as they join, read by the gate."""
    tolerance_percent: Percent | None = None
    """By how much the case may be worse than the number, where that is not the metric's own
    tolerance."""
    note: Text | None = None
    """What a reader of the number should know."""


class Baseline(BaselineKeys, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What is accepted of one metric of one case."""

    metric: str
    unit: str
    better: Better
    estimator: Estimator
    sessions: tuple[AcceptedSession, ...] = ()
    spread: Spread = Spread()
    place: str = ""
    """File and line."""

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
        fingerprint = measurement.fingerprint
        others = differences(fingerprint.machine, self.machine) if fingerprint else {}
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
