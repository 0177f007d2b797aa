"""``pytest-dlperf compare``: shows two results side by side, and fails where it is asked to."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pytest_dlperf.command.main import FAULTS, FINE
from pytest_dlperf.command.shell import Style, add, file_argument, write_report
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.model.numbers import counted
from pytest_dlperf.report.comparison import Section, comparison_markdown, sections
from pytest_dlperf.report.printing import printable, stacked, wrapped
from pytest_dlperf.results.comparison import Comparison, Conclusion, compare_results
from pytest_dlperf.results.file import read_results

_SHOWN: Final = 5
"""Cases of one kind that the terminal names; the Markdown names all."""
_WORDS: Final[Mapping[str, tuple[Conclusion, Sequence[str]]]] = {
    "worse": (Conclusion.WORSE, ("red",)),
    "better": (Conclusion.BETTER, ("green",)),
    "different": (Conclusion.DIFFERENT, ("yellow",)),
    "too-few": (Conclusion.TOO_FEW, ("yellow",)),
    "broken": (Conclusion.BROKEN, ("bold", "red")),
}
"""What ``--fail-on`` takes, and how the terminal shows it."""
_MARKUP: Final[Mapping[str, Sequence[str]]] = dict(_WORDS.values())


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
    add(parser, "--markdown")
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
    if options.tolerance is not None and options.fail_on is None:
        raise UsageError("--tolerance: it is that of --fail-on, which is not given")
    comparison = compare_results(*map(read_results, files))
    names = tuple(map(str, files))
    if options.markdown is not None:
        report = Path(options.markdown)
        if report.exists() and any(report.samefile(file) for file in files):
            raise UsageError(f"--markdown: {printable(str(report))} would overwrite what it reads")
        write_report("--markdown", report, comparison_markdown(comparison, names))
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
    return frozenset(_WORDS[word][0] for word in words)


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


def comparison_lines(comparison: Comparison, files: Sequence[str], style: Style) -> Iterator[str]:
    """Yield the lines of a comparison for a terminal."""
    for number, section in enumerate(sections(comparison, files)):
        yield from [""] * bool(number)
        yield from (style(line, "bold") for line in wrapped(str(section.title), style.width))
        for line in map(str, section.lines):
            yield from wrapped(line, style.width, indent=3)
        if section.table:
            yield from _table(section, style)
        yield from _some([str(name) for name in section.names])


def _table(section: Section, style: Style) -> Iterator[str]:
    rows = [[*map(str, row.cells)] for row in section.table]
    head, *below = stacked(rows, section.align, names=1, width=style.width)
    yield from (style(line, "bold") for line in head)
    for row, (*before, last) in zip(section.table[1:], below, strict=True):
        yield from before
        word = str(row.cells[-1])
        markup = _MARKUP.get(word, ())
        yield f"{last.removesuffix(word)}{style(word, *markup)}" if markup else last
        for line in wrapped(str(row.note), style.width - 4, indent=2):
            yield f"    {line}"


def _some(names: Sequence[str]) -> Iterator[str]:
    yield from (f"  {name}" for name in names[:_SHOWN])
    if len(names) > _SHOWN:
        yield f"  and {len(names) - _SHOWN} more"
