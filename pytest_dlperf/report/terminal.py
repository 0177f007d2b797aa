"""The summary at the end of a session: a table of the cases, the worst first, and what counts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from pytest_dlperf.model import numbers
from pytest_dlperf.model.judgement import Judgement, Verdict
from pytest_dlperf.model.metric import MEMBER
from pytest_dlperf.model.results import CaseResult, IgnoredLog
from pytest_dlperf.report import printing
from pytest_dlperf.report.columns import (
    CHANGE_HEADINGS,
    COLUMNS,
    change_row,
    decisive,
    difference_percent,
    headings,
)
from pytest_dlperf.report.facts import Fact
from pytest_dlperf.report.failure import LABEL
from pytest_dlperf.report.printing import aligned, listed, stacked, wrapped
from pytest_dlperf.report.remarks import (
    absences,
    is_only_skipped,
    left_out_logs,
    scaling,
    suspicion_lines,
)
from pytest_dlperf.report.reports import Note
from pytest_dlperf.report.rows import Row, broken_lines, case_rows, has_failure, row_facts
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.status import case_counts, worst_first

LETTERS: Final = {
    Verdict.IMPROVED: "+",
    Verdict.ENVIRONMENT_SHIFT: "~",
    Verdict.NOT_STARTED: "~",
    Verdict.REGRESSED: "R",
    Verdict.INCONCLUSIVE: "?",
    Verdict.NO_BASELINE: "N",
    Verdict.HUNG: "H",
    Verdict.INVALID: "I",
}
"""What pytest prints for a test that ran, by its verdict; for the others what it always prints."""
_RAN: Final = ("passed", "failed", "xfailed", "xpassed")

REASONS_SHOWN: Final = 3
"""Different reasons for skipped cases that a session tells that is not asked for all."""

_TEXTS: Final = 2
"""Texts of a fact that stand below a row; the failure has more."""
_LEAVE_OUT: Final = sorted((c.rank, c.heading) for c in COLUMNS if c.rank and "terminal" in c.forms)
"""What makes room for the rest, the least important first."""
_LEFT: Final = ("case", "verdict", *(column.heading for column in COLUMNS if column.is_left))
_LEGEND: Final = "sees: the minimum detectable change (9 times out of 10)"


class Line(Struct, frozen=True):
    """A line and its markup: names that pytest's terminal writer knows."""

    text: str
    markup: tuple[str, ...] = ()


class TestStatus(Struct, frozen=True):
    """The status that pytest prints for a test: ``letter`` by default, ``word`` with ``-v``.

    ``category`` is what pytest counts the test as; ``markup`` colours both.
    """

    __test__ = False  # no test, whatever pytest makes of the name

    category: str
    letter: str
    word: str
    markup: tuple[str, ...] = ()


def summary(session: SessionReport, notes: Sequence[Note], config: Any) -> Iterator[Line]:
    """Yield what the session has come to, the table of its cases, the notes, the counts."""
    results = session.results
    cases, strict = results.cases, results.strict
    width = config.get_terminal_writer().fullwidth
    verbosity = config.get_verbosity()
    option = config.option
    has_failures = option.tbstyle not in ("no", "line") and not option.no_summary
    worst = _worst_colour(cases, strict=strict, interrupted=results.interrupted)
    # Of a session in order, as the one before it, the counts say as much.
    if verbosity >= 0 and (worst != "green" or session.recovered or session.gains):
        for line in wrapped(str(session.sentence), width, indent=4):
            yield Line(line, ("bold", worst))
        for one in map(str, (session.advice, *session.recovered)):
            yield from map(Line, wrapped(one, width, indent=4))
    yield from summary_lines(
        cases,
        results.ignored_logs,
        now=results.started,
        width=width,
        verbosity=verbosity,
        strict=strict,
        with_failures=verbosity > 0 or not has_failures,
    )
    if verbosity >= 0:
        for text in suspicion_lines(cases):
            yield from map(Line, wrapped(text, width, indent=4))
    yield from note_lines(notes, width=width if sys.stdout.isatty() else None)
    changes = results.baseline_changes
    # First numbers stand in the table above.
    if verbosity > 0 or any(change.old is not None for change in changes):
        rows = [CHANGE_HEADINGS, *map(change_row, changes)]
        yield from map(Line, aligned(rows, "lllrrrll"))
    yield counts_line(cases, notes, strict=strict, interrupted=results.interrupted)


def verdict_status(
    result: CaseResult, metric: str, given: TestStatus, *, strict: bool
) -> TestStatus:
    """Say a test's verdict. Its category stays what it is, and with it all that pytest counts."""
    if given.category not in _RAN or not given.letter:
        return given  # the setup of a test that goes on, a repetition, what others invent
    judgement = decisive(result, metric)
    number = _number(result, metric, judgement)
    if judgement is None or judgement.verdict is Verdict.SKIPPED:
        is_skip = judgement is not None and given.category == "failed"
        return replace(given, word=f"{given.word}{' (skipped)' if is_skip else number}")
    passes = judgement.passes(strict=strict)
    if passes and given.category == "failed":
        return replace(given, word=f"{given.word}{number}")  # the test failed, not its number
    status = judgement.status
    if given.category in ("xfailed", "xpassed"):
        word, letter = (
            f"{given.word}{'' if passes else f' {judgement.verdict.value}'}",
            given.letter,
        )
        colour = "red" if strict and not passes else "yellow"
    else:
        word = given.word if status is Verdict.PASS else status.value.upper()
        letter = LETTERS.get(status, given.letter)
        # A number that was given up for another is good, and still worth a look.
        is_good = status.is_good and status is not Verdict.ACCEPTED
        colour = ("green" if is_good else "yellow") if passes else "red"
    return replace(given, letter=letter, word=f"{word}{number}", markup=(colour,))


def _number(result: CaseResult, metric: str, judgement: Judgement | None) -> str:
    """Write what was measured and how far it lies from what it was held against, if anything."""
    if judgement is None:
        known = result.metrics().get(metric)
        is_known = known is not None and known.median is not None
        return f" {numbers.quantity(known.median, known.metric.unit)}" if known and is_known else ""
    if judgement.measured is None:
        return ""
    difference = difference_percent(judgement)
    told = "" if difference is None else f" {numbers.signed_percent(difference)}"
    return f" {numbers.quantity(judgement.measured, judgement.metric.unit)}{told}"


def note_lines(notes: Iterable[Note], *, width: int | None = None) -> Iterator[Line]:
    """Say what was written and what could not be; a line each where no width is given."""
    for note in notes:
        markup = ("red",) if note.is_bad else ()
        text = printing.printable(note.text)
        for line in [text] if width is None else wrapped(text, width, indent=4):
            yield Line(line, markup)


def summary_lines(  # noqa: PLR0913 - what it shows, and how, by name
    results: Sequence[CaseResult],
    ignored_logs: Sequence[IgnoredLog],
    *,
    now: str,
    width: int,
    verbosity: int = 0,
    strict: bool = False,
    with_failures: bool = True,
) -> Iterator[Line]:
    """Yield the table of the measured cases, their scaling, what others lack, the logs left out.

    ``verbosity`` -1 has the cases that are not good, without their facts; 0 every measured case;
    1 every judged metric; -2 nothing. In a ``strict`` session
    a skipped case is as bad as one that failed. ``now`` is when the session began, ISO 8601.
    Without ``with_failures`` what a failure's message says above is not said again below its row.
    """
    judged = [result for result in results if result.judgements or result.measurement]
    skipped = [result for result in judged if is_only_skipped(result)]
    is_in_table = strict or verbosity > 0
    shown = worst_first(r for r in judged if is_in_table or not is_only_skipped(r))
    if verbosity < 0:
        shown = [r for r in shown if not r.status.is_good] if verbosity == -1 else []
    if shown:
        yield from _table(
            shown,
            now,
            width,
            strict=strict,
            verbosity=verbosity,
            with_failures=with_failures,
        )
    if verbosity >= 0:
        for one in scaling(results):
            pieces = (f" {piece}" for piece in one.pieces)
            yield from map(Line, listed(str(one.head), pieces, width))
        reasons = absences(skipped, [Verdict.SKIPPED], most=1)
        with_all = verbosity > 0 or len(skipped) == len(results)
        for text in reasons if with_all else reasons[:REASONS_SHOWN]:
            yield from (Line(line, ("yellow",)) for line in wrapped(str(text), width, indent=4))
        more = len(reasons) - REASONS_SHOWN
        if not with_all and more > 0:
            yield Line(f"  … and {more} more reasons; -rs shows all", ("yellow",))
        for at, line in enumerate(left_out_logs(ignored_logs)):
            yield Line(line, () if at else ("yellow",))


def _table(  # noqa: PLR0913 - what it shows, and how, by name
    cases: Sequence[CaseResult],
    now: str,
    width: int,
    *,
    strict: bool,
    verbosity: int,
    with_failures: bool,
) -> Iterator[Line]:
    every, is_short = verbosity > 0, verbosity < 0
    rows_of = [case_rows(result, every=every) for result in cases]
    ids = (result.case.id for result in cases)
    (head, *lines), legend = _case_table(zip(ids, rows_of, strict=True), width)
    yield from (Line(text, ("bold",)) for text in head)
    left = iter(lines)
    for result, rows in zip(cases, rows_of, strict=True):
        for row, lines_of_row in zip(rows, left):  # noqa: B905 - the lines of the next stay
            yield from (Line(text, (_colour(row.status, strict=strict),)) for text in lines_of_row)
        if is_short:
            continue
        kept = [r for r in rows if with_failures or not has_failure(result, r, strict=strict)]
        for fact in row_facts(result, kept, now, every=every):
            yield from _fact_lines(fact, width)
        for text in broken_lines(result) if kept else ():
            yield from map(Line, wrapped(f"    {text}", width, indent=6))
    if legend and not is_short:
        yield from (Line(line, ("light",)) for line in wrapped(legend, width, indent=4))


def _fact_lines(fact: Fact, width: int) -> Iterator[Line]:
    for at, text in enumerate(fact.first(_TEXTS)):
        label = "" if at else fact.label
        yield from map(Line, wrapped(f"    {label:{LABEL}} {text}", width, indent=LABEL + 5))


def _case_table(
    cases: Iterable[tuple[str, Sequence[Row]]], width: int
) -> tuple[list[tuple[str, ...]], str]:
    """Lay out the head and each row, in as many columns as there is room for, and a legend.

    A case's id stands in the first of its rows, or above them where they are wide.
    """
    rows = [
        {**row.cells, "case": "" if number else case_id}
        for case_id, of_case in cases
        for number, row in enumerate(of_case)
    ]
    shown = [
        name for name in headings("terminal") if any(row[name] != numbers.ABSENT for row in rows)
    ]
    units: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["unit"] != numbers.ABSENT:
            units.setdefault(row["metric"].partition(MEMBER)[0], {})[row["unit"]] = None
    if len({unit for of_metric in units.values() for unit in of_metric}) == 1:
        shown.remove("unit")
    lines, kept = _fitting(rows, shown, width)
    legend = []
    if "unit" not in kept and any(unit for of_metric in units.values() for unit in of_metric):
        told = (f"{metric} in {' or '.join(of_metric)}" for metric, of_metric in units.items())
        legend.append(", ".join(told))
    legend += [_LEGEND] * ("sees" in kept)
    return lines, "; ".join(legend)


def _fitting(
    rows: Sequence[dict[str, str]], shown: Sequence[str], width: int
) -> tuple[list[tuple[str, ...]], list[str]]:
    """Leave out columns until a row is a line; if none is left to go, give the case its own."""
    kept = ["case", *shown, "verdict"]
    for _, name in [(0, ""), *_LEAVE_OUT]:
        kept = [other for other in kept if other != name]
        align = "".join("l" if column in _LEFT else "r" for column in kept)
        cells = [kept, *([row[column] for column in kept] for row in rows)]
        lines = stacked(cells, align, names=1, width=width)
        if len(lines[0]) == 1:
            break
    return lines, kept


def _worst_colour(results: Iterable[CaseResult], *, strict: bool, interrupted: bool) -> str:
    colours = {_colour(result.status, strict=strict) for result in results}
    colours |= {"yellow"} if interrupted else set()
    return next(colour for colour in ("red", "yellow", "green") if colour in colours)


def _colour(status: Verdict, *, strict: bool) -> str:
    if status.fails(strict=strict):
        return "red"
    return "green" if status.is_good else "yellow"


def counts_line(
    results: Sequence[CaseResult],
    notes: Iterable[Note] = (),
    *,
    strict: bool = False,
    interrupted: bool = False,
) -> Line:
    """Count the cases per status, and name other faults; ``interrupted`` is never green."""
    faults = [note.text.partition(":")[0] for note in notes if note.is_bad]
    worst = "red" if faults else _worst_colour(results, strict=strict, interrupted=interrupted)
    text = case_counts(results, faults, strict=strict, interrupted=interrupted)
    return Line(text, ("bold", worst))
