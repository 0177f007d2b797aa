"""``pytest-dlperf compare``: two results side by side. It informs: slower is no failure."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.command.comparison_table import table_lines
from pytest_dlperf.command.outcome import FINE, MisuseError
from pytest_dlperf.command.style import Style, wrapped
from pytest_dlperf.locks import write_whole
from pytest_dlperf.reports import comparison_words as words
from pytest_dlperf.reports.numbers import printable
from pytest_dlperf.results.comparing import IncomparableError, compare_results
from pytest_dlperf.results.reading import ResultsFileError, read_results

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.results.comparing import Comparison
    from pytest_dlperf.results.document import Results

_NAMED: Final = 5
"""Cases of one kind that are named; the reports name all of them."""


def compare(options: argparse.Namespace) -> int:
    """Compare ``options.first`` with ``options.second``; write ``markdown`` and ``html``.

    Raises:
        MisuseError: A file cannot be read or written, or the two cannot be compared.
    """
    files = Path(options.first), Path(options.second)
    try:
        comparison = compare_results(*map(read_results, files))
    except (ResultsFileError, IncomparableError) as error:
        raise MisuseError(printable(str(error))) from error
    if options.markdown is not None:
        from pytest_dlperf.reports.comparison_markdown import comparison_markdown

        _write("--markdown", Path(options.markdown), comparison_markdown(comparison))
    if options.html is not None:
        from pytest_dlperf.reports.html.comparison import comparison_page

        _write("--html", Path(options.html), comparison_page(comparison))
    for line in _lines(comparison, files, Style(sys.stdout)):
        print(line)  # noqa: T201 - a command prints
    return FINE


def _lines(comparison: Comparison, files: Sequence[Path], style: Style) -> Iterator[str]:
    sides = (comparison.first, comparison.second)
    for name, side, file in zip("AB", sides, files, strict=True):
        yield from _head(name, side, file, style)
    yield ""
    yield from table_lines(comparison.cases, style)
    yield ""
    yield from (style(line, "bold") for line in wrapped(words.found(comparison), style.width))
    mean = words.mean(comparison)
    if mean is not None:
        yield mean
    yield from _others(comparison, style)
    yield from _contrasts(comparison, style)
    for remark in words.remarks(comparison):
        yield ""
        yield from wrapped(remark, style.width)


def _head(name: str, side: Results, file: Path, style: Style) -> Iterator[str]:
    facts = (
        f"cluster {printable(side.cluster)}, {words.started(side)}, {side.estimator.value}:",
        printable(str(file)),
    )
    margin = "   "
    first, *rest = wrapped(" ".join(facts), style.width - len(margin))
    yield f"{style(name, 'bold')}  {first}"
    yield from (f"{margin}{line}" for line in rest)


def _others(comparison: Comparison, style: Style) -> Iterator[str]:
    """The cases that are not compared, by what either side says of them."""
    kinds: list[tuple[str, Sequence[str]]] = [
        (f"not compared (A: {first}, B: {second})", case_ids)
        for (first, second), case_ids in words.groups(comparison.left_out).items()
    ]
    kinds += [("only in A", comparison.only_first), ("only in B", comparison.only_second)]
    for what, case_ids in kinds:
        if not case_ids:
            continue
        yield ""
        yield style(f"{words.counted_cases(len(case_ids))} {printable(what)}", "yellow")
        yield from (f"  {case_id}" for case_id in case_ids[:_NAMED])
        if len(case_ids) > _NAMED:
            yield f"  and {len(case_ids) - _NAMED} more"


def _contrasts(comparison: Comparison, style: Style) -> Iterator[str]:
    rows = [
        tuple(map(printable, (fact.name, words.known(fact.first), words.known(fact.second))))
        for fact in comparison.contrasts
    ]
    if not rows:
        return
    yield ""
    head = ("what else differs", "A", "B")
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    fits = sum(widths) + 2 * len("  ") <= style.width
    for row in (head, *rows):
        if fits:
            line = "  ".join(_filled(row, widths)).rstrip()
            yield style(line, "bold") if row is head else line
        elif row is head:
            yield style("what else differs", "bold")
        else:
            name, first, second = row
            yield f"{name}"
            yield f"  A {first}"
            yield f"  B {second}"


def _filled(cells: Iterable[str], widths: Iterable[int]) -> list[str]:
    return [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]


def _write(option: str, file: Path, text: str) -> None:
    try:
        write_whole(file, text)
    except OSError as error:
        raise MisuseError(f"{option}: {file}: {error.strerror or error}") from error
