"""Two results side by side: of each metric of a case the ratio of B to A, with its 95 % interval.

A comparison knows neither baselines nor how much sessions differ. Where sessions differ as much as
runs do, a quarter of all cases looks better or worse with no change: a gate on it needs a
tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from pytest_dlperf.gate.noise import (
    StandardError,
    are_alike,
    is_noise_free,
    median_variance,
    pooled_noise,
)
from pytest_dlperf.model.builtin import PER_DEVICE
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.metric import THROUGHPUT, Better, Metric, Source
from pytest_dlperf.model.numbers import named
from pytest_dlperf.model.results import CaseResult, Results
from pytest_dlperf.results.shared_differences import SharedDifference, shared_differences

MIN_RUNS: Final = 3
"""Runs on either side that an interval needs: fewer do not show how much they differ."""

DECIMALS: Final = 3
"""Decimals of a ratio in reports; smaller differences lead to no conclusion."""

_UNCLEAR: Final = "not paired: one side has several of one model, precision, work and topology"
_MAX_NAMES: Final = 3
_MAX_ERROR: Final = 138.0
"""The largest error of a logarithm: a larger one could not be squared."""


class Conclusion(StrEnum):
    """The conclusion on a metric of a case. The value is the word that all reports use."""

    BETTER = "better"
    WORSE = "worse"
    DIFFERENT = "different"
    """Of a metric that is better in neither direction."""
    NONE_SEEN = "no difference seen"
    TOO_FEW = "too few runs"
    """The ratio stands without an interval."""
    BROKEN = "broken runs"
    """A side was not measured whole, so the ratio of the other runs says nothing of the case."""

    @property
    def is_certain(self) -> bool:
        """Whether there are enough runs for a conclusion, none of them broken."""
        return self not in (Conclusion.TOO_FEW, Conclusion.BROKEN)


class Side(Struct, frozen=True, kw_only=True):
    """A metric of a case on one side: its median, the runs' numbers, and how many are broken.

    The numbers of a ratio are those that are divided.
    """

    metric: Metric
    median: float
    numbers: tuple[float, ...]
    broken: int


class ComparedCase(Struct, frozen=True, kw_only=True):
    """One metric of one case that both sides have."""

    case_id: str
    """In A."""
    first: Side
    second: Side
    ratio: float
    """The second median over the first."""
    interval: tuple[float, float] | None
    """The 95 % interval of the ratio; ``None`` with too few runs, and where it is exact."""
    is_exact: bool
    """Whether the runs of neither side differ, as those of allocated memory do not."""
    conclusion: Conclusion

    @property
    def metric(self) -> Metric:
        """The metric, of one meaning on both sides."""
        return self.first.metric

    @property
    def loss(self) -> float:
        """How much worse the second is, as the logarithm of the ratio; negative: better."""
        return -math.log(self.ratio) * (self.metric.better.sign if self.metric.better else 1)


class ComparedMetric(Struct, frozen=True, kw_only=True):
    """One metric, with the cases that have it on both sides, in one direction.

    The topologies of a training stand in a row.
    """

    name: str
    better: Better | None
    cases: tuple[ComparedCase, ...]

    @property
    def worse_cases(self) -> tuple[ComparedCase, ...]:
        """The cases in which it is worse, the worst first."""
        worse = [case for case in self.cases if case.conclusion is Conclusion.WORSE]
        return tuple(sorted(worse, key=lambda case: -case.loss))

    @property
    def known_cases(self) -> Sequence[ComparedCase]:
        """The whole cases that have an interval or are exact, else all that are whole."""
        whole = [case for case in self.cases if case.conclusion is not Conclusion.BROKEN]
        return [case for case in whole if case.conclusion is not Conclusion.TOO_FEW] or whole

    @property
    def is_certain(self) -> bool:
        """Whether these have enough runs."""
        return any(case.conclusion.is_certain for case in self.known_cases)

    @property
    def mean_ratio(self) -> float:
        """The geometric mean of their ratios."""
        logarithms = [math.log(case.ratio) for case in self.known_cases]
        return math.exp(math.fsum(logarithms) / len(logarithms))


class Comparison(Struct, frozen=True, kw_only=True):
    """Two results side by side."""

    first: Results
    second: Results
    metrics: tuple[ComparedMetric, ...]
    paired: Mapping[str, str]
    """Ids of cases of B by those of A that they are compared with, where these differ."""
    not_compared: Mapping[str, Sequence[str]]
    """Ids of cases by why they are not compared, or not by some metric."""
    lost: Mapping[str, Sequence[str]]
    """Those of them of which B lacks a number that a test judges, or has it in another form."""
    differences: tuple[SharedDifference, ...]
    """What differs beside the numbers, the most suspicious first."""

    def failures(
        self, conclusions: Collection[Conclusion], tolerance_percent: float = 0.0
    ) -> dict[str, list[str]]:
        """Ids of cases that fail a gate, by why; only metrics that tests judge count.

        Fails: a conclusion among these, where B differs by more than the tolerance; and whatever
        these are, a case with broken runs, and one that B lost: without a number it is not as good.
        Where not a single metric can be judged, all of them fail.
        """
        found: dict[str, list[str]] = {}
        every = [case for metric in self.metrics for case in metric.cases]
        judged = [case for case in every if case.metric.is_judged]
        for case in judged:
            conclusion = case.conclusion
            exceeds = abs(case.ratio - 1) * 100 > tolerance_percent or not conclusion.is_certain
            if conclusion is Conclusion.BROKEN or (conclusion in conclusions and exceeds):
                word = "by" if conclusion.is_certain else "of"
                why = f"{conclusion.value} {word} {case.metric.name}"
                found.setdefault(why, []).append(case.case_id)
        if not (found or any(case.conclusion.is_certain for case in judged)):
            ids = dict.fromkeys(case.case_id for case in every)
            found["of which no metric can be judged"] = list(ids)
        return {**found, **{why: list(case_ids) for why, case_ids in self.lost.items()}}


class _NotCompared(Struct, frozen=True):
    """Why a case is not compared, or not by some metric.

    ``is_lost``: B lacks a number that a test of A judges, or has it in another form.
    """

    why: str
    is_lost: bool


def compare_results(first: Results, second: Results) -> Comparison:
    """Compare the second results with the first.

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
    ours, theirs = (
        {one.case.id: one for one in sorted(side.cases, key=lambda one: one.case.sort_key)}
        for side in (first, second)
    )
    paired, unclear = _paired(ours, theirs)
    names = {case_id: paired.get(case_id, case_id) for case_id in ours}
    pairs = {a: (ours[a], theirs[b]) for a, b in names.items() if b in theirs}
    if not pairs:
        several = f"; {_UNCLEAR}: {_named(unclear)}" if unclear else ""
        raise UsageError(
            f"A and B have no case in common: A has {_named(ours)}, B has {_named(theirs)}{several}"
        )
    compared: dict[tuple[str, Better | None], list[ComparedCase]] = {}
    not_compared: dict[str, list[str]] = {}
    lost: dict[str, list[str]] = {}
    for case_id, pair in pairs.items():
        for found in _compared(*pair):
            if isinstance(found, ComparedCase):
                # Systems may disagree on which direction of a name is better.
                key = found.metric.name, found.metric.better
                compared.setdefault(key, []).append(found)
                continue
            not_compared.setdefault(found.why, []).append(case_id)
            if found.is_lost:
                lost.setdefault(found.why, []).append(case_id)
    if not compared:
        reasons = _named([f"{ids[0]} {why}" for why, ids in not_compared.items()])
        raise UsageError(f"A and B have no case that can be compared: {reasons}")
    told = {*unclear, *pairs, *paired.values()}
    not_compared[_UNCLEAR] = unclear
    not_compared["only in A"] = [case_id for case_id in ours if case_id not in told]
    not_compared["only in B"] = [case_id for case_id in theirs if case_id not in told]
    known = dict.fromkeys(case.case_id for cases in compared.values() for case in cases)
    return Comparison(
        first=first,
        second=second,
        metrics=tuple(
            ComparedMetric(name=name, better=better, cases=tuple(cases))
            for (name, better), cases in compared.items()
        ),
        paired=paired,
        not_compared={why: case_ids for why, case_ids in not_compared.items() if case_ids},
        lost=lost,
        differences=shared_differences(first, second, {one: pairs[one] for one in known}),
    )


def _paired(
    ours: Mapping[str, CaseResult], theirs: Mapping[str, CaseResult]
) -> tuple[dict[str, str], list[str]]:
    """Pair trainings of which one side has each: by model, precision, work of a step and topology.

    Also return the ids of those of which a side has several, so that any pair may be wrong.
    """
    alike: dict[object, tuple[list[str], list[str]]] = {}
    for place, (side, other) in enumerate(((ours, theirs), (theirs, ours))):
        for case_id, result in side.items():
            case = result.case
            if case_id in other or case.work is None:
                continue
            step = case.global_batch, case.sequence_length, case.layout
            key = case.model, case.precision, *step, case.topology
            alike.setdefault(key, ([], []))[place].append(case_id)
    both = [group for group in alike.values() if all(group)]
    pairs = {a[0]: b[0] for a, b in both if len(a) == len(b) == 1}
    unclear = [case_id for a, b in both if max(len(a), len(b)) > 1 for case_id in (*a, *b)]
    return pairs, unclear


def _compared(one: CaseResult, other: CaseResult) -> Iterator[ComparedCase | _NotCompared]:
    """Compare a case of both sides by each metric, or yield why not."""
    missing = [_missing(one), _missing(other)]
    if any(missing):
        ours, theirs = (side or "measured" for side in missing)
        yield _NotCompared(f"not compared (A: {ours}, B: {theirs})", is_lost=not missing[0])
        return
    first, second = _sides(one), _sides(other)
    for name in dict.fromkeys([*first, *second]):
        a, b = first.get(name), second.get(name)
        if name == PER_DEVICE and THROUGHPUT in first and THROUGHPUT in second:
            continue  # of one topology, it says the same
        if a is None:
            yield _NotCompared(f"without {name} in A", is_lost=False)
        elif b is None:
            yield _NotCompared(f"without {name} in B", is_lost=a.metric.is_judged)
        elif told := _not_alike(one, a, other, b):
            why = "not compared by {} (A: {}, B: {})".format(name, *told)
            yield _NotCompared(why, is_lost=a.metric.is_judged)
        else:
            yield _of_metric(one, a, other, b)


def _missing(result: CaseResult) -> str:
    """Return the verdict of a side without runs; an empty text where it has any."""
    measurement = result.measurement
    if measurement is not None and len(measurement.broken_runs) < len(measurement.runs):
        return ""
    verdicts = [judgement.verdict for judgement in result.judgements.values()]
    return verdicts[0].value if verdicts else "not measured"


def _sides(result: CaseResult) -> dict[str, Side]:
    """Return one side of each metric that the case has a number of."""
    measurement = result.measurement
    if measurement is None:
        return {}
    return {
        name: Side(
            metric=known.metric,
            median=known.median,
            numbers=measurement.samples(known.metric.ratio_of or name).values,
            broken=len(measurement.broken_runs),
        )
        for name, known in result.metrics().items()
        if known.median is not None
    }


def _not_alike(one: CaseResult, a: Side, other: CaseResult, b: Side) -> tuple[str, str] | None:
    """Return what A and B have instead of one metric; ``None`` where a ratio can be taken."""
    for ours, theirs in (
        (f"in {a.metric.unit}", f"in {b.metric.unit}"),
        (f"better is {_direction(a.metric)}", f"better is {_direction(b.metric)}"),
        (f"over {one.case.reference_topology}", f"over {other.case.reference_topology}"),
    ):
        if ours != theirs and (a.metric.ratio_of or not ours.startswith("over ")):
            return ours, theirs
    # A very slow run has, rounded as published, a throughput of 0.00.
    ratio = b.median / a.median if min(a.numbers + b.numbers) > 0 else 0.0
    return None if 0 < ratio < math.inf else (f"{a.median:.4g}", f"{b.median:.4g}")


def _direction(metric: Metric) -> str:
    return metric.better.value if metric.better else "neither"


def _of_metric(one: CaseResult, a: Side, other: CaseResult, b: Side) -> ComparedCase:
    """Compare one metric that both sides have."""
    metric, ratio = a.metric, b.median / a.median
    # As the gate has it: times that agree do so by chance.
    is_exact = metric.source is Source.LOG and is_noise_free((a.numbers, b.numbers))
    error = None if is_exact else _error(metric, one, other)
    reach = math.exp(min(error.interval, _MAX_ERROR)) if error else 1.0
    interval = (ratio / reach, ratio * reach) if error else None
    # Never one that the decimals contradict: an interval that ends at 1.0004 ends at 1.000 for the
    # reader, and noise is not known well enough to tell it from 1.
    low, high = (round(end, DECIMALS) for end in interval or (ratio, ratio))
    is_equal = are_alike((a.median, b.median)) if is_exact else low <= 1 <= high
    if not (one.is_whole and other.is_whole) or a.broken or b.broken:
        conclusion = Conclusion.BROKEN
    elif interval is None and not is_exact:
        conclusion = Conclusion.TOO_FEW
    elif is_equal:
        conclusion = Conclusion.NONE_SEEN
    elif metric.better is None:
        conclusion = Conclusion.DIFFERENT
    else:
        is_worse = metric.better.is_worse(ratio, 1)
        conclusion = Conclusion.WORSE if is_worse else Conclusion.BETTER
    return ComparedCase(
        case_id=one.case.id,
        first=a,
        second=b,
        ratio=ratio,
        interval=interval,
        is_exact=is_exact,
        conclusion=conclusion,
    )


def _error(metric: Metric, one: CaseResult, other: CaseResult) -> StandardError | None:
    """Estimate the error of a ratio of medians; of ratios, that of both of their ends."""
    pairs = [(one.measurement, other.measurement)]
    if metric.ratio_of is not None:
        pairs.append((one.reference, other.reference))
    name, errors = metric.ratio_of or metric.name, []
    for ours, theirs in pairs:
        if ours is None or theirs is None:
            return None
        error = ratio_error(ours.samples(name).values, theirs.samples(name).values)
        if error is None:
            return None
        errors.append(error)
    return errors[0] if len(errors) == 1 else StandardError.combined(errors)


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
    return StandardError.combined(errors)


def _named(names: Iterable[str]) -> str:
    return named(list(names), _MAX_NAMES) or "none at all"


def measured_facts(cases: Iterable[CaseResult]) -> dict[str, str]:
    """Collect machine and software of cases; all values of facts that differ among them."""
    values: dict[str, set[str]] = {}
    for result in cases:
        taken_on = result.measurement.fingerprint if result.measurement else None
        if taken_on is not None:
            for name, value in [*taken_on.machine.items(), *taken_on.software.items()]:
                values.setdefault(name, set()).add(value)
    return {name: ", ".join(sorted(found)) for name, found in values.items()}
