"""Two results side by side: for each case how many times the first the second is, and how sure.

A comparison informs. It is no gate: it knows no baseline, and nothing of how nights differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.gate.noise import StandardError, median_variance, pooled_noise
from pytest_dlperf.gate.verdict import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.measurement import Measurement
    from pytest_dlperf.results.document import Results
    from pytest_dlperf.session import CaseResult

LEAST_RUNS: Final = 3
"""Runs of either side that an interval takes; fewer do not tell how much they differ."""

_FACTS_OF_PYTEST: Final = ("host", "platform", "processors", "python")
_NAMED: Final = 3


class IncomparableError(Exception):
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
            speedup=result.speedup,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCase:
    """One case with runs on both sides.

    ``ratio`` is the second median over the first, ``interval`` its 95 % interval: ``None`` with
    fewer than ``LEAST_RUNS`` runs on either side. ``speedup_ratio`` likewise.
    """

    case_id: str
    unit: str
    first: Side
    second: Side
    ratio: float
    interval: tuple[float, float] | None

    @property
    def speedup_ratio(self) -> float | None:
        """The second speedup over the first."""
        one, other = self.first.speedup, self.second.speedup
        return other / one if one and other else None

    @property
    def difference(self) -> Difference:
        """What follows from ratio and interval."""
        if self.first.broken or self.second.broken:
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
class Contrast:
    """A fact that differs between the two sides; ``None`` where a side does not know it."""

    name: str
    first: str | None
    second: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two results side by side; cases in the order of the first.

    ``only_first`` and ``only_second`` are ids of cases that the other side does not have,
    ``left_out`` those that both have without runs that can be compared.
    """

    first: Results
    second: Results
    cases: tuple[ComparedCase, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    left_out: tuple[LeftOut, ...]
    contrasts: tuple[Contrast, ...]

    @property
    def is_of_one_session(self) -> bool:
        """Whether both files are of the same session: then nothing can differ."""
        return self.first.session == self.second.session

    @property
    def whole_cases(self) -> tuple[ComparedCase, ...]:
        """The cases that were measured whole on both sides."""
        return tuple(case for case in self.cases if case.difference is not Difference.BROKEN)

    @property
    def mean_ratio(self) -> float | None:
        """Geometric mean of the ratios of the cases that were measured whole."""
        logarithms = [math.log(case.ratio) for case in self.whole_cases]
        return math.exp(math.fsum(logarithms) / len(logarithms)) if logarithms else None

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
    ours = {result.case.id: result for result in first.cases}
    theirs = {result.case.id: result for result in second.cases}
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
        contrasts=tuple(_contrasts(first, second, {case.case_id for case in compared})),
    )


def ratio_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float] | None:
    """How far the 95 % interval of the ratio of two medians reaches, as factors of the ratio.

    Each side tells its own noise, for another framework may be noisier; so both need
    ``LEAST_RUNS`` runs. The freedom of both together is by Welch and Satterthwaite, on the scale
    of logarithms. ``None`` with fewer.
    """
    errors = []
    for runs in (first, second):
        noise = pooled_noise((runs,))
        if noise is None:
            return None
        error = noise.deviation * math.sqrt(median_variance(len(runs)))
        errors.append(StandardError(value=error, freedom=noise.freedom))
    reach = math.exp(StandardError.of_both(errors).interval)
    return 1 / reach, reach


def _compared(one: CaseResult, other: CaseResult) -> ComparedCase | LeftOut:
    ours, theirs = one.measurement, other.measurement
    first = Side.of(one, ours) if ours else None
    second = Side.of(other, theirs) if theirs else None
    if ours is None or theirs is None or first is None or second is None:
        return LeftOut(case_id=one.case.id, first=_state(one, first), second=_state(other, second))
    if ours.unit != theirs.unit:
        return LeftOut(case_id=one.case.id, first=f"in {ours.unit}", second=f"in {theirs.unit}")
    ratio = second.median / first.median
    reach = ratio_interval(first.throughputs, second.throughputs)
    return ComparedCase(
        case_id=one.case.id,
        unit=ours.unit,
        first=first,
        second=second,
        ratio=ratio,
        interval=(ratio * reach[0], ratio * reach[1]) if reach else None,
    )


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


# ------------------------------------------------------------------ what else differs


def _contrasts(first: Results, second: Results, case_ids: set[str]) -> Iterator[Contrast]:
    """What else differs: clusters, pytest's machine, and what the compared cases were taken on."""
    sides = [{**_of_pytest(one), **_of_cases(one, case_ids)} for one in (first, second)]
    yield from _different({"cluster": first.cluster}, {"cluster": second.cluster})
    yield from _different(*sides)


def _different(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[Contrast]:
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            yield Contrast(name=name, first=ours.get(name), second=theirs.get(name))


def _of_pytest(results: Results) -> dict[str, str]:
    found = results.environment
    packages: Mapping[str, Any] = found.get("packages") or {}
    facts = {name: found.get(name) for name in _FACTS_OF_PYTEST}
    facts |= {f"{name} of pytest's Python": version for name, version in packages.items()}
    return {
        f"pytest's {name}" if name in _FACTS_OF_PYTEST else name: str(value)
        for name, value in facts.items()
        if value is not None
    }


def _of_cases(results: Results, case_ids: set[str]) -> dict[str, str]:
    """Machine and software of the cases, by name; all values where they are not of one."""
    values: dict[str, dict[str, None]] = {}
    for result in results.cases:
        measurement = result.measurement
        if result.case.id not in case_ids or measurement is None:
            continue
        taken_on = measurement.fingerprint
        if taken_on is None:
            continue
        for facts in (taken_on.machine, taken_on.software):
            for name, value in facts.items():
                values.setdefault(name, {})[value] = None
    return {name: ", ".join(sorted(found)) for name, found in values.items()}
