"""Lives of baselines: recorded, extended once a week, refused, accepted; and nights judged by them.

The noise is drawn here, without any code of the gate; everything that judges is the gate's.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.baselines.accepting import spread_after, why_not_added
from pytest_dlperf.baselines.recording import ChangeKind
from pytest_dlperf.gate.accepting import GateOptions, why_too_scattered
from pytest_dlperf.gate.inputs import GateInput, MeasuredCase
from pytest_dlperf.gate.repeats import repeats_for
from pytest_dlperf.gate.terms import Terms
from pytest_dlperf.gate.verdicts import run_gate
from pytest_dlperf.model.baseline import ROLLING_SESSIONS, AcceptedSession, Baseline
from pytest_dlperf.model.judgement import Verdict
from pytest_dlperf.model.measurement import (
    Estimator,
    InterleavedRuns,
    Measurement,
    Repeats,
    Run,
    RunStatus,
)
from pytest_dlperf.model.metric import Better, Metric, Source

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_dlperf.model.judgement import Judgement

RUNS: Final = 9
"""Runs of a night that are drawn; a session takes as many of them as the gate asks for."""
WEEK: Final = 7
_HALF: Final = 0.5
_QUARTER: Final = 0.25


class World(Struct, frozen=True, kw_only=True):
    """How numbers differ, as parts of the level.

    ``cv`` is the deviation between runs of a session, of normal or another ``shape``; ``follows``
    is their autocorrelation. ``strays`` is the part of runs that are 20 to 60 % slower. ``nights``
    is the deviation between nights, ``walk`` that of the steps of a random walk. ``shift`` is the
    chance of a step up or down, and its size. ``run_modes`` and ``night_modes`` are distances of
    two groups, ``slow_host`` by how much one host of four is slower. ``step`` is the last digit
    that is printed.
    """

    cv: float = 0.01
    shape: str = "normal"
    follows: float = 0.0
    strays: float = 0.0
    nights: float = 0.0
    walk: float = 0.0
    shift: tuple[float, float] = (0.0, 0.0)
    run_modes: float = 0.0
    night_modes: float = 0.0
    slow_host: float = 0.0
    level: float = 1000.0
    step: float = 0.0
    better: Better = Better.HIGHER
    tolerance: float = 5.0
    own: float | None = None
    at_least: float = 0.0
    members: int = 1
    repeats: int | None = None

    @property
    def terms(self) -> Terms:
        """What its metric is judged by."""
        return Terms(
            tolerance_percent=self.tolerance,
            tolerance_at_least=self.at_least,
            members=self.members,
            repeats=self.repeats,
        )

    @property
    def metric(self) -> Metric:
        """Its metric."""
        return Metric(
            name="number",
            unit="",
            better=self.better,
            source=Source.LOG,
            tolerance_percent=self.own,
        )

    def draw(
        self, rng: np.random.Generator, nights: int, common: np.ndarray | None = None
    ) -> np.ndarray:
        """Draw how fast the runs of so many nights are, 1 being the level.

        ``common`` are deviates of nights that several metrics share.
        """
        z = rng.standard_normal((nights, RUNS))
        if self.follows:
            fresh, rest = z.copy(), np.sqrt(1 - self.follows**2)
            for run in range(1, RUNS):
                z[:, run] = self.follows * z[:, run - 1] + rest * fresh[:, run]
        if self.shape == "t3":
            z = z / np.sqrt(rng.chisquare(3, z.shape) / 3)
        if self.shape == "exponential":
            z = 1 - rng.exponential(1.0, z.shape)
        lognormal = self.shape == "lognormal"
        runs = np.exp(-self.cv * z) if lognormal else np.maximum(1 + self.cv * z, 0.05)
        runs *= np.where(rng.random(z.shape) < _HALF, 1 - self.run_modes, 1)
        if self.strays:
            slow = 1 - rng.uniform(0.2, 0.6, z.shape)
            runs *= np.where(rng.random(z.shape) < self.strays, slow, 1)
        levels = 1 + self.nights * (rng.standard_normal(nights) if common is None else common)
        levels = levels + np.cumsum(self.walk * rng.standard_normal(nights))
        chance, size = self.shift
        jump = (rng.random(nights) < chance) * np.where(rng.random(nights) < _HALF, 1, -1)
        levels = levels * np.cumprod(1 + size * jump)
        levels *= np.where(rng.random(nights) < _HALF, 1 - self.night_modes, 1)
        levels *= np.where(rng.random(nights) < _QUARTER, 1 - self.slow_host, 1)
        return runs * np.maximum(levels, 0.05)[:, None]

    def numbers(self, speeds: np.ndarray, loss: float = 0.0) -> tuple[float, ...]:
        """Turn the speeds of runs into what is printed."""
        is_lower = self.better is Better.LOWER
        values = self.level * ((1 + loss) / speeds if is_lower else speeds * (1 - loss))
        if self.step:
            values = np.maximum(np.round(values / self.step), 1) * self.step
        return tuple(map(float, values))


class Night(Struct, frozen=True):
    """A judged night."""

    judgement: Judgement
    runs: tuple[float, ...]

    @property
    def is_red(self) -> bool:
        """Whether it is an alarm."""
        return self.judgement.verdict in (Verdict.REGRESSED, Verdict.INCONCLUSIVE)


class Life:
    """The baseline of one metric, and what happens to it."""

    def __init__(self, world: World, *, patience: int, control: Controls | None = None) -> None:
        """Begin without a number; a person accepts a level after ``patience`` changed sessions."""
        self.world, self.patience, self._control = world, patience, control
        self._terms = replace(world.terms, has_control=control is not None)
        self.metric = world.metric
        self.baseline: Baseline | None = None
        self._changed = 0

    def night(self, numbers: Sequence[float], *, joins: bool = False) -> Night:
        """Judge a night by as many of its runs as the gate asks for."""
        known = {} if self.baseline is None else {self.metric.name: self.baseline}
        terms = {self.metric: self._terms}
        repeats = repeats_for(known, terms, records=joins)
        count = _taken(repeats, _runs(numbers, self.metric))
        measurement = _measured(numbers[:count], self.metric)
        judged = GateInput(self.metric, MeasuredCase(measurement, known), self._terms)
        result = run_gate(judged, GateOptions(), self._control or _no_control)
        return Night(result.judgement, tuple(numbers[:count]))

    def session(self, numbers: Sequence[float]) -> None:
        """Record the first number; later, join, note or accept."""
        if self.baseline is None:
            runs = tuple(numbers[:5])
            if why_too_scattered(runs, tolerance_percent=self._tolerance) is None:
                self.baseline = _accepted(self.metric, runs)
            return
        night = self.night(numbers, joins=True)
        verdict, runs = night.judgement.verdict, night.runs
        measurement = _measured(runs, self.metric)
        case = MeasuredCase(measurement, {self.metric.name: self.baseline})
        judged = GateInput(self.metric, case, self._terms).without_control
        rule = judged.rule
        if rule is None:
            raise AssertionError("a number without baseline is recorded above")
        self._changed = 0 if verdict is Verdict.PASS else self._changed + 1
        if self._changed >= self.patience:
            if why_too_scattered(runs, tolerance_percent=self._tolerance) is None:
                spread = spread_after(ChangeKind.ACCEPT, rule, runs)
                self.baseline = replace(_accepted(self.metric, runs), spread=spread)
                self._changed = 0
        elif verdict is Verdict.PASS and why_not_added(night.judgement, judged) is None:
            added = AcceptedSession(at="", runs=runs)
            sessions = (*self.baseline.sessions, added)[-ROLLING_SESSIONS:]
            spread = spread_after(ChangeKind.EXTEND, rule, runs)
            self.baseline = replace(self.baseline, sessions=sessions, spread=spread)
        elif verdict in (Verdict.REGRESSED, Verdict.IMPROVED):
            spread = spread_after(ChangeKind.NOTE, rule, runs)
            self.baseline = replace(self.baseline, spread=spread)

    @property
    def _tolerance(self) -> float:
        return self._terms.tolerance_of(self.baseline, level=self.world.level)


class Controls:
    """A control arm: the accepted software beside tonight's, on a night of its own."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        """Draw the runs of its pairs from the same world, without differences between nights."""
        still = {"nights": 0.0, "walk": 0.0, "night_modes": 0.0, "slow_host": 0.0}
        self._world, self._rng = replace(world, shift=(0.0, 0.0), **still), rng
        self.loss = 0.0

    def __call__(self, judged: Measurement) -> InterleavedRuns | str:
        """Run pairs, as many as the session has runs, and four at least."""
        taken = len(judged.runs)
        pairs = max(4, taken + taken % 2)
        both = [self._world.draw(self._rng, 2).ravel()[:pairs] for _ in range(2)]
        arms = [
            _measured(self._world.numbers(speeds, loss), judged.metrics[0])
            for speeds, loss in zip(both, (self.loss, 0.0), strict=True)
        ]
        return InterleavedRuns(candidate=arms[0], control=arms[1])


def _no_control(judged: Measurement) -> InterleavedRuns | str:
    return f"{judged.case_id} has none"


def _accepted(metric: Metric, runs: tuple[float, ...]) -> Baseline:
    if metric.better is None:
        raise AssertionError(f"{metric.name} has no direction")
    return Baseline(
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        estimator=Estimator.STEADY,
        accepted=median(runs),
        runs=dict(enumerate(runs, 1)),
    )


def _runs(values: Sequence[float], metric: Metric) -> tuple[Run, ...]:
    return tuple(
        Run(run=number, metrics={metric.name: value}, status=RunStatus.OK)
        for number, value in enumerate(values, 1)
    )


def _measured(values: Sequence[float], metric: Metric) -> Measurement:
    runs = _runs(values, metric)
    return Measurement(case_id="one", metrics=(metric,), estimator=Estimator.STEADY, runs=runs)


def _taken(repeats: Repeats, runs: Sequence[Run]) -> int:
    enough: Callable[[Sequence[Run]], bool] = repeats.is_enough
    return next((count for count in range(1, RUNS) if enough(runs[:count])), RUNS)
