"""The rows and sentences that every report of a comparison shows, and the Markdown made of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.report import texts
from pytest_dlperf.report.markdown_text import code, details, inline, table
from pytest_dlperf.report.words import difference_name, side_values
from pytest_dlperf.results.comparison import (
    DECIMALS,
    MIN_RUNS,
    ComparedCase,
    ComparedMetric,
    Conclusion,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_dlperf.model.results import Results
    from pytest_dlperf.results.comparison import Comparison, Side
    from pytest_dlperf.results.shared_differences import SharedDifference

SHOWN: Final = 10
"""Worse cases that are named above the table, which has all of them."""
DIFFERENCES_SHOWN: Final = 15
"""Differences that stand before the cases at once; of the others there may be hundreds."""
PAIRED: Final = "Paired by model, precision, work of a step and topology"
NOTHING_DIFFERS: Final = "Nothing that both files tell of differs beside the numbers."

_UNSURE: Final = "too few runs to be sure"
_EXACT: Final = "exact"
"""Stands for the interval where there is no noise."""


class SideName(Struct, frozen=True, kw_only=True):
    """One side: its letter, its label in one short line, and the file that it was read from."""

    letter: str
    label: str
    file: str

    @property
    def heading(self) -> str:
        """The heading of this side's numbers: ``A: torch 2.12``."""
        return f"{self.letter}: {self.label}"


SideNames = tuple[SideName, SideName]


def side_names(files: Sequence[str], labels: Sequence[str | None]) -> SideNames:
    """Name A and B; without a label by the file's name, or its path where both have one."""
    short = [Path(file).name for file in files]
    usual = files if short[0] == short[1] else short
    first, second = (
        SideName(
            letter=letter,
            label=texts.cut(texts.printable(label or other), 40),
            file=texts.printable(file),
        )
        for letter, file, label, other in zip("AB", files, labels, usual, strict=True)
    )
    return first, second


class CaseRow(Struct, frozen=True, kw_only=True):
    """One compared case and its cells, which stand below ``ComparisonView.headings``."""

    case: ComparedCase
    cells: tuple[str, ...]
    ratio: str
    """The ratio with its interval, as in a sentence."""


class DifferenceRow(Struct, frozen=True, kw_only=True):
    """What is not the same in A and B; ``where`` says in which cases, empty: in all of them."""

    name: str
    first: str
    second: str
    where: str
    case_ids: tuple[str, ...]


class MetricView(Struct, frozen=True, kw_only=True):
    """One metric, and the cases that are compared by it."""

    name: str
    direction: str
    """Which direction is better, in words."""
    found: str
    mean: str | None
    worse: tuple[CaseRow, ...]
    """The worst first."""
    cases: tuple[CaseRow, ...]


class ComparisonView(Struct, frozen=True, kw_only=True):
    """All that the reports of a comparison show, in the order in which they show it.

    Texts may hold what the results files say: each report escapes them in its own way.
    """

    names: SideNames
    title: str
    head: str
    """What came out, by each metric that a test judges."""
    sides: tuple[str, str]
    """Which sessions these are, in a line each."""
    differences: tuple[DifferenceRow, ...]
    """The most suspicious first."""
    paired: tuple[str, ...]
    """Cases of A with those of B that they are compared with, where the ids differ."""
    headings: tuple[str, ...]
    metrics: tuple[MetricView, ...]
    remarks: tuple[str, ...]
    not_compared: tuple[tuple[str, tuple[str, ...]], ...]
    """Cases that are not compared, or not by some metric, by why."""
    files: tuple[tuple[str, str, str], ...]
    """Where the results can be found: name, A, B."""


def comparison_view(comparison: Comparison, names: SideNames) -> ComparisonView:
    """Put a comparison into words."""
    one, other = names
    sides = (comparison.first, comparison.second)
    cases = len({case.case_id for metric in comparison.metrics for case in metric.cases})
    judged = [one for one in comparison.metrics if any(case.metric.is_judged for case in one.cases)]
    return ComparisonView(
        names=names,
        title=f"{other.label} (B) compared with {one.label} (A)",
        head="; ".join(f"{one.name} {_head(one)}" for one in judged or comparison.metrics),
        sides=(_session(comparison.first, one), _session(comparison.second, other)),
        differences=tuple(_difference_row(shared, cases) for shared in comparison.differences),
        paired=tuple(f"{ours} with {theirs}" for ours, theirs in comparison.paired.items()),
        headings=("runs", one.heading, other.heading, "B/A", "95 % interval"),
        metrics=tuple(map(_metric_view, comparison.metrics)),
        remarks=tuple(_remarks(comparison)),
        not_compared=tuple(
            (f"{numbers.counted(len(case_ids), 'case')} {why}", tuple(case_ids))
            for why, case_ids in comparison.not_compared.items()
        ),
        files=tuple(_files(sides, names)),
    )


def _difference_row(shared: SharedDifference, cases: int) -> DifferenceRow:
    first, _, second = side_values(shared.difference)
    count = len(shared.case_ids)
    return DifferenceRow(
        name=difference_name(shared.difference) if shared.case_ids else shared.difference.name,
        first=first,
        second=second,
        where=f"in {count} of {numbers.counted(cases, 'case')}" if 0 < count < cases else "",
        case_ids=shared.case_ids,
    )


def _metric_view(metric: ComparedMetric) -> MetricView:
    rows = {case.case_id: _case_row(case) for case in metric.cases}
    return MetricView(
        name=metric.name,
        direction=f"{metric.better.value} is better" if metric.better else "neither is better",
        found=f"{numbers.counted(len(metric.cases), 'case')} compared: {_found(metric)}",
        mean=_mean(metric),
        worse=tuple(rows[case.case_id] for case in metric.worse_cases),
        cases=tuple(rows.values()),
    )


def comparison_markdown(view: ComparisonView) -> str:
    """Write a comparison as GitHub-flavoured Markdown."""
    return "\n\n".join(_markdown_parts(view)) + "\n"


def _markdown_parts(view: ComparisonView) -> Iterator[str]:
    sides = [inline(name.heading) for name in view.names]
    yield f"# dlperf: {inline(view.title)}"
    yield f"**{inline(view.head)}.**"
    yield "\n".join(f"- {inline(side)}" for side in view.sides)
    yield "## What differs"
    yield from _markdown_differences(view)
    if view.paired:
        yield f"{PAIRED}:"
        yield "\n".join(f"- {inline(pair)}" for pair in view.paired)
    for metric in view.metrics:
        yield f"## {inline(metric.name)}"
        yield f"{metric.found} ({metric.direction})."
        if metric.mean is not None:
            yield f"{metric.mean}."
        if metric.worse:
            yield "Worse, the worst first:"
            lines = [f"- {code(row.case.case_id)} {row.ratio}" for row in metric.worse[:SHOWN]]
            more = len(metric.worse) - len(lines)
            yield "\n".join([*lines, *([f"- and {more} more"] if more else [])])
        yield table(
            ("case", "unit", *map(inline, view.headings), ""),
            [
                (
                    code(row.case.case_id),
                    inline(row.case.metric.unit),
                    *row.cells,
                    row.case.conclusion.value,
                )
                for row in metric.cases
            ],
            right="  rrrrr",
        )
    yield from view.remarks
    for why, case_ids in view.not_compared:
        yield details(inline(why), "\n".join(f"- {code(case_id)}" for case_id in case_ids))
    yield "## The two files"
    yield table(("", *sides), [tuple(map(_cell, row)) for row in view.files])


def _markdown_differences(view: ComparisonView) -> Iterator[str]:
    if not view.differences:
        yield NOTHING_DIFFERS
        return
    headings = ("", *(inline(name.heading) for name in view.names), "")
    rows = [
        (inline(row.name), code(row.first), code(row.second), _markdown_where(row))
        for row in view.differences
    ]
    yield table(headings, rows[:DIFFERENCES_SHOWN])
    more = rows[DIFFERENCES_SHOWN:]
    if more:
        yield details(f"and {len(more)} more", table(headings, more))


def _markdown_where(row: DifferenceRow) -> str:
    if not row.where:
        return ""
    return f"{row.where}: {numbers.named([code(case_id) for case_id in row.case_ids], SHOWN)}"


def _cell(fact: str) -> str:
    return fact if fact == numbers.ABSENT else inline(fact)


def _case_row(case: ComparedCase) -> CaseRow:
    interval = numbers.ABSENT if case.interval is None else _ends(case.interval)
    if case.is_exact:
        interval = _EXACT
    ratio = _ratio_of(case)
    return CaseRow(
        case=case,
        cells=(
            f"{_runs(case.first)}, {_runs(case.second)}",
            numbers.number(case.first.median, case.metric.unit),
            numbers.number(case.second.median, case.metric.unit),
            ratio,
            interval,
        ),
        ratio=f"{ratio} ({interval})",
    )


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


def _ends(ends: tuple[float, float]) -> str:
    return f"{_ratio(ends[0])} to {_ratio(ends[1])}"


def _found(metric: ComparedMetric) -> str:
    """Count the cases per conclusion: ``1 better, 3 worse``."""
    counts = Counter(case.conclusion for case in metric.cases)
    return ", ".join(f"{counts[one]} {one.value}" for one in Conclusion if counts[one])


def _head(metric: ComparedMetric) -> str:
    """Give the ratio first, then how sure it is: ``0.430 x, too few runs to be sure``."""
    mean = metric.mean_ratio
    if mean is None:
        return _found(metric)
    if len(metric.cases) == 1:
        [case] = metric.cases
        return f"{_ratio_of(case)} x, {case.conclusion.value if mean.is_certain else _UNSURE}"
    known = [case for case in metric.cases if case.conclusion is not Conclusion.BROKEN]
    worst = max(known, key=lambda case: case.loss)
    ratios = f"{_ratio(mean.ratio)} x in the mean"
    if metric.better is not None and worst.loss > 0 and _ratio_of(worst) != _ratio(mean.ratio):
        unsure = f" ({worst.conclusion.value})" if mean.is_certain else ""
        ratios += f", {_ratio_of(worst)} x at worst{unsure}"
    return f"{ratios}: {_found(metric) if mean.is_certain else _UNSURE}"


def _mean(metric: ComparedMetric) -> str | None:
    mean = metric.mean_ratio
    if mean is None:
        return None
    cases = numbers.counted(mean.cases, "case")
    said = f"B/A is {_ratio(mean.ratio)} in the geometric mean of {cases}"
    if not mean.is_certain:
        return f"{said}, {_UNSURE}"
    return said if mean.interval is None else f"{said}, 95 % interval {_ends(mean.interval)}"


def _session(side: Results, name: SideName) -> str:
    """Say in a line which session a side is."""
    facts = [f"cluster {side.cluster}", f"started {side.started[:16].replace('T', ' ')}"]
    if side.origin.commit:
        facts.append(f"commit {side.origin.commit}")
    return f"{name.heading}: {', '.join(facts)}"


def _files(sides: Sequence[Results], names: SideNames) -> Iterator[tuple[str, str, str]]:
    first, second = (
        {
            "file": name.file,
            "estimator": side.estimator.value,
            "session": side.session,
            "CI run": side.origin.ci_run,
        }
        for side, name in zip(sides, names, strict=True)
    )
    for fact in first:
        if first[fact] or second[fact]:
            yield fact, first[fact] or numbers.ABSENT, second[fact] or numbers.ABSENT


def _remarks(comparison: Comparison) -> Iterator[str]:
    if comparison.first.session == comparison.second.session:
        yield "Both files are of one session: there is nothing to differ."
    for name, side in (("A", comparison.first), ("B", comparison.second)):
        if side.interrupted:
            yield f"The session of {name} was interrupted: it says nothing of what is missing."
    cases = [case for metric in comparison.metrics for case in metric.cases]
    if any(case.interval for case in cases):
        yield (
            "The intervals, that of the mean too, know how much single runs differ, and nothing of "
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
