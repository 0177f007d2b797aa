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
from pytest_dlperf.model.results import CaseResult
from pytest_dlperf.report import printing
from pytest_dlperf.report.facts import Fact, Weight, case_facts, is_not_good
from pytest_dlperf.report.failure import LABEL
from pytest_dlperf.report.overview import absences, places_of_losses, scaling
from pytest_dlperf.report.printing import aligned, stacked, wrapped
from pytest_dlperf.report.reports import Note
from pytest_dlperf.report.runs import RUNS_LISTED, runs_text
from pytest_dlperf.report.session import SessionReport
from pytest_dlperf.report.status import case_counts, decisive, worst_first
from pytest_dlperf.report.tables import (
    CHANGE_HEADINGS,
    COLUMNS,
    Row,
    case_rows,
    change_row,
    columns_of,
)

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
_REASONS_SHOWN: Final = 3
"""Different reasons for skipped cases that a session tells that is not asked for all."""
_IGNORED_SHOWN: Final = 20
"""Left-out logs that are listed; the results file has all of them."""
_TEXTS: Final = 2
"""Texts of a fact that stand below a row; the failure has more."""
_LEAVE_OUT: Final = sorted((column.rank, column.heading) for column in COLUMNS if column.rank)
"""What makes room for the rest, the least important first."""
_LEFT: Final = ("case", "verdict", *(column.heading for column in COLUMNS if column.is_left))


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
    passes, status = judgement.passes(strict=strict), judgement.status
    if passes and given.category == "failed":
        return replace(given, word=f"{given.word}{number}")  # the test failed, not its number
    if given.category in ("xfailed", "xpassed"):
        word = f"{given.word}{'' if passes else f' {judgement.verdict.value}'}{number}"
        colour = "red" if strict and not passes else "yellow"
        return replace(given, word=word, markup=(colour,))
    # A number that was given up for another is good, and still worth a look.
    is_good = status.is_good and status is not Verdict.ACCEPTED
    return TestStatus(
        given.category,
        LETTERS.get(status, given.letter),
        f"{given.word if status is Verdict.PASS else status.value.upper()}{number}",
        (("green" if is_good else "yellow") if passes else "red",),
    )


def _number(result: CaseResult, metric: str, judgement: Judgement | None) -> str:
    if judgement is None:
        known = result.metrics().get(metric)
        median = known.median if known is not None else None
        return f" {numbers.quantity(median, known.metric.unit)}" if known and median else ""
    if judgement.measured is None:
        return ""
    difference = judgement.difference_percent
    told = "" if difference is None else f" {numbers.signed_percent(difference)}"
    return f" {numbers.quantity(judgement.measured, judgement.metric.unit)}{told}"


# ------------------------------------------------------------------------------ the summary


def summary(session: SessionReport, notes: Sequence[Note], config: Any) -> Iterator[Line]:
    """Yield the summary as pytest's options ask for it."""
    verbosity, option = config.get_verbosity(), config.option
    has_failures = option.tbstyle not in ("no", "line") and not option.no_summary
    yield from summary_lines(
        session,
        notes,
        width=config.get_terminal_writer().fullwidth,
        verbosity=verbosity,
        with_failures=verbosity > 0 or not has_failures,
        is_terminal=sys.stdout.isatty(),
    )


def summary_lines(  # noqa: PLR0913 - what it shows, and how, by name
    session: SessionReport,
    notes: Sequence[Note] = (),
    *,
    width: int,
    verbosity: int = 0,
    with_failures: bool = True,
    is_terminal: bool = True,
) -> Iterator[Line]:
    """Yield what the session has come to, the table of its cases, the notes, the counts.

    ``verbosity`` -1 has the cases that are not good, without their facts; 0 every measured case;
    1 every judged metric; -2 the counts alone. Without ``with_failures`` what a failure's message
    says above is not said again below its row.
    """
    results, every = session.results, verbosity > 0
    cases, strict = results.cases, results.strict
    counts = counts_line(session, notes)

    def lines(texts: Iterable[object], *markup: str) -> Iterator[Line]:
        for text in texts:
            yield from (Line(line, markup) for line in wrapped(str(text), width, indent=4))

    # Of a session in order, as the one before it, the counts say as much.
    if verbosity >= 0 and ("green" not in counts.markup or session.recovered or session.gains):
        yield from lines([session.sentence], *_worst(session))
        yield from lines((session.advice, *session.recovered))
    judged = worst_first(result for result in cases if result.judgements or result.measurement)
    skipped = [one for one in judged if one.measurement is None and one.status is Verdict.SKIPPED]
    shown = judged if strict or every else [one for one in judged if one not in skipped]
    if verbosity < 0:
        shown = [one for one in shown if not one.status.is_good and verbosity == -1]
    if shown:
        yield from _table(shown, session, width, verbosity, with_failures=with_failures)
    if verbosity >= 0:
        for head, reached in scaling(cases).items():
            yield from map(Line, wrapped(f"{head}  {'  '.join(reached)}", width, indent=9))
        reasons = absences(skipped, [Verdict.SKIPPED], most=1)
        most = len(reasons) if every or len(skipped) == len(cases) else _REASONS_SHOWN
        yield from lines(reasons[:most], "yellow")
        if reasons[most:]:
            more = len(reasons) - most
            yield Line(f"  … and {more} more reasons; -rs shows all", ("yellow",))
        yield from _left_out_logs(session)
        yield from lines(places_of_losses(cases))
    yield from note_lines(notes, width=width if is_terminal else None)
    changes = results.baseline_changes
    # First numbers stand in the table above.
    if every or any(change.old is not None for change in changes):
        yield from map(Line, aligned([CHANGE_HEADINGS, *map(change_row, changes)], "lllrrrll"))
    yield counts


def note_lines(notes: Iterable[Note], *, width: int | None = None) -> Iterator[Line]:
    """Say what was written and what could not be; a line each where no width is given."""
    for note in notes:
        text = printing.printable(note.text)
        for line in [text] if width is None else wrapped(text, width, indent=4):
            yield Line(line, ("red",) if note.is_bad else ())


def counts_line(session: SessionReport, notes: Iterable[Note] = ()) -> Line:
    """Count the cases per status, and name other faults; an interrupted session is never green."""
    results = session.results
    faults = [note.text.partition(":")[0] for note in notes if note.is_bad]
    text = case_counts(
        results.cases, faults, strict=results.strict, interrupted=results.interrupted
    )
    return Line(text, ("bold", "red") if faults else _worst(session))


def _worst(session: SessionReport) -> tuple[str, str]:
    results = session.results
    found = {_colour(result.status, strict=results.strict) for result in results.cases}
    found |= {"yellow"} if results.interrupted else set()
    return "bold", next(one for one in ("red", "yellow", "green") if one in found)


def _colour(status: Verdict, *, strict: bool) -> str:
    if status.fails(strict=strict):
        return "red"
    return "green" if status.is_good else "yellow"


def _left_out_logs(session: SessionReport) -> Iterator[Line]:
    logs = session.results.ignored_logs
    if logs:
        yield Line(f"logs that were left out: {len(logs)}", ("yellow",))
    for item in logs[:_IGNORED_SHOWN]:
        yield Line(f"  {printing.printable(item.log)}: {item.reason}")
    if len(logs) > _IGNORED_SHOWN:
        more = len(logs) - _IGNORED_SHOWN
        yield Line(f"  … and {more} more; --dlperf-json FILE has all of them")


# -------------------------------------------------------------------------------- the table


def _table(
    cases: Sequence[CaseResult],
    session: SessionReport,
    width: int,
    verbosity: int,
    *,
    with_failures: bool,
) -> Iterator[Line]:
    every, strict = verbosity > 0, session.results.strict
    rows_of = [case_rows(result, every=every) for result in cases]
    head, *rows, legend = _laid_out(cases, rows_of, width)
    yield from (Line(text, ("bold",)) for text in head)
    left = iter(rows)
    for result, of_case in zip(cases, rows_of, strict=True):
        for row in of_case:
            yield from (Line(text, (_colour(row.status, strict=strict),)) for text in next(left))
        kept = [
            it for it in of_case if with_failures or not _has_failure(result, it, strict=strict)
        ]
        if verbosity >= 0 and kept:
            now = session.results.started
            for fact in _row_facts(result, kept, now, every=every):
                for at, text in enumerate(fact.first(_TEXTS)):
                    line = f"    {'' if at else fact.label:{LABEL}} {text}"
                    yield from map(Line, wrapped(line, width, indent=LABEL + 5))
            for why in _broken_runs(result):
                yield from map(Line, wrapped(f"    {why}", width, indent=6))
    if verbosity >= 0:
        yield from (Line(text, ("light",)) for text in legend)


def _laid_out(
    cases: Sequence[CaseResult], rows_of: Sequence[Sequence[Row]], width: int
) -> Iterator[Sequence[str]]:
    """Yield the lines of the head and of each row, in as many columns as have room, then a legend.

    A case's id stands in the first of its rows, or above them where they are wide.
    """
    rows = [
        {"case": "" if at else result.case.id, **row.cells, "verdict": row.verdict}
        for result, of_case in zip(cases, rows_of, strict=True)
        for at, row in enumerate(of_case)
    ]
    kept = [column.heading for column in columns_of([row for each in rows_of for row in each])]
    kept = ["case", *kept, "verdict"]
    units: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["unit"] != numbers.ABSENT:
            units.setdefault(row["metric"].partition(MEMBER)[0], {})[row["unit"]] = None
    is_one_unit = len({unit for of_metric in units.values() for unit in of_metric}) == 1
    for _, name in [(0, "unit" if is_one_unit else ""), *_LEAVE_OUT]:
        kept = [other for other in kept if other != name]
        align = "".join("l" if column in _LEFT else "r" for column in kept)
        cells = [kept, *([row[column] for column in kept] for row in rows)]
        lines = stacked(cells, align, names=1, width=width)
        if len(lines[0]) == 1:
            break
    yield from lines
    legend = []
    if units and "unit" not in kept:
        told = (f"{metric} in {' or '.join(of_metric)}" for metric, of_metric in units.items())
        legend.append(", ".join(told))
    if "sees" in kept:
        legend.append("sees: the minimum detectable change (9 times out of 10)")
    yield wrapped("; ".join(legend), width, indent=4)


def _has_failure(result: CaseResult, row: Row, *, strict: bool) -> bool:
    judgement = result.judgements.get(row.metric)
    return judgement is not None and judgement.status.fails(strict=strict)


def _row_facts(result: CaseResult, rows: Sequence[Row], now: str, *, every: bool) -> Iterator[Fact]:
    known = result.metrics()
    metrics = [known[row.metric] for row in rows if row.metric in known]
    # The reason stands with the run that broke.
    is_broken = result.measurement is not None and bool(result.measurement.broken_runs)
    for fact in case_facts(result, now, [it for it in metrics if is_not_good(it)]):
        is_brief = fact.weight is Weight.BRIEF and not (is_broken and fact.label == "reason")
        if is_brief or fact.label in ("compared", "note"):
            yield fact
    for fact in case_facts(result, now, [it for it in metrics if not is_not_good(it)]):
        if fact.label == "note" or (every and fact.label == "compared"):
            yield fact


def _broken_runs(result: CaseResult) -> Iterator[str]:
    measurement = result.measurement
    if measurement is None or not any(run.reason for run in measurement.runs):
        return
    found = runs_text(result.case.id, measurement, (), most=RUNS_LISTED)
    for one in found.runs:
        if one.run.reason:
            yield f"run {one.label}: {printing.in_short(one.run.reason)}"
    if found.left_out and all(one.run.reason for one in found.runs):
        yield f"… and {found.left_out} more runs; --dlperf-json FILE has all of them"
