"""``pytest-dlperf compare``: two results side by side. It informs: slower is no failure."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pytest_dlperf.command.comparison_table import table_lines
from pytest_dlperf.command.main import FINE
from pytest_dlperf.command.shell import Style, file_argument, text_argument, wrapped
from pytest_dlperf.files.locks import is_stream, write_whole
from pytest_dlperf.model.errors import UsageError
from pytest_dlperf.reports import comparison as words
from pytest_dlperf.reports.comparison_names import origin, side_names
from pytest_dlperf.reports.numbers import columns, printable
from pytest_dlperf.results.comparison import compare_results
from pytest_dlperf.results.reading import read_results

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pytest_dlperf.model.results import Results
    from pytest_dlperf.reports.comparison_names import Names, SideName
    from pytest_dlperf.results.comparison import Comparison

_MAX_LABEL: Final = 40
_NAMED: Final = 5
"""Cases of one kind that are named; the reports name all of them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the subcommand takes."""
    parser.description = (
        "Hold two results files (--dlperf-json) side by side: of two framework "
        "versions, of two clusters. For each case the ratio of the throughputs, B over A, with its "
        "95 % interval. It informs and is no gate: a slower B is no failure."
    )
    parser.epilog = (
        "Exit codes: 0 compared, whatever came out; 2 a file cannot be read or written, a "
        "report would overwrite what is compared, the estimators differ, or no case was measured "
        "in both."
    )
    parser.add_argument("first", type=file_argument, metavar="A.json", help="what is compared with")
    parser.add_argument("second", type=file_argument, metavar="B.json", help="what is compared")
    for letter in "ab":
        parser.add_argument(
            f"--label-{letter}",
            type=_label,
            metavar="NAME",
            help=f"what {letter.upper()} is called (default: the file's name)",
        )
    parser.add_argument(
        "--markdown", type=file_argument, metavar="FILE", help="write Markdown to FILE"
    )
    parser.add_argument("--html", type=file_argument, metavar="FILE", help="write a page to FILE")


def _label(text: str) -> str:
    label = text_argument(text).strip()
    if not label.isprintable():
        raise argparse.ArgumentTypeError(
            f"{text!r} has what cannot be shown in one line; name it in letters"
        )
    if len(label) > _MAX_LABEL:
        raise argparse.ArgumentTypeError(
            f"it has {len(label)} characters; {_MAX_LABEL} are the most"
        )
    return label


def run(options: argparse.Namespace) -> int:
    """Compare ``options.first`` with ``options.second``; write ``markdown`` and ``html``.

    Raises:
        UsageError: A file cannot be read or written, or the two cannot be compared.
    """
    files = Path(options.first), Path(options.second)
    names = side_names(tuple(map(str, files)), (options.label_a, options.label_b))
    _refuse_to_lose(
        {"A": files[0], "B": files[1], "--markdown": options.markdown, "--html": options.html}
    )
    comparison = compare_results(*map(read_results, files))
    if options.markdown is not None:
        from pytest_dlperf.reports.comparison_markdown import comparison_markdown

        _write("--markdown", Path(options.markdown), comparison_markdown(comparison, names))
    if options.html is not None:
        from pytest_dlperf.reports.html.comparison import comparison_page

        _write("--html", Path(options.html), comparison_page(comparison, names))
    for line in _lines(comparison, names, Style(sys.stdout)):
        print(line)  # noqa: T201 - a command prints
    return FINE


def _refuse_to_lose(files: Mapping[str, Path | str | None]) -> None:
    """Refuse a report that would take the place of what is compared, or of the other report."""
    taken: dict[Path, str] = {}
    for name, given in files.items():
        if given is None or is_stream(Path(given)):
            continue
        file = _whole_path(Path(given))
        other = taken.setdefault(file, name)
        if other != name and name.startswith("--"):
            what = f"is {other}" if other in "AB" else f"is the file of {other} too"
            raise UsageError(
                f"{name}: {printable(str(given))} {what}, which would be lost; name another file"
            )


def _whole_path(file: Path) -> Path:
    try:
        return file.resolve()
    except (OSError, RuntimeError, ValueError):
        # A link to itself: reading and writing tell.
        return file.absolute()


def _lines(comparison: Comparison, names: Names, style: Style) -> Iterator[str]:
    sides = (comparison.first, comparison.second)
    for name, side in zip(names, sides, strict=True):
        yield from _head(name, side, style)
    yield ""
    yield from table_lines(comparison.cases, names, style)
    yield ""
    yield from (style(line, "bold") for line in wrapped(words.found(comparison), style.width))
    mean = words.mean(comparison)
    if mean is not None:
        yield from wrapped(mean, style.width)
    yield from _slower(comparison, style)
    yield from _others(comparison, style)
    yield from _differences(comparison, names, style)
    for remark in words.remarks(comparison):
        yield ""
        yield from wrapped(remark, style.width)


def _head(name: SideName, side: Results, style: Style) -> Iterator[str]:
    facts = [
        *([name.file] if name.file != name.label else []),
        f"cluster {printable(side.cluster)}",
        words.started(side),
        side.estimator.value,
        *(f"{fact} {printable(value)}" for fact, value in origin(side)),
    ]
    margin = "   "
    first, *rest = wrapped(f"{name.label}: {', '.join(facts)}", style.width - len(margin))
    yield f"{style(name.letter, 'bold')}  {first}"
    yield from (f"{margin}{line}" for line in rest)


def _slower(comparison: Comparison, style: Style) -> Iterator[str]:
    cases = comparison.slower_cases
    if not cases:
        return
    yield ""
    yield style("slower, the slowest first", "red")
    for case in cases[:_NAMED]:
        yield f"  {words.slower(case)}  {case.case_id}"
    if len(cases) > _NAMED:
        yield f"  and {len(cases) - _NAMED} more"


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


def _differences(comparison: Comparison, names: Names, style: Style) -> Iterator[str]:
    rows = [
        tuple(map(printable, (fact.name, words.known(fact.first), words.known(fact.second))))
        for fact in comparison.differences
    ]
    if not rows:
        return
    yield ""
    head: tuple[str, ...] = ("what else differs", *(name.heading for name in names))
    widths = [max(map(columns, column)) for column in zip(head, *rows, strict=True)]
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
    return [cell + " " * (width - columns(cell)) for cell, width in zip(cells, widths, strict=True)]


def _write(option: str, file: Path, text: str) -> None:
    try:
        write_whole(file, text)
    except OSError as error:
        raise UsageError(f"{option}: {printable(str(file))}: {error.strerror or error}") from error
