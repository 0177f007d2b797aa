"""Two results side by side: for each case how many times the first the second is, and how sure.

A comparison informs. It is no gate: it knows no baseline, and nothing of how nights differ. Where
they differ as much as runs do, a quarter of all cases looks faster or slower without a difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.gate.noise import StandardError, median_variance, pooled_noise
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Quantity
from pytest_dlperf.results.differences import Contrast, differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.model.results import Results

MIN_RUNS: Final = 3
"""Runs of either side that an interval takes; fewer do not tell how much they differ."""

_NAMED: Final = 3
_LARGEST: Final = 1e60
"""What is larger, or smaller than its inverse, is no throughput, nor a ratio of any."""


class IncomparableError(UsageError):
    """Two results have nothing that can be compared; the message says why."""


class Difference(str, Enum):
    """What the runs of both sides say."""

    FASTER = "faster"
    SLOWER = "slower"
    NONE_SEEN = "no difference seen"
    TOO_FEW = "too few runs"
    """For an interval: the ratio stands without one."""
    BROKEN = "broken runs"
    """A side was not measured whole: the ratio of what survived says nothing of the case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a compared case. ``median`` is in the unit per second."""

    median: float
    throughputs: tuple[float, ...]
    broken: int
    is_whole: bool
    speedup: float | None

    @classmethod
    def of(cls, result: CaseResult, measurement: Measurement) -> Side | None:
        """The side that a measurement makes; ``None`` without a run that counts."""
        median = measurement.median
        # A very slow run has, rounded as published, a throughput of 0.00.
        if not median or min(measurement.throughputs) <= 0:
            return None
        return cls(
            median=median,
            throughputs=measurement.throughputs,
            broken=len(measurement.broken_runs),
            is_whole=result.is_whole,
            speedup=result.speedup,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCase:
    """One case with runs on both sides.

    ``ratio`` is the second median over the first, ``error`` its standard error on the scale of
    logarithms: ``None`` with fewer than ``MIN_RUNS`` runs on either side.
    """

    case_id: str
    unit: str
    first: Side
    second: Side
    ratio: float
    error: StandardError | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio, where the runs tell one."""
        return _interval(self.ratio, self.error) if self.error else None

    @property
    def speedup_ratio(self) -> float | None:
        """The second speedup over the first."""
        one, other = self.first.speedup, self.second.speedup
        ratio = other / one if one and other else math.nan
        return ratio if math.isfinite(ratio) else None

    @property
    def difference(self) -> Difference:
        """What follows from ratio and interval."""
        if any(side.broken or not side.is_whole for side in (self.first, self.second)):
            return Difference.BROKEN
        if self.interval is None:
            return Difference.TOO_FEW
        low, high = self.interval
        if low > 1:
            return Difference.FASTER
        return Difference.SLOWER if high < 1 else Difference.NONE_SEEN


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A case that both sides have but that is not compared, and what either says of it."""

    case_id: str
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanRatio:
    """Geometric mean of the ratios of so many cases, and its 95 % interval.

    The interval holds for these cases, and knows the noise of single runs only.
    """

    ratio: float
    interval: tuple[float, float]
    cases: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two results side by side; cases by system and variant, each with its topologies in a row.

    ``only_first`` and ``only_second`` are ids of cases that the other side does not have,
    ``left_out`` those that both have without runs that can be compared.
    """

    first: Results
    second: Results
    cases: tuple[ComparedCase, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    differences: tuple[Contrast, ...]

    @property
    def is_of_one_session(self) -> bool:
        """Whether both files are of the same session: then nothing can differ."""
        return self.first.session == self.second.session

    @property
    def slower_cases(self) -> tuple[ComparedCase, ...]:
        """The cases that are slower, the slowest first."""
        slower = [case for case in self.cases if case.difference is Difference.SLOWER]
        return tuple(sorted(slower, key=lambda case: case.ratio))

    @property
    def mean_ratio(self) -> MeanRatio | None:
        """The mean over the cases that have an interval and were measured whole, if there are any.

        Their errors add up as those of independent measurements.
        """
        known = [
            (math.log(case.ratio), case.error)
            for case in self.cases
            if case.error and case.difference is not Difference.BROKEN
        ]
        if not known:
            return None
        ratio = math.exp(math.fsum([logarithm for logarithm, _ in known]) / len(known))
        whole = StandardError.of_both([error for _, error in known])
        error = StandardError(value=whole.value / len(known), dof=whole.dof)
        return MeanRatio(ratio=ratio, interval=_interval(ratio, error), cases=len(known))

    def count(self, difference: Difference) -> int:
        """How many cases have this word."""
        return sum(case.difference is difference for case in self.cases)


def compare_results(first: Results, second: Results) -> Comparison:
    """Hold the second results against the first.

    Raises:
        IncomparableError: They are of different estimators, or no case was measured in both.
    """
    if first.estimator is not second.estimator:
        raise IncomparableError(
            f"A has numbers of the estimator {first.estimator.value!r}, B of "
            f"{second.estimator.value!r}; numbers of different estimators cannot be compared. "
            "Judge the logs of one of them again with --dlperf-logs and a cluster that has the "
            "other's estimator"
        )
    ours = {result.case.id: result for result in _in_order(first.cases)}
    theirs = {result.case.id: result for result in _in_order(second.cases)}
    common = [case_id for case_id in ours if case_id in theirs]
    if not common:
        raise IncomparableError(
            f"A and B have no case in common: A has {_named(ours)}, B has {_named(theirs)}"
        )
    found = [_compared(ours[case_id], theirs[case_id]) for case_id in common]
    compared = tuple(case for case in found if isinstance(case, ComparedCase))
    left_out = tuple(case for case in found if isinstance(case, LeftOut))
    if not compared:
        raise IncomparableError(
            f"no case of A and B has runs in both that can be compared: {_told(left_out)}"
        )
    return Comparison(
        first=first,
        second=second,
        cases=compared,
        only_first=tuple(case_id for case_id in ours if case_id not in theirs),
        only_second=tuple(case_id for case_id in theirs if case_id not in ours),
        left_out=left_out,
        differences=tuple(differences(first, second, {case.case_id for case in compared})),
    )


def ratio_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float] | None:
    """How far the 95 % interval of the ratio of two medians reaches, as factors of the ratio.

    Each side tells its own noise, for another framework may be noisier; so both need
    ``MIN_RUNS`` runs. The freedom of both together is by Welch and Satterthwaite, on the scale
    of logarithms. ``None`` with fewer.
    """
    error = _ratio_error(first, second)
    return _interval(1.0, error) if error else None


def _ratio_error(first: Sequence[float], second: Sequence[float]) -> StandardError | None:
    if min(len(first), len(second)) < MIN_RUNS:
        return None
    errors = []
    for runs in (first, second):
        noise = pooled_noise((runs,))
        if noise is None:
            return None
        error = noise.deviation * math.sqrt(median_variance(len(runs)))
        # What is surer of nothing than of anything could not be squared twice.
        error = min(error, math.log(_LARGEST))
        errors.append(StandardError(value=error, dof=noise.dof))
    return StandardError.of_both(errors)


def _interval(ratio: float, error: StandardError) -> tuple[float, float]:
    reach = math.exp(min(error.interval, math.log(_LARGEST)))
    return ratio / reach, ratio * reach


def _in_order(results: Iterable[CaseResult]) -> list[CaseResult]:
    """The cases so that the topologies of a training stand in a row, whatever was measured when."""

    def place(result: CaseResult) -> tuple[Any, ...]:
        case = result.case
        return case.system, case.precision, case.batch_per_device, case.options, case.topology

    return sorted(results, key=place)


def _compared(one: CaseResult, other: CaseResult) -> ComparedCase | LeftOut:
    ours, theirs = one.measurement, other.measurement
    if _is_absurd(ours) or _is_absurd(theirs):
        return LeftOut(case_id=one.case.id, first=_absurdity(one), second=_absurdity(other))
    first = Side.of(one, ours) if ours else None
    second = Side.of(other, theirs) if theirs else None
    if ours is None or theirs is None or first is None or second is None:
        return LeftOut(case_id=one.case.id, first=_state(one, first), second=_state(other, second))
    if ours.unit != theirs.unit:
        return LeftOut(case_id=one.case.id, first=f"in {ours.unit}", second=f"in {theirs.unit}")
    return ComparedCase(
        case_id=one.case.id,
        unit=ours.unit,
        first=first,
        second=second,
        ratio=second.median / first.median,
        error=_ratio_error(first.throughputs, second.throughputs),
    )


def _is_absurd(measurement: Measurement | None) -> bool:
    """Whether runs are no throughputs of anything: a computer has no number for what they give."""
    runs = measurement.throughputs if measurement is not None else ()
    return any(not 1 / _LARGEST < run < _LARGEST for run in runs if run > 0)


def _absurdity(result: CaseResult) -> str:
    measurement = result.measurement
    if measurement is None or not _is_absurd(measurement):
        return _state(result, Side.of(result, measurement) if measurement else None)
    runs = measurement.throughputs
    least, most = f"{min(runs):.4g}", f"{max(runs):.4g}"
    reach = least if least == most else f"{least} to {most}"
    return f"runs of {reach} {measurement.unit}"


def _state(result: CaseResult, side: Side | None) -> str:
    """Why a case has nothing to compare on one side."""
    if side is not None:
        return "measured"
    verdict = result.verdict(Quantity.THROUGHPUT) or result.verdict(Quantity.SPEEDUP)
    return verdict.value if verdict is not None else "not measured"


def _named(case_ids: Iterable[str]) -> str:
    names = list(case_ids)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}" if names else "none at all"


def _told(left_out: Sequence[LeftOut]) -> str:
    told = [f"{case.case_id} (A: {case.first}, B: {case.second})" for case in left_out[:_NAMED]]
    more = [f"and {len(left_out) - _NAMED} more"] if len(left_out) > _NAMED else []
    return ", ".join([*told, *more])
