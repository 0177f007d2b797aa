"""Two results side by side: of each metric of a case the ratio of B to A, with its 95 % interval.

A comparison knows neither baselines nor how much sessions differ. Where sessions differ as much as
runs do, a quarter of all cases looks better or worse with no change: a gate on it needs a
tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from pytest_dlperf.model.differences import compared, differences_of
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.judgement import Difference, DifferenceKind
from pytest_dlperf.model.metric import THROUGHPUT, Better, Metric, Source
from pytest_dlperf.model.numbers import named
from pytest_dlperf.model.results import CaseResult, Results

MIN_RUNS: Final = 3
"""Runs on either side that an interval needs: fewer do not show how much they differ."""
DECIMALS: Final = 3
"""Decimals of a ratio in reports; smaller differences lead to no conclusion."""

_KINDS: Final = tuple(DifferenceKind)
_MAX_NAMES: Final = 3
_MAX_ERROR: Final = 138.0
"""The largest error of a logarithm: a larger one could not be squared."""


class Conclusion(StrEnum):
    """The conclusion on a metric of a case, in the word that all reports use."""

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
    """A metric of a case on one side; the numbers of a ratio are those that are divided."""

    median: float
    numbers: tuple[float, ...]
    """One of each run that counts."""
    broken: int
    """How many runs are broken."""


class ComparedCase(Struct, frozen=True, kw_only=True):
    """One metric of one case that both sides have."""

    case_id: str
    """In A."""
    metric: Metric
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
    def loss(self) -> float:
        """How much worse the second is, as the logarithm of the ratio; negative: better."""
        return -math.log(self.ratio) * (self.metric.better.sign if self.metric.better else 1)


class ComparedMetric(Struct, frozen=True, kw_only=True):
    """One metric, with the cases that have it on both sides, in one direction."""

    name: str
    better: Better | None
    cases: tuple[ComparedCase, ...]

    @property
    def worse_cases(self) -> list[ComparedCase]:
        """The cases in which it is worse, the worst first."""
        worse = [case for case in self.cases if case.conclusion is Conclusion.WORSE]
        return sorted(worse, key=lambda case: -case.loss)

    @property
    def known_cases(self) -> Sequence[ComparedCase]:
        """The whole cases that have an interval or are exact, else all that are whole."""
        whole = [case for case in self.cases if case.conclusion is not Conclusion.BROKEN]
        return [case for case in whole if case.conclusion.is_certain] or whole

    @property
    def is_certain(self) -> bool:
        """Whether these have enough runs."""
        return any(case.conclusion.is_certain for case in self.known_cases)

    @property
    def mean_ratio(self) -> float:
        """The geometric mean of their ratios."""
        logarithms = [math.log(case.ratio) for case in self.known_cases]
        return math.exp(math.fsum(logarithms) / len(logarithms))


class SharedDifference(Struct, frozen=True, kw_only=True):
    """A difference, and the cases that have it; none for one of the sessions themselves.

    Of its sides, ``accepted`` is A and ``now`` B.
    """

    difference: Difference
    case_ids: tuple[str, ...] = ()


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
    differences: Sequence[SharedDifference]
    """What differs beside the numbers, the most suspicious first."""

    def failures(
        self, conclusions: Collection[Conclusion], tolerance_percent: float = 0.0
    ) -> dict[str, list[str]]:
        """Ids of cases that fail a gate, by why; only metrics that tests judge count.

        Fails: a conclusion among these, where B differs by more than the tolerance; and whatever
        these are, a case with broken runs, and one that B lost: without a number it is not as good.
        Where not a single metric can be judged, all of them fail.
        """
        failing: dict[str, list[str]] = {}
        cases = [case for metric in self.metrics for case in metric.cases]
        judged = [case for case in cases if case.metric.is_judged]
        for case in judged:
            conclusion = case.conclusion
            exceeds = abs(case.ratio - 1) * 100 > tolerance_percent or not conclusion.is_certain
            if conclusion is Conclusion.BROKEN or (conclusion in conclusions and exceeds):
                word = "by" if conclusion.is_certain else "of"
                why = f"{conclusion.value} {word} {case.metric.name}"
                failing.setdefault(why, []).append(case.case_id)
        if not (failing or any(case.conclusion.is_certain for case in judged)):
            ids = dict.fromkeys(case.case_id for case in cases)
            failing["of which no metric can be judged"] = list(ids)
        return {**failing, **{why: list(case_ids) for why, case_ids in self.lost.items()}}


def compare_results(first: Results, second: Results) -> Comparison:
    """Compare the second results with the first (``UsageError`` without a case in common)."""
    if first.estimator is not second.estimator:
        raise UsageError(
            f"A has numbers of the estimator {first.estimator.value!r}, B of "
            f"{second.estimator.value!r}; numbers of different estimators cannot be compared. "
            "Judge the logs of one of them again with --dlperf-logs and a cluster that has the "
            "other's estimator"
        )
    a_cases, b_cases = (
        {case.case.id: case for case in sorted(side.cases, key=lambda case: case.case.sort_key)}
        for side in (first, second)
    )
    paired = _paired(a_cases, b_cases)
    partners = {case_id: paired.get(case_id, case_id) for case_id in a_cases}
    pairs = {a: (a_cases[a], b_cases[b]) for a, b in partners.items() if b in b_cases}
    if not pairs:
        a_names, b_names = (named(list(side), _MAX_NAMES) or "none" for side in (a_cases, b_cases))
        raise UsageError(f"A and B have no case in common: A has {a_names}, B has {b_names}")
    # Systems may disagree on which direction of a name is better.
    by_metric: dict[tuple[str, Better | None], list[ComparedCase]] = {}
    not_compared: dict[str, list[str]] = {}
    lost: dict[str, list[str]] = {}
    for case_id, (a, b) in pairs.items():
        for outcome in _compared(a, b):
            if isinstance(outcome, ComparedCase):
                key = outcome.metric.name, outcome.metric.better
                by_metric.setdefault(key, []).append(outcome)
                continue
            why, is_lost = outcome
            for reasons in (not_compared, lost) if is_lost else (not_compared,):
                reasons.setdefault(why, []).append(case_id)
    if not by_metric:
        why, (case_id, *_) = next(iter(not_compared.items()))
        raise UsageError(f"A and B have no case that can be compared: {case_id} {why}")
    not_compared["only in A"] = [case_id for case_id in a_cases if case_id not in pairs]
    partner_ids = {b.case.id for _, b in pairs.values()}
    not_compared["only in B"] = [case_id for case_id in b_cases if case_id not in partner_ids]
    compared_ids = dict.fromkeys(case.case_id for cases in by_metric.values() for case in cases)
    return Comparison(
        first=first,
        second=second,
        metrics=tuple(
            ComparedMetric(name=name, better=better, cases=tuple(cases))
            for (name, better), cases in by_metric.items()
        ),
        paired=paired,
        not_compared={why: case_ids for why, case_ids in not_compared.items() if case_ids},
        lost=lost,
        differences=_shared_differences(first, second, {a: pairs[a] for a in compared_ids}),
    )


def _paired(a_cases: Mapping[str, CaseResult], b_cases: Mapping[str, CaseResult]) -> dict[str, str]:
    """Pair the trainings of two frameworks, where each side has one of the same step."""
    alike: dict[object, tuple[list[str], list[str]]] = {}
    for index, (side, other) in enumerate(((a_cases, b_cases), (b_cases, a_cases))):
        for case_id, result in side.items():
            case = result.case
            if case_id not in other and case.work is not None:
                step = case.global_batch, case.sequence_length, case.layout
                key = case.model, case.precision, *step, case.topology
                alike.setdefault(key, ([], []))[index].append(case_id)
    return {a[0]: b[0] for a, b in alike.values() if len(a) == len(b) == 1}


def _compared(a: CaseResult, b: CaseResult) -> Iterator[ComparedCase | tuple[str, bool]]:
    """Compare a case by each metric, or yield why not, and whether B lost a judged number."""
    if not (a.is_measured and b.is_measured):
        words = ["measured" if side.is_measured else side.status.value for side in (a, b)]
        yield "not compared (A: {}, B: {})".format(*words), a.is_measured
        return
    first, second = _sides(a), _sides(b)
    for name in dict.fromkeys([*first, *second]):
        if name == PER_DEVICE and THROUGHPUT in first and THROUGHPUT in second:
            continue  # of one topology, it says the same
        if name not in first:
            yield f"without {name} in A", False
            continue
        metric, one = first[name]
        if name not in second:
            yield f"without {name} in B", metric.is_judged
            continue
        other_metric, other = second[name]
        meanings = zip(_meaning(a, metric), _meaning(b, other_metric), strict=True)
        unlike = next((pair for pair in meanings if pair[0] != pair[1]), None)
        # A very slow run has, rounded as published, a throughput of 0.00.
        ratio = other.median / one.median if min(one.numbers + other.numbers) > 0 else 0.0
        if unlike is None and not 0 < ratio < math.inf:
            unlike = f"{one.median:.4g}", f"{other.median:.4g}"
        if unlike is not None:
            yield "not compared by {} (A: {}, B: {})".format(name, *unlike), metric.is_judged
        else:
            yield _compared_metric(metric, (a, one), (b, other), ratio)


def _compared_metric(
    metric: Metric, first: tuple[CaseResult, Side], second: tuple[CaseResult, Side], ratio: float
) -> ComparedCase:
    (a, one), (b, other) = first, second
    # As the gate has it: times that agree do so by chance.
    is_exact = metric.source is Source.LOG and is_noise_free((one.numbers, other.numbers))
    error = None if is_exact else _error(metric, a, b)
    reach = math.exp(min(error.interval, _MAX_ERROR)) if error else 1.0
    interval = (ratio / reach, ratio * reach) if error else None
    # Never one that the decimals contradict: an interval that ends at 1.0004 ends at 1.000 for
    # the reader, and noise is not known well enough to tell it from 1.
    low, high = (round(end, DECIMALS) for end in interval or (ratio, ratio))
    is_equal = are_alike((one.median, other.median)) if is_exact else low <= 1 <= high
    if not (a.is_whole and b.is_whole) or one.broken or other.broken:
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
        case_id=a.case.id,
        metric=metric,
        first=one,
        second=other,
        ratio=ratio,
        interval=interval,
        is_exact=is_exact,
        conclusion=conclusion,
    )


def _sides(result: CaseResult) -> dict[str, tuple[Metric, Side]]:
    measurement = result.measurement
    if measurement is None:
        return {}
    return {
        name: (
            known.metric,
            Side(
                median=known.median,
                numbers=measurement.samples(known.metric.ratio_of or name).values,
                broken=len(measurement.broken_runs),
            ),
        )
        for name, known in result.metrics().items()
        if known.median is not None
    }


def _meaning(result: CaseResult, metric: Metric) -> tuple[str, str, str]:
    """Return what has to be equal for a ratio of two numbers to mean something."""
    direction = metric.better.value if metric.better else "neither"
    over = f"over {result.case.reference_topology}" if metric.ratio_of else ""
    return f"in {metric.unit}", f"better is {direction}", over


def _error(metric: Metric, a: CaseResult, b: CaseResult) -> StandardError | None:
    """Estimate the error of a ratio of medians; of ratios, that of both of their ends."""
    ends = [(a.measurement, b.measurement)]
    if metric.ratio_of is not None:
        ends.append((a.reference, b.reference))
    name, errors = metric.ratio_of or metric.name, []
    for one, other in ends:
        if one is None or other is None:
            return None
        error = ratio_error(one.samples(name).values, other.samples(name).values)
        if error is None:
            return None
        errors.append(error)
    return StandardError.combined(errors) if metric.ratio_of else errors[0]


def ratio_error(first: Sequence[float], second: Sequence[float]) -> StandardError | None:
    """Estimate the standard error of the ratio of two medians, on the scale of logarithms.

    Each side shows its own noise, for another framework may be noisier; so both need ``MIN_RUNS``
    runs, else it is ``None``. The degrees of freedom are by Welch and Satterthwaite.
    """
    errors = []
    for runs in (first, second):
        noise = pooled_noise((runs,)) if len(runs) >= MIN_RUNS else None
        if noise is None:
            return None
        error = noise.deviation * math.sqrt(median_variance(len(runs)))
        errors.append(StandardError(value=min(error, _MAX_ERROR), dof=noise.dof))
    return StandardError.combined(errors)


# ----------------------------------------------------------------------------- what differs


def _shared_differences(
    first: Results, second: Results, pairs: Mapping[str, tuple[CaseResult, CaseResult]]
) -> list[SharedDifference]:
    """List what differs, with all values of each thing: the cluster, then by kind."""
    by_thing: dict[tuple[DifferenceKind, str], list[tuple[str, Difference]]] = {}
    for case_id, sides in pairs.items():
        a, b = (
            compared(
                side.measurement.fingerprint if side.measurement else None, session.origin.commit
            )
            for side, session in zip(sides, (first, second), strict=True)
        )
        for difference in differences_of(b, accepted=a):
            thing = difference.kind, difference.name
            by_thing.setdefault(thing, []).append((case_id, difference))
    shared = []
    if first.cluster != second.cluster:
        cluster = Difference(
            kind=DifferenceKind.MACHINE,
            name="cluster",
            accepted=first.cluster,
            now=second.cluster,
        )
        shared.append(SharedDifference(difference=cluster))
    for (kind, name), of_cases in sorted(
        by_thing.items(), key=lambda item: _KINDS.index(item[0][0])
    ):
        accepted, now = (
            ", ".join(dict.fromkeys(filter(None, values)))
            for values in zip(*((each.accepted, each.now) for _, each in of_cases), strict=True)
        )
        shared.append(
            SharedDifference(
                difference=Difference(kind=kind, name=name, accepted=accepted, now=now),
                case_ids=tuple(case_id for case_id, _ in of_cases),
            )
        )
    return shared
