"""The matrix as Markdown: a table for each training, its topologies below each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dlperf.model.case import SINGLE_DEVICE
from pytest_dlperf.model.judgement import Quantity
from pytest_dlperf.model.records import CaseResult
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.case_status import CaseStatus, standing_of, words_of
from pytest_dlperf.reports.figures import (
    by_training,
    difference_percent,
    efficiency_percent,
    held_against,
    run_count,
)
from pytest_dlperf.reports.markdown_parts import Part, Weight
from pytest_dlperf.reports.markdown_text import code, details, inline, table, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.model.results import Results

_HEADINGS = (
    "topology",
    "devices",
    "runs",
    "median",
    "spread",
    "baseline",
    "diff",
    "sees",
    "speedup",
    "of ideal",
    "verdict",
)


def matrix(results: Results) -> Iterator[Part]:
    """One part for each training, in the order in which they were selected.

    Those of which nothing was measured share one that is folded.
    """
    unmeasured = []
    for members in by_training(results.cases).values():
        case = members[0].case
        members.sort(key=lambda result: result.case.topology)
        if all(_has_nothing(result) for result in members):
            unmeasured.append(f"- {code(case.system)} {code(case.variant)}: {_topologies(members)}")
            continue
        unit = next(filter(None, map(results.unit_of, members)), None)
        counted_in = f" ({inline(unit)})" if unit else ""
        rows = table(_HEADINGS, [*_reference(members), *map(_row, members)], right=" rrrrrrrrr")
        all_good = all(standing_of(result).is_good for result in members)
        yield Part(
            text=f"### {code(case.system)} {code(case.variant)}{counted_in}\n\n{rows}",
            weight=Weight.TABLE if all_good else Weight.BAD_TABLE,
            section="Matrix",
            name="tables of the matrix",
        )
    if unmeasured:
        trainings = "1 training" if len(unmeasured) == 1 else f"{len(unmeasured)} trainings"
        yield Part(
            text=details(f"Nothing was measured of {trainings}", "\n".join(unmeasured)),
            weight=Weight.ABSENT,
            section="Matrix",
            name="trainings of which nothing was measured",
        )


def _has_nothing(result: CaseResult) -> bool:
    """Whether a row of the case would say no more than that there is nothing."""
    is_absent = result.measurement is None and result.single_device is None
    return is_absent and standing_of(result) in (CaseStatus.SKIPPED, CaseStatus.NOT_MEASURED)


def _topologies(members: Sequence[CaseResult]) -> str:
    by_word: dict[str, list[str]] = {}
    for result in members:
        by_word.setdefault(standing_of(result).value, []).append(str(result.case.topology))
    return "; ".join(f"{', '.join(topologies)} {word}" for word, topologies in by_word.items())


def _reference(members: Sequence[CaseResult]) -> Iterator[Sequence[str]]:
    """A row for one device that was measured for the speedups alone."""
    single = next(filter(None, (result.single_device for result in members)), None)
    if single is not None and SINGLE_DEVICE not in {result.case.topology for result in members}:
        case = members[0].case.single_device
        row = _row(CaseResult(case=case, measurement=single))
        yield [*row[:-1], "reference, not judged"]


def _row(result: CaseResult) -> Sequence[str]:
    measurement, case = result.measurement, result.case
    judgement = result.judgements.get(Quantity.THROUGHPUT)
    return (
        str(case.topology),
        str(case.topology.world_size),
        run_count(measurement),
        numbers.throughput(measurement.median if measurement else None),
        numbers.spread(measurement.spread if measurement else None),
        numbers.throughput(held_against(result, Quantity.THROUGHPUT)),
        numbers.signed_percent(difference_percent(judgement)),
        numbers.detectable_loss(judgement.min_detectable_percent if judgement else None),
        numbers.speedup(result.speedup),
        numbers.percent(efficiency_percent(result.speedup, case.topology.world_size)),
        ", ".join(verdict(word, standing) for word, standing in words_of(result)),
    )
