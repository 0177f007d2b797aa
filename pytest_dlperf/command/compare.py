"""``pytest-dlperf compare``: shows two results side by side, and fails where it is asked to."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.shell import Style, file_argument, write_report
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.numbers import counted, named
from pytest_dlperf.report.comparison import (
    DIFFERENCES_SHOWN,
    NOTHING_DIFFERS,
    PAIRED,
    Names,
    case_cells,
    comparison_markdown,
    difference_cells,
    direction_of,
    file_rows,
    found_text,
    head_of,
    headings_of,
    mean_text,
    names_of,
    not_compared,
    paired_cases,
    ratio_text,
    remarks_of,
    sessions_of,
    where_it_differs,
)
from pytest_dlperf.report.printing import GAP, printable, stacked, wrapped
from pytest_dlperf.results.comparison import (
    ComparedCase,
    ComparedMetric,
    Comparison,
    Conclusion,
    compare_results,
)
from pytest_dlperf.results.file import read_results

_SHOWN: Final = 5
"""Cases of one kind that the terminal names; the Markdown names all."""
_WORDS: Final = {
    "worse": Conclusion.WORSE,
    "better": Conclusion.BETTER,
    "different": Conclusion.DIFFERENT,
    "too-few": Conclusion.TOO_FEW,
    "broken": Conclusion.BROKEN,
}
"""What ``--fail-on`` takes."""
_MARKUP: Final = {
    Conclusion.BETTER: ("green",),
    Conclusion.WORSE: ("red",),
    Conclusion.DIFFERENT: ("yellow",),
    Conclusion.BROKEN: ("bold", "red"),
    Conclusion.TOO_FEW: ("yellow",),
    Conclusion.NONE_SEEN: (),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Compare two results files (--dlperf-json), such as those of two versions, frameworks or "
        "clusters: for each metric of each case the ratio of the medians, B over A, with its "
        "95 % interval. Without --fail-on it is no gate: a worse B is no failure."
    )
    parser.add_argument(
        "first", type=file_argument, metavar="A.json", help="compare with this file"
    )
    parser.add_argument("second", type=file_argument, metavar="B.json", help="compare this file")
    parser.add_argument(
        "--markdown", type=file_argument, metavar="FILE", help="write Markdown to FILE"
    )
    parser.add_argument(
        "--fail-on",
        type=_conclusions,
        metavar="WORD[,WORD...]",
        help="end with exit code 1 where a metric that a test judges is one of: "
        f"{', '.join(_WORDS)}. Broken runs, and a case that B lost, fail with any of them",
    )
    parser.add_argument(
        "--tolerance",
        type=_percent,
        metavar="PERCENT",
        help="with --fail-on, a difference up to this passes (default: 0)",
    )


def run(options: argparse.Namespace) -> int:
    """Compare the two files, print the comparison and write the reports."""
    files = Path(options.first), Path(options.second)
    if options.markdown is not None:
        _refuse_to_lose(options.markdown, dict(zip("AB", files, strict=True)))
    if options.tolerance is not None and options.fail_on is None:
        raise UsageError("--tolerance: it is that of --fail-on, which is not given")
    comparison = compare_results(*map(read_results, files))
    names = tuple(map(str, files))
    if options.markdown is not None:
        write_report("--markdown", Path(options.markdown), comparison_markdown(comparison, names))
    style = Style(sys.stdout)
    style.show(comparison_lines(comparison, names, style))
    if options.fail_on is None:
        return FINE
    failures = comparison.failures(options.fail_on, options.tolerance or 0.0)
    style.show(_failure_lines(failures, style))
    return FAULTS if failures else FINE


def _conclusions(text: str) -> frozenset[Conclusion]:
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in _WORDS:
            raise argparse.ArgumentTypeError(f"{word!r} is not one of: {', '.join(_WORDS)}")
    return frozenset(_WORDS[word] for word in words)


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage such as 3 or 0.5")
    return value


def _failure_lines(failures: Mapping[str, Sequence[str]], style: Style) -> Iterator[str]:
    yield ""
    if not failures:
        yield style("--fail-on: nothing fails", "green")
    for why, case_ids in failures.items():
        text = printable(f"--fail-on: {counted(len(case_ids), 'case')} {why}")
        yield from (style(line, "bold", "red") for line in wrapped(text, style.width, indent=2))
        yield from _some(case_ids)


def _refuse_to_lose(report: str, files: Mapping[str, Path]) -> None:
    """Refuse a report that would overwrite a compared file."""
    for name, file in files.items():
        if os.path.realpath(file) == os.path.realpath(report):
            raise UsageError(
                f"--markdown: {printable(report)} is {name}, and would overwrite it; "
                "name another file"
            )


def comparison_lines(comparison: Comparison, files: Sequence[str], style: Style) -> Iterator[str]:
    """Yield the lines of a comparison for a terminal."""
    names = names_of(files)
    head = wrapped(printable(head_of(comparison)), style.width)
    yield from (style(line, "bold") for line in head)
    for side in sessions_of(comparison, names):
        yield from wrapped(printable(side), style.width, indent=3)
    yield ""
    yield from _differences(comparison, names, style)
    if comparison.paired:
        yield ""
        yield f"{PAIRED}:"
        yield from _some([*map(printable, paired_cases(comparison))])
    for metric in comparison.metrics:
        yield ""
        yield from _metric(metric, style)
    for why, case_ids in not_compared(comparison):
        yield ""
        yield style(printable(why), "yellow")
        yield from _some(case_ids)
    for remark in remarks_of(comparison):
        yield ""
        yield from wrapped(remark, style.width)
    yield ""
    yield from _table(("the two files", *names), list(file_rows(comparison, files)), style)


def _differences(comparison: Comparison, names: Names, style: Style) -> Iterator[str]:
    every = comparison.differences
    if not every:
        yield from wrapped(NOTHING_DIFFERS, style.width)
        return
    shown = every[:DIFFERENCES_SHOWN]
    rows = [("what differs", *names), *map(difference_cells, shown)]
    head, *below = stacked(_printable(rows), "l", names=1, width=style.width)
    yield from (style(line, "bold") for line in head)
    for shared, lines in zip(shown, below, strict=True):
        yield from lines
        if where := where_it_differs(shared, comparison):
            text = f"{where}: {named(shared.case_ids, _SHOWN)}"
            yield from (f"    {line}" for line in wrapped(text, style.width - 4, indent=2))
    if len(every) > len(shown):
        yield f"and {len(every) - len(shown)} more, in --markdown"


def _table(heading: Sequence[str], rows: Sequence[Sequence[str]], style: Style) -> Iterator[str]:
    head, *below = stacked(_printable([heading, *rows]), "l", names=1, width=style.width)
    yield from (style(line, "bold") for line in head)
    yield from chain(*below)


def _printable(rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    return [tuple(map(printable, row)) for row in rows]


def _metric(metric: ComparedMetric, style: Style) -> Iterator[str]:
    title = printable(f"{metric.name} ({direction_of(metric)})")
    yield from (style(line, "bold") for line in wrapped(title, style.width))
    yield from _cases(metric, style)
    yield from (style(line, "bold") for line in wrapped(found_text(metric), style.width))
    yield from wrapped(mean_text(metric), style.width)
    if metric.worse_cases:
        yield style("worse, the worst first", "red")
        yield from _some([f"{ratio_text(one)}  {one.case_id}" for one in metric.worse_cases])


def _named(case: ComparedCase) -> str:
    unit = printable(case.metric.unit)
    return f"{case.case_id} ({unit})" if unit else case.case_id


def _cases(metric: ComparedMetric, style: Style) -> Iterator[str]:
    cells = [(_named(case), *case_cells(case)) for case in metric.cases]
    room = len(GAP) + max(len(difference.value) for difference in Conclusion)
    rows = [("case", *headings_of(("A", "B"))), *cells]
    head, *below = stacked(rows, "lr", names=1, width=style.width - room)
    yield from (style(line, "bold") for line in head)
    for case, (first, *rest) in zip(metric.cases, below, strict=True):
        word = style(case.conclusion.value, *_MARKUP[case.conclusion])
        yield f"{first}: {word}" if rest else f"{first}{GAP}{word}"
        yield from rest


def _some(names: Sequence[str]) -> Iterator[str]:
    yield from (f"  {name}" for name in names[:_SHOWN])
    if len(names) > _SHOWN:
        yield f"  and {len(names) - _SHOWN} more"
