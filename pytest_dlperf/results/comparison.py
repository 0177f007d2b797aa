"""Two results side by side: for each case the ratio of B to A with its 95 % interval.

A comparison informs. It is no gate: it knows no baseline, and nothing of how nights differ. Where
nights differ as much as runs do, a quarter of all cases looks faster or slower with no change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.gate.noise import StandardError, median_variance, pooled_noise
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.model.results import Results

MIN_RUNS: Final = 3
"""Runs that an interval needs on either side; fewer do not show how much they differ."""

_NAMED: Final = 3
_LARGEST: Final = 1e60
"""No throughput, nor a ratio of two, is larger than this or smaller than its inverse."""
_FACTS_OF_PYTEST: Final = ("host", "platform", "processors", "python")


class Difference(str, Enum):
    """The conclusion on a case. The value is the word that all reports use."""

    FASTER = "faster"
    SLOWER = "slower"
    NONE_SEEN = "no difference seen"
    TOO_FEW = "too few runs"
    """The ratio stands without an interval."""
    BROKEN = "broken runs"
    """A side was not measured whole: the ratio of what survived says nothing of the case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One side of a compared case. ``median`` is in the unit of the case."""

    unit: str
    median: float
    throughputs: tuple[float, ...]
    broken: int
    is_whole: bool
    speedup: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCase:
    """One case with runs on both sides.

    ``ratio`` is the second median over the first, ``error`` its standard error on the scale of
    logarithms: ``None`` with fewer than ``MIN_RUNS`` runs on either side.
    """

    case_id: str
    first: Side
    second: Side
    ratio: float
    error: StandardError | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio, where there are enough runs."""
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
    """A case of both sides that cannot be compared, and what there is of it on each."""

    case_id: str
    first: str
    second: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentFact:
    """A fact that differs between the two sides; ``None`` where a side does not know it."""

    name: str
    first: str | None
    second: str | None


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
    different_facts: tuple[DifferentFact, ...]

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
        """Count the cases with this conclusion."""
        return sum(case.difference is difference for case in self.cases)


def compare_results(first: Results, second: Results) -> Comparison:
    """Hold the second results against the first.

    Raises:
        UsageError: They are of different estimators, or no case was measured in both.
    """
    if first.estimator is not second.estimator:
        raise UsageError(
            f"A has numbers of the estimator {first.estimator.value!r}, B of "
            f"{second.estimator.value!r}; numbers of different estimators cannot be compared. "
            "Judge the logs of one of them again with --dlperf-logs and a cluster that has the "
            "other's estimator"
        )
    ours, theirs = ({result.case.id: result for result in _in_order(r)} for r in (first, second))
    common = [case_id for case_id in ours if case_id in theirs]
    if not common:
        raise UsageError(
            f"A and B have no case in common: A has {_named(ours)}, B has {_named(theirs)}"
        )
    found = [_compared(ours[case_id], theirs[case_id]) for case_id in common]
    compared = tuple(case for case in found if isinstance(case, ComparedCase))
    left_out = tuple(case for case in found if isinstance(case, LeftOut))
    if not compared:
        why = [f"{case.case_id} (A: {case.first}, B: {case.second})" for case in left_out]
        raise UsageError(f"no case of A and B has runs in both that can be compared: {_named(why)}")
    return Comparison(
        first=first,
        second=second,
        cases=compared,
        only_first=tuple(case_id for case_id in ours if case_id not in theirs),
        only_second=tuple(case_id for case_id in theirs if case_id not in ours),
        left_out=left_out,
        different_facts=_different_facts(first, second, {case.case_id for case in compared}),
    )


def _in_order(results: Results) -> list[CaseResult]:
    """Sort the cases so that the topologies of a training stand in a row."""

    def place(result: CaseResult) -> tuple[Any, ...]:
        case = result.case
        return case.system, case.precision, case.batch_per_device, case.options, case.topology

    return sorted(results.cases, key=place)


def _compared(one: CaseResult, other: CaseResult) -> ComparedCase | LeftOut:
    case_id, first, second = one.case.id, _side(one), _side(other)
    if isinstance(first, str) or isinstance(second, str):
        told = [side if isinstance(side, str) else "measured" for side in (first, second)]
        return LeftOut(case_id=case_id, first=told[0], second=told[1])
    if first.unit != second.unit:
        return LeftOut(case_id=case_id, first=f"in {first.unit}", second=f"in {second.unit}")
    return ComparedCase(
        case_id=case_id,
        first=first,
        second=second,
        ratio=second.median / first.median,
        error=_ratio_error(first.throughputs, second.throughputs),
    )


def _side(result: CaseResult) -> Side | str:
    """One side of a case; where its runs have no ratio, what there is instead of them."""
    measurement = result.measurement
    throughputs = measurement.throughputs if measurement is not None else ()
    # A very slow run has, rounded as published, a throughput of 0.00.
    if measurement is None or not measurement.median or min(throughputs) <= 0:
        verdict = result.verdict(Quantity.THROUGHPUT) or result.verdict(Quantity.SPEEDUP)
        return verdict.value if verdict is not None else "not measured"
    least, most = min(throughputs), max(throughputs)
    if least <= 1 / _LARGEST or most >= _LARGEST:
        reach = dict.fromkeys((f"{least:.4g}", f"{most:.4g}"))
        return f"runs of {' to '.join(reach)} {measurement.unit}"
    return Side(
        unit=measurement.unit,
        median=measurement.median,
        throughputs=throughputs,
        broken=len(measurement.broken_runs),
        is_whole=result.is_whole,
        speedup=result.speedup,
    )


def _named(names: Iterable[str]) -> str:
    names = list(names)
    more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *more]) or "none at all"


# ----------------------------------------------------------------------------- intervals


def ratio_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float] | None:
    """Find how far the 95 % interval of the ratio of two medians reaches, as factors of the ratio.

    Each side shows its own noise, for another framework may be noisier; so both need ``MIN_RUNS``
    runs, else it is ``None``. The degrees of freedom of both together are by Welch and
    Satterthwaite, on the scale of logarithms.
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
        # Runs that agree on nothing could give an error that cannot be squared twice.
        error = min(error, math.log(_LARGEST))
        errors.append(StandardError(value=error, dof=noise.dof))
    return StandardError.of_both(errors)


def _interval(ratio: float, error: StandardError) -> tuple[float, float]:
    reach = math.exp(min(error.interval, math.log(_LARGEST)))
    return ratio / reach, ratio * reach


# ---------------------------------------------------------------------- what else differs


def _different_facts(first: Results, second: Results, ids: set[str]) -> tuple[DifferentFact, ...]:
    """Clusters, pytest's machine, and what the compared cases were taken on."""
    ours, theirs = (
        {"cluster": side.cluster, **_pytest_facts(side), **_case_facts(side, ids)}
        for side in (first, second)
    )
    return tuple(
        DifferentFact(name=name, first=ours.get(name), second=theirs.get(name))
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name)
    )


def _pytest_facts(results: Results) -> dict[str, str]:
    environment = results.environment
    packages: Mapping[str, Any] = environment.get("packages") or {}
    facts = {f"pytest's {name}": environment.get(name) for name in _FACTS_OF_PYTEST}
    facts |= {f"{name} of pytest's Python": version for name, version in packages.items()}
    return {name: str(value) for name, value in facts.items() if value is not None}


def _case_facts(results: Results, ids: set[str]) -> dict[str, str]:
    """Machine and software of these cases by name; all values where they differ among cases."""
    values: dict[str, set[str]] = {}
    for result in results.cases:
        taken_on = result.measurement.fingerprint if result.measurement else None
        if taken_on is not None and result.case.id in ids:
            for name, value in [*taken_on.machine.items(), *taken_on.software.items()]:
                values.setdefault(name, set()).add(value)
    return {name: ", ".join(sorted(found)) for name, found in values.items()}
