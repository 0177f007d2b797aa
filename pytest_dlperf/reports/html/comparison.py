"""The page of a comparison: a table with each ratio and its interval as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.reports.comparison import (
    DIFFERENCES_SHOWN,
    NOTHING_DIFFERS,
    SHOWN,
    CaseRow,
    ComparisonView,
)
from pytest_dlperf.reports.html.drawing import Badge, Scale
from pytest_dlperf.reports.html.render import render
from pytest_dlperf.results.comparison import Conclusion

if TYPE_CHECKING:
    from collections.abc import Iterable

WIDTH: Final = 220
"""Pixels of a picture."""

_MARGIN: Final = 18
_MIN_REACH: Final = 0.02
"""Ratios that lie nearer together than this are not blown up to look like differences."""
_LARGEST_RATIO: Final = 8.0
"""A ratio beyond it, or its inverse, lies at the edge of its picture."""
_LOGARITHMIC_FROM: Final = 2.0

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
    low: int | None
    high: int | None
    title: str


def comparison_page(view: ComparisonView) -> str:
    """Write the whole page: it opens offline, and is a plain table without its script."""
    rows = [row for metric in view.metrics for row in metric.cases]
    scale = _scale(rows)
    worst_first = sorted(rows, key=lambda row: (_rank(row), -row.case.loss))
    places = {id(row): place for place, row in enumerate(worst_first)}
    return render(
        "comparison.html.j2",
        view=view,
        shown=SHOWN,
        differences_shown=DIFFERENCES_SHOWN,
        nothing_differs=NOTHING_DIFFERS,
        sorts=[value is not None for value in _values(rows[0])],
        metrics=[
            (metric, [(row, _picture(row, scale, places[id(row)])) for row in metric.cases])
            for metric in view.metrics
        ],
        ticks=scale.ticks(4),
        one=scale.at(1.0),
        width=WIDTH,
    )


def _scale(rows: Iterable[CaseRow]) -> Scale:
    """Make one scale for all pictures, so that they can be read against each other."""
    values = [1 - _MIN_REACH, 1 + _MIN_REACH]
    for row in rows:
        values += [row.case.ratio, *(row.case.interval or ())]
    low = max(min(values), 1 / _LARGEST_RATIO)
    high = min(max(values), _LARGEST_RATIO)
    return Scale(
        low=low,
        high=high,
        start=_MARGIN,
        end=WIDTH - _MARGIN,
        logarithmic=high / low > _LOGARITHMIC_FROM,
    )


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
    return _Picture(
        badge=Badge(word=row.case.conclusion.value, style=style, sign=sign, rank=place),
        values=_values(row),
        at=scale.within(row.case.ratio),
        low=None if low is None else scale.within(low),
        high=None if high is None else scale.within(high),
        title=f"B/A {ratio}, {'no interval' if low is None else f'95 % interval {interval}'}",
    )
