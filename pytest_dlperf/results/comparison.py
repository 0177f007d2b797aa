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

    from pytest_dlperf.model.measurement import Measurement
    from pytest_dlperf.model.records import CaseResult
    from pytest_dlperf.model.results import Results

MIN_RUNS: Final = 3
"""Runs that an interval needs on either side; fewer do not show how much they differ."""

_NAMED: Final = 3
_MAX_ERROR: Final = 138.0
"""Runs that agree on nothing have no larger error, as a logarithm: it could not be squared."""
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
class ComparedCase:
    """One case with runs on both sides."""

    first: Measurement
    second: Measurement
    is_whole: bool
    """Whether no run of either side is broken, and no test of it was lost with its worker."""
    ratio: float
    """The second median over the first."""
    speedup_ratio: float | None
    """The second speedup over the first."""
    error: StandardError | None
    """Of the ratio on the scale of logarithms; ``None`` with too few runs on either side."""

    @property
    def case_id(self) -> str:
        """The case, the same on both sides."""
        return self.first.case_id

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the ratio, where there are enough runs."""
        return _interval(self.ratio, self.error) if self.error else None

    @property
    def difference(self) -> Difference:
        """The conclusion from ratio and interval."""
        if not self.is_whole:
            return Difference.BROKEN
        if self.interval is None:
            return Difference.TOO_FEW
        low, high = self.interval
        if low > 1:
            return Difference.FASTER
        return Difference.SLOWER if high < 1 else Difference.NONE_SEEN


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
    """Two results side by side; the topologies of a training stand in a row."""

    first: Results
    second: Results
    cases: tuple[ComparedCase, ...]
    not_compared: Mapping[str, Sequence[str]]
    """Ids of cases by why they are not compared."""
    different_facts: tuple[tuple[str, str | None, str | None], ...]
    """What else differs: a name and its values on both sides, ``None`` where it is unknown."""

    @property
    def slower_cases(self) -> tuple[ComparedCase, ...]:
        """The cases that are slower, the slowest first."""
        slower = [case for case in self.cases if case.difference is Difference.SLOWER]
        return tuple(sorted(slower, key=lambda case: case.ratio))

    @property
    def mean_ratio(self) -> MeanRatio | None:
        """The mean over the cases that have an interval and were measured whole, if any."""
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
    compared = []
    not_compared: dict[str, list[str]] = {}
    for case_id in common:
        case = _compared(ours[case_id], theirs[case_id])
        if isinstance(case, ComparedCase):
            compared.append(case)
        else:
            not_compared.setdefault(f"not compared ({case})", []).append(case_id)
    if not compared:
        named = _named([f"{ids[0]} ({why})" for why, ids in not_compared.items()])
        raise UsageError(f"A and B have no case that can be compared: {named}")
    not_compared["only in A"] = [case_id for case_id in ours if case_id not in theirs]
    not_compared["only in B"] = [case_id for case_id in theirs if case_id not in ours]
    return Comparison(
        first=first,
        second=second,
        cases=tuple(compared),
        not_compared={why: case_ids for why, case_ids in not_compared.items() if case_ids},
        different_facts=_different_facts(first, second, {case.case_id for case in compared}),
    )


def _in_order(results: Results) -> list[CaseResult]:
    def place(result: CaseResult) -> tuple[Any, ...]:
        case = result.case
        return case.system, case.precision, case.work, case.options, case.topology

    return sorted(results.cases, key=place)


def _compared(one: CaseResult, other: CaseResult) -> ComparedCase | str:
    """Compare a case of both sides, or say what each side has instead of a ratio."""
    first, second = one.measurement, other.measurement
    sides = [_missing(one), _missing(other)]
    if first is not None and second is not None and not any(sides):
        if first.unit != second.unit:
            sides = [f"in {first.unit}", f"in {second.unit}"]
        elif ratio := _quotient(second.median, first.median):
            broken = first.broken_runs or second.broken_runs
            return ComparedCase(
                first=first,
                second=second,
                is_whole=one.is_whole and other.is_whole and not broken,
                ratio=ratio,
                speedup_ratio=_quotient(other.speedup, one.speedup),
                error=ratio_error(first.throughputs, second.throughputs),
            )
    ours, theirs = (side or "measured" for side in sides)
    return f"A: {ours}, B: {theirs}"


def _quotient(above: float | None, below: float | None) -> float | None:
    ratio = above / below if above and below else math.nan
    return ratio if math.isfinite(ratio) else None


def _missing(result: CaseResult) -> str:
    """Say what a side has instead of runs that have a ratio; nothing where it has such runs."""
    measurement = result.measurement
    # A very slow run has, rounded as published, a throughput of 0.00.
    if measurement is not None and measurement.median and min(measurement.throughputs) > 0:
        return ""
    verdict = result.verdict(Quantity.THROUGHPUT) or result.verdict(Quantity.SPEEDUP)
    return verdict.value if verdict is not None else "not measured"


def _named(names: Iterable[str]) -> str:
    names = list(names)
    more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return ", ".join([*names[:_NAMED], *more]) or "none at all"


# ----------------------------------------------------------------------------- intervals


def ratio_error(first: Sequence[float], second: Sequence[float]) -> StandardError | None:
    """Estimate the standard error of the ratio of two medians, on the scale of logarithms.

    Each side shows its own noise, for another framework may be noisier; so both need ``MIN_RUNS``
    runs, else it is ``None``. The degrees of freedom are by Welch and Satterthwaite.
    """
    if min(len(first), len(second)) < MIN_RUNS:
        return None
    errors = []
    for runs in (first, second):
        noise = pooled_noise((runs,))
        if noise is None:
            return None
        error = noise.deviation * math.sqrt(median_variance(len(runs)))
        errors.append(StandardError(value=min(error, _MAX_ERROR), dof=noise.dof))
    return StandardError.of_both(errors)


def _interval(ratio: float, error: StandardError) -> tuple[float, float]:
    reach = math.exp(min(error.interval, _MAX_ERROR))
    return ratio / reach, ratio * reach


# ---------------------------------------------------------------------- what else differs


def _different_facts(
    first: Results, second: Results, ids: set[str]
) -> tuple[tuple[str, str | None, str | None], ...]:
    ours, theirs = (
        {
            "cluster": side.cluster,
            **_pytest_facts(side),
            **measured_facts(result for result in side.cases if result.case.id in ids),
        }
        for side in (first, second)
    )
    return tuple(
        (name, ours.get(name), theirs.get(name))
        for name in dict.fromkeys([*ours, *theirs])
        if ours.get(name) != theirs.get(name)
    )


def _pytest_facts(results: Results) -> dict[str, str]:
    environment = results.environment
    packages: Mapping[str, Any] = environment.get("packages") or {}
    facts = {f"pytest's {name}": environment.get(name) for name in _FACTS_OF_PYTEST}
    facts |= {f"{name} of pytest's Python": version for name, version in packages.items()}
    return {name: str(value) for name, value in facts.items() if value is not None}


def measured_facts(cases: Iterable[CaseResult]) -> dict[str, str]:
    """Collect machine and software of cases; all values of facts that differ among them."""
    values: dict[str, set[str]] = {}
    for result in cases:
        taken_on = result.measurement.fingerprint if result.measurement else None
        if taken_on is not None:
            for name, value in [*taken_on.machine.items(), *taken_on.software.items()]:
                values.setdefault(name, set()).add(value)
    return {name: ", ".join(sorted(found)) for name, found in values.items()}
