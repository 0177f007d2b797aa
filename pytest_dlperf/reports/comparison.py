"""What every report of a comparison says in the same words."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from pytest_dlperf.reports import numbers
from pytest_dlperf.results.comparison import MIN_RUNS, ComparedCase, Difference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_dlperf.model.results import Results
    from pytest_dlperf.results.comparison import Comparison, LeftOut, Side

_FEW_DIGITS: Final = 1000
"""From here on a ratio needs no decimals."""


def started(results: Results) -> str:
    """When a session began, to the minute, in its own zone."""
    try:
        return f"{datetime.fromisoformat(results.started):%Y-%m-%d %H:%M}"
    except ValueError:
        return results.started


def counted_cases(count: int) -> str:
    """So many cases."""
    return "1 case" if count == 1 else f"{count} cases"


def found(comparison: Comparison) -> str:
    """How many cases are faster, slower, and so on: ``4 cases compared: 1 faster, 3 slower``."""
    counts = [
        f"{count} {difference.value}"
        for difference in Difference
        if (count := comparison.count(difference))
    ]
    return f"{counted_cases(len(comparison.cases))} compared: {', '.join(counts)}"


def mean(comparison: Comparison) -> str | None:
    """The geometric mean ratio with its interval; ``None`` where no case has one."""
    found = comparison.mean_ratio
    if found is None:
        return None
    return (
        f"B/A is {ratio(found.ratio)} in the geometric mean of {counted_cases(found.cases)}, "
        f"95 % interval {_ends(found.interval)}"
    )


def slower(case: ComparedCase) -> str:
    """How a case that is slower stands: ``0.950 (0.941 to 0.959)``."""
    return f"{ratio(case.ratio)} ({interval(case)})"


def remarks(comparison: Comparison) -> Iterator[str]:
    """What a reader has to know to read the numbers."""
    if comparison.is_of_one_session:
        yield "Both files are of one session: there is nothing to differ."
    for name, side in (("A", comparison.first), ("B", comparison.second)):
        if side.interrupted:
            yield f"The session of {name} was interrupted: it says nothing of what is missing."
    if any(case.interval for case in comparison.cases):
        yield (
            "The interval knows how much single runs differ, and nothing of how nights and hosts "
            "do. Two nights lie apart by about as much as nights differ (pytest-dlperf history "
            "show tells how much): that often looks faster or slower here, though nothing has "
            "changed. For a verdict run both in turn, with the control arm."
        )
    if comparison.mean_ratio is not None:
        yield (
            "The interval of the geometric mean is made of those of its cases: it holds for these "
            "cases, not for others, and for the noise of single runs alone. What slows a whole "
            "night down is in all cases, and no number of them takes it away."
        )
    if comparison.count(Difference.TOO_FEW):
        yield f"An interval needs {MIN_RUNS} runs on both sides."
    if comparison.count(Difference.BROKEN):
        yield (
            "Broken runs: a side was not measured whole. The ratio is that of the runs that were "
            "left, and counts for nothing else."
        )


def ratio(value: float | None) -> str:
    """Three decimals; four digits where the ratio is large, three where it is small."""
    if value is None:
        return numbers.ABSENT
    if value >= _FEW_DIGITS:
        return f"{value:.4g}"
    return f"{value:.3f}" if value >= 0.1 else f"{value:.3g}"  # noqa: PLR2004 - a tenth


def interval(case: ComparedCase) -> str:
    """Both ends of the 95 % interval."""
    if case.interval is None:
        return numbers.ABSENT
    return _ends(case.interval)


def _ends(ends: tuple[float, float]) -> str:
    return f"{ratio(ends[0])} to {ratio(ends[1])}"


def runs(side: Side) -> str:
    """The runs that count, with those that are broken: ``4 of 5``."""
    count = len(side.throughputs)
    return f"{count} of {count + side.broken}" if side.broken else str(count)


def groups(left_out: tuple[LeftOut, ...]) -> dict[tuple[str, str], list[str]]:
    """Ids of cases by what both sides say of them."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for case in left_out:
        grouped.setdefault((case.first, case.second), []).append(case.case_id)
    return grouped


def known(value: str | None) -> str:
    """A fact, or that nobody knows it."""
    return numbers.ABSENT if value is None else value


def cells(case: ComparedCase) -> tuple[str, str, str, str, str, str]:
    """The numbers of a case: runs, both medians, their ratio with its interval, the speedup's."""
    return (
        f"{runs(case.first)}, {runs(case.second)}",
        numbers.throughput(case.first.median),
        numbers.throughput(case.second.median),
        ratio(case.ratio),
        interval(case),
        ratio(case.speedup_ratio),
    )
