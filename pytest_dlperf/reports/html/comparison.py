"""The page of a comparison: a table with each ratio and its interval as a picture."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.reports.comparison import (
    DIFFERENCES_SHOWN,
    NOTHING_DIFFERS,
    SHOWN,
    CaseRow,
    ComparisonView,
    MetricView,
)
from pytest_dlperf.reports.html.drawing import Badge, Scale, Tick, round_step
from pytest_dlperf.reports.html.render import render
from pytest_dlperf.results.comparison import Conclusion

if TYPE_CHECKING:
    from collections.abc import Mapping

WIDTH: Final = 220
"""Pixels of a picture."""

_MARGIN: Final = 18
_MIN_REACH: Final = 0.02
"""Ratios that lie nearer together than this are not blown up to look like differences."""
_LARGEST_RATIO: Final = 10.0
"""A ratio beyond it, or below its inverse, is an arrow at the edge of its picture."""
_LOGARITHMIC_FROM: Final = 4.0
_MAX_STEPS: Final = 4
"""Of the scale: the labels of more would touch."""
_ROUNDED: Final = 1e-9

_BADGES: Final = {
    Conclusion.WORSE: ("regressed", "-"),
    Conclusion.BROKEN: ("failed", "✕"),
    Conclusion.DIFFERENT: ("inconclusive", "≠"),
    Conclusion.TOO_FEW: ("inconclusive", "?"),
    Conclusion.NONE_SEEN: ("not-judged", "="),
    Conclusion.BETTER: ("pass", "+"),
}
"""Style and sign, the worst first."""


class _Picture(Struct, frozen=True, kw_only=True):
    badge: Badge
    """Its rank is the row's place among all of the page, the worst being 0."""
    values: tuple[float | None, ...]
    """What the cells are sorted by; ``None``: not by them."""
    at: int
    beyond: str
    """Where an arrow stands for a ratio beyond the scale: ``left``, ``right``, else empty."""
    low: int | None
    high: int | None
    title: str


def comparison_page(view: ComparisonView) -> str:
    """Write the whole page: it opens offline, and is a plain table without its script."""
    rows = [row for metric in view.metrics for row in metric.cases]
    worst_first = sorted(rows, key=lambda row: (_rank(row), -row.case.loss))
    places = {id(row): place for place, row in enumerate(worst_first)}
    return render(
        "comparison.html.j2",
        view=view,
        shown=SHOWN,
        differences_shown=DIFFERENCES_SHOWN,
        nothing_differs=NOTHING_DIFFERS,
        sorts=[value is not None for value in _values(rows[0])],
        metrics=[_section(metric, places) for metric in view.metrics],
        width=WIDTH,
    )


class _Section(Struct, frozen=True, kw_only=True):
    """A metric with its pictures, which have one scale: they are read against each other."""

    metric: MetricView
    rows: tuple[tuple[CaseRow, _Picture], ...]
    ticks: tuple[Tick, ...]
    one: int
    """Where the ratio 1 is."""


def _section(metric: MetricView, places: Mapping[int, int]) -> _Section:
    values = [1 - _MIN_REACH, 1 + _MIN_REACH]
    for row in metric.cases:
        values += [row.case.ratio, *(row.case.interval or ())]
    low = max(min(values), 1 / _LARGEST_RATIO)
    high = min(max(values), _LARGEST_RATIO)
    logarithmic = high / low > _LOGARITHMIC_FROM
    marks = _powers(low, high) if logarithmic else _multiples(low, high)
    scale = Scale(
        low=marks[0],
        high=marks[-1],
        start=_MARGIN,
        end=WIDTH - _MARGIN,
        logarithmic=logarithmic,
    )
    return _Section(
        metric=metric,
        rows=tuple((row, _picture(row, scale, places[id(row)])) for row in metric.cases),
        ticks=tuple(Tick(scale.at(mark), f"{mark:.10g}") for mark in marks),
        one=scale.at(1.0),
    )


def _powers(low: float, high: float) -> list[float]:
    """Values of 1, 2, 5, 10 … from the last one below to the first one above."""
    marks = [factor * 10.0**power for power in (-1, 0, 1) for factor in (1, 2, 5)]
    first = max((mark for mark in marks if mark <= low), default=marks[0])
    last = min(mark for mark in marks if mark >= high)
    return [mark for mark in marks if first <= mark <= last]


def _multiples(low: float, high: float) -> list[float]:
    """Multiples of a round step, four steps at most, from the last below to the first above."""
    step = round_step((high - low) / _MAX_STEPS)
    while True:
        first, last = math.floor(low / step + _ROUNDED), math.ceil(high / step - _ROUNDED)
        if last - first <= _MAX_STEPS:
            return [number * step for number in range(first, last + 1)]
        step = round_step(step * 1.01)


def _rank(row: CaseRow) -> int:
    return list(_BADGES).index(row.case.conclusion)


def _values(row: CaseRow) -> tuple[float | None, ...]:
    """Give the numbers of those cells that rows are sorted by."""
    case = row.case
    return None, case.first.median, case.second.median, case.ratio, None


def _picture(row: CaseRow, scale: Scale, place: int) -> _Picture:
    style, sign = _BADGES[row.case.conclusion]
    *_, ratio, interval = row.cells
    low, high = row.case.interval or (None, None)
    beyond = "" if scale.holds(row.case.ratio) else "left" if row.case.ratio < 1 else "right"
    return _Picture(
        badge=Badge(word=row.case.conclusion.value, style=style, sign=sign, rank=place),
        values=_values(row),
        at=scale.within(row.case.ratio),
        beyond=beyond,
        low=None if low is None else scale.within(low),
        high=None if high is None else scale.within(high),
        title=f"B/A {ratio}, {'no interval' if low is None else f'95 % interval {interval}'}",
    )
