"""A comparison of two results in words, and the Markdown made of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pytest_dlperf.model import numbers
from pytest_dlperf.report import printing
from pytest_dlperf.report.markdown_text import bullets, code, details, inline, table
from pytest_dlperf.report.words import difference_name, side_values
from pytest_dlperf.results.comparison import (
    DECIMALS,
    MIN_RUNS,
    ComparedCase,
    ComparedMetric,
    Comparison,
    Conclusion,
    Side,
)
from pytest_dlperf.results.shared_differences import SharedDifference

SHOWN: Final = 10
"""Worse cases that are named above the table, which has all of them."""
DIFFERENCES_SHOWN: Final = 15
"""Differences that stand before the cases at once; of the others there may be hundreds."""
PAIRED: Final = "Paired by model, precision, work of a step and topology"
NOTHING_DIFFERS: Final = "Nothing that both files tell of differs beside the numbers."

_LONGEST_NAME: Final = 40
_UNSURE: Final = "too few runs to be sure"
_EXACT: Final = "exact"
"""Stands for the interval where there is no noise."""


Names = tuple[str, str]
"""What A and B are called in headings: ``A: torch.json``."""


def names_of(files: Sequence[str]) -> Names:
    """Call A and B by the names of their files, or by their paths where both have one name."""
    short = [Path(file).name for file in files]
    first, second = files if short[0] == short[1] else short
    return f"A: {printing.cut(first, _LONGEST_NAME)}", f"B: {printing.cut(second, _LONGEST_NAME)}"


def headings_of(names: Names) -> tuple[str, ...]:
    """Return the headings of ``case_cells``."""
    return ("runs", *names, "B/A", "95 % interval")


def head_of(comparison: Comparison) -> str:
    """Say what came out, by each metric that a test judges."""
    metrics = comparison.metrics
    judged = [one for one in metrics if any(case.metric.is_judged for case in one.cases)]
    return "; ".join(f"{one.name} {_head(one)}" for one in judged or metrics)


def sessions_of(comparison: Comparison, names: Names) -> Iterator[str]:
    """Say in a line each which sessions these are."""
    for name, side in zip(names, (comparison.first, comparison.second), strict=True):
        facts = [f"cluster {side.cluster}", f"started {side.started[:16].replace('T', ' ')}"]
        if side.origin.commit:
            facts.append(f"commit {side.origin.commit}")
        yield f"{name}: {', '.join(facts)}"


def difference_cells(shared: SharedDifference) -> tuple[str, str, str]:
    """Write what differs: its name, and what it is in A and B."""
    difference = shared.difference
    first, _, second = side_values(difference)
    return difference_name(difference) if shared.case_ids else difference.name, first, second


def where_it_differs(shared: SharedDifference, comparison: Comparison) -> str:
    """Say in how many cases; nothing of what is so in all of them, or in none."""
    cases = len({case.case_id for metric in comparison.metrics for case in metric.cases})
    count = len(shared.case_ids)
    return f"in {count} of {numbers.counted(cases, 'case')}" if 0 < count < cases else ""


def paired_cases(comparison: Comparison) -> list[str]:
    """Name cases of A with those of B that they are compared with, where the ids differ."""
    return [f"{ours} with {theirs}" for ours, theirs in comparison.paired.items()]


def not_compared(comparison: Comparison) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield how many cases are not compared, or not by some metric, and why, with their ids."""
    for why, case_ids in comparison.not_compared.items():
        yield f"{numbers.counted(len(case_ids), 'case')} {why}", case_ids


def direction_of(metric: ComparedMetric) -> str:
    """Say which direction is better."""
    return f"{metric.better.value} is better" if metric.better else "neither is better"


def case_cells(case: ComparedCase) -> tuple[str, ...]:
    """Write a case, below ``headings_of``."""
    return (
        f"{_runs(case.first)}, {_runs(case.second)}",
        numbers.number(case.first.median, case.metric.unit),
        numbers.number(case.second.median, case.metric.unit),
        _ratio_of(case),
        _interval(case),
    )


def ratio_text(case: ComparedCase) -> str:
    """Write a ratio with its interval, as in a sentence."""
    return f"{_ratio_of(case)} ({_interval(case)})"


def _interval(case: ComparedCase) -> str:
    if case.is_exact:
        return _EXACT
    if case.interval is None:
        return numbers.ABSENT
    return f"{_ratio(case.interval[0])} to {_ratio(case.interval[1])}"


def comparison_markdown(comparison: Comparison, files: Sequence[str]) -> str:
    """Write a comparison as GitHub-flavoured Markdown."""
    return "\n\n".join(_markdown_parts(comparison, files)) + "\n"


def _markdown_parts(comparison: Comparison, files: Sequence[str]) -> Iterator[str]:
    names = names_of(files)
    sides = list(map(inline, names))
    yield f"# dlperf: {' compared with '.join(reversed(sides))}"
    yield f"**{inline(head_of(comparison))}.**"
    yield bullets(map(inline, sessions_of(comparison, names)))
    yield "## What differs"
    yield from _markdown_differences(comparison, sides)
    if comparison.paired:
        yield f"{PAIRED}:"
        yield bullets(map(inline, paired_cases(comparison)))
    for metric in comparison.metrics:
        yield f"## {inline(metric.name)}"
        yield f"{found_text(metric)} ({direction_of(metric)})."
        if mean := mean_text(metric):
            yield f"{mean}."
        if metric.worse_cases:
            yield "Worse, the worst first:"
            lines = [f"{code(one.case_id)} {ratio_text(one)}" for one in metric.worse_cases[:SHOWN]]
            more = len(metric.worse_cases) - len(lines)
            yield bullets([*lines, *([f"and {more} more"] if more else [])])
        rows = [
            (
                code(case.case_id),
                inline(case.metric.unit),
                *case_cells(case),
                case.conclusion.value,
            )
            for case in metric.cases
        ]
        yield table(("case", "unit", *map(inline, headings_of(names)), ""), rows, right="  rrrrr")
    yield from remarks_of(comparison)
    for why, case_ids in not_compared(comparison):
        yield details(inline(why), bullets(map(code, case_ids)))
    yield "## The two files"
    rows_of_files = [tuple(map(_cell, row)) for row in file_rows(comparison, files)]
    yield table(("", *sides), rows_of_files)


def _markdown_differences(comparison: Comparison, sides: Sequence[str]) -> Iterator[str]:
    if not comparison.differences:
        yield NOTHING_DIFFERS
        return
    headings, rows = ("", *sides, ""), []
    for shared in comparison.differences:
        name, first, second = difference_cells(shared)
        where = where_it_differs(shared, comparison)
        ids = numbers.named(list(map(code, shared.case_ids)), SHOWN)
        rows.append((inline(name), code(first), code(second), f"{where}: {ids}" if where else ""))
    yield table(headings, rows[:DIFFERENCES_SHOWN])
    more = rows[DIFFERENCES_SHOWN:]
    if more:
        yield details(f"and {len(more)} more", table(headings, more))


def _cell(fact: str) -> str:
    return fact if fact == numbers.ABSENT else inline(fact)


def _ratio_of(case: ComparedCase) -> str:
    """Write one decimal more where an exact difference would not show."""
    ratio = _ratio(case.ratio)
    is_hidden = ratio == _ratio(1.0) and case.conclusion is not Conclusion.NONE_SEEN
    return f"{case.ratio:.{DECIMALS + 1}f}" if case.is_exact and is_hidden else ratio


def _runs(side: Side) -> str:
    """Count the runs that count, among broken ones: ``4 of 5``."""
    count = len(side.numbers)
    return f"{count} of {count + side.broken}" if side.broken else str(count)


def _ratio(value: float) -> str:
    """Write the usual decimals; four digits of a large ratio, three of a small one."""
    if value >= 1000:  # noqa: PLR2004 - large
        return f"{value:.4g}"
    return f"{value:.{DECIMALS}f}" if value >= 0.1 else f"{value:.3g}"  # noqa: PLR2004 - a tenth


def found_text(metric: ComparedMetric) -> str:
    """Count the cases per conclusion: ``4 cases compared: 1 better, 3 worse``."""
    return f"{numbers.counted(len(metric.cases), 'case')} compared: {_found(metric)}"


def _found(metric: ComparedMetric) -> str:
    counts = Counter(case.conclusion for case in metric.cases)
    return ", ".join(f"{counts[one]} {one.value}" for one in Conclusion if counts[one])


def _head(metric: ComparedMetric) -> str:
    """Give the ratio first, then how sure it is: ``0.430 x, too few runs to be sure``."""
    known, is_certain = metric.known_cases, metric.is_certain
    if not known:
        return _found(metric)
    if len(metric.cases) == 1:
        [case] = metric.cases
        return f"{_ratio_of(case)} x, {case.conclusion.value if is_certain else _UNSURE}"
    mean, worst = _ratio(metric.mean_ratio), max(known, key=lambda case: case.loss)
    ratios = f"{mean} x in the mean"
    if metric.better is not None and worst.loss > 0 and _ratio_of(worst) != mean:
        unsure = f" ({worst.conclusion.value})" if is_certain else ""
        ratios += f", {_ratio_of(worst)} x at worst{unsure}"
    return f"{ratios}: {_found(metric) if is_certain else _UNSURE}"


def mean_text(metric: ComparedMetric) -> str:
    """Say the geometric mean of the ratios; nothing where no case was measured whole."""
    if not metric.known_cases:
        return ""
    cases = numbers.counted(len(metric.known_cases), "case")
    said = f"B/A is {_ratio(metric.mean_ratio)} in the geometric mean of {cases}"
    return said if metric.is_certain else f"{said}, {_UNSURE}"


def file_rows(comparison: Comparison, files: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield where the results can be found: what, and that of A and of B."""
    first, second = (
        {
            "file": file,
            "estimator": side.estimator.value,
            "session": side.session,
            "CI run": side.origin.ci_run,
        }
        for side, file in zip((comparison.first, comparison.second), files, strict=True)
    )
    for fact in first:
        if first[fact] or second[fact]:
            yield fact, first[fact] or numbers.ABSENT, second[fact] or numbers.ABSENT


def remarks_of(comparison: Comparison) -> Iterator[str]:
    """Yield what a reader has to know of these numbers."""
    if comparison.first.session == comparison.second.session:
        yield "Both files are of one session: there is nothing to differ."
    for name, side in (("A", comparison.first), ("B", comparison.second)):
        if side.interrupted:
            yield f"The session of {name} was interrupted: it says nothing of what is missing."
    cases = [case for metric in comparison.metrics for case in metric.cases]
    if any(case.interval for case in cases):
        yield (
            "The intervals know how much single runs differ, and nothing of "
            "how nights and hosts do. Two nights differ by more than that (pytest-dlperf history "
            "show says by how much), and a case often looks better or worse here though nothing "
            "has changed. For a verdict run both interleaved, with the control arm."
        )
    if any(case.is_exact for case in cases):
        yield f"{_EXACT.capitalize()}: the runs of a side do not differ, so there is no interval."
    if any(case.conclusion is Conclusion.TOO_FEW for case in cases):
        yield f"An interval needs {MIN_RUNS} runs on both sides."
    if any(case.conclusion is Conclusion.BROKEN for case in cases):
        yield (
            "Broken runs: a side was not measured whole. The ratio is that of the runs that were "
            "left, and counts for nothing else."
        )
