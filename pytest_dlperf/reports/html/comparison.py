"""The page of a comparison: a table with each ratio and its interval as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pytest_dlperf.reports import comparison as words
from pytest_dlperf.reports.comparison_names import known_facts, title
from pytest_dlperf.reports.html.badge import Badge
from pytest_dlperf.reports.html.render import render
from pytest_dlperf.reports.html.scales import Scale
from pytest_dlperf.results.comparison import Difference

if TYPE_CHECKING:
    from pytest_dlperf.reports.comparison_names import Names
    from pytest_dlperf.results.comparison import ComparedCase, Comparison

WIDTH: Final = 220
"""Pixels of a picture."""

_MARGIN: Final = 18
_MIN_REACH: Final = 0.02
"""Ratios that lie nearer together than this are not blown up to look like differences."""
_LARGEST_RATIO: Final = 8.0
"""A ratio beyond it, or its inverse, lies at the edge of its picture."""
_LOGARITHMIC_FROM: Final = 2.0

NAMED: Final = 10
"""Slower cases that are named above the table, which has all of them."""

_BADGES: Final = {
    Difference.FASTER: ("pass", "▲"),
    Difference.SLOWER: ("regressed", "▼"),
    Difference.NONE_SEEN: ("not-judged", "="),
    Difference.TOO_FEW: ("inconclusive", "?"),
    Difference.BROKEN: ("failed", "✕"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One case as the table shows it; places are pixels of its picture, cells are in order."""

    case_id: str
    unit: str
    badge: Badge
    cells: tuple[str, ...]
    at: int
    low: int | None
    high: int | None
    title: str


def comparison_page(comparison: Comparison, names: Names) -> str:
    """The whole page: opens offline, needs no script."""
    scale = _scale(comparison)
    return render(
        "comparison.html.j2",
        found=words.found(comparison),
        mean=words.mean(comparison),
        title=title(names),
        names=[name.heading for name in names],
        facts=known_facts(comparison, names),
        slower=[(case.case_id, words.slower(case)) for case in comparison.slower_cases[:NAMED]],
        slower_more=len(comparison.slower_cases[NAMED:]),
        rows=[_row(case, scale) for case in comparison.cases],
        ticks=scale.ticks(4),
        one=scale.at(1.0),
        width=WIDTH,
        differences=[
            (fact.name, words.known(fact.first), words.known(fact.second))
            for fact in comparison.differences
        ],
        lists=_lists(comparison),
        remarks=list(words.remarks(comparison)),
    )


def _scale(comparison: Comparison) -> Scale:
    """One scale for all pictures, so that they can be read against each other."""
    values = [1 - _MIN_REACH, 1 + _MIN_REACH]
    for case in comparison.cases:
        values += [case.ratio, *(case.interval or ())]
    low = max(min(values), 1 / _LARGEST_RATIO)
    high = min(max(values), _LARGEST_RATIO)
    return Scale(
        low=low,
        high=high,
        start=_MARGIN,
        end=WIDTH - _MARGIN,
        logarithmic=high / low > _LOGARITHMIC_FROM,
    )


def _row(case: ComparedCase, scale: Scale) -> _Row:
    style, sign = _BADGES[case.difference]
    reach = f", 95 % interval {words.interval(case)}" if case.interval else ", no interval"
    return _Row(
        case_id=case.case_id,
        unit=case.unit,
        badge=Badge(word=case.difference.value, style=style, sign=sign),
        cells=words.cells(case),
        at=scale.within(case.ratio),
        low=scale.within(case.interval[0]) if case.interval else None,
        high=scale.within(case.interval[1]) if case.interval else None,
        title=f"B/A {words.ratio(case.ratio)}{reach}",
    )


def _lists(comparison: Comparison) -> list[tuple[str, tuple[str, ...]]]:
    """The cases that are not compared, by why."""
    kinds = [
        (f"not compared: A {first}, B {second}", tuple(case_ids))
        for (first, second), case_ids in words.groups(comparison.left_out).items()
    ]
    kinds += [("only in A", comparison.only_first), ("only in B", comparison.only_second)]
    return [
        (f"{words.counted_cases(len(case_ids))} {what}", case_ids)
        for what, case_ids in kinds
        if case_ids
    ]
