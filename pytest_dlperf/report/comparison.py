"""A comparison of two results in words: sections, which terminal and Markdown print alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from pytest_dlperf.model import numbers
from pytest_dlperf.report.markdown_text import bullets, details, rendered, table
from pytest_dlperf.report.printing import cut
from pytest_dlperf.report.text import NOTHING, Text, cases_named, code, join, phrase
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

_CASES_SHOWN: Final = 10
"""Cases that a line names."""
_DIFFERENCES_SHOWN: Final = 15
"""Differences that stand before the cases: of the others there may be hundreds."""
_LONGEST_NAME: Final = 40
_UNSURE: Final = "too few runs to be sure"
_EXACT: Final = "exact"
"""Stands for the interval where there is no noise."""


class Row(Struct, frozen=True):
    """A row of a table, and what belongs below it."""

    cells: tuple[Text, ...]
    note: Text = NOTHING


class Section(Struct, frozen=True, kw_only=True):
    """A part of the comparison."""

    title: Text
    lines: tuple[Text, ...] = ()
    align: str = "l"
    """Sides of the table's columns."""
    table: tuple[Row, ...] = ()
    """The first row has the headings."""
    names: tuple[Text, ...] = ()
    """A list, such as of cases."""


def sections(comparison: Comparison, files: Sequence[str]) -> Iterator[Section]:
    """Word a comparison of these files."""
    names = _names(files)
    metrics = comparison.metrics
    judged = [one for one in metrics if any(case.metric.is_judged for case in one.cases)]
    head = "; ".join(f"{one.name} {_came_out(one)}" for one in judged or metrics)
    yield Section(title=phrase("{}", head), lines=tuple(_sessions(comparison, names)))
    yield _differences(comparison, names)
    if comparison.paired:
        pairs = (phrase("{} with {}", code(a), code(b)) for a, b in comparison.paired.items())
        title = phrase("Paired by model, precision, work of a step and topology:")
        yield Section(title=title, names=tuple(pairs))
    yield from (section for metric in metrics for section in _metric(metric))
    for why, ids in comparison.not_compared.items():
        title = phrase("{}", f"{numbers.counted(len(ids), 'case')} {why}")
        yield Section(title=title, names=tuple(phrase("{}", code(case_id)) for case_id in ids))
    if remarks := tuple(map(phrase, _remarks(comparison))):
        yield Section(title=phrase("what to know of these numbers"), lines=remarks)


def comparison_markdown(comparison: Comparison, files: Sequence[str]) -> str:
    """Write a comparison as GitHub-flavoured Markdown."""
    second, first = (rendered(phrase("{}", name)) for name in reversed(_names(files)))
    parts = [f"# dlperf: {second} compared with {first}"]
    for section in sections(comparison, files):
        title, names = rendered(section.title), bullets(map(rendered, section.names))
        if names and not section.lines:
            parts.append(details(title, names))
            continue
        rows = [[*map(rendered, row.cells)] for row in section.table]
        if any(row.note for row in section.table):
            rows = [[*row, rendered(of.note)] for row, of in zip(rows, section.table, strict=True)]
        parts += [f"## {title}", bullets(map(rendered, section.lines))]
        parts += [table(rows[0], rows[1:], right=section.align.replace("l", " "))] if rows else []
        parts.append(names)
    return "\n\n".join(filter(None, parts)) + "\n"


def _row(*cells: Text | str, note: Text = NOTHING) -> Row:
    return Row(tuple(phrase("{}", cell) for cell in cells), note)


def _names(files: Sequence[str]) -> tuple[str, str]:
    """Call A and B by the names of their files, or by their paths where both have one name."""
    short = [Path(file).name for file in files]
    first, second = files if short[0] == short[1] else short
    return f"A: {cut(first, _LONGEST_NAME)}", f"B: {cut(second, _LONGEST_NAME)}"


# ------------------------------------------------------------------------------ the result


def _came_out(metric: ComparedMetric) -> str:
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


def _found(metric: ComparedMetric) -> str:
    counts = Counter(case.conclusion for case in metric.cases)
    return ", ".join(f"{counts[one]} {one.value}" for one in Conclusion if counts[one])


def _sessions(comparison: Comparison, names: Sequence[str]) -> Iterator[Text]:
    for name, side in zip(names, (comparison.first, comparison.second), strict=True):
        facts = [f"cluster {side.cluster}", f"started {side.started[:16].replace('T', ' ')}"]
        commit, _, ci_run = side.origin
        facts += [f"commit {commit}"] * bool(commit) + [f"CI run {ci_run}"] * bool(ci_run)
        yield phrase("{}: {}", name, ", ".join(facts))


def _metric(metric: ComparedMetric) -> Iterator[Section]:
    better = f"{metric.better.value} is better" if metric.better else "neither is better"
    counted = numbers.counted(len(metric.cases), "case")
    lines = [phrase("{} compared: {}", counted, _found(metric))]
    if len(known := metric.known_cases) > 1:
        cases = numbers.counted(len(known), "case")
        unsure = "" if metric.is_certain else f", {_UNSURE}"
        ratio = _ratio(metric.mean_ratio)
        lines.append(phrase("B/A is {} in the geometric mean of {}{}", ratio, cases, unsure))
    rows = [_row("case", "runs", "A", "B", "B/A", "95 % interval", "")]
    for case in metric.cases:
        unit, first, second = case.metric.unit, case.first, case.second
        rows.append(
            _row(
                phrase("{}{}", code(case.case_id), f" ({unit})" if unit else ""),
                f"{_runs(first)}, {_runs(second)}",
                numbers.number(first.median, unit),
                numbers.number(second.median, unit),
                _ratio_of(case),
                _interval(case),
                case.conclusion.value,
            )
        )
    yield Section(
        title=phrase("{} ({})", metric.name, better),
        lines=tuple(lines),
        align="lrrrrrl",
        table=tuple(rows),
    )
    if len(metric.worse_cases) > 1:
        worse = (
            phrase("{} ({})  {}", _ratio_of(one), _interval(one), code(one.case_id))
            for one in metric.worse_cases
        )
        yield Section(title=phrase("worse, the worst first"), names=tuple(worse))


def _interval(case: ComparedCase) -> str:
    if case.is_exact:
        return _EXACT
    if case.interval is None:
        return numbers.ABSENT
    return f"{_ratio(case.interval[0])} to {_ratio(case.interval[1])}"


def _ratio_of(case: ComparedCase) -> str:
    """Write one decimal more where an exact difference would not show."""
    ratio = _ratio(case.ratio)
    is_hidden = ratio == _ratio(1.0) and case.conclusion is not Conclusion.NONE_SEEN
    return f"{case.ratio:.{DECIMALS + 1}f}" if case.is_exact and is_hidden else ratio


def _ratio(value: float) -> str:
    """Write the usual decimals; four digits of a large ratio, three of a small one."""
    if value >= 1000:  # noqa: PLR2004 - large
        return f"{value:.4g}"
    return f"{value:.{DECIMALS}f}" if value >= 0.1 else f"{value:.3g}"  # noqa: PLR2004 - a tenth


def _runs(side: Side) -> str:
    """Count the runs that count, among broken ones: ``4 of 5``."""
    count = len(side.numbers)
    return f"{count} of {count + side.broken}" if side.broken else str(count)


# --------------------------------------------------------------- what differs, what to know


def _differences(comparison: Comparison, names: Sequence[str]) -> Section:
    every, title = comparison.differences, phrase("what differs")
    if not every:
        text = "Nothing that both files tell of differs beside the numbers."
        return Section(title=title, lines=(phrase(text),))
    total = len({case.case_id for metric in comparison.metrics for case in metric.cases})
    rows = [_row("", *names)]
    for shared in every[:_DIFFERENCES_SHOWN]:
        difference, count = shared.difference, len(shared.case_ids)
        first, _, second = side_values(difference)
        note = NOTHING
        if 0 < count < total:  # else it is so in all of them, or of the sessions
            where = f"in {count} of {numbers.counted(total, 'case')}"
            note = join(": ", [where, cases_named(shared.case_ids, _CASES_SHOWN)])
        name = difference_name(difference) if count else difference.name
        rows.append(_row(name, first, second, note=note))
    shown = min(len(every), _DIFFERENCES_SHOWN)
    lines = (phrase("the first {} of {}", shown, len(every)),) if len(every) > shown else ()
    return Section(title=title, table=tuple(rows), lines=lines)


def _remarks(comparison: Comparison) -> Iterator[str]:
    if comparison.first.session == comparison.second.session:
        yield "Both files are of one session: there is nothing to differ."
    for name, side in (("A", comparison.first), ("B", comparison.second)):
        if side.interrupted:
            yield f"The session of {name} was interrupted: it says nothing of what is missing."
    cases = [case for metric in comparison.metrics for case in metric.cases]
    if any(case.interval for case in cases):
        yield (
            "The intervals rest on how much single runs differ; two sessions differ by more. For a "
            "verdict run both interleaved, with the control arm."
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
