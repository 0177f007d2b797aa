"""The summary at the end of a session: a table of the cases, the worst first, and what counts."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pytest_dlperf.model.judgement import Quantity, Verdict
from pytest_dlperf.model.measurement import RunStatus
from pytest_dlperf.model.records import CaseResult
from pytest_dlperf.reports import numbers
from pytest_dlperf.reports.case_status import (
    CaseStatus,
    counts,
    of_judgement,
    status_of,
    worst_first,
)
from pytest_dlperf.reports.figures import (
    CHANGE_HEADINGS,
    accepted,
    alike,
    change_row,
    decisive,
    difference_percent,
    rule_view,
    writer,
)
from pytest_dlperf.reports.remarks import remark_lines
from pytest_dlperf.reports.report import Line, Report
from pytest_dlperf.reports.tables import aligned, listed, wrapped
from pytest_dlperf.reports.terminal_table import CaseTable, row_of, speedup_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_dlperf.model.judgement import Judgement
    from pytest_dlperf.model.records import TestRecord
    from pytest_dlperf.model.results import IgnoredLog, Results
    from pytest_dlperf.reports.report import Note, TestStatus

LETTERS: Final = {
    CaseStatus.IMPROVED: "+",
    CaseStatus.ENVIRONMENT_SHIFT: "~",
    CaseStatus.REGRESSED: "R",
    CaseStatus.INCONCLUSIVE: "?",
    CaseStatus.NO_BASELINE: "N",
    CaseStatus.HUNG: "H",
    CaseStatus.INVALID: "I",
}
"""What pytest prints for a test that ran, by its verdict; for the others what it always prints."""
_RAN: Final = ("passed", "failed", "xfailed", "xpassed")

IGNORED_SHOWN: Final = 20
"""Left-out logs that the terminal lists; the results file has all of them."""
REASONS_SHOWN: Final = 3
"""Different reasons for skipped cases that a session tells that is not asked for all."""


class TerminalReport(Report):
    """A word for each test, and a summary at the session's end."""

    name = "summary"

    def __init__(self, config: Any, *, strict: bool) -> None:
        """Take pytest's configuration, which knows the terminal."""
        self._config = config
        self._strict = strict

    def status(self, record: TestRecord, given: TestStatus) -> TestStatus:
        """Return the verdict instead of "passed" or "failed", with ``-v`` the number too."""
        return verdict_status(record, given, strict=self._strict)

    def summary(self, results: Results, notes: Sequence[Note]) -> Iterator[Line]:
        """Return the table of the cases, what is worth saying of all, the notes, the counts."""
        cases, strict = results.cases, results.strict
        width = self._config.get_terminal_writer().fullwidth
        verbosity = self._config.get_verbosity()
        yield from summary_lines(
            cases, results.ignored_logs, width=width, verbosity=verbosity, strict=strict
        )
        if verbosity >= 0:
            for text in remark_lines(cases):
                yield from map(Line, wrapped(text, width, indent=4))
        yield from note_lines(notes, width=width if sys.stdout.isatty() else None)
        if results.baseline_changes:
            rows = [CHANGE_HEADINGS, *map(change_row, results.baseline_changes)]
            yield from map(Line, aligned(rows, "llrrrl"))
        yield counts_line(cases, notes, strict=strict, interrupted=results.interrupted)


def verdict_status(record: TestRecord, given: TestStatus, *, strict: bool) -> TestStatus:
    """Say a test's verdict. Its category stays what it is, and with it all that pytest counts."""
    if given.category not in _RAN or not given.letter:
        return given  # the setup of a test that goes on, a repetition, what others invent
    judgement = decisive(record)
    number = _number(record, judgement)
    if judgement is None or judgement.verdict is Verdict.SKIPPED:
        is_skip = judgement is not None and given.category == "failed"
        return replace(given, word=f"{given.word}{' (skipped)' if is_skip else number}")
    passes = judgement.passes(strict=strict)
    if passes and given.category == "failed":
        return replace(given, word=f"{given.word}{number}")  # the test failed, not its number
    status = of_judgement(judgement)
    if given.category in ("xfailed", "xpassed"):
        word, letter = (
            f"{given.word}{'' if passes else f' {judgement.verdict.value}'}",
            given.letter,
        )
        colour = "red" if strict and not passes else "yellow"
    else:
        word = given.word if status is CaseStatus.PASS else status.value.upper()
        letter = LETTERS.get(status, given.letter)
        # A number that was given up for another is good, and still worth a look.
        is_good = status.is_good and status is not CaseStatus.ACCEPTED
        colour = ("green" if is_good else "yellow") if passes else "red"
    return replace(given, letter=letter, word=f"{word}{number}", markup=(colour,))


def _number(record: TestRecord, judgement: Judgement | None) -> str:
    """Write what was measured and how far it lies from what it was held against, if anything."""
    measurement = record.measurements.get(record.case.id)
    unit = f" {measurement.unit}" if measurement else ""
    if judgement is None:
        median = measurement.median if measurement else None
        return "" if median is None else f" {numbers.throughput(median)}{unit}"
    if judgement.measured is None:
        return ""
    difference = difference_percent(judgement)
    told = "" if difference is None else f" {numbers.signed_percent(difference)}"
    if judgement.quantity is Quantity.SPEEDUP:
        return f" {numbers.speedup(judgement.measured)}x{told}"
    return f" {numbers.throughput(judgement.measured)}{unit}{told}"


def note_lines(notes: Iterable[Note], *, width: int | None = None) -> Iterator[Line]:
    """Say what was written and what could not be; a line each where no width is given."""
    for note in notes:
        markup = ("red",) if note.is_bad else ()
        text = numbers.printable(note.text)
        for line in [text] if width is None else wrapped(text, width, indent=4):
            yield Line(line, markup)


def summary_lines(
    results: Sequence[CaseResult],
    ignored_logs: Sequence[IgnoredLog],
    *,
    width: int,
    verbosity: int = 0,
    strict: bool = False,
) -> Iterator[Line]:
    """Yield the table of the measured cases, their scaling, what others lack, the logs left out.

    ``verbosity`` -1 has the cases that are not good, in a line each; 0 every measured case, with
    the runs of those that are not good; 1 everything; -2 nothing. Where all were skipped, -1 tells
    why. In a ``strict`` session a skipped case is as bad as one that failed.
    """
    judged = [result for result in results if result.judgements or result.measurement]
    skipped = [result for result in judged if _only_skipped(result)]
    is_in_table = strict or verbosity > 0
    shown = worst_first(r for r in judged if is_in_table or not _only_skipped(r))
    if verbosity < 0:
        shown = [r for r in shown if not status_of(r).is_good] if verbosity == -1 else []
    if shown:
        references = _references(results) if verbosity >= 0 else []
        yield from _table(shown, references, width=width, verbosity=verbosity, strict=strict)
    if verbosity >= 0:
        yield from map(Line, speedup_lines(results, width=width))
        with_all = verbosity > 0 or len(skipped) == len(results)
        yield from _skipped(skipped, width=width, with_all=with_all)
        yield from _ignored(ignored_logs)
    elif verbosity == -1 and not strict and len(skipped) == len(results):
        yield from _skipped(skipped, width=width, with_all=False)


def _only_skipped(result: CaseResult) -> bool:
    verdicts = {judgement.verdict for judgement in result.judgements.values()}
    return result.measurement is None and verdicts == {Verdict.SKIPPED}


def _references(results: Sequence[CaseResult]) -> list[CaseResult]:
    """Return single devices that speedups were taken over without having been selected."""
    selected = {result.case.id for result in results}
    found = {
        result.case.single_device.id: CaseResult(
            case=result.case.single_device, measurement=result.single_device
        )
        for result in results
        if result.single_device is not None and result.case.single_device.id not in selected
    }
    return worst_first(found.values())


def _table(
    results: Sequence[CaseResult],
    references: Sequence[CaseResult],
    *,
    width: int,
    verbosity: int,
    strict: bool,
) -> Iterator[Line]:
    rows = [
        *((result, row_of(result)) for result in results),
        *((result, row_of(result, is_reference=True)) for result in references),
    ]
    table = CaseTable([row for _, row in rows], width=width)
    for text in table.head:
        yield Line(text, ("bold",))
    for number, ((result, row), texts) in enumerate(zip(rows, table.rows, strict=True)):
        is_reference = number >= len(results)
        is_good = is_reference or status_of(result).is_good
        markup = () if is_reference else (_colour(status_of(result), strict=strict),)
        for text in texts:
            yield Line(text, markup)
        if verbosity < 0:
            continue
        with_runs = verbosity > 0 or not is_good or _has_broken(result)
        if with_runs:
            told = table.missing(row, with_all=verbosity > 0)
            yield from map(Line, listed("   ", told, width, separator=","))
        for text in _details(result, width, with_runs=with_runs):
            yield from map(Line, wrapped(text, width, indent=6))
    if table.legend and verbosity >= 0:
        yield Line(table.legend, ("light",))


def _has_broken(result: CaseResult) -> bool:
    return result.measurement is not None and bool(result.measurement.broken_runs)


def _colour(status: CaseStatus, *, strict: bool) -> str:
    if status.fails(strict=strict):
        return "red"
    return "green" if status.is_good else "yellow"


def _details(result: CaseResult, width: int, *, with_runs: bool) -> Iterator[str]:
    """Yield the single runs, and what is worth knowing of them."""
    if result.measurement is not None:
        if with_runs:
            yield from _runs(result.measurement.unit, result, width)
        for run in result.measurement.runs:
            for number, attempt in enumerate(run.failed_attempts, start=1):
                reason = f": {numbers.in_short(attempt.reason)}" if attempt.reason else ""
                yield f"    run {run.run}, attempt {number}: {attempt.status.value}{reason}"
            if run.reason:
                yield f"    run {run.run}: {numbers.in_short(run.reason)}"
        read, available = len(result.measurement.runs), result.measurement.available_runs
        if available is not None and read < available:
            yield f"    {read} of {available} logs were read: they decide"
    for judgement in result.judgements.values():
        if with_runs:
            yield from _rule(judgement)
        # Of a speedup that passes, the rows of both ends tell enough.
        ends = () if judgement.verdict is Verdict.PASS else judgement.ends
        # What fails says its reason above, in full; what passes in spite of one says it here.
        is_told = judgement.verdict is not Verdict.ENVIRONMENT_SHIFT or judgement.reason is None
        shifted = () if is_told else (judgement.reason or "",)
        for note in (*shifted, *ends, *judgement.notes):
            yield f"    {judgement.quantity.value}: {numbers.in_short(note)}"


def _rule(judgement: Judgement) -> Iterator[str]:
    """Yield the rule's own number where the table shows another, and the accepted one."""
    written = writer(judgement.quantity)
    number = accepted(judgement)
    told = [view] if (view := rule_view(judgement)) else []
    told += [f"accepted {written(number)}"] if number is not None else []
    if told:
        yield f"    {judgement.quantity.value}: {'; '.join(told)}"


def _runs(unit: str, result: CaseResult, width: int) -> Iterator[str]:
    pieces = []
    for run in result.measurement.runs if result.measurement else ():
        ok = run.status is RunStatus.OK
        found = numbers.throughput(run.throughput) if ok else run.status.value
        pieces.append(f" {run.run}: {found}")
    yield from listed(f"    {unit}", pieces, width)


def _skipped(skipped: Sequence[CaseResult], *, width: int, with_all: bool) -> Iterator[Line]:
    """Say why cases were skipped; a reason that differs by the case alone stands once."""
    told = _by_reason(skipped)
    for members in told if with_all else told[:REASONS_SHOWN]:
        case_id, reason = next(iter(members.items()))
        others = len(members) - 1
        if case_id in reason:
            text = f"skipped: {reason}" + (f" ({others} more like it)" if others else "")
        else:
            text = f"skipped: {case_id}{f' and {others} more' if others else ''}: {reason}"
        for line in _in_pieces(text, width):
            yield Line(line, ("yellow",))
    if not with_all and len(told) > REASONS_SHOWN:
        yield Line(f"  … and {len(told) - REASONS_SHOWN} more reasons; -rs shows all", ("yellow",))


def _by_reason(skipped: Iterable[CaseResult]) -> list[dict[str, str]]:
    """Group reasons that differ by the case alone; the most cases first."""
    found: dict[str, dict[str, str]] = {}
    for result in skipped:
        for judgement in result.judgements.values():
            reason = numbers.in_short(judgement.reason or "no reason was given")
            members = found.setdefault(alike(reason, result.case), {})
            members.setdefault(result.case.id, reason)
    return sorted(found.values(), key=len, reverse=True)


def _in_pieces(text: str, width: int) -> Iterator[str]:
    """Break a reason into lines; where one has no room, each thing that it lists begins one."""
    if numbers.columns(text) <= width:
        yield text
        return
    pieces: list[str] = []
    for piece in text.split("; "):
        # What stands in brackets belongs together.
        if pieces and pieces[-1].count("(") > pieces[-1].count(")"):
            pieces[-1] += f"; {piece}"
        else:
            pieces.append(piece)
    for number, piece in enumerate(pieces):
        ended = f"{piece};" if number < len(pieces) - 1 else piece
        yield from wrapped(f"{' ' * 4 if number else ''}{ended}", width, indent=6)


def _ignored(ignored_logs: Sequence[IgnoredLog]) -> Iterator[Line]:
    if not ignored_logs:
        return
    were = "was" if len(ignored_logs) == 1 else "were"
    yield Line(f"{numbers.counted(len(ignored_logs), 'log')} {were} left out:", ("yellow",))
    for item in ignored_logs[:IGNORED_SHOWN]:
        yield Line(f"  {numbers.printable(item.log)}: {item.reason}")
    more = len(ignored_logs) - IGNORED_SHOWN
    if more > 0:
        yield Line(f"  … and {more} more; --dlperf-json FILE has all of them")


def counts_line(
    results: Sequence[CaseResult],
    notes: Iterable[Note] = (),
    *,
    strict: bool = False,
    interrupted: bool = False,
) -> Line:
    """Count the cases per status, the worst first, and name what else makes the session fail.

    An ``interrupted`` session is never green: nobody knows what it would have found.
    """
    found = counts(results)
    told = ", ".join(_counted(status, count, strict=strict) for status, count in found.items())
    faults = [note.text.partition(":")[0] for note in notes if note.is_bad]
    colours = {_colour(status, strict=strict) for status in found}
    if faults:
        colours.add("red")
    worst = next(colour for colour in ("red", "yellow", "green") if colour in colours)
    if interrupted and worst == "green":
        worst = "yellow"
    begin = "interrupted: " if interrupted else ""
    so_far = " so far" if interrupted else ""
    failed = f"; failed: {numbers.printable(numbers.named(faults, 1))}" if faults else ""
    cases = numbers.counted(len(results), "case")
    return Line(f"{begin}{cases}: {told}{so_far}{failed}", ("bold", worst))


def _counted(status: CaseStatus, count: int, *, strict: bool) -> str:
    fails_by_option = status.fails(strict=strict) and not status.is_alarm
    return f"{count} {status.value}{' (failed: strict)' if fails_by_option else ''}"
